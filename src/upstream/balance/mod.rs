//! Load balancing: which endpoint is next. `order` has the turns of endpoints with weights.
//!
//! Guarantees that a request is sent to no endpoint twice, and that an endpoint which backs off is
//! only picked when no other is left. Takes no lock.

pub mod order;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use order::TurnOrder;
use smallvec::SmallVec;
use tollgate_limiter::limit::key::KeyPart;

use super::affinity::{Affinity, StickyCookie};
use super::endpoints::{Endpoint, PickedEndpoint};

/// How the next endpoint is picked.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Balance {
    #[default]
    RoundRobin,
    /// The less loaded of two endpoints drawn at random.
    LeastRequests,
    /// An endpoint for all requests that are alike in this. Those that lack a part of it have their
    /// turns.
    Hash(Arc<[KeyPart]>),
    /// The endpoint that a client's cookie names. Clients without one have their turns.
    Sticky(StickyCookie),
}

/// Picks endpoints of one upstream, for all workers.
#[derive(Debug)]
pub struct Balancer {
    balance: Balance,
    /// The turn at which round robin goes on.
    next: AtomicUsize,
}

/// The endpoints to pick from.
#[derive(Clone, Copy)]
pub struct PickList<'a> {
    pub endpoints: &'a [Arc<Endpoint>],
    pub order: &'a TurnOrder,
}

/// The endpoints that a request was sent to, by their place in memory: lists of endpoints change
/// meanwhile. And what it has in common with other requests.
#[derive(Debug, Default)]
pub struct Tried {
    endpoints: SmallVec<[usize; 4]>,
    affinity: Option<Affinity>,
}

impl Tried {
    /// None yet, by a request that has this in common with others.
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

    fn contains(&self, endpoint: &Arc<Endpoint>) -> bool {
        self.endpoints.contains(&Arc::as_ptr(endpoint).addr())
    }
}

impl Balancer {
    pub fn new(balance: Balance) -> Self {
        Self {
            balance,
            next: AtomicUsize::new(0),
        }
    }

    /// The next endpoint of `list` for a request that was already sent to those in `tried`, to
    /// which it is added. `None`: none is left.
    pub fn pick(&self, list: PickList<'_>, tried: &mut Tried) -> Option<PickedEndpoint> {
        self.pick_at(list, tried, || self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// Like [`pick`](Self::pick), at nobody's turn: where requests take two each, every first one
    /// would be the same endpoint's.
    pub fn pick_instead(&self, list: PickList<'_>, tried: &mut Tried) -> Option<PickedEndpoint> {
        self.pick_at(list, tried, || self.next.load(Ordering::Relaxed))
    }

    #[inline]
    fn pick_at(
        &self,
        list: PickList<'_>,
        tried: &mut Tried,
        turn: impl Fn() -> usize,
    ) -> Option<PickedEndpoint> {
        let place = match (&self.balance, tried.affinity) {
            (Balance::LeastRequests, _) => list.less_loaded(tried),
            (Balance::Hash(_), Some(affinity)) => list.most_suited(affinity, tried),
            (Balance::Sticky(_), Some(affinity)) => list
                .named(affinity, tried)
                .or_else(|| list.in_turn(turn(), tried)),
            (Balance::RoundRobin | Balance::Hash(_) | Balance::Sticky(_), _) => {
                list.in_turn(turn(), tried)
            }
        }?;
        let endpoint = list.endpoints.get(place)?;
        tried.add(endpoint);
        Some(PickedEndpoint::new(endpoint))
    }
}

impl PickList<'_> {
    /// The first untried endpoint from the turn `start` on that does not back off; failing that,
    /// the first untried one.
    fn in_turn(self, start: usize, tried: &Tried) -> Option<usize> {
        let turns = self.order.turns(self.endpoints.len());
        let place = |step| self.order.place(start.wrapping_add(step) % turns);
        let is_untried = |place: &usize| {
            self.endpoints
                .get(*place)
                .is_some_and(|endpoint| !tried.contains(endpoint))
        };
        let untried = || (0..turns).map(place).filter(is_untried);
        untried()
            .find(|&place| self.is_fit(place, tried))
            .or_else(|| untried().next())
    }

    /// Power of two choices: nearly as even as comparing all endpoints, and workers do not all rush
    /// to one idle endpoint.
    fn less_loaded(self, tried: &Tried) -> Option<usize> {
        let turns = self.order.turns(self.endpoints.len());
        if self.endpoints.len() < 2 {
            return self.in_turn(0, tried);
        }
        let turn = fastrand::usize(..turns);
        let one = self.order.place(turn);
        let other = self.order.place((turn + fastrand::usize(1..turns)) % turns);
        match (self.is_fit(one, tried), self.is_fit(other, tried)) {
            (true, true) => Some(if self.is_less_loaded(other, one) {
                other
            } else {
                one
            }),
            (true, false) => Some(one),
            (false, true) => Some(other),
            (false, false) => self.in_turn(turn, tried),
        }
    }

    /// The endpoint that suits this best; failing all that are fit, the first untried one.
    fn most_suited(self, affinity: Affinity, tried: &Tried) -> Option<usize> {
        let fit = self
            .endpoints
            .iter()
            .enumerate()
            .filter(|(place, _)| self.is_fit(*place, tried));
        let scored = fit.map(|(place, endpoint)| {
            (
                place,
                affinity.score(endpoint.role().seed, endpoint.role().weight),
            )
        });
        let best = scored
            .max_by(|(_, one), (_, other)| one.total_cmp(other))
            .map(|(place, _)| place);
        best.or_else(|| self.in_turn(0, tried))
    }

    /// The endpoint that a cookie names, if it is fit.
    fn named(self, affinity: Affinity, tried: &Tried) -> Option<usize> {
        let named = self
            .endpoints
            .iter()
            .position(|endpoint| endpoint.role().is_named(affinity))?;
        self.is_fit(named, tried).then_some(named)
    }

    fn is_fit(self, place: usize, tried: &Tried) -> bool {
        self.endpoints
            .get(place)
            .is_some_and(|endpoint| !tried.contains(endpoint) && !endpoint.is_backing_off())
    }

    /// By requests in flight for each unit of weight. One that has none is not less loaded than
    /// another that has none.
    fn is_less_loaded(self, one: usize, other: usize) -> bool {
        let (Some(one), Some(other)) = (self.endpoints.get(one), self.endpoints.get(other)) else {
            return false;
        };
        let load = |endpoint: &Endpoint, other: &Endpoint| {
            endpoint.in_flight() as u64 * other.role().weight
        };
        load(one, other) < load(other, one)
    }
}

#[cfg(test)]
mod tests;
