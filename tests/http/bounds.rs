//! Bounds of an upstream: on connections, on requests that wait for one, and on requests in flight.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use crate::support::proxy_server::{Forwarder, ForwarderConfig, ProxyServer};
use http_body_util::BodyExt;
use tokio::sync::Semaphore;
use tollgate_proxy::Proxy;
use tollgate_proxy::upstream::bounds::UpstreamBounds;
use tollgate_testing::until;
use tollgate_testing::upstream::{OK, RawConnection, ScriptedUpstream, values};
use tollgate_wire::body::Body;

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// An upstream that answers each request, with its target, once the test lets it.
async fn patient() -> (ScriptedUpstream, Arc<Semaphore>) {
    let turns = Arc::new(Semaphore::new(0));
    let released = Arc::clone(&turns);
    let server = ScriptedUpstream::start(move |mut wire, _| {
        let turns = Arc::clone(&released);
        async move {
            while let Some(head) = wire.try_head().await {
                turns.acquire().await.unwrap().forget();
                let target = head.split(' ').nth(1).unwrap().to_owned();
                wire.send(format!(
                    "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{target}",
                    target.len()
                ))
                .await;
            }
        }
    })
    .await;
    (server, turns)
}

fn bounds(connections: usize, pending: Option<usize>) -> UpstreamBounds {
    UpstreamBounds {
        connections: NonZeroUsize::new(connections),
        pending,
        ..UpstreamBounds::default()
    }
}

fn in_flight(front: &ProxyServer) -> usize {
    front.gate.upstream.endpoints()[0].in_flight()
}

#[tokio::test]
async fn requests_over_the_bound_on_connections_wait_for_one_in_their_order() {
    let (server, turns) = patient().await;
    let front =
        ProxyServer::with(&[server.address], |plan| plan.spec.bounds = bounds(1, None)).await;
    let mut clients = Vec::new();
    for number in 0..4 {
        let mut client = RawConnection::connect(front.address).await;
        client
            .send(format!("GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n"))
            .await;
        until("the request is in flight or waits", || {
            in_flight(&front) == number + 1
        })
        .await;
        clients.push(client);
    }
    for (number, client) in clients.iter_mut().enumerate() {
        turns.add_permits(1);
        client.until(format!("/{number}").as_bytes()).await.unwrap();
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_request_over_the_bound_on_waiting_ones_is_refused_at_once() {
    let (server, turns) = patient().await;
    let front = ProxyServer::with(&[server.address], |plan| {
        plan.spec.bounds = bounds(1, Some(1))
    })
    .await;
    let mut clients = Vec::new();
    for number in 0..2 {
        let mut client = RawConnection::connect(front.address).await;
        client.send(GET).await;
        until("the request is in flight or waits", || {
            in_flight(&front) == number + 1
        })
        .await;
        clients.push(client);
    }
    let mut refused = RawConnection::connect(front.address).await;
    refused.send(GET).await;
    let head = refused.head().await;
    assert!(head.starts_with("HTTP/1.1 503"), "{head}");
    assert_eq!(values(&head, "retry-after"), ["1"]);
    assert!(
        refused
            .until(b"}")
            .await
            .unwrap()
            .contains("upstream-overloaded")
    );
    // A waiting client that leaves makes room for another.
    drop(clients.pop());
    until("the client that left is gone", || in_flight(&front) == 1).await;
    let mut next = RawConnection::connect(front.address).await;
    next.send(GET).await;
    until("the request waits", || in_flight(&front) == 2).await;
    turns.add_permits(2);
    assert!(next.head().await.starts_with("HTTP/1.1 200"));
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_no_longer_than_connecting_may_take() {
    let (server, _turns) = patient().await;
    let front = ProxyServer::with(&[server.address], |plan| {
        plan.spec.bounds = bounds(1, None);
        plan.spec.connect_timeout = Duration::from_millis(300);
    })
    .await;
    let mut first = RawConnection::connect(front.address).await;
    first.send(GET).await;
    until("the request is in flight", || server.connections() == 1).await;
    let mut second = RawConnection::connect(front.address).await;
    second.send(GET).await;
    assert!(second.head().await.starts_with("HTTP/1.1 503"));
}

#[tokio::test]
async fn a_request_over_the_bound_on_requests_is_refused() {
    let (server, turns) = patient().await;
    let front = ProxyServer::with(&[server.address], |plan| {
        plan.spec.bounds.requests = NonZeroUsize::new(1)
    })
    .await;
    let mut first = RawConnection::connect(front.address).await;
    first.send(GET).await;
    until("the request is in flight", || in_flight(&front) == 1).await;
    let mut second = RawConnection::connect(front.address).await;
    second.send(GET).await;
    assert!(second.head().await.starts_with("HTTP/1.1 503"));
    turns.add_permits(2);
    assert!(first.until(b"\r\n\r\n/").await.is_some());
    until("the request has ended", || in_flight(&front) == 0).await;
    let mut third = RawConnection::connect(front.address).await;
    third.send(GET).await;
    assert!(third.head().await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn an_idle_connection_of_another_worker_makes_room() {
    let server = ScriptedUpstream::answering(OK).await;
    let mut plan = ForwarderConfig::new(&[server.address]);
    plan.spec.bounds = bounds(1, None);
    let one = Forwarder::new(plan);
    let mut other = Forwarder::new(ForwarderConfig::new(&[server.address]));
    (other.upstream, other.proxy) = (Arc::clone(&one.upstream), Proxy::default());
    for (round, gate) in [&one, &one, &other, &one].into_iter().enumerate() {
        let request = http::Request::get("/")
            .header("host", "a")
            .body(Body::empty())
            .unwrap();
        let response = gate.answer(request, "127.0.0.1:1".parse().unwrap()).await;
        assert_eq!(
            response.into_body().collect().await.unwrap().to_bytes(),
            "ok",
            "{round}"
        );
    }
    assert_eq!(
        one.proxy.idle_connections() + other.proxy.idle_connections(),
        1
    );
    assert_eq!(server.connections(), 3);
}
