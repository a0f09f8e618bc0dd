//! The end of a candidate: a revision that takes it away, or that makes it the limit.

use serde_json::Value as Json;
use tollgate_policies::database::{CommitError, PolicyDatabase};
use tollgate_policies::model::{Draft, Expected, Object, ObjectEdit, PolicyState, Revision};

use crate::app::policies::local::CANDIDATE;
use crate::config::Mistakes;

/// Who these revisions are by.
const AUTHOR: &str = "rollout";

/// The key of a strategy's limit.
const LIMIT: &str = "limit";

/// What becomes of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CandidateEnd {
    Aborted,
    Promoted,
}

impl CandidateEnd {
    /// The strategy's body after it. `None`: it has no candidate.
    pub fn of(self, body: &Json) -> Option<Json> {
        let mut body = body.as_object()?.clone();
        let candidate = body.remove(CANDIDATE)?;
        if self == Self::Promoted {
            body.insert(LIMIT.to_owned(), candidate.get(LIMIT)?.clone());
        }
        Some(body.into())
    }

    /// Commits it, unless `strategy` has changed since: of several nodes, one does it. A state without a candidate that was
    /// good with it is good: only a promotion is checked.
    ///
    /// # Errors
    /// When the strategy has changed, the state does not fit this node's file, or the database is away.
    pub async fn commit(
        self,
        database: &PolicyDatabase,
        strategy: &Object,
        reason: String,
        check: impl Fn(&PolicyState) -> Result<(), Mistakes> + Send + Sync,
    ) -> Result<Option<Revision>, CommitError<Mistakes>> {
        let Some(body) = self.of(&strategy.body) else { return Ok(None) };
        let edit =
            ObjectEdit { id: strategy.id.clone(), expected: Expected::Revision(strategy.since), body: Some(body) };
        let draft = Draft { edits: vec![edit], author: AUTHOR.to_owned(), reason };
        let check = |state: &PolicyState| if self == Self::Promoted { check(state) } else { Ok(()) };
        database.commit(&draft, check).await.map(Some)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_candidate_goes_or_becomes_the_limit() {
        let (old, new) = (json!({"rate": "10/s"}), json!({"rate": "5/s"}));
        let body = json!({"limit": old, "resources": ["all"], "candidate": {"limit": new, "on": "shadow"}});
        let after = |limit: &Json| Some(json!({"limit": limit, "resources": ["all"]}));
        assert_eq!(CandidateEnd::Aborted.of(&body), after(&old));
        assert_eq!(CandidateEnd::Promoted.of(&body), after(&new));
        assert_eq!(CandidateEnd::Aborted.of(&json!({"limit": old, "resources": ["all"]})), None);
    }
}
