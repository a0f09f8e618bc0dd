//! API keys that were taken away, which stay away. A commit takes none of them again; an undo does
//! not try to.

use std::collections::HashSet;
use std::sync::Arc;

use tollgate_policies::model::{Object, ObjectChange, ObjectEdit, ObjectKind, key_hash};

/// The changes of a revision without the changes whose undo would bring a key back, or take away a
/// key that only has another name since. Such a key stays as it is now.
pub fn undoable(changes: Vec<ObjectChange>) -> Vec<ObjectChange> {
    let mut undoable = Vec::new();
    let mut renamed = HashSet::new();
    for change in changes {
        if may_be_undone(&change) {
            undoable.push(change);
        } else if let Some(hash) = hash_of(&change.before) {
            renamed.insert((change.id.belongs_to().to_owned(), hash));
        }
    }
    undoable.retain(|change| match hash_of(&change.after) {
        Some(hash) => !renamed.contains(&(change.id.belongs_to().to_owned(), hash)),
        None => true,
    });
    undoable
}

/// Whether taking `change` back brings no key back.
fn may_be_undone(change: &ObjectChange) -> bool {
    change.id.kind() != ObjectKind::ApiKey
        || change.before.is_none()
        || hash_of(&change.before) == hash_of(&change.after)
}

/// The hash of an API key. `None`: there is no object, or it is no API key.
fn hash_of(object: &Option<Arc<Object>>) -> Option<String> {
    object.as_ref()?.key_hash()
}

/// Spells the hashes of keys as all of them are compared, and shown.
pub fn spell_hashes(edits: &mut [ObjectEdit]) {
    for edit in edits {
        if edit.id.kind() == ObjectKind::ApiKey
            && let Some(body) = &mut edit.body
            && let Some(hash) = key_hash(body)
        {
            body["key_sha256"] = hash.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tollgate_policies::model::ObjectId;
    use tollgate_policies::time::UnixTime;

    use super::*;

    fn key(name: &str, hash: &str) -> Object {
        Object {
            id: ObjectId::new(ObjectKind::ApiKey, "shop", name).unwrap(),
            body: Arc::new(json!({ "key_sha256": hash })),
            created: 1,
            created_by: "ada".into(),
            created_at: UnixTime::from_millis(0),
            changed_by: "ada".into(),
            changed_at: UnixTime::from_millis(0),
            since: 1,
        }
    }

    /// The change of the key called `name` in a revision.
    fn change(name: &str, before: Option<&str>, after: Option<&str>) -> ObjectChange {
        let [before, after] =
            [before, after].map(|hash| hash.map(|hash| Arc::new(key(name, hash))));
        ObjectChange {
            id: ObjectId::new(ObjectKind::ApiKey, "shop", name).unwrap(),
            before,
            after,
        }
    }

    /// The names of the keys whose changes are undone.
    fn undone(changes: &[ObjectChange]) -> String {
        let undoable = undoable(changes.to_vec());
        let names: Vec<_> = undoable.iter().map(|change| change.id.name()).collect();
        names.join(" ")
    }

    #[test]
    fn an_undo_leaves_a_renamed_key_as_it_is() {
        let one = &*"1".repeat(64);
        let two = &*"2".repeat(64);
        assert_eq!(
            undone(&[change("k1", Some(one), None), change("k2", None, Some(one))]),
            ""
        );
        // A key has moved, and another is in its place.
        assert_eq!(
            undone(&[
                change("k1", Some(one), Some(two)),
                change("k2", None, Some(one))
            ]),
            ""
        );
        // A key was taken away, and another made.
        assert_eq!(
            undone(&[change("k1", Some(one), None), change("k2", None, Some(two))]),
            "k2"
        );
        assert_eq!(undone(&[change("k1", Some(one), Some(one))]), "k1");
    }
}
