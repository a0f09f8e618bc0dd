//! Policies as JSON: objects with who made them, changes, revisions.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use tollgate_policies::model::{Object, ObjectChange, Revision};

use crate::views::comparison::{ComparedLine, compare};

/// An object, who made it and who changed it last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct PolicyObjectView {
    /// `application`, `resource`, `strategy`, `plan`, `assignment` or `api_key`.
    pub kind: String,
    pub application: String,
    pub name: String,
    /// In the words of the file.
    #[schema(value_type = Object)]
    pub body: Json,
    pub created: StampView,
    /// The ETag begins with its revision.
    pub changed: StampView,
}

/// A revision that made or changed something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct StampView {
    pub revision: u64,
    pub by: String,
    /// RFC 3339.
    pub at: String,
}

/// The change of an object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct PolicyChangeView {
    pub kind: String,
    pub application: String,
    pub name: String,
    /// The body before; none: the object was not there.
    #[schema(value_type = Option<Object>)]
    pub before: Option<Json>,
    /// The body after; none: the object is gone.
    #[schema(value_type = Option<Object>)]
    pub after: Option<Json>,
    /// The differences, for people.
    pub lines: Vec<ComparedLine>,
}

/// A numbered set of changes that is never changed again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RevisionView {
    pub revision: u64,
    pub author: String,
    /// RFC 3339.
    pub at: String,
    pub reason: String,
    /// How many objects it changed.
    pub edits: u64,
}

/// A page of revisions, newest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RevisionsView {
    pub revisions: Vec<RevisionView>,
    /// For the next page: `before` of the query. None: that was all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<u64>,
}

/// A revision and its changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RevisionChangesView {
    /// None: nothing was changed, as was asked by `dry_run`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<RevisionView>,
    pub changes: Vec<PolicyChangeView>,
}

/// The change of one object in a revision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ObjectHistoryView {
    pub revision: RevisionView,
    pub change: PolicyChangeView,
}

impl PolicyObjectView {
    pub fn new(object: &Object) -> Self {
        let Object {
            id,
            body,
            created,
            created_by,
            created_at,
            changed_by,
            changed_at,
            since,
        } = object;
        Self {
            kind: id.kind().word().to_owned(),
            application: id.belongs_to().to_owned(),
            name: id.name().to_owned(),
            body: body.as_ref().clone(),
            created: StampView {
                revision: *created,
                by: created_by.to_string(),
                at: created_at.to_string(),
            },
            changed: StampView {
                revision: *since,
                by: changed_by.to_string(),
                at: changed_at.to_string(),
            },
        }
    }
}

impl PolicyChangeView {
    pub fn new(change: &ObjectChange) -> Self {
        let before = body_of(change.before.as_deref());
        let after = body_of(change.after.as_deref());
        Self {
            kind: change.id.kind().word().to_owned(),
            application: change.id.belongs_to().to_owned(),
            name: change.id.name().to_owned(),
            lines: compare(before.as_ref(), after.as_ref()),
            before,
            after,
        }
    }
}

fn body_of(object: Option<&Object>) -> Option<Json> {
    object.map(|object| object.body.as_ref().clone())
}

impl From<Revision> for RevisionView {
    fn from(revision: Revision) -> Self {
        let Revision {
            number,
            author,
            at,
            reason,
            edits,
        } = revision;
        Self {
            revision: number,
            author,
            at: at.to_string(),
            reason,
            edits,
        }
    }
}
