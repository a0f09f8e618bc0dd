//! API keys that were taken away, which stay away. A commit takes none of them again; an undo does not try to.

use std::sync::Arc;

use serde_json::Value as Json;
use tollgate_policies::model::{Object, ObjectChange, ObjectEdit, ObjectKind};

/// Whether taking `change` back brings no key back.
pub fn may_be_undone(change: &ObjectChange) -> bool {
    let key = |object: &Option<Arc<Object>>| object.as_ref().and_then(|object| hash_of(&object.body));
    change.id.kind() != ObjectKind::ApiKey || change.before.is_none() || key(&change.before) == key(&change.after)
}

/// Spells the hashes of keys as all of them are compared, and shown.
pub fn spell_hashes(edits: &mut [ObjectEdit]) {
    let edited = edits.iter_mut().filter(|edit| edit.id.kind() == ObjectKind::ApiKey);
    for body in edited.filter_map(|edit| edit.body.as_mut()) {
        if let Some(hash) = hash_of(body) {
            body["key_sha256"] = hash.into();
        }
    }
}

fn hash_of(body: &Json) -> Option<String> {
    body.get("key_sha256")?.as_str().map(str::to_ascii_lowercase)
}
