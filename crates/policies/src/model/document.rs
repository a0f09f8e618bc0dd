//! The whole state as a document for people: sorted, without stamps, to be kept beside code or moved to another database.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};

use serde::Deserialize;
use serde_json::{Map, Value as Json, json};

use super::draft::{Expected, ObjectEdit};
use super::id::{NameProblem, ObjectId, ObjectKind};
use super::state::PolicyState;

const FORMAT: &str = "tollgate-policies/1";

/// All objects and their bodies. Two of the same state are the same text.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PolicyDocument {
    revision: u64,
    bodies: BTreeMap<ObjectId, Json>,
}

/// What becomes of objects that the document does not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ImportMode {
    /// They stay.
    Merge,
    /// They go.
    Replace,
}

/// Why a text is no such document.
#[derive(Debug, thiserror::Error)]
pub enum DocumentProblem {
    #[error("the document is no JSON of the expected shape: {0}")]
    Shape(#[from] serde_json::Error),
    #[error("the document's format is {0:?}, and {FORMAT:?} is what this version reads")]
    Format(String),
    #[error("the application {application} of the document: {problem}")]
    Name { application: String, problem: NameProblem },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenDocument {
    format: String,
    #[serde(default)]
    revision: u64,
    applications: BTreeMap<String, WrittenApplication>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct WrittenApplication {
    application: Option<Json>,
    resources: BTreeMap<String, Json>,
    strategies: BTreeMap<String, Json>,
    plans: BTreeMap<String, Json>,
    assignments: BTreeMap<String, Json>,
    api_keys: BTreeMap<String, Json>,
}

impl PolicyDocument {
    pub fn of(state: &PolicyState) -> Self {
        let bodies = state.iter().map(|object| (object.id.clone(), object.body.as_ref().clone()));
        Self { revision: state.revision(), bodies: bodies.collect() }
    }

    /// Reads what its `Display` writes. The number of the revision is a note for people: it decides nothing.
    pub fn parse(text: &str) -> Result<Self, DocumentProblem> {
        let written: WrittenDocument = serde_json::from_str(text)?;
        if written.format != FORMAT {
            return Err(DocumentProblem::Format(written.format));
        }
        let mut bodies = BTreeMap::new();
        for (application, content) in written.applications {
            content
                .read(&application, &mut bodies)
                .map_err(|problem| DocumentProblem::Name { application, problem })?;
        }
        Ok(Self { revision: written.revision, bodies })
    }

    pub fn to_json(&self) -> Json {
        let mut applications: BTreeMap<&str, Map<String, Json>> = BTreeMap::new();
        for (id, body) in &self.bodies {
            let application = applications.entry(id.belongs_to()).or_default();
            if id.kind() == ObjectKind::Application {
                application.insert("application".into(), sorted(body));
                continue;
            }
            let of_kind = application.entry(id.kind().plural()).or_insert_with(|| json!({}));
            if let Some(of_kind) = of_kind.as_object_mut() {
                of_kind.insert(id.name().into(), sorted(body));
            }
        }
        json!({ "format": FORMAT, "revision": self.revision, "applications": applications })
    }

    /// The edits that make `base` say what the document says. Each expects what `base` has.
    pub fn edits(&self, base: &PolicyState, mode: ImportMode) -> Vec<ObjectEdit> {
        let there: BTreeSet<_> = base.iter().map(|object| &object.id).collect();
        let gone = there.into_iter().filter(|id| mode == ImportMode::Replace && !self.bodies.contains_key(*id));
        let gone = gone.map(|id| (id, None));
        let written = self.bodies.iter().map(|(id, body)| (id, Some(body)));
        let differs = |(id, body): &(&ObjectId, Option<&Json>)| base.get(id).map(|old| old.body.as_ref()) != *body;
        let edits = gone.chain(written).filter(differs).map(|(id, body)| ObjectEdit {
            id: id.clone(),
            expected: base.get(id).map_or(Expected::Absent, |old| Expected::Revision(old.since)),
            body: body.cloned(),
        });
        edits.collect()
    }
}

impl WrittenApplication {
    fn read(self, application: &str, bodies: &mut BTreeMap<ObjectId, Json>) -> Result<(), NameProblem> {
        if let Some(body) = self.application {
            bodies.insert(ObjectId::of_application(application)?, body);
        }
        let kinds = [
            (ObjectKind::Resource, self.resources),
            (ObjectKind::Strategy, self.strategies),
            (ObjectKind::Plan, self.plans),
            (ObjectKind::Assignment, self.assignments),
            (ObjectKind::ApiKey, self.api_keys),
        ];
        for (kind, objects) in kinds {
            for (name, body) in objects {
                bodies.insert(ObjectId::new(kind, application, &name)?, body);
            }
        }
        Ok(())
    }
}

impl Display for PolicyDocument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:#}", sorted(&self.to_json()))
    }
}

/// With the members of objects in order, also where the JSON library keeps them as they were written.
fn sorted(json: &Json) -> Json {
    match json {
        Json::Array(items) => items.iter().map(sorted).collect(),
        Json::Object(members) => {
            let members: BTreeMap<_, _> = members.iter().collect();
            Json::Object(members.into_iter().map(|(name, inner)| (name.clone(), sorted(inner))).collect())
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Draft;

    fn state(objects: &[(ObjectKind, &str, &str, Json)]) -> PolicyState {
        let edits = objects.iter().map(|(kind, application, name, body)| ObjectEdit {
            id: ObjectId::new(*kind, application, name).unwrap(),
            expected: Expected::Absent,
            body: Some(body.clone()),
        });
        let draft = Draft { edits: edits.collect(), author: "ada".into(), reason: "a test".into() };
        PolicyState::empty().preview(&draft).unwrap().state
    }

    fn shop() -> PolicyState {
        state(&[
            (ObjectKind::Application, "", "shop", json!({ "description": "sells" })),
            (ObjectKind::Strategy, "shop", "per-client", json!({ "limit": { "rate": "1/s", "burst": 2 } })),
            (ObjectKind::Assignment, "shop", "ada@example.com", json!({ "plan": "gold" })),
            (ObjectKind::Plan, "bank", "gold", json!({})),
        ])
    }

    #[test]
    fn a_document_is_sorted_text_that_reads_back() {
        let document = PolicyDocument::of(&shop());
        let text = document.to_string();
        assert_eq!(
            text,
            r#"{
  "applications": {
    "bank": {
      "plans": {
        "gold": {}
      }
    },
    "shop": {
      "application": {
        "description": "sells"
      },
      "assignments": {
        "ada@example.com": {
          "plan": "gold"
        }
      },
      "strategies": {
        "per-client": {
          "limit": {
            "burst": 2,
            "rate": "1/s"
          }
        }
      }
    }
  },
  "format": "tollgate-policies/1",
  "revision": 1
}
"#
        );
        assert_eq!(PolicyDocument::parse(&text).unwrap(), document);
        assert!(document.edits(&shop(), ImportMode::Replace).is_empty());
    }

    #[test]
    fn an_import_keeps_or_removes_what_the_document_does_not_have() {
        let document = PolicyDocument::of(&state(&[
            (ObjectKind::Plan, "bank", "gold", json!({ "limits": {} })),
            (ObjectKind::Plan, "bank", "red", json!({})),
        ]));
        let base = shop();
        for (mode, edits, left) in [(ImportMode::Merge, 2, 5), (ImportMode::Replace, 5, 2)] {
            let made = document.edits(&base, mode);
            assert_eq!(made.len(), edits, "{mode:?}: {made:?}");
            let draft = Draft { edits: made, author: "ada".into(), reason: "a test".into() };
            let after = base.preview(&draft).unwrap().state;
            assert_eq!(after.len(), left, "{mode:?}");
            assert!(document.edits(&after, mode).is_empty());
        }
    }

    #[test]
    fn a_document_of_another_shape_is_refused() {
        let refused = |text: &str| PolicyDocument::parse(text).unwrap_err().to_string();
        let newer = refused(r#"{"format": "tollgate-policies/2", "applications": {}}"#);
        assert_eq!(
            newer,
            "the document's format is \"tollgate-policies/2\", and \"tollgate-policies/1\" is what this version reads"
        );
        let name = refused(r#"{"format": "tollgate-policies/1", "applications": {"shop": {"plans": {"a b": {}}}}}"#);
        assert!(name.starts_with("the application shop of the document: \"a b\" is not a name"), "{name}");
        let unknown = refused(r#"{"format": "tollgate-policies/1", "applications": {"shop": {"planes": {}}}}"#);
        assert!(unknown.contains("unknown field `planes`"), "{unknown}");
    }
}
