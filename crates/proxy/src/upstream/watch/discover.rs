//! Looks up the endpoints of upstreams when that is due, and lets upstreams follow, on the control
//! plane.
//!
//! Guarantees one lookup of an upstream at a time. An endpoint that stays keeps its connections and
//! its condition, one that has left gets no new request, and one that is new begins slowly where
//! that is asked for.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::upstream::Upstream;
use crate::upstream::discovery::dns;
use crate::upstream::discovery::{EndpointList, LoggedChanges, LookupStanding};
use crate::upstream::endpoints::Endpoint;
use crate::upstream::rotation::Rotations;
use tollgate_limiter::clock;

/// How often it is looked whether a lookup is due.
const TICK: Duration = Duration::from_millis(100);

/// How often it is looked whether there is anything to discover at all.
const IDLE: Duration = Duration::from_secs(1);

/// The longest that a new configuration waits for the first answers.
const FIRST_ANSWERS: Duration = Duration::from_secs(3);

/// Looks up the endpoints of the `upstreams` there are at each moment, for ever.
pub async fn run(upstreams: impl Fn() -> Vec<Arc<Upstream>>) {
    loop {
        let discovering = upstreams();
        for upstream in &discovering {
            follow(upstream);
            drop(look_up(upstream));
        }
        sleep(if discovering.is_empty() { IDLE } else { TICK }).await;
    }
}

/// Waits for the first answers to `upstreams` that have had none, for a short time.
pub async fn first_answers(upstreams: impl Iterator<Item = Arc<Upstream>>) {
    let mut lookups = Vec::new();
    for upstream in upstreams {
        if let Some(discovery) = upstream.discovery()
            && discovery.standing().standing == LookupStanding::Unknown
        {
            lookups.extend(look_up(&upstream));
        }
    }
    // Lookups that take longer go on by themselves.
    drop(timeout(FIRST_ANSWERS, join_all(lookups)).await);
}

/// Starts a lookup, if one is due.
fn look_up(upstream: &Arc<Upstream>) -> Option<JoinHandle<()>> {
    upstream.discovery()?.spec().dns()?;
    if !upstream.discovery()?.is_due(clock::monotonic_micros()) {
        return None;
    }
    let upstream = Arc::clone(upstream);
    Some(tokio::spawn(async move {
        let Some(discovery) = upstream.discovery() else {
            return;
        };
        let (Some(spec), Some(turn)) = (discovery.spec().dns(), discovery.turn()) else {
            return;
        };
        turn.record(
            spec,
            dns::look_up(spec, !discovery.list().endpoints.is_empty()).await,
        );
        follow(&upstream);
    }))
}

/// Puts the endpoints in place that were found last.
pub fn follow(upstream: &Upstream) {
    let (Some(discovery), Rotations::Changing(changing)) =
        (upstream.discovery(), &upstream.rotations)
    else {
        return;
    };
    let list = discovery.list();
    if upstream.followed.load(Ordering::Relaxed) == list.version {
        return log_changes(upstream);
    }
    let _changing = changing.lock();
    let before = changing.load();
    let now = clock::monotonic_micros();
    let is_first = upstream.followed.swap(list.version, Ordering::Relaxed) == 0;
    let (endpoints, added) = endpoints(upstream, &list, before.all(), (!is_first).then_some(now));
    let removed = before.all().len() + added - endpoints.len();
    upstream.turn(changing, &before, endpoints);
    discovery.count_change(added, removed);
    log_changes(upstream);
}

/// Logs how the endpoints have changed: at once, or after a while if they change all the time.
fn log_changes(upstream: &Upstream) {
    let Some(discovery) = upstream.discovery() else {
        return;
    };
    if let Some(LoggedChanges {
        changes,
        added,
        removed,
    }) = discovery.untold_changes(clock::monotonic_micros())
    {
        let upstream_name = &*upstream.spec().name;
        let source = discovery.spec();
        let endpoints = upstream.endpoints().len();
        tracing::info!(upstream = upstream_name, %source, added, removed, endpoints, changes, "endpoints have changed");
    }
}

/// The endpoints of `list`, and how many are new: those come into service at `now`, if it is given.
fn endpoints(
    upstream: &Upstream,
    list: &EndpointList,
    before: &[Arc<Endpoint>],
    now: Option<u64>,
) -> (Box<[Arc<Endpoint>]>, usize) {
    let mut known: Vec<_> = before.iter().collect();
    let mut added = 0;
    let endpoints = list.endpoints.iter().map(|of| {
        let endpoint = upstream.build_endpoint(of);
        let Some(at) = known.iter().position(|known| known.url() == endpoint.url()) else {
            added += 1;
            if let Some(now) = now {
                endpoint.condition().start(now);
            }
            return Arc::new(endpoint);
        };
        let known = known.remove(at);
        let is_same = known.role().weight == of.weight && known.role().priority == of.priority;
        if is_same && known.host() == endpoint.host() {
            return Arc::clone(known);
        }
        Arc::new(endpoint.with_condition(Arc::clone(known.condition())))
    });
    (endpoints.collect(), added)
}
