//! Load balancing: which endpoint is next.
//!
//! Guarantees that a request is sent to no endpoint twice, and that an endpoint which backs off is only picked when no
//! other is left. Takes no lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use smallvec::SmallVec;

use super::endpoints::{Endpoint, PickedEndpoint};

/// How the next endpoint is picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Balance {
    #[default]
    RoundRobin,
    /// The less loaded of two endpoints drawn at random.
    LeastRequests,
}

/// Picks endpoints of one upstream, for all workers.
#[derive(Debug)]
pub struct Balancer {
    balance: Balance,
    /// The index at which round robin goes on.
    next: AtomicUsize,
}

/// The endpoints that a request was sent to, by their place in memory: lists of endpoints change meanwhile.
#[derive(Debug, Default)]
pub struct Tried(SmallVec<[usize; 4]>);

impl Tried {
    /// How many endpoints were tried.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    fn contains(&self, endpoint: &Arc<Endpoint>) -> bool {
        self.0.contains(&Arc::as_ptr(endpoint).addr())
    }
}

impl Balancer {
    pub fn new(balance: Balance) -> Self {
        Self { balance, next: AtomicUsize::new(0) }
    }

    /// The next of `endpoints` for a request that was already sent to those in `tried`, to which it is added. `None`:
    /// none is left.
    pub fn pick(&self, endpoints: &[Arc<Endpoint>], tried: &mut Tried) -> Option<PickedEndpoint> {
        let index = match self.balance {
            Balance::RoundRobin => in_turn(endpoints, self.next.fetch_add(1, Ordering::Relaxed), tried),
            Balance::LeastRequests => less_loaded(endpoints, tried),
        }?;
        let endpoint = endpoints.get(index)?;
        tried.0.push(Arc::as_ptr(endpoint).addr());
        Some(PickedEndpoint::new(endpoint))
    }
}

/// The first untried endpoint from `start` on that does not back off; failing that, the first untried one.
fn in_turn(endpoints: &[Arc<Endpoint>], start: usize, tried: &Tried) -> Option<usize> {
    let count = endpoints.len();
    let is_untried = |index: &usize| endpoints.get(*index).is_some_and(|endpoint| !tried.contains(endpoint));
    let untried = || (0..count).map(|step| start.wrapping_add(step) % count).filter(is_untried);
    untried().find(|&index| is_fit(endpoints, index, tried)).or_else(|| untried().next())
}

/// Power of two choices: nearly as even as comparing all endpoints, and workers do not all rush to one idle endpoint.
fn less_loaded(endpoints: &[Arc<Endpoint>], tried: &Tried) -> Option<usize> {
    let count = endpoints.len();
    if count < 2 {
        return in_turn(endpoints, 0, tried);
    }
    let one = fastrand::usize(..count);
    let other = (one + fastrand::usize(1..count)) % count;
    match (is_fit(endpoints, one, tried), is_fit(endpoints, other, tried)) {
        (true, true) => Some(if load(endpoints, other) < load(endpoints, one) { other } else { one }),
        (true, false) => Some(one),
        (false, true) => Some(other),
        (false, false) => in_turn(endpoints, one, tried),
    }
}

fn is_fit(endpoints: &[Arc<Endpoint>], index: usize, tried: &Tried) -> bool {
    endpoints.get(index).is_some_and(|endpoint| !tried.contains(endpoint) && !endpoint.is_backing_off())
}

fn load(endpoints: &[Arc<Endpoint>], index: usize) -> usize {
    endpoints.get(index).map_or(usize::MAX, |endpoint| endpoint.in_flight())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::time::Duration;

    use super::*;
    use crate::upstream::tls::Http2Policy;

    /// A balancer and the endpoints that it picks from.
    struct TestUpstream {
        balancer: Balancer,
        endpoints: Vec<Arc<Endpoint>>,
    }

    impl TestUpstream {
        fn pick(&self, tried: &mut Tried) -> Option<PickedEndpoint> {
            self.balancer.pick(&self.endpoints, tried)
        }
    }

    fn upstream(balance: Balance, endpoints: usize) -> TestUpstream {
        let endpoint =
            |n| Arc::new(Endpoint::new(&format!("http://10.0.0.{n}").parse().unwrap(), None, Http2Policy::Auto, None));
        TestUpstream { balancer: Balancer::new(balance), endpoints: (0..endpoints).map(endpoint).collect() }
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
    fn least_requests_keeps_loads_even() {
        let upstream = upstream(Balance::LeastRequests, 4);
        let _busy: Vec<_> = (0..400).map(|_| upstream.pick(&mut Tried::default()).unwrap()).collect();
        for endpoint in &upstream.endpoints {
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
    fn a_request_tries_each_endpoint_once() {
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
    async fn an_endpoint_that_backs_off_is_passed_over_until_the_back_off_ends() {
        for balance in [Balance::RoundRobin, Balance::LeastRequests] {
            let upstream = upstream(balance, 2);
            upstream.endpoints[0].record_refused();
            for _ in 0..20 {
                assert_eq!(&**upstream.pick(&mut Tried::default()).unwrap().key(), "http://10.0.0.1:80");
            }
            tokio::time::advance(Duration::from_millis(1001)).await;
            assert!(!upstream.endpoints[0].is_backing_off());
        }
    }

    #[test]
    fn endpoints_that_all_back_off_are_used_nevertheless() {
        let upstream = upstream(Balance::RoundRobin, 2);
        for endpoint in &upstream.endpoints {
            endpoint.record_refused();
        }
        assert!(upstream.pick(&mut Tried::default()).is_some());
    }

    #[test]
    fn a_dropped_pick_no_longer_counts() {
        let upstream = upstream(Balance::RoundRobin, 1);
        let guard = upstream.pick(&mut Tried::default());
        assert_eq!(upstream.endpoints[0].in_flight(), 1);
        drop(guard);
        assert_eq!(upstream.endpoints[0].in_flight(), 0);
    }

    #[test]
    fn an_upstream_without_endpoints_has_none_to_pick() {
        for balance in [Balance::RoundRobin, Balance::LeastRequests] {
            assert!(upstream(balance, 0).pick(&mut Tried::default()).is_none());
        }
    }
}
