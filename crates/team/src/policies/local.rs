//! The policies of a revision as this node applies them to its file: without the candidates that it
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

use crate::policies::candidate::CANDIDATE;
use tollgate_config::{Ground, Loaded, Mistakes};

/// The policies of a revision as this node applies them to its file.
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
    /// Candidates that the node has stopped, and that are not known to be taken away.
    pub stopped: Arc<[StoppedCandidate]>,
    /// The candidate whose promotion the node commits, or has committed last. A candidate is
    /// either stopped or promoted: what comes first holds.
    pub promoted: Option<StrategyVersion>,
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
    /// The time of the revision: a revision of the same number in another database is another one.
    at: UnixTime,
}

impl StrategyVersion {
    pub fn new(object: &Object) -> Self {
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
            .is_some_and(|object| Self::new(object) == *self)
    }
}

impl CandidateKnowledge {
    /// The knowledge of a process that begins, which knows candidates that were `stopped`.
    pub fn new(stopped: Vec<StoppedCandidate>, has_heard: bool) -> Self {
        Self {
            stopped: stopped.into(),
            promoted: None,
            has_heard,
        }
    }

    /// Whether the node acts on the candidate of `strategy`.
    fn acts(&self, strategy: &Object, newest: &PolicyState) -> bool {
        let version = StrategyVersion::new(strategy);
        self.has_heard && !self.has_stopped(&version) && version.stands_in(newest)
    }

    fn has_stopped(&self, version: &StrategyVersion) -> bool {
        self.stopped
            .iter()
            .any(|stopped| stopped.version == *version)
    }

    /// Stops a candidate. Returns whether that is new: not of one that is promoted.
    pub fn stop(&mut self, stopped: StoppedCandidate) -> bool {
        let version = &stopped.version;
        if self.has_stopped(version) || self.promoted.as_ref() == Some(version) {
            return false;
        }
        self.stopped = self.stopped.iter().cloned().chain([stopped]).collect();
        true
    }

    /// Begins to promote a candidate. Returns whether it may be: not one that was stopped.
    pub fn promote(&mut self, version: &StrategyVersion) -> bool {
        let may = !self.has_stopped(version);
        if may {
            self.promoted = Some(version.clone());
        }
        may
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
        let mut withheld: BTreeSet<_> = revoked_keys(&state, newest).into_iter().collect();
        for strategy in state.of_kind(ObjectKind::Strategy) {
            if strategy.body.get(CANDIDATE).is_some() && !known.acts(strategy, newest) {
                withheld.insert(strategy.id.clone());
            }
        }
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
    pub fn apply(&self, ground: &Ground) -> Result<Loaded, Mistakes> {
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
        let mut objects = Vec::with_capacity(self.state.len());
        for object in self.state.iter() {
            if !self.withheld.contains(&object.id) {
                objects.push(object.clone());
            } else if object.id.kind() != ObjectKind::ApiKey {
                objects.push(Arc::new(without_candidate(object)));
            }
        }
        PolicyState::new(self.state.position(), objects)
    }
}

fn without_candidate(strategy: &Object) -> Object {
    let mut body = (*strategy.body).clone();
    if let Some(members) = body.as_object_mut() {
        members.remove(CANDIDATE);
    }
    Object {
        body: Arc::new(body),
        ..strategy.clone()
    }
}

/// `state` without the API keys that `newest` does not have.
pub fn without_revoked_keys(state: &PolicyState, newest: &PolicyState) -> PolicyState {
    let revoked = revoked_keys(state, newest);
    if revoked.is_empty() {
        return state.clone();
    }
    let mut kept = Vec::with_capacity(state.len());
    for object in state.iter() {
        if !revoked.contains(&object.id) {
            kept.push(object.clone());
        }
    }
    PolicyState::new(state.position(), kept)
}

/// The API keys of `state` that `newest` does not have, under whatever name.
fn revoked_keys(state: &PolicyState, newest: &PolicyState) -> HashSet<ObjectId> {
    let mut revoked = HashSet::new();
    if state.position() == newest.position() {
        return revoked;
    }
    let mut standing = HashSet::new();
    for key in newest.of_kind(ObjectKind::ApiKey) {
        standing.extend(key_of(key));
    }
    for key in state.of_kind(ObjectKind::ApiKey) {
        let stands = key_of(key).is_some_and(|key| standing.contains(&key));
        if !stands {
            revoked.insert(key.id.clone());
        }
    }
    revoked
}

/// The application of an API key, and the key's hash.
fn key_of(object: &Object) -> Option<(String, String)> {
    Some((object.id.application().to_owned(), object.key_hash()?))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};
    use tollgate_policies::model::Position;

    use super::*;

    fn object(kind: ObjectKind, name: &str, body: Json, since: u64) -> Arc<Object> {
        Arc::new(Object {
            id: ObjectId::new(kind, "shop", name).unwrap(),
            body: Arc::new(body),
            created: 1,
            created_by: "ada".into(),
            created_at: UnixTime::from_millis(0),
            changed_by: "ada".into(),
            changed_at: UnixTime::from_millis(0),
            since,
        })
    }

    fn revision(revision: u64, objects: Vec<Arc<Object>>) -> PolicyState {
        let position = Position {
            revision,
            ..Position::default()
        };
        PolicyState::new(position, objects)
    }

    /// A strategy with a candidate, and one without.
    fn state(since: u64) -> PolicyState {
        let tried = json!({"limit": {}, "candidate": {"on": "shadow"}});
        let strategies = vec![
            object(ObjectKind::Strategy, "tried", tried, since),
            object(ObjectKind::Strategy, "plain", json!({"limit": {}}), since),
        ];
        revision(since, strategies)
    }

    /// Keys, each with a pair of digits of its hash.
    fn keys(number: u64, keys: &[(&str, &str)]) -> PolicyState {
        let mut objects = Vec::new();
        for (name, hash) in keys {
            let body = json!({"key_sha256": hash.repeat(32)});
            objects.push(object(ObjectKind::ApiKey, name, body, 1));
        }
        revision(number, objects)
    }

    fn names(state: &PolicyState) -> Vec<&str> {
        state.iter().map(|object| object.id.name()).collect()
    }

    fn known(stopped: &[StoppedCandidate], has_heard: bool) -> CandidateKnowledge {
        CandidateKnowledge::new(stopped.to_vec(), has_heard)
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
        let running = keys(
            1,
            &[
                ("kept", "0a"),
                ("renamed", "0b"),
                ("revoked", "0c"),
                ("changed", "0d"),
            ],
        );
        let newest = keys(2, &[("kept", "0A"), ("other", "0b"), ("changed", "0e")]);
        for (newest, taken) in [
            (&newest, &["kept", "renamed"][..]),
            (&running, &["changed", "kept", "renamed", "revoked"]),
        ] {
            let policies =
                NodePolicies::new("edge-1".into(), running.clone(), newest, &known(&[], false));
            assert_eq!(names(&policies.without_withheld()), taken);
        }
        assert_eq!(
            names(&without_revoked_keys(&running, &newest)),
            ["kept", "renamed"]
        );
    }

    #[test]
    fn a_candidate_acts_unless_it_was_stopped_or_may_be_gone() {
        let first = state(1);
        let second = state(2);
        let tried = first
            .iter()
            .find(|object| object.body.get(CANDIDATE).is_some())
            .unwrap();
        let stopped = StoppedCandidate {
            version: StrategyVersion::new(tried),
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
