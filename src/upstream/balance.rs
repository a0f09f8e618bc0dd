//! Which endpoint is next.
//!
//! Guarantees that one request sees no endpoint twice and that an endpoint at rest is only chosen when nothing else is
//! left. Takes no lock.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use smallvec::SmallVec;

use super::endpoints::{Endpoint, InFlight};
use super::{Balance, Upstream};

/// The endpoints one request has been to, by index.
#[derive(Debug, Default)]
pub struct Tried(SmallVec<[usize; 4]>);

impl Tried {
    /// How many.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

impl Upstream {
    /// The next endpoint for a request that has been to those `tried`, to which it is added. `None`: there is no other.
    pub fn pick(&self, tried: &mut Tried) -> Option<InFlight> {
        let index = match self.spec.balance {
            Balance::RoundRobin => self.in_turn(self.next.fetch_add(1, Ordering::Relaxed), tried),
            Balance::LeastRequests => self.less_loaded(tried),
        }?;
        tried.0.push(index);
        self.endpoints.get(index).map(InFlight::new)
    }

    /// The first fit one from `start` on; failing that, the first one that only rests.
    fn in_turn(&self, start: usize, tried: &Tried) -> Option<usize> {
        let count = self.endpoints.len();
        let untried =
            || (0..count).map(|step| start.wrapping_add(step) % count).filter(|index| !tried.0.contains(index));
        untried().find(|&index| self.is_fit(index, tried)).or_else(|| untried().next())
    }

    /// Power of two choices: nearly as even as asking all, and immune to all workers rushing to one idle endpoint.
    fn less_loaded(&self, tried: &Tried) -> Option<usize> {
        let count = self.endpoints.len();
        if count < 2 {
            return self.in_turn(0, tried);
        }
        let one = fastrand::usize(..count);
        let other = (one + fastrand::usize(1..count)) % count;
        match (self.is_fit(one, tried), self.is_fit(other, tried)) {
            (true, true) => Some(if self.load(other) < self.load(one) { other } else { one }),
            (true, false) => Some(one),
            (false, true) => Some(other),
            (false, false) => self.in_turn(one, tried),
        }
    }

    fn is_fit(&self, index: usize, tried: &Tried) -> bool {
        !tried.0.contains(&index) && self.endpoints.get(index).is_some_and(|endpoint| !endpoint.is_resting())
    }

    fn load(&self, index: usize) -> usize {
        self.endpoints.get(index).map_or(usize::MAX, |endpoint: &Arc<Endpoint>| endpoint.in_flight())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::time::Duration;

    use super::*;
    use crate::upstream::UpstreamSpec;

    fn upstream(balance: Balance, endpoints: usize) -> Upstream {
        Upstream::new(Arc::new(UpstreamSpec {
            name: "orders".into(),
            endpoints: (0..endpoints).map(|n| format!("10.0.0.{n}:80").parse().unwrap()).collect(),
            balance,
            connect_timeout: Duration::from_secs(1),
            response_timeout: Duration::from_secs(1),
            idle_timeout: Duration::from_secs(1),
            keepalive_timeout: Duration::from_secs(1),
            keepalive_connections: 1,
        }))
    }

    #[test]
    fn round_robin_gives_each_endpoint_its_turn() {
        let upstream = upstream(Balance::RoundRobin, 3);
        let mut seen = HashMap::new();
        for _ in 0..300 {
            *seen.entry(upstream.pick(&mut Tried::default()).unwrap().key().clone()).or_insert(0) += 1;
        }
        assert_eq!(seen.into_values().collect::<Vec<_>>(), [100, 100, 100]);
    }

    #[test]
    fn least_requests_keeps_the_loads_level() {
        let upstream = upstream(Balance::LeastRequests, 4);
        let _busy: Vec<_> = (0..400).map(|_| upstream.pick(&mut Tried::default()).unwrap()).collect();
        for endpoint in upstream.endpoints() {
            assert!((85..=115).contains(&endpoint.in_flight()), "{}", endpoint.in_flight());
        }
    }

    #[test]
    fn least_requests_prefers_the_idle_one_of_two() {
        let upstream = upstream(Balance::LeastRequests, 2);
        let first = upstream.pick(&mut Tried::default()).unwrap();
        for _ in 0..50 {
            assert_ne!(upstream.pick(&mut Tried::default()).unwrap().key(), first.key());
        }
    }

    #[test]
    fn a_request_sees_each_endpoint_once() {
        for balance in [Balance::RoundRobin, Balance::LeastRequests] {
            let upstream = upstream(balance, 5);
            let mut tried = Tried::default();
            let mut keys: Vec<_> =
                std::iter::from_fn(|| upstream.pick(&mut tried).map(|at| at.key().clone())).collect();
            keys.sort();
            keys.dedup();
            assert_eq!(keys.len(), 5);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_endpoint_at_rest_is_passed_over_until_its_rest_is_over() {
        for balance in [Balance::RoundRobin, Balance::LeastRequests] {
            let upstream = upstream(balance, 2);
            upstream.endpoints()[0].note_refused();
            for _ in 0..20 {
                assert_eq!(&**upstream.pick(&mut Tried::default()).unwrap().key(), "10.0.0.1:80");
            }
            tokio::time::advance(Duration::from_millis(1001)).await;
            assert!(!upstream.endpoints()[0].is_resting());
        }
    }

    #[test]
    fn endpoints_that_all_rest_are_used_all_the_same() {
        let upstream = upstream(Balance::RoundRobin, 2);
        for endpoint in upstream.endpoints() {
            endpoint.note_refused();
        }
        assert!(upstream.pick(&mut Tried::default()).is_some());
    }

    #[test]
    fn the_load_ends_with_the_guard() {
        let upstream = upstream(Balance::RoundRobin, 1);
        let guard = upstream.pick(&mut Tried::default());
        assert_eq!(upstream.endpoints()[0].in_flight(), 1);
        drop(guard);
        assert_eq!(upstream.endpoints()[0].in_flight(), 0);
    }

    #[test]
    fn an_upstream_without_endpoints_has_none_to_pick() {
        for balance in [Balance::RoundRobin, Balance::LeastRequests] {
            assert!(upstream(balance, 0).pick(&mut Tried::default()).is_none());
        }
    }
}
