use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::order::TurnOrder;
use super::*;
use crate::upstream::affinity::set_cookie;
use crate::upstream::endpoints::{Endpoint, EndpointRole};
use crate::upstream::spec::balance::StickyCookie;
use crate::upstream::tls::Http2Policy;

/// A balancer and the endpoints that it picks from.
struct TestUpstream {
    balancer: Balancer,
    endpoints: Vec<Arc<Endpoint>>,
    order: TurnOrder,
}

impl TestUpstream {
    fn pick(&self, tried: &mut Tried) -> Option<PickedEndpoint> {
        self.balancer.pick(
            PickList {
                endpoints: &self.endpoints,
                order: &self.order,
            },
            tried,
        )
    }
}

/// Every way to balance.
fn all_ways() -> Vec<Balance> {
    let mut ways: Vec<_> = Balance::WORDS.into_iter().map(|(_, way)| way).collect();
    ways.push(Balance::Hash(Arc::new([])));
    ways.push(Balance::Sticky(sticky_cookie()));
    ways
}

fn sticky_cookie() -> StickyCookie {
    StickyCookie {
        name: "stick".into(),
        ttl: None,
        secure: false,
        secret: "secret".into(),
    }
}

fn upstream(balance: &Balance, endpoints: usize) -> TestUpstream {
    weighted(balance, &vec![1; endpoints])
}

fn weighted(balance: &Balance, weights: &[u64]) -> TestUpstream {
    let mut endpoints = Vec::new();
    for (n, weight) in weights.iter().enumerate() {
        let url = format!("http://10.0.0.{n}").parse().unwrap();
        let role = EndpointRole {
            weight: *weight,
            seed: n as u64,
            ..EndpointRole::default()
        };
        let endpoint = Endpoint::new(&url, None, Http2Policy::Auto, None);
        endpoints.push(Arc::new(endpoint.with_role(role)));
    }
    TestUpstream {
        balancer: Balancer::new(balance),
        endpoints,
        order: TurnOrder::from_weights(weights),
    }
}

#[test]
fn round_robin_gives_each_endpoint_its_turn() {
    let upstream = upstream(&Balance::RoundRobin, 3);
    let mut seen = HashMap::new();
    for _ in 0..300 {
        *seen
            .entry(upstream.pick(&mut Tried::default()).unwrap().key().clone())
            .or_insert(0) += 1;
    }
    assert_eq!(seen.into_values().collect::<Vec<_>>(), [100, 100, 100]);
}

#[test]
fn least_requests_keeps_loads_even() {
    let upstream = upstream(&Balance::LeastRequests, 4);
    let _busy: Vec<_> = (0..400)
        .map(|_| upstream.pick(&mut Tried::default()).unwrap())
        .collect();
    for endpoint in &upstream.endpoints {
        assert!(
            (85..=115).contains(&endpoint.in_flight()),
            "{}",
            endpoint.in_flight()
        );
    }
}

#[test]
fn least_requests_prefers_the_idle_one_of_two() {
    let upstream = upstream(&Balance::LeastRequests, 2);
    let first = upstream.pick(&mut Tried::default()).unwrap();
    for _ in 0..50 {
        assert_ne!(
            upstream.pick(&mut Tried::default()).unwrap().key(),
            first.key()
        );
    }
}

#[test]
fn a_request_tries_each_endpoint_once() {
    for balance in all_ways() {
        let upstream = upstream(&balance, 5);
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
    for balance in all_ways() {
        let upstream = upstream(&balance, 2);
        upstream.endpoints[0].record_refused();
        for _ in 0..20 {
            assert_eq!(
                &**upstream.pick(&mut Tried::default()).unwrap().key(),
                "http://10.0.0.1:80"
            );
        }
        tokio::time::advance(Duration::from_millis(1001)).await;
        assert!(!upstream.endpoints[0].is_backing_off());
    }
}

#[test]
fn endpoints_that_all_back_off_are_used_nevertheless() {
    let upstream = upstream(&Balance::RoundRobin, 2);
    for endpoint in &upstream.endpoints {
        endpoint.record_refused();
    }
    assert!(upstream.pick(&mut Tried::default()).is_some());
}

#[test]
fn a_dropped_pick_no_longer_counts() {
    let upstream = upstream(&Balance::RoundRobin, 1);
    let guard = upstream.pick(&mut Tried::default());
    assert_eq!(upstream.endpoints[0].in_flight(), 1);
    drop(guard);
    assert_eq!(upstream.endpoints[0].in_flight(), 0);
}

#[test]
fn an_upstream_without_endpoints_has_none_to_pick() {
    for balance in all_ways() {
        assert!(upstream(&balance, 0).pick(&mut Tried::default()).is_none());
    }
}

#[test]
fn weights_share_out_the_turns() {
    let upstream = weighted(&Balance::RoundRobin, &[3, 1]);
    let picked: String = (0..8)
        .map(|_| upstream.pick(&mut Tried::default()).unwrap().url()[14..].to_owned())
        .collect();
    assert_eq!(picked, "00100010");
}

#[test]
fn least_requests_fills_endpoints_by_their_weight() {
    let upstream = weighted(&Balance::LeastRequests, &[3, 1]);
    let _busy: Vec<_> = (0..400)
        .map(|_| upstream.pick(&mut Tried::default()).unwrap())
        .collect();
    assert!(
        (285..=315).contains(&upstream.endpoints[0].in_flight()),
        "{}",
        upstream.endpoints[0].in_flight()
    );
}

/// The affinity of requests that have `number` in common.
fn alike(number: u128) -> Tried {
    Tried::by(Some(Affinity::from_value(number)))
}

/// The endpoint of requests that have `number` in common.
fn home(upstream: &TestUpstream, number: u128) -> String {
    upstream.pick(&mut alike(number)).unwrap().url().to_owned()
}

#[test]
fn requests_that_are_alike_go_to_one_endpoint_and_to_another_one_while_it_backs_off() {
    let upstream = upstream(&Balance::Hash(Arc::new([])), 5);
    let homes: Vec<_> = (0..100).map(|number| home(&upstream, number)).collect();
    for (number, before) in (0..100).zip(&homes) {
        assert_eq!(home(&upstream, number), *before);
    }
    upstream.endpoints[2].record_refused();
    for (number, before) in (0..100).zip(&homes) {
        let now = home(&upstream, number);
        assert_eq!(now == *before, before != "http://10.0.0.2", "{number}");
    }
}

#[test]
fn a_cookie_leads_to_its_endpoint_unless_that_backs_off() {
    let cookie = sticky_cookie();
    let mut upstream = upstream(&Balance::Sticky(cookie.clone()), 3);
    for endpoint in &mut upstream.endpoints {
        let affinity = Affinity::for_endpoint(&cookie, "up", endpoint.url());
        let role = EndpointRole {
            sticky: Some((affinity, set_cookie(&cookie, affinity).unwrap())),
            ..EndpointRole::default()
        };
        let url = endpoint.url().parse().unwrap();
        *endpoint = Arc::new(Endpoint::new(&url, None, Http2Policy::Auto, None).with_role(role));
    }
    let affinity = Affinity::for_endpoint(&cookie, "up", "http://10.0.0.1");
    for _ in 0..20 {
        assert_eq!(
            upstream.pick(&mut Tried::by(Some(affinity))).unwrap().url(),
            "http://10.0.0.1"
        );
    }
    let guessed: std::collections::HashSet<_> = (0..3)
        .map(|number| upstream.pick(&mut alike(number)).unwrap().url().to_owned())
        .collect();
    assert_eq!(
        guessed.len(),
        3,
        "a value that nobody has signed is as good as none"
    );
    upstream.endpoints[1].record_refused();
    assert_ne!(
        upstream.pick(&mut Tried::by(Some(affinity))).unwrap().url(),
        "http://10.0.0.1"
    );
}
