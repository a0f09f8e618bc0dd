//! The policies of a revision as this node lays them over its file: without the candidates that it
//! must not act on, and without the API keys that it must not take.
//!
//! Guarantees that a candidate which was aborted does not come back. A node acts on none before it
//! has heard the database, on none that it has stopped itself, and on none that the newest revision
//! it knows of does not have. It takes no API key that this revision does not have.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tollgate_policies::model::{Object, ObjectId, ObjectKind, PolicyState};
use tollgate_policies::time::UnixTime;

use crate::config::{Ground, Loaded, Mistakes};
use crate::team::policies::candidate::CANDIDATE;

/// The policies of a revision as this node lays them over its file.
#[derive(Clone)]
pub struct NodePolicies {
    node: Arc<str>,
    pub state: PolicyState,
    /// Strategies whose candidates this node must not act on, and API keys that it must not take.
    withheld: BTreeSet<ObjectId>,
}

/// A node's knowledge of candidates.
#[derive(Clone)]
pub struct CandidateKnowledge {
    /// Those that it has stopped, and that are not known to be taken away.
    pub stopped: Arc<[StoppedCandidate]>,
    /// Whether the database has answered since the process began: a candidate of the copy may have
    /// been taken away.
    pub has_heard: bool,
}

/// A candidate that a node has stopped because it was out of its bounds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoppedCandidate {
    pub version: StrategyVersion,
    /// The bound and what was measured.
    pub reason: String,
}

/// A strategy as a revision has it. Each change of a strategy begins its candidate anew.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StrategyVersion {
    pub id: ObjectId,
    since: u64,
    /// Of another database, a revision of the same number is another one.
    at: UnixTime,
}

impl StrategyVersion {
    pub fn of(object: &Object) -> Self {
        Self {
            id: object.id.clone(),
            since: object.since,
            at: object.changed_at,
        }
    }

    /// Whether it stands in `state`.
    pub fn stands_in(&self, state: &PolicyState) -> bool {
        state
            .get(&self.id)
            .is_some_and(|object| Self::of(object) == *self)
    }
}

impl NodePolicies {
    /// The policies of `state` on the node called `node`, where the database was last seen to have
    /// `newest`.
    pub fn new(
        node: Arc<str>,
        state: PolicyState,
        newest: &PolicyState,
        known: &CandidateKnowledge,
    ) -> Self {
        let tried = state
            .of_kind(ObjectKind::Strategy)
            .filter(|object| object.body.get(CANDIDATE).is_some());
        let is_withheld = |object: &Object| {
            let version = StrategyVersion::of(object);
            let is_stopped = known
                .stopped
                .iter()
                .any(|stopped| stopped.version == version);
            !known.has_heard || is_stopped || !version.stands_in(newest)
        };
        let tried = tried
            .filter(|object| is_withheld(object))
            .map(|object| object.id.clone());
        let withheld = tried.chain(revoked_keys(&state, newest)).collect();
        Self {
            node,
            state,
            withheld,
        }
    }

    /// The configuration that this node has with them.
    ///
    /// # Errors
    /// Every mistake in the files and in the policies.
    pub fn lay(&self, ground: &Ground) -> Result<Loaded, Mistakes> {
        ground.on(&self.node, &self.without_withheld())
    }

    pub fn revision(&self) -> u64 {
        self.state.revision()
    }

    /// Whether it comes to what `other` does.
    pub fn is_like(&self, other: &Self) -> bool {
        self.state.position() == other.state.position() && self.withheld == other.withheld
    }

    fn without_withheld(&self) -> PolicyState {
        if self.withheld.is_empty() {
            return self.state.clone();
        }
        let is_withheld_key = |object: &Object| {
            object.id.kind() == ObjectKind::ApiKey && self.withheld.contains(&object.id)
        };
        let objects = self
            .state
            .iter()
            .filter(|object| !is_withheld_key(object))
            .map(|object| {
                if !self.withheld.contains(&object.id) {
                    return object.clone();
                }
                let mut body = (*object.body).clone();
                body.as_object_mut().and_then(|body| body.remove(CANDIDATE));
                Arc::new(Object {
                    body: Arc::new(body),
                    ..(**object).clone()
                })
            });
        PolicyState::new(self.state.position(), objects)
    }
}

/// `state` without the API keys that `newest` does not have.
pub fn without_revoked_keys(state: &PolicyState, newest: &PolicyState) -> PolicyState {
    let revoked: HashSet<ObjectId> = revoked_keys(state, newest).collect();
    if revoked.is_empty() {
        return state.clone();
    }
    PolicyState::new(
        state.position(),
        state
            .iter()
            .filter(|object| !revoked.contains(&object.id))
            .cloned(),
    )
}

/// The API keys of `state` that `newest` does not have, under whatever name.
fn revoked_keys<'a>(
    state: &'a PolicyState,
    newest: &PolicyState,
) -> impl Iterator<Item = ObjectId> + use<'a> {
    let is_one = state.position() == newest.position();
    let standing: HashSet<(String, String)> = newest
        .of_kind(ObjectKind::ApiKey)
        .filter(|_| !is_one)
        .filter_map(|object| key_of(object))
        .collect();
    let keys = state.of_kind(ObjectKind::ApiKey).filter(move |_| !is_one);
    let gone = keys.filter(move |object| key_of(object).is_none_or(|key| !standing.contains(&key)));
    gone.map(|object| object.id.clone())
}

/// The application of an API key, and the key's hash.
fn key_of(object: &Object) -> Option<(String, String)> {
    Some((object.id.application().to_owned(), object.key_hash()?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tollgate_policies::model::Position;

    use super::*;

    fn state(since: u64) -> PolicyState {
        let strategy = |name: &str, body| {
            Arc::new(Object {
                id: ObjectId::new(ObjectKind::Strategy, "shop", name).unwrap(),
                body: Arc::new(body),
                created: 1,
                created_by: "ada".into(),
                created_at: UnixTime::from_millis(0),
                changed_by: "ada".into(),
                changed_at: UnixTime::from_millis(0),
                since,
            })
        };
        let tried = strategy("tried", json!({"limit": {}, "candidate": {"on": "shadow"}}));
        let position = Position {
            revision: since,
            ..Position::default()
        };
        PolicyState::new(position, [tried, strategy("plain", json!({"limit": {}}))])
    }

    fn candidates(state: &PolicyState, newest: &PolicyState, known: &CandidateKnowledge) -> usize {
        let policies =
            NodePolicies::new("edge-1".into(), state.clone(), newest, known).without_withheld();
        assert_eq!(policies.len(), state.len());
        policies
            .iter()
            .filter(|object| object.body.get(CANDIDATE).is_some())
            .count()
    }

    #[test]
    fn a_key_is_taken_as_long_as_the_newest_revision_has_it() {
        let state = |revision, keys: &[(&str, &str)]| {
            let keys = keys.iter().map(|(name, hash)| {
                let mut object = (**state(1).iter().next().unwrap()).clone();
                object.id = ObjectId::new(ObjectKind::ApiKey, "shop", name).unwrap();
                object.body = Arc::new(json!({"key_sha256": hash.repeat(32)}));
                Arc::new(object)
            });
            PolicyState::new(
                Position {
                    revision,
                    ..Position::default()
                },
                keys.collect::<Vec<_>>(),
            )
        };
        let running = state(
            1,
            &[
                ("kept", "0a"),
                ("renamed", "0b"),
                ("revoked", "0c"),
                ("changed", "0d"),
            ],
        );
        let newest = state(2, &[("kept", "0A"), ("other", "0b"), ("changed", "0e")]);
        let known = CandidateKnowledge {
            stopped: [].into(),
            has_heard: false,
        };
        let names = |state: &PolicyState| {
            state
                .iter()
                .map(|key| key.id.name().to_owned())
                .collect::<Vec<_>>()
        };
        let laid = |newest| {
            NodePolicies::new("edge-1".into(), running.clone(), newest, &known).without_withheld()
        };
        assert_eq!(names(&laid(&newest)), ["kept", "renamed"]);
        assert_eq!(
            names(&without_revoked_keys(&running, &newest)),
            ["kept", "renamed"]
        );
        assert_eq!(laid(&running), running);
    }

    #[test]
    fn a_candidate_acts_unless_it_was_stopped_or_may_be_gone() {
        let (first, second) = (state(1), state(2));
        let tried = first
            .iter()
            .find(|object| object.body.get(CANDIDATE).is_some())
            .unwrap();
        let known = |stopped: &[StoppedCandidate], has_heard| CandidateKnowledge {
            stopped: stopped.into(),
            has_heard,
        };
        let stopped = StoppedCandidate {
            version: StrategyVersion::of(tried),
            reason: String::new(),
        };
        assert_eq!(candidates(&first, &first, &known(&[], true)), 1);
        assert_eq!(
            candidates(&first, &first, &known(&[], false)),
            0,
            "the database was not heard"
        );
        assert_eq!(
            candidates(&first, &first, &known(std::slice::from_ref(&stopped), true)),
            0,
            "it was stopped"
        );
        assert_eq!(
            candidates(&second, &second, &known(&[stopped], true)),
            1,
            "another version of the strategy"
        );
        assert_eq!(
            candidates(&first, &PolicyState::empty(), &known(&[], true)),
            0,
            "it was taken away"
        );
        assert_eq!(
            candidates(&first, &second, &known(&[], true)),
            0,
            "the strategy was changed"
        );
    }
}
