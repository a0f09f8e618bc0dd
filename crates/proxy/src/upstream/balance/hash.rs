//! Hashing: one endpoint for all requests that are alike in some parts (weighted rendezvous
//! hashing). Requests that lack a part go round robin.

use std::sync::Arc;

use tollgate_limiter::limit::key::{Facts, KeyPart};

use super::pick::{PickEndpoint, PickList, Tried, Turn};
use super::round_robin::RoundRobin;
use crate::upstream::affinity::Affinity;

/// Picks the endpoint that suits the parts of a request best.
#[derive(Debug)]
pub struct HashOfParts {
    parts: Arc<[KeyPart]>,
    others: RoundRobin,
}

impl HashOfParts {
    pub fn new(parts: &Arc<[KeyPart]>) -> Self {
        Self {
            parts: parts.clone(),
            others: RoundRobin::default(),
        }
    }
}

impl PickEndpoint for HashOfParts {
    fn pick(&self, list: PickList<'_>, tried: &Tried, turn: Turn) -> Option<usize> {
        let Some(affinity) = tried.affinity() else {
            return self.others.pick(list, tried, turn);
        };
        let fit = (0..list.endpoints.len()).filter(|place| list.is_fit(*place, tried));
        let scored = fit.map(|place| {
            let role = list.endpoints[place].role();
            (place, affinity.score(role.seed, role.weight))
        });
        match scored.max_by(|(_, one), (_, other)| one.total_cmp(other)) {
            Some((place, _)) => Some(place),
            None => list.in_turn(0, tried),
        }
    }

    fn affinity(&self, facts: &Facts<'_>) -> Option<Affinity> {
        Affinity::from_key(&self.parts, facts)
    }

    fn asks_for_affinity(&self) -> bool {
        true
    }
}
