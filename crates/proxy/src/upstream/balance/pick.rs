//! The trait of a way to balance, and the endpoints that it picks from.

use std::fmt::Debug;
use std::sync::Arc;

use http::HeaderValue;
use smallvec::SmallVec;
use tollgate_limiter::limit::key::Facts;

use super::order::TurnOrder;
use crate::upstream::affinity::Affinity;
use crate::upstream::endpoints::Endpoint;

/// A way to pick the next endpoint. Takes no lock, and tries a bounded number of endpoints.
pub trait PickEndpoint: Debug + Send + Sync {
    /// The place of an endpoint that was not tried. An endpoint that backs off is picked only when
    /// no other is left. `None`: all were tried.
    fn pick(&self, list: PickList<'_>, tried: &Tried, turn: Turn) -> Option<usize>;

    /// The part that requests with these `facts` have in common with others.
    fn affinity(&self, _facts: &Facts<'_>) -> Option<Affinity> {
        None
    }

    /// Whether endpoints are picked by what requests have in common.
    fn asks_for_affinity(&self) -> bool {
        false
    }

    /// The affinity that names an endpoint, and the field that tells it to a client.
    fn mark(&self, _upstream: &str, _url: &str) -> Option<(Affinity, HeaderValue)> {
        None
    }
}

/// Whether a pick takes a turn of round robin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    Takes,
    /// Where requests take two turns each, every first one would be the same endpoint's.
    Leaves,
}

/// The endpoints to pick from.
#[derive(Clone, Copy)]
pub struct PickList<'a> {
    pub endpoints: &'a [Arc<Endpoint>],
    pub order: &'a TurnOrder,
}

/// The endpoints that a request was sent to, by their place in memory: lists of endpoints change
/// meanwhile. Beside them, what the request has in common with others.
#[derive(Debug, Default)]
pub struct Tried {
    endpoints: SmallVec<[usize; 4]>,
    affinity: Option<Affinity>,
}

impl Tried {
    /// No endpoints yet, by a request that has this in common with others.
    pub fn by(affinity: Option<Affinity>) -> Self {
        Self {
            endpoints: SmallVec::new(),
            affinity,
        }
    }

    /// How many endpoints were tried.
    pub fn count(&self) -> usize {
        self.endpoints.len()
    }

    /// Adds an endpoint.
    pub fn add(&mut self, endpoint: &Arc<Endpoint>) {
        self.endpoints.push(Arc::as_ptr(endpoint).addr());
    }

    /// Forgets all endpoints.
    pub fn begin_anew(&mut self) {
        self.endpoints.clear();
    }

    pub fn affinity(&self) -> Option<Affinity> {
        self.affinity
    }

    fn contains(&self, endpoint: &Arc<Endpoint>) -> bool {
        self.endpoints.contains(&Arc::as_ptr(endpoint).addr())
    }
}

impl PickList<'_> {
    /// How many turns a round has.
    pub fn turns(self) -> usize {
        self.order.turns(self.endpoints.len())
    }

    /// The first untried endpoint from the turn `start` on that does not back off; failing that,
    /// the first untried one.
    pub fn in_turn(self, start: usize, tried: &Tried) -> Option<usize> {
        let turns = self.turns();
        let mut backing_off = None;
        for step in 0..turns {
            let place = self.order.place(start.wrapping_add(step) % turns);
            let Some(endpoint) = self.endpoints.get(place) else {
                continue;
            };
            if tried.contains(endpoint) {
                continue;
            }
            if !endpoint.is_backing_off() {
                return Some(place);
            }
            backing_off = backing_off.or(Some(place));
        }
        backing_off
    }

    /// Whether the endpoint was not tried and does not back off.
    pub fn is_fit(self, place: usize, tried: &Tried) -> bool {
        match self.endpoints.get(place) {
            Some(endpoint) => !tried.contains(endpoint) && !endpoint.is_backing_off(),
            None => false,
        }
    }
}
