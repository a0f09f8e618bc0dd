//! API keys that were taken away, which stay away. A commit takes none of them again; an undo does
//! not try to.

use std::collections::HashSet;
use std::sync::Arc;

use tollgate_policies::model::{Object, ObjectChange, ObjectEdit, ObjectKind, key_hash};

/// The changes of a revision without those whose undo would bring a key back, or take away one that
/// only has another name since. Such a key stays as it is now.
pub fn undoable(changes: Vec<ObjectChange>) -> Vec<ObjectChange> {
    let hash = |change: &ObjectChange, object: &Option<Arc<Object>>| {
        let hash = object.as_ref().and_then(|object| object.key_hash())?;
        Some((change.id.belongs_to().to_owned(), hash))
    };
    let (undoable, kept): (Vec<_>, Vec<_>) = changes.into_iter().partition(may_be_undone);
    let renamed: HashSet<_> = kept
        .iter()
        .filter_map(|change| hash(change, &change.before))
        .collect();
    let is_renamed = |change: &ObjectChange| {
        hash(change, &change.after).is_some_and(|hash| renamed.contains(&hash))
    };
    let is_key = |change: &ObjectChange| change.id.kind() == ObjectKind::ApiKey;
    undoable
        .into_iter()
        .filter(|change| !is_key(change) || !is_renamed(change))
        .collect()
}

/// Whether taking `change` back brings no key back.
fn may_be_undone(change: &ObjectChange) -> bool {
    let key = |object: &Option<Arc<Object>>| object.as_ref().and_then(|object| object.key_hash());
    change.id.kind() != ObjectKind::ApiKey
        || change.before.is_none()
        || key(&change.before) == key(&change.after)
}

/// Spells the hashes of keys as all of them are compared, and shown.
pub fn spell_hashes(edits: &mut [ObjectEdit]) {
    let edited = edits
        .iter_mut()
        .filter(|edit| edit.id.kind() == ObjectKind::ApiKey);
    for body in edited.filter_map(|edit| edit.body.as_mut()) {
        if let Some(hash) = key_hash(body) {
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

    #[test]
    fn an_undo_leaves_a_renamed_key_as_it_is() {
        let (one, two) = (&*"1".repeat(64), &*"2".repeat(64));
        let undone = |changes: &[ObjectChange]| {
            let left = undoable(changes.to_vec())
                .into_iter()
                .map(|change| change.id.name().to_owned());
            left.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            undone(&[change("k1", Some(one), None), change("k2", None, Some(one))]),
            ""
        );
        // It has moved, and another is in its place.
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
