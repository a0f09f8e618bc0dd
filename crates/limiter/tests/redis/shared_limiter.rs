//! Processes that share their limits through Redis by the library alone, without the gateway.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use tollgate_limiter::limit::key::{Key, KeyPart};
use tollgate_limiter::limit::plan::PlanHash;
use tollgate_limiter::request::headers::RATELIMIT_POLICY;
use tollgate_limiter::store::inspect::{ChangeNotice, Inspect, TokenGrant};
use tollgate_limiter::store::redis::inspect::RedisInspector;
use tollgate_limiter::{Limit, LimitBuilder, RateLimitLayer, SharedLimiter, everyone, header};
use tollgate_testing::redis::RedisServer;
use tollgate_testing::{HOUR, charge, eventually, shape};
use tower::{Layer, ServiceExt, service_fn};

const BURST: u64 = 20;

async fn connect(server: &RedisServer) -> SharedLimiter {
    SharedLimiter::connect_with(&server.spec()).await.unwrap()
}

fn limit() -> LimitBuilder {
    Limit::per_hour("few", BURST).key(client_name())
}

fn client_name() -> KeyPart {
    header(HeaderName::from_static("x-client"))
}

/// The status and the policy that a layer answers one request with.
async fn answer(layer: &RateLimitLayer, client: &str) -> (StatusCode, HeaderValue) {
    let hello =
        service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::empty())));
    let request = Request::builder()
        .header("x-client", client)
        .body(Body::empty())
        .unwrap();
    let response = layer.layer(hello).oneshot(request).await.unwrap();
    (
        response.status(),
        response.headers()[RATELIMIT_POLICY].clone(),
    )
}

/// The answer of a process to one request.
async fn status(process: &SharedLimiter, client: &str) -> StatusCode {
    answer(&RateLimitLayer::new(process, [limit()]).unwrap(), client)
        .await
        .0
}

async fn admitted(process: &SharedLimiter, client: &str, requests: u64) -> u64 {
    let mut admitted = 0;
    for _ in 0..requests {
        admitted += u64::from(status(process, client).await == StatusCode::OK);
    }
    admitted
}

#[tokio::test]
async fn two_processes_share_one_limit_and_each_enforces_half_of_it_in_an_outage() {
    let mut server = RedisServer::start();
    let one = connect(&server).await;
    let other = connect(&server).await;
    let both = admitted(&one, "a", 15).await + admitted(&other, "a", 15).await;
    assert_eq!(both, BURST, "the burst once, not once per process");
    eventually("both know each other", || async {
        one.processes() == 2 && other.processes() == 2
    })
    .await;
    server.kill9();
    let halves = [
        admitted(&one, "b", 30).await,
        admitted(&other, "b", 30).await,
    ];
    assert_eq!(halves, [BURST / 2, BURST / 2]);
    server.restart();
    eventually("Redis decides again", || async {
        admitted(&one, "c", 1).await;
        server.command(&["EXISTS", "t:few:c"]) == ":1"
    })
    .await;
}

#[tokio::test]
async fn a_bucket_that_an_operator_resets_is_full_in_every_process() {
    let server = RedisServer::start();
    let process = connect(&server).await;
    let inspector = RedisInspector::connect(&server.spec()).unwrap();
    assert_eq!(admitted(&process, "a", BURST + 5).await, BURST);
    let bucket = charge("few:a", shape(BURST, HOUR, BURST), 1);
    eventually("the inspector connects", || async {
        inspector.grant(&bucket, TokenGrant::All).await.is_ok()
    })
    .await;
    let notice = ChangeNotice {
        key: Key::from("few:a"),
        full_in_us: 0,
    };
    inspector.publish(&notice).await.unwrap();
    eventually("the process forgets the denial", || async {
        status(&process, "a").await == StatusCode::OK
    })
    .await;
}

#[tokio::test]
async fn a_process_that_drops_its_limiter_leaves_no_connection_and_no_place_in_the_fleet() {
    let server = RedisServer::start();
    let stays = connect(&server).await;
    let goes = connect(&server).await;
    // Four of each process: for requests, for heartbeats, for operators' changes, and one that ends
    // with the process. And the one that asks.
    let clients = || {
        server
            .command(&["CLIENT", "LIST"])
            .matches("laddr=")
            .count()
    };
    assert_eq!(status(&goes, "a").await, StatusCode::OK);
    eventually("all connections are up", || async { clients() == 9 }).await;
    eventually("the two know each other", || async {
        stays.processes() == 2
    })
    .await;
    drop(goes);
    eventually("its connections close", || async { clients() == 5 }).await;
    eventually("its place is free", || async { stays.processes() == 1 }).await;
}

#[tokio::test]
async fn every_process_stays_exact_for_one_bucket_of_all() {
    let server = RedisServer::start();
    let process = connect(&server).await;
    let layer = RateLimitLayer::new(&process, [Limit::per_hour("all", 3).key(everyone())]).unwrap();
    let hello =
        service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::empty())));
    let mut statuses = Vec::new();
    for _ in 0..5 {
        statuses.push(
            layer
                .layer(hello)
                .oneshot(Request::new(Body::empty()))
                .await
                .unwrap()
                .status()
                .as_u16(),
        );
    }
    assert_eq!(statuses, [200, 200, 200, 429, 429]);
    process.leave().await;
}

#[tokio::test]
async fn clients_have_the_plans_of_a_redis_hash_in_every_process() {
    let server = RedisServer::start();
    server.command(&["HSET", "t:plans", "gold", "3/h burst=30"]);
    let one = connect(&server).await;
    let other = connect(&server).await;
    let layers = [&one, &other].map(|process| {
        RateLimitLayer::new(
            process,
            [limit().plans(
                client_name(),
                PlanHash {
                    cache: Duration::from_millis(100),
                    ..PlanHash::new("plans")
                },
            )],
        )
        .unwrap()
    });
    // A plan that a busy machine reads late leaves a client the limit's own rate until then, for the
    // same bucket.
    for (client, burst, plan) in [("gold", 30, "q=30;"), ("unlisted", BURST, "q=20;")] {
        let mut admitted = 0;
        let mut by_plan = 0;
        for turn in 0..80 {
            let (status, policy) = answer(&layers[turn % 2], client).await;
            if status == StatusCode::OK {
                admitted += 1;
                by_plan += u64::from(policy.to_str().unwrap().contains(plan));
            }
        }
        assert!(
            by_plan <= burst && admitted >= burst,
            "{client}: {by_plan} of {admitted}"
        );
    }
    let policy = async |client| answer(&layers[1], client).await.1;
    assert_eq!(policy("gold").await, "\"few\";q=30;w=36000");
    server.command(&["HSET", "t:plans", "unlisted", "40/h"]);
    eventually("the new plan shows", || async {
        policy("unlisted").await == "\"few\";q=40;w=3600"
    })
    .await;
}

#[test]
fn a_layer_without_redis_refuses_plans_in_redis() {
    let refused = RateLimitLayer::in_memory([limit().plans(client_name(), PlanHash::new("plans"))]);
    let told = refused.err().map(|error| error.to_string());
    let expected = "the limit \"few\" has plans in Redis, and its layer reads none: make the layer of a SharedLimiter";
    assert_eq!(told.as_deref(), Some(expected));
}

#[tokio::test]
async fn a_process_that_leaves_gives_its_permits_back_at_once() {
    let server = RedisServer::start();
    let stays = connect(&server).await;
    let goes = connect(&server).await;
    let hello =
        service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::empty())));
    let ask = async |process: &SharedLimiter| {
        let layer =
            RateLimitLayer::new(process, [Limit::in_flight("busy", 1).key(everyone())]).unwrap();
        layer
            .layer(hello)
            .oneshot(Request::new(Body::empty()))
            .await
            .unwrap()
    };
    let held = ask(&goes).await;
    assert_eq!(held.status(), StatusCode::OK);
    drop(held);
    goes.leave().await;
    // A process that was denied before would remember that for a while.
    assert_eq!(ask(&stays).await.status(), StatusCode::OK);
}
