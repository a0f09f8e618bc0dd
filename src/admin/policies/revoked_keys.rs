//! API keys that were taken away, which stay away: a document of before still has them, and so has a revision that somebody goes
//! back to.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use serde_json::Value as Json;
use tollgate_policies::database::PolicyDatabase;
use tollgate_policies::model::{Expected, Object, ObjectChange, ObjectEdit, ObjectId, ObjectKind, PolicyState};

use crate::admin::problem_details::ProblemDetails;

/// Hexadecimal digits of a SHA-256.
const HASH_DIGITS: usize = 64;

/// The changes of a revision without those whose undo would bring a key back, or take away one that only has another name since.
/// Such a key stays as it is now.
pub fn undoable(changes: Vec<ObjectChange>) -> Vec<ObjectChange> {
    let hash = |change: &ObjectChange, object: &Option<Arc<Object>>| {
        let hash = object.as_ref().and_then(|object| hash_of(&object.body))?;
        Some((change.id.belongs_to().to_owned(), hash))
    };
    let (undoable, kept): (Vec<_>, Vec<_>) = changes.into_iter().partition(may_be_undone);
    let renamed: HashSet<_> = kept.iter().filter_map(|change| hash(change, &change.before)).collect();
    let is_renamed = |change: &ObjectChange| hash(change, &change.after).is_some_and(|hash| renamed.contains(&hash));
    let is_key = |change: &ObjectChange| change.id.kind() == ObjectKind::ApiKey;
    undoable.into_iter().filter(|change| !is_key(change) || !is_renamed(change)).collect()
}

/// Whether taking `change` back brings no key back.
fn may_be_undone(change: &ObjectChange) -> bool {
    let key = |object: &Option<Arc<Object>>| object.as_ref().and_then(|object| hash_of(&object.body));
    change.id.kind() != ObjectKind::ApiKey || change.before.is_none() || key(&change.before) == key(&change.after)
}

/// Refuses edits that bring back a key which was taken away from its application. Each edit of a key is then made upon what was
/// looked at: what somebody takes away meanwhile is a conflict.
///
/// # Errors
/// When there is one, and when the database is away.
pub async fn refuse_revoked(database: &PolicyDatabase, edits: &mut [ObjectEdit]) -> Result<(), ProblemDetails> {
    let mut edited = edits.iter_mut().filter(|edit| edit.id.kind() == ObjectKind::ApiKey).peekable();
    if edited.peek().is_none() {
        return Ok(());
    }
    let state = database.state(None).await?;
    let mut new: BTreeMap<String, Vec<(ObjectId, String)>> = BTreeMap::new();
    for edit in edited {
        let standing = state.get(&edit.id);
        if edit.expected == Expected::Any {
            edit.expected = standing.map_or(Expected::Absent, |object| Expected::Revision(object.since));
        }
        let Some(body) = &mut edit.body else { continue };
        let Some(hash) = hash_of(body) else { continue };
        // Those of before are found by their text.
        body["key_sha256"] = hash.as_str().into();
        if standing.and_then(|object| hash_of(&object.body)).as_ref() != Some(&hash) {
            new.entry(edit.id.belongs_to().to_owned()).or_default().push((edit.id.clone(), hash));
        }
    }
    for (application, mut new) in new {
        let standing = hashes(&state, &application);
        new.retain(|(_, hash)| !standing.contains(hash));
        let wanted: Vec<&str> = new.iter().map(|(_, hash)| &**hash).collect();
        let former = database.former_bodies(ObjectKind::ApiKey, &application, &wanted).await?;
        let former: HashSet<String> = former.iter().filter_map(|body| hash_of(body)).collect();
        if let Some((id, _)) = new.iter().find(|(_, hash)| former.contains(hash)) {
            let what = format!("{id} has a key that was taken away before: it is not taken again");
            return Err(ProblemDetails::unusable_policies(what).hint("make a new key, or leave this one out"));
        }
    }
    Ok(())
}

fn hashes(state: &PolicyState, application: &str) -> HashSet<String> {
    state.of(ObjectKind::ApiKey, application).filter_map(|object| hash_of(&object.body)).collect()
}

/// The hash of a key. `None`: it is none, which the check of the policies reports. The database is not asked for it.
fn hash_of(body: &Json) -> Option<String> {
    let text = body.get("key_sha256")?.as_str()?;
    let is_hash = text.len() == HASH_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash.then(|| text.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
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

    /// What a revision did to the key called `name`.
    fn change(name: &str, before: Option<&str>, after: Option<&str>) -> ObjectChange {
        let [before, after] = [before, after].map(|hash| hash.map(|hash| Arc::new(key(name, hash))));
        ObjectChange { id: ObjectId::new(ObjectKind::ApiKey, "shop", name).unwrap(), before, after }
    }

    #[test]
    fn an_undo_leaves_a_renamed_key_as_it_is() {
        let (one, two) = (&*"1".repeat(HASH_DIGITS), &*"2".repeat(HASH_DIGITS));
        let undone = |changes: &[ObjectChange]| {
            let left = undoable(changes.to_vec()).into_iter().map(|change| change.id.name().to_owned());
            left.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(undone(&[change("k1", Some(one), None), change("k2", None, Some(one))]), "");
        // It has moved, and another is in its place.
        assert_eq!(undone(&[change("k1", Some(one), Some(two)), change("k2", None, Some(one))]), "");
        // One key was taken away, and another made.
        assert_eq!(undone(&[change("k1", Some(one), None), change("k2", None, Some(two))]), "k2");
        assert_eq!(undone(&[change("k1", Some(one), Some(one))]), "k1");
    }

    #[test]
    fn what_is_no_hash_is_looked_for_nowhere() {
        assert_eq!(hash_of(&json!({ "key_sha256": "A".repeat(HASH_DIGITS) })), Some("a".repeat(HASH_DIGITS)));
        for text in ["", "%", &"_".repeat(HASH_DIGITS), &"a".repeat(HASH_DIGITS + 1), &"é".repeat(HASH_DIGITS / 2)] {
            assert_eq!(hash_of(&json!({ "key_sha256": text })), None, "{text}");
        }
    }
}
