//! Least requests: the less loaded of two endpoints drawn at random (power of two choices). Nearly
//! as even as comparing all, and workers do not all rush to one idle endpoint.

use super::pick::{PickEndpoint, PickList, Tried, Turn};
use crate::upstream::endpoints::Endpoint;

/// Picks the less loaded of two endpoints.
#[derive(Debug)]
pub struct LeastRequests;

impl PickEndpoint for LeastRequests {
    fn pick(&self, list: PickList<'_>, tried: &Tried, _: Turn) -> Option<usize> {
        if list.endpoints.len() < 2 {
            return list.in_turn(0, tried);
        }
        let turns = list.turns();
        let turn = fastrand::usize(..turns);
        let one = list.order.place(turn);
        let other = list.order.place((turn + fastrand::usize(1..turns)) % turns);
        match (list.is_fit(one, tried), list.is_fit(other, tried)) {
            (true, true) if is_less_loaded(list, other, one) => Some(other),
            (true, _) => Some(one),
            (false, true) => Some(other),
            (false, false) => list.in_turn(turn, tried),
        }
    }
}

/// Compares requests in flight for each unit of weight. An idle endpoint is not less loaded than
/// another idle one.
fn is_less_loaded(list: PickList<'_>, one: usize, other: usize) -> bool {
    match (list.endpoints.get(one), list.endpoints.get(other)) {
        (Some(one), Some(other)) => load(one, other) < load(other, one),
        _ => false,
    }
}

/// The load of an endpoint, to be compared with that of `other`.
fn load(endpoint: &Endpoint, other: &Endpoint) -> u64 {
    endpoint.in_flight() as u64 * other.role().weight
}
