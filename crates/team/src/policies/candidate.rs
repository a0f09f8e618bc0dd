//! How a strategy's candidate ends: it is taken away, or it becomes the limit.

use serde_json::Value as Json;

/// The key of a strategy's candidate.
pub const CANDIDATE: &str = "candidate";

/// The key of a strategy's limit, and of its candidate's.
const LIMIT: &str = "limit";

/// The end of a candidate.
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
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_candidate_goes_or_becomes_the_limit() {
        let old = json!({"rate": "10/s"});
        let new = json!({"rate": "5/s"});
        let body = json!({"limit": old, "resources": ["all"], "candidate": {"limit": new, "on": "shadow"}});
        for (end, limit) in [
            (CandidateEnd::Aborted, &old),
            (CandidateEnd::Promoted, &new),
        ] {
            let after = json!({"limit": limit, "resources": ["all"]});
            assert_eq!(end.of(&body), Some(after));
        }
        assert_eq!(
            CandidateEnd::Aborted.of(&json!({"limit": old, "resources": ["all"]})),
            None
        );
    }
}
