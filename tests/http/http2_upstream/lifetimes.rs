//! Streams that do not end, over connections of an upstream that has gone away early once.

use std::num::NonZeroUsize;

use crate::support::proxy_server::ProxyServer;
use h2::Reason;
use tollgate_testing::raw_http2::{END_HEADERS, HEADERS, block, frame};
use tollgate_testing::upstream::RawConnection;

use super::endings::{go_away, ok};
use super::{GET, Http2Server, exchange};

const WATCH: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// A server whose first connection takes one request of two and goes away. On the others, the
/// answer to the first request has no end.
async fn restarted() -> Http2Server {
    Http2Server::raw(&[], |mut wire, number| async move {
        let first = wire.next(HEADERS).await.stream;
        if number == 0 {
            wire.next(HEADERS).await;
            wire.send([go_away(first, Reason::NO_ERROR), ok(first)].concat())
                .await;
            return while wire.frame().await.is_some() {};
        }
        wire.send(frame(
            HEADERS,
            END_HEADERS,
            first,
            &block(&[(":status", "200")]),
        ))
        .await;
        while let Some(seen) = wire.frame().await {
            if seen.kind == HEADERS {
                wire.send(ok(seen.stream)).await;
            }
        }
    })
    .await
}

/// A client that has got the head of an answer without end.
async fn watch(front: &ProxyServer) -> RawConnection {
    let mut client = RawConnection::connect(front.address).await;
    client.send(WATCH).await;
    assert!(client.head().await.starts_with("HTTP/1.1 200"));
    client
}

#[tokio::test]
async fn a_stream_without_end_starves_no_others_at_the_bound_on_connections() {
    for pending in [None, Some(1)] {
        let server = restarted().await;
        let front = server
            .behind_with(|plan| {
                plan.spec.bounds.connections = NonZeroUsize::new(1);
                plan.spec.bounds.pending = pending;
            })
            .await;
        let _watches = tokio::join!(watch(&front), watch(&front));
        // The second of them finds the queue full, where one may wait.
        let (one, other) = tokio::join!(exchange(&front, GET), exchange(&front, GET));
        assert_eq!(one, ("200".into(), "ok".into()), "{pending:?}");
        assert_eq!(other, one, "{pending:?}");
        assert_eq!(server.connections(), 2);
    }
}

#[tokio::test]
async fn streams_without_end_starve_no_others_once_no_connection_can_be_opened() {
    const MOST: usize = 64;
    let server = restarted().await;
    let front = server.behind().await;
    let _first = tokio::join!(watch(&front), watch(&front));
    let mut watches = Vec::new();
    while watches.len() < MOST - 1 {
        watches.push(watch(&front).await);
    }
    assert_eq!(exchange(&front, GET).await, ("200".into(), "ok".into()));
    assert!(server.connections() <= 1 + MOST, "{}", server.connections());
}
