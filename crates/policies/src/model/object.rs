//! An object with the stamps of its revisions, and what becomes of it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::draft::version_text;
use super::id::{ObjectId, ObjectKind};
use crate::time::UnixTime;

/// Hexadecimal digits of a SHA-256.
const HASH_DIGITS: usize = 64;

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

    /// The hash of an API key, spelt as all hashes are compared. `None`: the object is no API key,
    /// or has none.
    pub fn key_hash(&self) -> Option<String> {
        if self.id.kind() == ObjectKind::ApiKey {
            key_hash(&self.body)
        } else {
            None
        }
    }
}

/// The hash in the body of an API key, spelt as all of them are compared. `None`: it is none, which
/// the check of the policies reports. No database is asked for it.
pub fn key_hash(body: &Json) -> Option<String> {
    let text = body.get("key_sha256")?.as_str()?;
    let is_hash = text.len() == HASH_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash.then(|| text.to_ascii_lowercase())
}

impl ObjectChange {
    /// Whether both sides have the same body, apart from who wrote it and when.
    pub fn is_alike(&self) -> bool {
        match (&self.before, &self.after) {
            (Some(before), Some(after)) => before.body == after.body,
            (None, None) => true,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_no_hash_is_looked_for_nowhere() {
        assert_eq!(
            key_hash(&json!({ "key_sha256": "A".repeat(HASH_DIGITS) })),
            Some("a".repeat(HASH_DIGITS))
        );
        for text in [
            "",
            "%",
            &"_".repeat(HASH_DIGITS),
            &"a".repeat(HASH_DIGITS + 1),
            &"é".repeat(HASH_DIGITS / 2),
        ] {
            assert_eq!(key_hash(&json!({ "key_sha256": text })), None, "{text}");
        }
    }
}
