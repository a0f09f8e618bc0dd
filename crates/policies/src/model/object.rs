//! An object with the stamps of its revisions, and what becomes of it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::draft::version_text;
use super::id::{ObjectId, ObjectKind};
use crate::time::UnixTime;

/// A version of an object: what stands from revision `since` until the next change.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Object {
    pub id: ObjectId,
    /// A JSON object, shared by objects that are alike.
    pub body: Arc<Json>,
    /// The revision that made the object.
    pub created: u64,
    pub created_by: Arc<str>,
    pub created_at: UnixTime,
    pub changed_by: Arc<str>,
    pub changed_at: UnixTime,
    /// The revision that made this version.
    pub since: u64,
}

/// The change of one object between two revisions.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ObjectChange {
    pub id: ObjectId,
    /// `None`: it was not there.
    pub before: Option<Arc<Object>>,
    /// `None`: it is not there any more.
    pub after: Option<Arc<Object>>,
}

impl Object {
    /// Names this version, in whichever history. Its ETag, without the quotes.
    pub fn version(&self) -> String {
        version_text(self.since, self.changed_at)
    }

    /// Of an API key: the hash of the key, spelt as all of them are compared.
    pub fn key_hash(&self) -> Option<String> {
        let hash = self.body.get("key_sha256").filter(|_| self.id.kind() == ObjectKind::ApiKey)?;
        hash.as_str().map(str::to_ascii_lowercase)
    }
}

impl ObjectChange {
    /// Whether both sides say the same, whoever wrote it and when.
    pub fn is_alike(&self) -> bool {
        match (&self.before, &self.after) {
            (Some(before), Some(after)) => before.body == after.body,
            (None, None) => true,
            _ => false,
        }
    }
}
