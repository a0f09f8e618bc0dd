//! The limiter on an axum router that is not ours, over real sockets.

use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::routing::{get, post};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tollgate_limiter::decide::limiter::Limiter;
use tollgate_limiter::layer::RateLimitLayer;
use tollgate_limiter::limit::algorithm::Rate;
use tollgate_limiter::limit::definition::{Limit, LimitUse};
use tollgate_limiter::limit::key::{KeyPart, KeySpec, OnMissing};
use tollgate_limiter::store::memory::MemoryStore;

const HOUR_US: u64 = 3_600_000_000;

/// `burst` an hour for each of what `parts` tell apart.
fn layer(parts: Vec<KeyPart>, burst: u64) -> RateLimitLayer {
    let number = |number| NonZeroU64::new(number).unwrap();
    let key = KeySpec {
        parts,
        on_missing: OnMissing::Share,
    };
    let rate = Rate {
        tokens: number(burst),
        period_us: number(HOUR_US),
    };
    let limits = [LimitUse {
        limit: Arc::new(Limit::new("few", key, rate, number(burst))),
        cost: None,
    }];
    RateLimitLayer::of_uses(Limiter::local(Arc::new(MemoryStore::new(100))), &limits).unwrap()
}

fn client_ip() -> KeyPart {
    KeyPart::ClientIp {
        ipv4_prefix: 32,
        ipv6_prefix: 64,
    }
}

/// A router that counts what reaches its handlers.
async fn serve(layer: RateLimitLayer) -> (SocketAddr, Arc<AtomicUsize>) {
    let reached = Arc::new(AtomicUsize::new(0));
    let count = {
        let reached = reached.clone();
        move || {
            reached.fetch_add(1, Ordering::SeqCst);
            async { "hello" }
        }
    };
    let router = Router::new()
        .route("/", get(count.clone()))
        .route("/other", post(count))
        .layer(layer);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        axum::serve(
            listener,
            router.into_make_service_with_connect_info::<SocketAddr>(),
        )
        .await
        .unwrap();
    });
    (address, reached)
}

/// All that comes back on one connection, until it is closed.
async fn exchange(address: SocketAddr, bytes: &[u8]) -> String {
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    // A reset after the answer is a close like any other.
    let _ = client.read_to_end(&mut answer).await;
    String::from_utf8(answer).unwrap()
}

async fn ask(address: SocketAddr, host: &str) -> String {
    exchange(
        address,
        format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes(),
    )
    .await
}

#[tokio::test]
async fn a_router_denies_once_the_burst_is_spent_with_all_fields() {
    let (address, reached) = serve(layer(vec![client_ip()], 2)).await;
    for left in [1, 0] {
        let answer = ask(address, "a").await;
        assert!(
            answer.starts_with("HTTP/1.1 200 ") && answer.contains(&format!("\"few\";r={left};t=")),
            "{answer}"
        );
    }
    let denied = ask(address, "a").await;
    assert!(denied.starts_with("HTTP/1.1 429 "), "{denied}");
    for part in [
        "retry-after: 1800\r\n",
        "ratelimit-policy: \"few\";q=2;w=3600\r\n",
        "application/problem+json",
    ] {
        assert!(denied.contains(part), "{part} in {denied}");
    }
    let problem: serde_json::Value =
        serde_json::from_str(denied.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!(problem["violated-policies"], serde_json::json!(["few"]));
    assert_eq!(reached.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_hidden_limit_of_several_is_told_by_its_429_alone() {
    let limits = [
        Limit::per_hour("shown", 5).key(client_ip()),
        Limit::per_hour("secret", 1).key(client_ip()).hidden(),
        Limit::per_hour("spent", 1).key(client_ip()),
    ];
    let both = serve(RateLimitLayer::in_memory(limits[..2].iter().cloned()).unwrap())
        .await
        .0;
    let passed = ask(both, "a").await;
    assert!(
        passed.starts_with("HTTP/1.1 200 ")
            && passed.contains("ratelimit-policy: \"shown\";q=5;w=3600\r\n"),
        "{passed}"
    );
    let denied = ask(both, "a").await;
    assert!(
        denied.starts_with("HTTP/1.1 429 ") && denied.contains("retry-after: 3600\r\n"),
        "{denied}"
    );
    assert!(denied.contains("ratelimit: \"shown\";r=4;"), "{denied}");
    assert!(
        !passed.contains("secret")
            && !denied.contains("secret")
            && !denied.contains("violated-policies"),
        "{denied}"
    );

    let all = serve(RateLimitLayer::in_memory(limits).unwrap()).await.0;
    ask(all, "a").await;
    let denied = ask(all, "a").await;
    assert!(
        denied.contains("\"violated-policies\":[\"spent\"]") && !denied.contains("secret"),
        "{denied}"
    );
}

#[tokio::test]
async fn the_unread_body_of_a_denied_request_is_never_the_next_request() {
    let (address, reached) = serve(layer(vec![client_ip()], 1)).await;
    assert!(ask(address, "a").await.starts_with("HTTP/1.1 200 "));
    let inner = "POST /other HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n".repeat(8192);
    let length = inner.len();
    let last = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let outer =
        format!("POST /other HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{inner}{last}");
    let answer = exchange(address, outer.as_bytes()).await;
    // The server may read the body to its end, and then answers the last request too, or close.
    let answers = answer.matches("HTTP/1.1 ").count();
    assert!(
        answers <= 2 && answer.matches("HTTP/1.1 429 ").count() == answers,
        "{answer}"
    );
    assert_eq!(reached.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn all_spellings_of_a_host_share_one_bucket() {
    let (address, _) = serve(layer(vec![KeyPart::Host], 1)).await;
    assert!(ask(address, "a.example").await.starts_with("HTTP/1.1 200 "));
    for spelling in ["A.Example", "a.example:80", "a.example."] {
        assert!(
            ask(address, spelling).await.starts_with("HTTP/1.1 429 "),
            "{spelling}"
        );
    }
}
