//! The rate limit's fields are true: a client that sends no more than `RateLimit` says is left, and
//! waits as long as it says, is never denied; a denied one passes after `Retry-After`.
//!
//! Time is paused: the waits of minutes take none, and every run is the same.

use std::convert::Infallible;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use fastrand::Rng;
use futures_util::future::{BoxFuture, join_all};
use http::header::RETRY_AFTER;
use http::{HeaderName, Request, Response, StatusCode};
use tokio::time::sleep;
use tollgate_limiter::algorithm::concurrency::GrantedPermits;
use tollgate_limiter::clock::unix_micros;
use tollgate_limiter::decide::limiter::Limiter;
use tollgate_limiter::layer::RateLimitLayer;
use tollgate_limiter::limit::algorithm::{Algorithm, Rate, WindowLength, WindowRate};
use tollgate_limiter::limit::definition::{Consistency, Limit, LimitUse};
use tollgate_limiter::limit::key::{KeyPart, KeySpec, OnMissing};
use tollgate_limiter::node::Node;
use tollgate_limiter::node::breaker::Breaker;
use tollgate_limiter::store::adjustment::{AdjustmentBatch, AdjustmentResult};
use tollgate_limiter::store::fleet_share::FleetShare;
use tollgate_limiter::store::memory::MemoryStore;
use tollgate_limiter::store::{BucketCharge, Grant, PermitClaim, Store, StoreError, StoreFailure};
use tower::{Layer, Service, ServiceExt, service_fn};

const CLIENT: HeaderName = HeaderName::from_static("x-client");

const CLIENTS: usize = 8;

/// A store at a distance, so that requests meet while calls are under way.
struct DistantStore(Arc<MemoryStore>);

impl Store for DistantStore {
    fn take<'a>(
        &'a self,
        charges: &'a [BucketCharge],
        units: u32,
    ) -> BoxFuture<'a, Result<Grant, StoreFailure>> {
        Box::pin(async move {
            sleep(Duration::from_millis(2)).await;
            let grant = self.0.take(charges, units).await;
            sleep(Duration::from_millis(1)).await;
            grant
        })
    }

    fn adjust<'a>(&'a self, batch: &'a AdjustmentBatch) -> BoxFuture<'a, Vec<AdjustmentResult>> {
        Box::pin(async move {
            sleep(Duration::from_millis(2)).await;
            self.0.adjust(batch).await
        })
    }

    fn claim<'a>(
        &'a self,
        claims: &'a [PermitClaim],
    ) -> BoxFuture<'a, Result<Vec<GrantedPermits>, StoreError>> {
        self.0.claim(claims)
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(1)
    }
}

/// `tokens` every `millis` for each client, of which each request takes `cost`.
#[derive(Clone, Copy, Debug)]
struct Spec {
    tokens: u64,
    millis: u64,
    burst: u64,
    cost: u64,
}

const fn spec(tokens: u64, millis: u64, burst: u64) -> Spec {
    Spec {
        tokens,
        millis,
        burst,
        cost: 1,
    }
}

impl Spec {
    fn limit(self, name: &str, consistency: Consistency) -> LimitUse {
        let number = |number| NonZeroU64::new(number).unwrap();
        let key = KeySpec {
            parts: vec![KeyPart::Header(CLIENT)],
            on_missing: OnMissing::Share,
        };
        let rate = Rate {
            tokens: number(self.tokens),
            period_us: number(self.millis * 1_000),
        };
        let limit = Limit {
            consistency,
            ..Limit::new(name, key, rate, number(self.burst))
        };
        let cost = tollgate_limiter::limit::cost::Cost::Fixed(number(self.cost));
        LimitUse {
            limit: Arc::new(limit),
            cost: Some(cost),
        }
    }
}

fn local() -> Vec<Limiter> {
    vec![Limiter::local(Arc::new(MemoryStore::new(1_000)))]
}

/// The workers of a node, each with its own way to the store.
fn distant(workers: usize) -> Vec<Limiter> {
    let share = Arc::new(FleetShare::expecting(1));
    let node = Arc::new(Node::new(
        Arc::new(MemoryStore::new(1_000)),
        Arc::new(Breaker::new()),
        share,
    ));
    let buckets = Arc::new(MemoryStore::new(1_000));
    (0..workers)
        .map(|_| Limiter::for_node(node.clone(), Arc::new(DistantStore(buckets.clone()))))
        .collect()
}

/// The rate limit's fields of an answer.
#[derive(Clone, Debug)]
struct ResponseFields {
    passed: bool,
    /// For each limit: requests left, seconds.
    left: Vec<(u64, u64)>,
    retry_after: Option<u64>,
}

impl ResponseFields {
    fn new(response: &Response<()>) -> Self {
        let text = |name: &str| {
            response
                .headers()
                .get(name)
                .map(|value| value.to_str().unwrap().to_owned())
        };
        let number = |item: &str, name: &str| {
            item.split(name)
                .nth(1)
                .unwrap()
                .split(';')
                .next()
                .unwrap()
                .parse()
                .unwrap()
        };
        let fields = text("ratelimit").unwrap_or_default();
        Self {
            passed: response.status() == StatusCode::OK,
            left: fields
                .split(", ")
                .map(|item| (number(item, ";r="), number(item, ";t=")))
                .collect(),
            retry_after: text(RETRY_AFTER.as_str()).map(|seconds| seconds.parse().unwrap()),
        }
    }

    /// Requests that all limits let pass, and the seconds to wait if there are none.
    fn next(&self) -> (u64, u64) {
        let left = self.left.iter().map(|(left, _)| *left).min().unwrap();
        let wait = self
            .left
            .iter()
            .filter(|(left, _)| *left == 0)
            .map(|(_, seconds)| *seconds)
            .max()
            .unwrap_or(0);
        (left, wait)
    }
}

trait Limited: Service<Request<Body>, Response = Response<()>, Error = Infallible> + Clone {}

impl<S: Service<Request<Body>, Response = Response<()>, Error = Infallible> + Clone> Limited for S {}

fn limited(limiter: Limiter, uses: &[LimitUse]) -> impl Limited + use<> {
    let inner =
        service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::empty())));
    RateLimitLayer::of_uses(limiter, uses)
        .unwrap()
        .layer(inner)
        .map_response(|response| response.map(drop))
}

/// From any of the workers.
async fn ask(workers: &[impl Limited], client: usize) -> ResponseFields {
    let service = &workers[fastrand::usize(..workers.len())];
    let request = Request::builder()
        .header(CLIENT, client.to_string())
        .body(Body::empty())
        .unwrap();
    ResponseFields::new(&service.clone().oneshot(request).await.unwrap())
}

/// Does as it is told: at most as many requests as are left, some at a time, and none before the
/// wait is over.
async fn obey(service: &[impl Limited], client: usize, seed: u64, rounds: usize, at_once: u64) {
    let mut rng = Rng::with_seed(seed);
    let mut told = ask(service, client).await;
    assert!(told.passed);
    for round in 0..rounds {
        let (left, wait) = told.next();
        if left == 0 {
            sleep(Duration::from_secs(wait)).await;
        } else {
            sleep(Duration::from_micros(rng.u64(0..20_000))).await;
        }
        let requests = rng.u64(1..=left.clamp(1, at_once));
        let answers = join_all((0..requests).map(|_| ask(service, client))).await;
        let denied = answers.iter().filter(|answer| !answer.passed).count();
        assert_eq!(
            denied, 0,
            "client {client}, round {round}: {requests} after {told:?}: {answers:?}"
        );
        // Of those that went together, the one that was told of the least was the last to be
        // decided.
        told = answers
            .into_iter()
            .min_by_key(ResponseFields::next)
            .unwrap();
    }
}

/// Asks until it is denied, and comes back when it is told to.
async fn come_back(service: &[impl Limited], client: usize, rounds: usize) {
    for round in 0..rounds {
        let mut greedy = 0..100;
        let denied = loop {
            assert!(greedy.next().is_some(), "client {client}: thousands pass");
            // At the same time: sequential requests might be slower than the limit.
            let answers = join_all((0..50).map(|_| ask(service, client))).await;
            if let Some(denied) = answers.into_iter().rfind(|answer| !answer.passed) {
                break denied;
            }
        };
        let wait = denied.retry_after.unwrap();
        assert!(wait > 0);
        sleep(Duration::from_secs(wait)).await;
        let told = ask(service, client).await;
        assert!(
            told.passed,
            "client {client}, round {round}: denied {wait} s after it was told to come back: {told:?}"
        );
    }
}

/// Several clients, each with a key of its own, at the same time.
async fn holds(what: &str, workers: Vec<Limiter>, uses: &[LimitUse]) {
    println!("{what}");
    let workers: Vec<_> = workers
        .into_iter()
        .map(|limiter| limited(limiter, uses))
        .collect();
    fastrand::seed(1);
    let clients = (0..CLIENTS).map(|client| {
        let workers = &*workers;
        let seed = client as u64;
        async move {
            match client % 4 {
                0 => come_back(workers, client, 20).await,
                1 => obey(workers, client, seed, 200, 1).await,
                2 => obey(workers, client, seed, 200, 4).await,
                _ => obey(workers, client, seed, 100, u64::MAX).await,
            }
        }
    });
    join_all(clients).await;
}

const LIMITS: [Spec; 8] = [
    spec(10, 1_000, 20),
    spec(3, 2_000, 3),
    spec(1, 60_000, 1),
    spec(7, 3_000, 100),
    spec(300, 1_000, 60),
    spec(1_000, 1_000, 1_000),
    spec(60, 60_000, 45),
    Spec {
        cost: 3,
        ..spec(100, 1_000, 250)
    },
];

#[tokio::test(start_paused = true)]
async fn a_client_that_obeys_one_limits_fields_is_never_denied() {
    for limit in LIMITS {
        for consistency in [Consistency::Exact, Consistency::Leased] {
            let uses = [limit.limit("l", consistency)];
            holds(
                &format!("{limit:?}, {consistency:?}, alone"),
                local(),
                &uses,
            )
            .await;
            holds(
                &format!("{limit:?}, {consistency:?}, with a store"),
                distant(1),
                &uses,
            )
            .await;
            holds(
                &format!("{limit:?}, {consistency:?}, by two workers"),
                distant(2),
                &uses,
            )
            .await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_obeys_several_limits_fields_is_never_denied() {
    use Consistency::{Exact, Leased};
    for [first, second, third] in [
        [Exact; 3],
        [Leased; 3],
        [Exact, Leased, Exact],
        [Leased, Exact, Leased],
    ] {
        let uses = [
            spec(10, 1_000, 50).limit("a", first),
            spec(3, 2_000, 4).limit("b", second),
            Spec {
                cost: 2,
                ..spec(1_000, 60_000, 400)
            }
            .limit("c", third),
        ];
        holds(
            &format!("{first:?}, {second:?}, {third:?}, alone"),
            local(),
            &uses,
        )
        .await;
        holds(
            &format!("{first:?}, {second:?}, {third:?}, with a store"),
            distant(1),
            &uses,
        )
        .await;
        holds(
            &format!("{first:?}, {second:?}, {third:?}, by two workers"),
            distant(2),
            &uses,
        )
        .await;
    }
}

/// A limit of three requests of a client by this algorithm.
fn by(algorithm: Algorithm) -> LimitUse {
    let LimitUse { limit, cost } = spec(3, 9_000, 3).limit("l", Consistency::Exact);
    LimitUse {
        limit: Arc::new(Limit {
            algorithm,
            ..Limit::clone(&limit)
        }),
        cost,
    }
}

fn rate(tokens: u64, seconds: u64) -> Rate {
    let number = |number| NonZeroU64::new(number).unwrap();
    Rate {
        tokens: number(tokens),
        period_us: number(seconds * 1_000_000),
    }
}

fn fixed_window(tokens: u64, seconds: u64) -> LimitUse {
    let rate = rate(tokens, seconds);
    let per = WindowLength::Micros(rate.period_us);
    by(Algorithm::FixedWindow {
        rate: WindowRate {
            tokens: rate.tokens,
            per,
        },
        zone: None,
    })
}

fn sliding_window(tokens: u64, seconds: u64) -> LimitUse {
    by(Algorithm::SlidingWindow {
        rate: rate(tokens, seconds),
    })
}

#[tokio::test(start_paused = true)]
async fn a_client_that_obeys_a_windows_fields_is_never_denied() {
    for uses in [
        [sliding_window(3, 10)],
        [sliding_window(200, 10)],
        [fixed_window(3, 10)],
    ] {
        holds("a window alone", local(), &uses).await;
        holds("a window with a store", distant(1), &uses).await;
        holds("a window by two workers", distant(2), &uses).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_request_that_passes_tells_the_same_wait_as_the_first_that_is_denied() {
    let bucket = spec(3, 9_000, 3).limit("l", Consistency::Exact);
    for (uses, pause) in [
        (sliding_window(3, 10), 3),
        (fixed_window(3, 3_600), 0),
        (bucket, 1),
    ] {
        for workers in [local(), distant(1)] {
            let service: Vec<_> = workers
                .into_iter()
                .map(|limiter| limited(limiter, std::slice::from_ref(&uses)))
                .collect();
            // The fixed window ends by the wall clock: none of its seconds may end between two calls.
            sleep(Duration::from_micros(1_500_000 - unix_micros() % 1_000_000)).await;
            for _ in 0..2 {
                assert!(ask(&service, 1).await.passed);
                sleep(Duration::from_secs(pause)).await;
            }
            let last = ask(&service, 1).await;
            let denied = ask(&service, 1).await;
            assert!(last.passed && !denied.passed, "{last:?} {denied:?}");
            let (left, wait) = last.left[0];
            assert_eq!(
                (left, denied.left[0], denied.retry_after),
                (0, (0, wait), Some(wait)),
                "{uses:?}"
            );
            assert!(
                pause != 3 || wait == 4,
                "the first of a sliding window comes back 10 s after it was taken: {wait}"
            );
        }
    }
}
