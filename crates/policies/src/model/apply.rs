//! A draft applied to a state: the next state, or the reason why there is none.

use std::fmt::{self, Display};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::draft::{Draft, DraftProblem, Expected, ObjectEdit};
use super::id::ObjectId;
use super::object::{Object, ObjectChange};
use super::revision::Position;
use super::shared::SharedParts;
use super::state::PolicyState;
use crate::time::UnixTime;

/// The result of applying a draft to a state.
#[derive(Clone, PartialEq, Debug)]
pub struct Preview {
    /// The state that the draft makes. Changed objects have the next revision's number.
    pub state: PolicyState,
    /// The objects that differ. Edits that change nothing are left out.
    pub changes: Vec<ObjectChange>,
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DraftError {
    #[error(transparent)]
    Problem(#[from] DraftProblem),
    #[error("{}", list(.0))]
    Conflict(Vec<Conflict>),
}

/// An object is not what the editor saw.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Conflict {
    pub id: ObjectId,
    pub expected: Expected,
    /// The `since` of the object. `None`: the object is not there.
    pub found: Option<u64>,
    /// Unknown for an object that never was.
    pub last: Option<LastChange>,
}

/// The last change of an object, or its removal: who made it, and when.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LastChange {
    pub revision: u64,
    pub by: Arc<str>,
    pub at: UnixTime,
}

/// The position, author and time of a revision that is made.
pub struct NextRevision<'a> {
    pub position: Position,
    pub author: &'a str,
    pub at: UnixTime,
}

impl PolicyState {
    /// This state with the draft applied to it, for a look before a commit. Times of changed
    /// objects are not known yet.
    pub fn preview(&self, draft: &Draft) -> Result<Preview, DraftError> {
        draft.check()?;
        let position = Position {
            revision: self.revision() + 1,
            token: 0,
        };
        self.applied(
            &draft.edits,
            &NextRevision {
                position,
                author: &draft.author,
                at: UnixTime::default(),
            },
        )
    }

    /// Like [`preview`](Self::preview), for edits whose draft was checked.
    pub fn applied(
        &self,
        edits: &[ObjectEdit],
        next: &NextRevision<'_>,
    ) -> Result<Preview, DraftError> {
        let mut conflicts = Vec::new();
        for edit in edits {
            conflicts.extend(self.conflict(edit));
        }
        if !conflicts.is_empty() {
            return Err(DraftError::Conflict(conflicts));
        }
        let mut shared = SharedParts::default();
        let mut changes = Vec::new();
        for edit in edits {
            let change = self.change(edit, next, &mut shared)?;
            if !change.is_alike() {
                changes.push(change);
            }
        }
        if changes.is_empty() {
            return Err(DraftProblem::NoChange.into());
        }
        Ok(Preview {
            state: self.advanced(&changes, next.position),
            changes,
        })
    }

    fn conflict(&self, edit: &ObjectEdit) -> Option<Conflict> {
        let found = self.get(&edit.id);
        let is_as_seen = match (edit.expected, found) {
            (Expected::Any, _) => true,
            (Expected::Absent, found) => found.is_none(),
            (Expected::Revision(_) | Expected::Version(..), None) => false,
            (Expected::Revision(since), Some(object)) => object.since == since,
            (Expected::Version(since, at), Some(object)) => {
                object.since == since && object.changed_at == at
            }
        };
        if is_as_seen {
            return None;
        }
        let mut conflict = Conflict {
            id: edit.id.clone(),
            expected: edit.expected,
            found: None,
            last: None,
        };
        if let Some(object) = found {
            conflict.found = Some(object.since);
            conflict.last = Some(LastChange {
                revision: object.since,
                by: Arc::clone(&object.changed_by),
                at: object.changed_at,
            });
        }
        Some(conflict)
    }

    fn change(
        &self,
        edit: &ObjectEdit,
        next: &NextRevision<'_>,
        shared: &mut SharedParts,
    ) -> Result<ObjectChange, DraftProblem> {
        let mut change = ObjectChange {
            id: edit.id.clone(),
            before: self.get(&edit.id).cloned(),
            after: None,
        };
        let Some(body) = &edit.body else {
            return Ok(change);
        };
        // The text is read again, so that the body is what a reader of the database gets.
        let body = shared
            .body(&body.to_string())
            .map_err(|_| DraftProblem::NoObject(edit.id.clone()))?;
        let author = shared.text(next.author);
        let mut object = Object {
            id: edit.id.clone(),
            body,
            created: next.position.revision,
            created_by: Arc::clone(&author),
            created_at: next.at,
            changed_by: author,
            changed_at: next.at,
            since: next.position.revision,
        };
        if let Some(before) = &change.before {
            object.created = before.created;
            object.created_by = Arc::clone(&before.created_by);
            object.created_at = before.created_at;
        }
        change.after = Some(Arc::new(object));
        Ok(change)
    }
}

impl Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            id,
            expected,
            found,
            last,
        } = self;
        match (found, last) {
            (_, None) => return write!(f, "{id} is not there, and never was"),
            (Some(_), Some(last)) if *expected == Expected::Absent => {
                write!(f, "{id} is there already: {last} made it")?
            }
            (Some(_), Some(last)) => write!(f, "{id} was changed by {last}")?,
            (None, Some(last)) => write!(f, "{id} was taken away by {last}")?,
        }
        match expected {
            Expected::Revision(seen) => write!(
                f,
                ", and the draft was made on its version of revision {seen}"
            ),
            Expected::Version(seen, at) => {
                write!(
                    f,
                    ", and the draft was made on its version of revision {seen} of {at}"
                )
            }
            Expected::Absent | Expected::Any => Ok(()),
        }
    }
}

impl Display for LastChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} in revision {} at {}",
            self.by, self.revision, self.at
        )
    }
}

/// The conflicts in one message; of many, the first.
pub fn list(conflicts: &[Conflict]) -> String {
    const SHOWN: usize = 5;
    let mut lines: Vec<_> = conflicts
        .iter()
        .take(SHOWN)
        .map(ToString::to_string)
        .collect();
    if conflicts.len() > SHOWN {
        lines.push(format!("and {} more", conflicts.len() - SHOWN));
    }
    lines.join("; ")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::*;
    use crate::model::ObjectKind;

    fn edit(name: &str, expected: Expected, body: Option<Json>) -> ObjectEdit {
        ObjectEdit {
            id: ObjectId::new(ObjectKind::Plan, "shop", name).unwrap(),
            expected,
            body,
        }
    }

    fn draft(edits: Vec<ObjectEdit>) -> Draft {
        Draft {
            edits,
            author: "ada".into(),
            reason: "a test".into(),
        }
    }

    fn conflicts(state: &PolicyState, edits: Vec<ObjectEdit>) -> String {
        match state.preview(&draft(edits)) {
            Err(DraftError::Conflict(conflicts)) => list(&conflicts),
            other => panic!("no conflict: {other:?}"),
        }
    }

    #[test]
    fn edits_change_a_copy_of_the_state() {
        let empty = PolicyState::empty();
        let gold = edit("gold", Expected::Absent, Some(json!({ "a": 1 })));
        let first = empty
            .preview(&draft(vec![
                gold,
                edit("red", Expected::Any, Some(json!({}))),
            ]))
            .unwrap();
        assert_eq!(
            (empty.len(), first.state.len(), first.state.revision()),
            (0, 2, 1)
        );
        let change = edit("gold", Expected::Revision(1), Some(json!({ "a": 2 })));
        let second = first
            .state
            .preview(&draft(vec![
                change,
                edit("red", Expected::Any, Some(json!({}))),
            ]))
            .unwrap();
        assert_eq!(
            second.changes.len(),
            1,
            "what is as it was is no change: {second:?}"
        );
        let gold = second.state.get(&second.changes[0].id).unwrap();
        assert_eq!((gold.since, gold.body.as_ref()), (2, &json!({ "a": 2 })));
        let third = second
            .state
            .preview(&draft(vec![edit("gold", Expected::Revision(2), None)]))
            .unwrap();
        assert_eq!(third.state.len(), 1);
        assert_eq!(first.state.differences(&third.state).len(), 1);
        assert!(second.state.differences(&second.state).is_empty());
    }

    #[test]
    fn a_draft_that_changes_nothing_is_refused() {
        let state = PolicyState::empty()
            .preview(&draft(vec![edit("gold", Expected::Any, Some(json!({})))]))
            .unwrap()
            .state;
        for nothing in [
            edit("gold", Expected::Revision(1), Some(json!({}))),
            edit("red", Expected::Absent, None),
        ] {
            assert_eq!(
                state.preview(&draft(vec![nothing])),
                Err(DraftError::Problem(DraftProblem::NoChange))
            );
        }
    }

    #[test]
    fn an_object_that_is_not_as_it_was_seen_is_a_conflict() {
        let made = PolicyState::empty()
            .preview(&draft(vec![edit("gold", Expected::Any, Some(json!({})))]))
            .unwrap()
            .state;
        let body = Some(json!({ "a": 1 }));
        let state = made
            .preview(&draft(vec![edit("gold", Expected::Any, body.clone())]))
            .unwrap()
            .state;
        let seen = conflicts(
            &state,
            vec![edit("gold", Expected::Revision(1), body.clone())],
        );
        assert_eq!(
            seen,
            "plan shop/gold was changed by ada in revision 2 at 1970-01-01T00:00:00.000Z, \
             and the draft was made on its version of revision 1"
        );
        let again = conflicts(&state, vec![edit("gold", Expected::Absent, body.clone())]);
        assert!(
            again.starts_with("plan shop/gold is there already: ada in revision 2"),
            "{again}"
        );
        let never = conflicts(
            &state,
            vec![edit("red", Expected::Revision(2), body.clone())],
        );
        assert_eq!(never, "plan shop/red is not there, and never was");
        let many = (0..7)
            .map(|n| edit(&format!("p{n}"), Expected::Revision(1), body.clone()))
            .collect();
        assert!(conflicts(&state, many).ends_with("; and 2 more"));
    }

    #[test]
    fn a_state_is_written_whole_and_read_again() {
        let edits = ["gold", "red"].map(|name| {
            edit(
                name,
                Expected::Any,
                Some(json!({ "a": { "b": [1, 2.5, "ä"] } })),
            )
        });
        let state = PolicyState::empty()
            .preview(&draft(edits.to_vec()))
            .unwrap()
            .state;
        let text = serde_json::to_string(&state).unwrap();
        let read: PolicyState = serde_json::from_str(&text).unwrap();
        assert_eq!(read, state);
        let bodies: Vec<_> = read.iter().map(|object| &object.body).collect();
        assert!(
            Arc::ptr_eq(bodies[0], bodies[1]),
            "bodies that are alike are shared"
        );
        assert!(
            serde_json::from_str::<PolicyState>(&text.replace("\"red\"", "\"gold\"")).is_err(),
            "one stands twice"
        );
        assert!(
            serde_json::from_str::<PolicyState>(
                &text.replace("{\"a\":{\"b\":[1,2.5,\"ä\"]}}", "[]")
            )
            .is_err()
        );
    }
}
