//! Plans in Redis as the library has them: a layer before anyone's service, on a node of its own.

use std::convert::Infallible;
use std::future::ready;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::{HeaderName, HeaderValue, Request, Response};
use tollgate_limiter::clock;
use tollgate_limiter::decide::limiter::Limiter;
use tollgate_limiter::layer::RateLimitLayer;
use tollgate_limiter::limit::algorithm::{Algorithm, Rate};
use tollgate_limiter::limit::cost::Cost;
use tollgate_limiter::limit::definition::{Consistency, Limit, LimitUse};
use tollgate_limiter::limit::key::{KeyPart, KeySpec, OnMissing};
use tollgate_limiter::limit::plan::{PlanHash, PlanSource, Plans};
use tollgate_limiter::node::Node;
use tollgate_limiter::node::breaker::Breaker;
use tollgate_limiter::request::headers::RATELIMIT_POLICY;
use tollgate_limiter::store::fleet_share::FleetShare;
use tollgate_limiter::store::memory::MemoryStore;
use tollgate_limiter::store::redis::RedisStore;
use tollgate_testing::eventually;
use tollgate_testing::redis::RedisServer;
use tower::{Layer, ServiceExt, service_fn};

const CACHE: Duration = Duration::from_millis(100);

fn nonzero(number: u64) -> NonZeroU64 {
    NonZeroU64::new(number).unwrap()
}

/// 5 a second for each tenant without a plan, but for `change`.
fn limit(change: impl FnOnce(&mut Limit)) -> LimitUse {
    let tenant = || KeyPart::Header(HeaderName::from_static("x-tenant"));
    let key = KeySpec {
        parts: vec![tenant()],
        on_missing: OnMissing::Share,
    };
    let rate = Rate {
        tokens: nonzero(5),
        period_us: nonzero(tollgate_testing::SECOND),
    };
    let source = PlanSource::Hash(PlanHash {
        name: "plans".into(),
        cache: CACHE,
    });
    let mut limit = Limit {
        plans: Some(Plans {
            by: tenant(),
            source,
        }),
        ..Limit::new("l", key, rate, nonzero(5))
    };
    change(&mut limit);
    LimitUse {
        limit: Arc::new(limit),
        cost: None,
    }
}

/// A node, and what it makes of requests.
struct Fixture {
    layer: RateLimitLayer,
}

impl Fixture {
    async fn start(server: &RedisServer, limit: LimitUse) -> Self {
        let store = Arc::new(RedisStore::connect(&server.spec()).unwrap());
        let memory = Arc::new(MemoryStore::new(1_000));
        let node = Node::new(
            memory,
            Arc::new(Breaker::new()),
            Arc::new(FleetShare::expecting(1)),
        );
        let limiter = Limiter::for_node(Arc::new(node), store.clone()).reading_plans(store);
        let fixture = Self {
            layer: RateLimitLayer::of_uses(limiter, &[limit]).unwrap(),
        };
        eventually("the store connects", || async {
            fixture.ask("warm-up").await.status().is_success()
        })
        .await;
        fixture
    }

    async fn ask(&self, tenant: &str) -> Response<Body> {
        let inner =
            service_fn(|_: Request<Body>| ready(Ok::<_, Infallible>(Response::new(Body::empty()))));
        let request = Request::builder()
            .header("x-tenant", tenant)
            .body(Body::empty())
            .unwrap();
        self.layer
            .layer(inner)
            .oneshot(request)
            .await
            .unwrap()
            .map(Body::new)
    }

    async fn policy(&self, tenant: &str) -> HeaderValue {
        self.ask(tenant).await.headers()[RATELIMIT_POLICY].clone()
    }
}

#[tokio::test]
async fn the_first_request_of_a_client_waits_for_its_plan() {
    let server = RedisServer::start();
    server.command(&["HSET", "t:plans", "acme", "70/s burst=140 cost=7"]);
    for consistency in [Consistency::Exact, Consistency::Leased] {
        let fixture = Fixture::start(&server, limit(|limit| limit.consistency = consistency)).await;
        assert_eq!(
            fixture.policy("acme").await,
            "\"l\";q=20;w=2",
            "{consistency:?}"
        );
        assert_eq!(fixture.policy("other").await, "\"l\";q=5;w=1");
    }
}

#[tokio::test]
async fn a_cost_over_a_plans_burst_takes_a_full_bucket() {
    let server = RedisServer::start();
    server.command(&["HSET", "t:plans", "small", "1/h burst=3", "narrow", "3/h"]);
    let rate = Rate {
        tokens: nonzero(5),
        period_us: nonzero(tollgate_testing::SECOND),
    };
    for (tenant, algorithm, policy) in [
        (
            "small",
            Algorithm::TokenBucket {
                rate,
                burst: nonzero(5),
            },
            "\"l\";q=1;w=10800",
        ),
        (
            "narrow",
            Algorithm::SlidingWindow { rate },
            "\"l\";q=1;w=3600",
        ),
    ] {
        let fixture = Fixture::start(
            &server,
            limit(|limit: &mut Limit| {
                (limit.cost, limit.algorithm) = (Cost::Fixed(nonzero(5)), algorithm)
            }),
        )
        .await;
        let passed = fixture.ask(tenant).await;
        let told = (
            passed.status().is_success(),
            passed.headers()[RATELIMIT_POLICY].to_str().unwrap(),
        );
        assert_eq!(told, (true, policy));
        assert!(
            fixture.ask(tenant).await.status().is_client_error(),
            "{tenant}"
        );
    }
}

#[tokio::test]
async fn nodes_that_know_different_plans_admit_no_more_than_the_larger_one() {
    let server = RedisServer::start();
    let plans = ["50/s burst=20", "200/s burst=60"];
    server.command(&["HSET", "t:plans", "acme", plans[0]]);
    let nodes = [
        Fixture::start(&server, limit(|_| ())).await,
        Fixture::start(&server, limit(|_| ())).await,
    ];
    let started = clock::now();
    let greedy = |node: Fixture| async move {
        let mut admitted = 0_u32;
        let mut told = Vec::new();
        while started.elapsed() < Duration::from_secs(3) {
            let answer = node.ask("acme").await;
            admitted += u32::from(answer.status().is_success());
            let policy = answer.headers()[RATELIMIT_POLICY].clone();
            if told.last() != Some(&policy) {
                told.push(policy);
            }
            tokio::task::yield_now().await;
        }
        (admitted, told.len())
    };
    let running = nodes.map(|node| tokio::spawn(greedy(node)));
    for turn in 1..20 {
        eventually("the next turn", || async {
            started.elapsed() > Duration::from_millis(turn * 150)
        })
        .await;
        server.command(&["HSET", "t:plans", "acme", plans[turn as usize % 2]]);
    }
    let mut admitted = 0;
    for task in running {
        let (passed, changes) = task.await.unwrap();
        assert!(
            changes > 2,
            "it goes by the plans as they change: {changes}"
        );
        admitted += passed;
    }
    let most = 60.0 + 200.0 * started.elapsed().as_secs_f64();
    let admitted = f64::from(admitted);
    assert!(admitted <= most && admitted > 0.0, "{admitted} of {most}");
}
