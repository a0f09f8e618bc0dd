//! A limit with a queue admits all that it allows, in the order in which requests came, and no
//! more: whatever the way to the store, the burst and the number of workers.
//!
//! Time is paused: a timer is up to a millisecond late, as in production, and every run is the
//! same.

use std::convert::Infallible;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use futures_util::future::{BoxFuture, join_all};
use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use tokio::time::{sleep, sleep_until};
use tollgate_limiter::algorithm::concurrency::{GrantedPermits, Scope};
use tollgate_limiter::clock::{self, Instant};
use tollgate_limiter::decide::limiter::Limiter;
use tollgate_limiter::layer::RateLimitLayer;
use tollgate_limiter::limit::algorithm::{Algorithm, Rate};
use tollgate_limiter::limit::definition::Limit as LimitDefinition;
use tollgate_limiter::limit::definition::LimitUse;
use tollgate_limiter::limit::key::{KeyPart, KeySpec, OnMissing};
use tollgate_limiter::limit::on_limit::{OnLimit, Queueing};
use tollgate_limiter::node::Node;
use tollgate_limiter::node::breaker::Breaker;
use tollgate_limiter::request::compiled_limit::LargestCosts;
use tollgate_limiter::request::rule::LimitStates;
use tollgate_limiter::request::rule_set::RuleSet;
use tollgate_limiter::store::adjustment::{AdjustmentBatch, AdjustmentResult};
use tollgate_limiter::store::fleet_share::FleetShare;
use tollgate_limiter::store::memory::MemoryStore;
use tollgate_limiter::store::{BucketCharge, Grant, PermitClaim, Store, StoreError, StoreFailure};
use tower::{Layer, ServiceExt, service_fn};

const CLIENT: HeaderName = HeaderName::from_static("x-client");

const RATE: u32 = 500;

/// The part of the limit that has to be admitted at least.
const LEAST: f64 = 0.97;

/// A store at a distance: each call takes `there_and_back`.
struct FarStore {
    memory: Arc<MemoryStore>,
    there_and_back: Duration,
}

impl Store for FarStore {
    fn take<'a>(
        &'a self,
        charges: &'a [BucketCharge],
        units: u32,
    ) -> BoxFuture<'a, Result<Grant, StoreFailure>> {
        Box::pin(async move {
            sleep(self.there_and_back / 2).await;
            let grant = self.memory.take(charges, units).await;
            sleep(self.there_and_back / 2).await;
            grant
        })
    }

    fn adjust<'a>(&'a self, batch: &'a AdjustmentBatch) -> BoxFuture<'a, Vec<AdjustmentResult>> {
        self.memory.adjust(batch)
    }

    fn claim<'a>(
        &'a self,
        claims: &'a [PermitClaim],
    ) -> BoxFuture<'a, Result<Vec<GrantedPermits>, StoreError>> {
        self.memory.claim(claims)
    }

    fn timeout(&self) -> Duration {
        Duration::from_millis(200)
    }
}

/// Workers that share a queue, each with a connection of its own to a store so far away; without
/// one, in memory.
fn workers(count: usize, store: Option<Duration>, limit: LimitDefinition) -> Vec<RateLimitLayer> {
    workers_of(count, store, vec![limit])
}

/// Like [`workers`], with several limits.
fn workers_of(
    count: usize,
    store: Option<Duration>,
    limits: Vec<LimitDefinition>,
) -> Vec<RateLimitLayer> {
    workers_at(&Arc::new(MemoryStore::new(1_000)), count, store, limits)
}

/// Like [`workers_of`], with `memory` behind the store.
fn workers_at(
    memory: &Arc<MemoryStore>,
    count: usize,
    store: Option<Duration>,
    limits: Vec<LimitDefinition>,
) -> Vec<RateLimitLayer> {
    let uses: Vec<LimitUse> = limits
        .into_iter()
        .map(|limit| LimitUse {
            limit: Arc::new(limit),
            cost: None,
        })
        .collect();
    let costs = LargestCosts::over(uses.iter());
    let rules =
        Arc::new(RuleSet::new(uses.iter(), &costs, &LimitStates::default(), false).unwrap());
    let local = Arc::new(MemoryStore::new(1_000));
    let node = Arc::new(Node::new(
        local.clone(),
        Arc::new(Breaker::new()),
        Arc::new(FleetShare::expecting(1)),
    ));
    (0..count)
        .map(|_| {
            RateLimitLayer::of_rules(
                match store {
                    None => Limiter::for_process(local.clone(), node.permits.clone()),
                    Some(there_and_back) => Limiter::for_node(
                        node.clone(),
                        Arc::new(FarStore {
                            memory: memory.clone(),
                            there_and_back,
                        }),
                    ),
                },
                rules.clone(),
            )
        })
        .collect()
}

fn limit(burst: u64, bounds: Queueing) -> LimitDefinition {
    let number = |number| std::num::NonZeroU64::new(number).unwrap();
    let key = KeySpec {
        parts: vec![KeyPart::Header(CLIENT)],
        on_missing: OnMissing::Share,
    };
    let rate = Rate {
        tokens: number(RATE.into()),
        period_us: number(1_000_000),
    };
    LimitDefinition {
        on_limit: OnLimit::Queue(bounds),
        ..LimitDefinition::new("l", key, rate, number(burst))
    }
}

fn bounds(max_wait: Duration, max_waiting: usize) -> Queueing {
    Queueing {
        max_wait,
        max_waiting: NonZeroUsize::new(max_waiting).unwrap(),
    }
}

/// A request's way.
#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Instant,
    answered_at: Instant,
    admitted: bool,
}

/// Sends a request, which takes `service_time` once it is admitted.
async fn send(layer: RateLimitLayer, client: &'static str, service_time: Duration) -> Sent {
    let hello = service_fn(async |_: Request<Body>| {
        sleep(service_time).await;
        Ok::<_, Infallible>(Response::new(Body::empty()))
    });
    let mut request = Request::new(Body::empty());
    request
        .headers_mut()
        .insert(CLIENT, HeaderValue::from_static(client));
    let at = clock::now();
    let answer = layer.layer(hello).oneshot(request).await.unwrap();
    Sent {
        at,
        answered_at: clock::now(),
        admitted: answer.status() == StatusCode::OK,
    }
}

/// Sends `demand` requests a second for so long, to the workers in turn: all of them, in order.
async fn drive(workers: &[RateLimitLayer], demand: u32, during: Duration) -> Vec<Sent> {
    drive_for(workers, demand, during, Duration::ZERO).await
}

/// Like [`drive`], where an admitted request takes `service_time`.
async fn drive_for(
    workers: &[RateLimitLayer],
    demand: u32,
    during: Duration,
    service_time: Duration,
) -> Vec<Sent> {
    let began = clock::now();
    let count = (f64::from(demand) * during.as_secs_f64()) as u32;
    let mut requests = Vec::new();
    for n in 0..count {
        sleep_until(began + Duration::from_secs(1) * n / demand).await;
        requests.push(tokio::spawn(send(
            workers[n as usize % workers.len()].clone(),
            "one",
            service_time,
        )));
    }
    join_all(requests)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect()
}

/// The most tokens by which a window from a question to an answer exceeds the limit.
fn excess(sent: &[Sent], burst: u64) -> f64 {
    let mut admitted: Vec<Sent> = sent.iter().copied().filter(|sent| sent.admitted).collect();
    admitted.sort_by_key(|sent| sent.answered_at);
    let mut most = f64::MIN;
    for first in &admitted {
        // Those answered before were asked before.
        let from = admitted.partition_point(|sent| sent.answered_at < first.at);
        let within = admitted[from..].iter().filter(|sent| sent.at >= first.at);
        for (count, last) in (1..).zip(within) {
            let allowed =
                burst as f64 + f64::from(RATE) * (last.answered_at - first.at).as_secs_f64();
            most = most.max(f64::from(count) - allowed);
        }
    }
    most
}

/// The part of the limit that was admitted by `until`.
fn admitted_part(sent: &[Sent], burst: u64, during: Duration) -> f64 {
    let until = sent[0].at + during;
    let admitted = sent
        .iter()
        .filter(|sent| sent.admitted && sent.answered_at <= until)
        .count();
    admitted as f64 / (burst as f64 + f64::from(RATE) * during.as_secs_f64())
}

#[tokio::test(start_paused = true)]
async fn a_queue_admits_all_that_its_limit_allows_in_order_and_no_more() {
    let max_wait = Duration::from_millis(500);
    let during = Duration::from_secs(2);
    for store in [None, Some(0), Some(2), Some(5)] {
        for (burst, count) in [1, 10, 500]
            .into_iter()
            .flat_map(|burst| [(burst, 1), (burst, 2)])
        {
            let workers = workers(
                count,
                store.map(Duration::from_millis),
                limit(burst, bounds(max_wait, 400)),
            );
            let sent = drive(&workers, 2 * RATE, during).await;
            let case = format!("{store:?} ms to the store, burst {burst}, {count} workers");
            let part = admitted_part(&sent, burst, during);
            println!("{case}: {part:.3}");
            assert!(part >= LEAST, "{case}: {part:.3}");
            assert!(
                excess(&sent, burst) <= 0.001,
                "{case}: {} too many",
                excess(&sent, burst)
            );
            // Some requests are on their way to the store when the first ones are denied. Workers
            // do not know of each other's.
            let waited = sent
                .iter()
                .find(|sent| sent.answered_at - sent.at > Duration::from_millis(15))
                .unwrap();
            let settled = waited.at + Duration::from_millis(15);
            let admitted: Vec<_> = sent
                .iter()
                .filter(|sent| sent.admitted && sent.at > settled)
                .collect();
            assert!(
                admitted.is_sorted_by_key(|sent| sent.answered_at),
                "{case}: a request overtook another"
            );
            let longest = sent
                .iter()
                .map(|sent| sent.answered_at - sent.at)
                .max()
                .unwrap();
            assert!(
                longest <= max_wait + Duration::from_millis(1),
                "{case}: {longest:?}"
            );
        }
    }
}

/// Each node charges tokens in advance. Turns that come after the last request's time would be
/// lost, and requests be refused for them.
#[tokio::test(start_paused = true)]
async fn nodes_whose_requests_wait_for_a_short_time_only_admit_all_that_their_limit_allows() {
    let burst = 50;
    let during = Duration::from_secs(2);
    for (max_wait, there_and_back) in [(64, 6), (64, 20), (30, 4), (100, 10)] {
        let memory = Arc::new(MemoryStore::new(1_000));
        let [max_wait, there_and_back] = [max_wait, there_and_back].map(Duration::from_millis);
        let nodes: Vec<_> = (0..4)
            .flat_map(|_| {
                workers_at(
                    &memory,
                    1,
                    Some(there_and_back),
                    vec![limit(burst, bounds(max_wait, 400))],
                )
            })
            .collect();
        let sent = drive(&nodes, 3 * RATE, during).await;
        let part = admitted_part(&sent, burst, during);
        println!("{max_wait:?}, {there_and_back:?}: {part:.3}");
        assert!(
            part >= LEAST,
            "{max_wait:?}, {there_and_back:?} to the store: {part:.3}"
        );
        assert!(
            excess(&sent, burst) <= 0.001,
            "{} too many",
            excess(&sent, burst)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_comes_back_goes_to_the_next_in_line_at_once() {
    let most = 10_u32;
    let service_time = Duration::from_millis(20);
    let during = Duration::from_secs(2);
    for (scope, count) in [
        (Scope::Node, 1),
        (Scope::Node, 2),
        (Scope::Fleet, 1),
        (Scope::Fleet, 2),
    ] {
        let on_limit = OnLimit::Queue(bounds(Duration::from_millis(500), 400));
        let algorithm = Algorithm::Concurrency {
            most: std::num::NonZeroU64::new(most.into()).unwrap(),
            scope,
        };
        let limit = LimitDefinition {
            on_limit,
            algorithm,
            ..limit(1, bounds(Duration::from_secs(1), 1))
        };
        let workers = workers(count, Some(Duration::from_millis(2)), limit);
        let sent = drive_for(&workers, 2 * RATE, during, service_time).await;
        let until = sent[0].at + during;
        let done = sent
            .iter()
            .filter(|sent| sent.admitted && sent.answered_at <= until)
            .count();
        let part =
            done as f64 / (f64::from(most) * during.as_secs_f64() / service_time.as_secs_f64());
        println!("{scope:?}, {count} workers: {part:.3}");
        assert!(part >= LEAST, "{scope:?}, {count} workers: {part:.3}");
    }
}

/// A line that asked for its requests again and again, while another limit denied them, would never
/// let time pass here.
#[tokio::test(start_paused = true)]
async fn a_line_whose_requests_another_limit_denies_waits_for_that_one() {
    let during = Duration::from_secs(2);
    let wide = bounds(Duration::from_secs(5), 1_000);
    let number = |number| std::num::NonZeroU64::new(number).unwrap();
    let rate = Rate {
        tokens: number(50),
        period_us: number(1_000_000),
    };
    let key = KeySpec {
        parts: vec![],
        on_missing: OnMissing::Share,
    };
    let on_limit = OnLimit::Queue(wide);
    let all = LimitDefinition {
        on_limit,
        ..LimitDefinition::new("all", key, rate, number(1))
    };
    for store in [None, Some(Duration::from_millis(2))] {
        let workers = workers_of(1, store, vec![limit(1, wide), all.clone()]);
        let sent = drive(&workers, 100, during).await;
        let until = sent[0].at + during;
        let admitted = sent
            .iter()
            .filter(|sent| sent.admitted && sent.answered_at <= until)
            .count();
        assert!(
            (80..=101).contains(&admitted),
            "{store:?}: {admitted} of 101"
        );
    }
}
