//! A bucket as JSON, looked at or changed. Keys are shown as buckets have them, with secrets
//! hashed.

use serde::{Deserialize, Serialize};
use tollgate_limiter::limit::definition::Limit;
use tollgate_limiter::limit::key::Key;
use tollgate_limiter::store::inspect::TokenGrant;

use super::policy::{LevelView, PolicyView};
use crate::bucket_service::{BucketChange, LevelSource};

/// A bucket that was looked at.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct BucketView {
    pub limit: String,
    pub key: String,
    /// The name of the bucket in logs, without the key.
    #[serde(default)]
    pub logged_as: String,
    pub policy: PolicyView,
    #[serde(flatten)]
    pub level: LevelView,
    pub source: LevelSource,
    /// Why Redis did not say it, where it should have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,
    /// The assumption behind the numbers, where they are a guess.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A bucket that was changed, or would have been.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ChangeView {
    /// `reset` or `grant`.
    pub action: String,
    pub dry_run: bool,
    pub limit: String,
    pub key: String,
    /// The name of the bucket in the log, without the key.
    pub logged_as: String,
    pub before: LevelView,
    pub after: LevelView,
    pub source: LevelSource,
    /// Why other nodes may still hold the former level, until time has passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_told: Option<String>,
}

impl ChangeView {
    pub fn new(
        limit: &Limit,
        key: &Key,
        gift: TokenGrant,
        dry_run: bool,
        change: &BucketChange,
    ) -> Self {
        let action = if gift == TokenGrant::All {
            "reset"
        } else {
            "grant"
        };
        Self {
            action: action.to_owned(),
            dry_run,
            limit: limit.name.to_string(),
            key: show(key),
            logged_as: key.redacted(&limit.name),
            before: change.before.into(),
            after: change.after.into(),
            source: change.source,
            not_told: change
                .unannounced
                .as_ref()
                .map(|error| format!("other nodes may not have been told: {error}")),
        }
    }
}

/// A key as text; its bytes are ASCII, whatever a client sent.
pub fn show(key: &Key) -> String {
    String::from_utf8_lossy(key.as_bytes()).into_owned()
}
