//! Load balancing: which endpoint is next. Each way has a file, which implements the trait of
//! `pick`, and is registered here; `order` has the turns of endpoints with weights.
//!
//! Guarantees that a request is sent to no endpoint twice, and that an endpoint which backs off is
//! only picked when no other is left. Takes no lock.

mod hash;
mod least_requests;
pub mod order;
pub mod pick;
mod round_robin;
mod sticky;

use hash::HashOfParts;
use http::HeaderValue;
use least_requests::LeastRequests;
use pick::{PickEndpoint, Turn};
pub use pick::{PickList, Tried};
use round_robin::RoundRobin;
use sticky::StickySessions;
use tollgate_limiter::limit::key::Facts;

use super::affinity::Affinity;
use super::endpoints::PickedEndpoint;
use super::spec::balance::Balance;

/// Picks endpoints of one upstream, for all workers.
#[derive(Debug)]
pub struct Balancer {
    way: Box<dyn PickEndpoint>,
    asks_for_affinity: bool,
}

fn build(balance: &Balance) -> Box<dyn PickEndpoint> {
    match balance {
        Balance::RoundRobin => Box::new(RoundRobin::default()),
        Balance::LeastRequests => Box::new(LeastRequests),
        Balance::Hash(parts) => Box::new(HashOfParts::new(parts)),
        Balance::Sticky(cookie) => Box::new(StickySessions::new(cookie)),
    }
}

impl Balancer {
    pub fn new(balance: &Balance) -> Self {
        let way = build(balance);
        Self {
            asks_for_affinity: way.asks_for_affinity(),
            way,
        }
    }

    /// The next endpoint of `list` for a request that was already sent to those in `tried`, to
    /// which it is added. `None`: none is left.
    pub fn pick(&self, list: PickList<'_>, tried: &mut Tried) -> Option<PickedEndpoint> {
        self.pick_at(list, tried, Turn::Takes)
    }

    /// Like [`pick`](Self::pick), without a turn.
    pub fn pick_instead(&self, list: PickList<'_>, tried: &mut Tried) -> Option<PickedEndpoint> {
        self.pick_at(list, tried, Turn::Leaves)
    }

    #[inline]
    fn pick_at(&self, list: PickList<'_>, tried: &mut Tried, turn: Turn) -> Option<PickedEndpoint> {
        let place = self.way.pick(list, tried, turn)?;
        let endpoint = list.endpoints.get(place)?;
        tried.add(endpoint);
        Some(PickedEndpoint::new(endpoint))
    }

    /// The part that requests with these `facts` have in common with others, where endpoints are
    /// picked by that.
    pub fn affinity(&self, facts: &Facts<'_>) -> Option<Affinity> {
        self.way.affinity(facts)
    }

    /// Whether endpoints are picked by what requests have in common.
    #[inline]
    pub fn asks_for_affinity(&self) -> bool {
        self.asks_for_affinity
    }

    /// The affinity that names an endpoint, and the field that tells it to a client.
    pub fn mark(&self, upstream: &str, url: &str) -> Option<(Affinity, HeaderValue)> {
        self.way.mark(upstream, url)
    }
}

#[cfg(test)]
mod tests;
