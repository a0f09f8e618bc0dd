//! Streams and connections that end before their time: what is sent again, and what a client
//! learns.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::proxy_server::ProxyServer;
use h2::Reason;
use tokio::sync::{Barrier, Notify};
use tollgate_limiter::clock;
use tollgate_testing::raw_http2::{
    DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, RST_STREAM, SETTINGS, block, frame,
};
use tollgate_testing::topology::CapturedLog;
use tollgate_testing::until;
use tollgate_testing::upstream::{OK, RawConnection, ScriptedUpstream};

use super::{GET, Http2Server, POST, answer, exchange, whole};

pub fn ok(stream: u32) -> Vec<u8> {
    let head = frame(HEADERS, END_HEADERS, stream, &block(&[(":status", "200")]));
    [head, frame(DATA, END_STREAM, stream, b"ok")].concat()
}

pub fn go_away(last: u32, reason: Reason) -> Vec<u8> {
    frame(
        GOAWAY,
        0,
        0,
        &[last.to_be_bytes(), u32::from(reason).to_be_bytes()].concat(),
    )
}

#[tokio::test]
async fn a_refused_stream_is_sent_again_whatever_its_method() {
    let refusals = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&refusals);
    let server = Http2Server::start(100, move |request, mut sender, _| {
        let count = Arc::clone(&count);
        async move {
            if count.fetch_add(1, Ordering::SeqCst) < 2 {
                return sender.send_reset(Reason::REFUSED_STREAM);
            }
            let body = whole(request.into_body()).await.0;
            answer(sender, body);
        }
    })
    .await;
    let front = server.behind().await;
    assert_eq!(exchange(&front, POST).await, ("200".into(), "abc".into()));
    assert_eq!(refusals.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_refused_stream_goes_over_another_connection_than_the_one_that_refused() {
    let server = Http2Server::start(100, |_, mut sender, number| async move {
        match number {
            0 | 1 => sender.send_reset(Reason::REFUSED_STREAM),
            _ => answer(sender, "ok"),
        }
    })
    .await;
    let front = server.behind().await;
    assert_eq!(exchange(&front, POST).await, ("200".into(), "ok".into()));
    assert_eq!(server.connections(), 3);
    // Those that refused are still there, for requests that they have not refused.
    assert_eq!(exchange(&front, POST).await, ("200".into(), "ok".into()));
    assert_eq!(server.connections(), 3);
}

#[tokio::test]
async fn a_refused_stream_goes_over_the_same_connection_where_no_other_may_be_opened() {
    let (requests, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let (count, finish) = (Arc::clone(&requests), Arc::clone(&done));
    let server = Http2Server::start(100, move |_, mut sender, _| {
        let (number, done) = (count.fetch_add(1, Ordering::SeqCst), Arc::clone(&finish));
        async move {
            match number {
                // It keeps the connection busy, so that it cannot make room for another.
                0 => {
                    done.notified().await;
                    answer(sender, "first");
                }
                1 => sender.send_reset(Reason::REFUSED_STREAM),
                _ => answer(sender, "ok"),
            }
        }
    })
    .await;
    let front = server
        .behind_with(|plan| plan.spec.bounds.connections = NonZeroUsize::new(1))
        .await;
    let second = async {
        until("the first is under way", || {
            requests.load(Ordering::SeqCst) == 1
        })
        .await;
        let second = exchange(&front, POST).await;
        done.notify_one();
        second
    };
    let (first, second) = tokio::join!(exchange(&front, GET), second);
    assert_eq!(
        (first.1.as_str(), second),
        ("first", ("200".into(), "ok".into()))
    );
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_request_whose_connection_broke_goes_over_a_new_one_and_not_over_another_that_may_be_as_old()
 {
    let together = Arc::new(Barrier::new(2));
    let server = Http2Server::accepting(move |stream, number| {
        let together = Arc::clone(&together);
        async move {
            let mut connection = h2::server::Builder::new()
                .max_concurrent_streams(1)
                .handshake(stream)
                .await
                .unwrap();
            let mut served = 0;
            while let Some(Ok((_, sender))) = connection.accept().await {
                served += 1;
                match (number, served) {
                    // Both are under way at once, each on a connection of its own.
                    (0 | 1, 1) => {
                        together.wait().await;
                        answer(sender, "ok");
                    }
                    // The server has gone.
                    (0 | 1, _) => return,
                    _ => answer(sender, "ok"),
                }
            }
        }
    })
    .await;
    let front = server.behind().await;
    let both = tokio::join!(exchange(&front, GET), exchange(&front, GET));
    assert_eq!(both.0, both.1);
    assert_eq!(server.connections(), 2);
    assert_eq!(exchange(&front, GET).await, ("200".into(), "ok".into()));
    assert_eq!(server.connections(), 3);
}

#[tokio::test]
async fn an_upstream_that_refuses_everything_is_not_asked_for_ever() {
    let requests = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&requests);
    let server = Http2Server::start(100, move |_, mut sender, _| {
        count.fetch_add(1, Ordering::SeqCst);
        async move { sender.send_reset(Reason::REFUSED_STREAM) }
    })
    .await;
    let front = server.behind().await;
    let (status, body) = exchange(&front, GET).await;
    assert!(
        status == "502" && body.contains("upstream-closed"),
        "{status} {body}"
    );
    assert_eq!(requests.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn an_upstream_that_refuses_everything_gets_no_more_than_its_budget_pays_for() {
    const REQUESTS: usize = 400;
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let server = Http2Server::start(100, move |_, mut sender, _| {
        count.fetch_add(1, Ordering::SeqCst);
        async move { sender.send_reset(Reason::REFUSED_STREAM) }
    })
    .await;
    let front = server.behind().await;
    let begun = clock::now();
    for _ in 0..REQUESTS {
        assert_eq!(exchange(&front, GET).await.0, "502");
    }
    // A fifth more, and ten that requests pay back which are still to come. Where the machine
    // stands still, there are fewer than 50 requests a second: these get ten a second, and ten at
    // once.
    let stood_still = clock::now() - begun;
    let most = REQUESTS / 5 + 10 + 10 * (stood_still.as_secs() as usize + 1);
    let more = asked.load(Ordering::SeqCst) - REQUESTS;
    assert!((1..=most).contains(&more), "{more} of {most}");
}

#[tokio::test]
async fn an_upstream_that_goes_away_at_once_ends_each_request_after_four_attempts_over_shared_connections()
 {
    const CLIENTS: usize = 50;
    let requests = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&requests);
    let server = Http2Server::raw(&[], move |mut wire, _| {
        let count = Arc::clone(&count);
        async move {
            wire.next(HEADERS).await;
            count.fetch_add(1, Ordering::SeqCst);
            wire.send(go_away(0, Reason::NO_ERROR)).await;
            while let Some(seen) = wire.frame().await {
                count.fetch_add(usize::from(seen.kind == HEADERS), Ordering::SeqCst);
            }
        }
    })
    .await;
    let front = server.behind().await;
    for (status, body) in
        futures_util::future::join_all((0..CLIENTS).map(|_| exchange(&front, POST))).await
    {
        assert!(
            status == "502" && body.contains("upstream-closed"),
            "{status} {body}"
        );
    }
    // Four each. On a busy machine some more, of those that ask before all of their connection know
    // what became of them.
    assert!(
        requests.load(Ordering::SeqCst) <= 8 * CLIENTS,
        "{requests:?}"
    );
    // They are not opened for each request, although each was sent four times.
    assert!(server.connections() <= CLIENTS, "{}", server.connections());
}

/// A server that processes one request on a connection. It answers when `connections` have been
/// opened.
async fn one_request_a_connection(connections: usize) -> Http2Server {
    let (opened, all) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    Http2Server::raw(&[], move |mut wire, _| {
        let (opened, all) = (Arc::clone(&opened), Arc::clone(&all));
        async move {
            let request = wire.next(HEADERS).await;
            wire.send(go_away(request.stream, Reason::NO_ERROR)).await;
            let answered = all.notified();
            if opened.fetch_add(1, Ordering::SeqCst) + 1 >= connections {
                all.notify_waiters();
            } else {
                answered.await;
            }
            wire.send(ok(request.stream)).await;
            while wire.frame().await.is_some() {}
        }
    })
    .await
}

#[tokio::test]
async fn an_upstream_that_processes_one_request_a_connection_loses_none() {
    // At once, and when many are under way: until then, no answer tells that it makes progress.
    for together in [1, 40] {
        let server = one_request_a_connection(together).await;
        let front = server.behind().await;
        let requests =
            (0..40).map(|number| exchange(&front, if number % 2 == 0 { GET } else { POST }));
        for answer in futures_util::future::join_all(requests).await {
            assert_eq!(answer, ("200".into(), "ok".into()), "{together}");
        }
        // The first gets all of them. The others get one each, as that has taught.
        assert!(
            server.connections() <= 60,
            "{together}: {}",
            server.connections()
        );
    }
}

#[tokio::test]
async fn a_request_that_meets_many_connections_at_their_ends_is_not_lost() {
    const CONNECTIONS: usize = 6;
    let (opened, all) = (
        Arc::new(AtomicUsize::new(0)),
        Arc::new(Barrier::new(CONNECTIONS)),
    );
    let server = Http2Server::raw(&[], move |mut wire, number| {
        let (opened, all) = (Arc::clone(&opened), Arc::clone(&all));
        async move {
            let first = wire.next(HEADERS).await.stream;
            // Of those that come at once, the first connection takes one. That teaches the gateway.
            if number == 0 {
                wire.next(HEADERS).await;
                wire.send(go_away(first, Reason::NO_ERROR)).await;
            }
            if opened.fetch_add(1, Ordering::SeqCst) < CONNECTIONS {
                all.wait().await;
            }
            wire.send(ok(first)).await;
            wire.next(HEADERS).await;
            wire.send(go_away(first, Reason::NO_ERROR)).await;
            while wire.frame().await.is_some() {}
        }
    })
    .await;
    let front = server.behind().await;
    let herd = (0..CONNECTIONS).map(|_| exchange(&front, GET));
    assert!(
        futures_util::future::join_all(herd)
            .await
            .iter()
            .all(|answer| answer.0 == "200")
    );
    assert_eq!(server.connections(), CONNECTIONS);
    // All but the first are idle, and go away instead of taking another.
    assert_eq!(exchange(&front, POST).await, ("200".into(), "ok".into()));
    assert_eq!(server.connections(), CONNECTIONS + 1);
}

#[tokio::test]
async fn a_connection_that_outlives_an_earlier_one_is_shared_again() {
    let server = Http2Server::raw(&[], |mut wire, number| async move {
        while let Some(seen) = wire.frame().await {
            if seen.kind == HEADERS && number == 0 {
                wire.send([go_away(seen.stream, Reason::NO_ERROR), ok(seen.stream)].concat())
                    .await;
                return while wire.frame().await.is_some() {};
            }
            if seen.kind == HEADERS {
                wire.send(ok(seen.stream)).await;
            }
        }
    })
    .await;
    let front = server.behind().await;
    let herd = |count| futures_util::future::join_all((0..count).map(|_| exchange(&front, GET)));
    assert!(herd(10).await.iter().all(|answer| answer.0 == "200"));
    // Over the first connection that is left: its second stream, or a later one.
    assert_eq!(herd(1).await[0].0, "200");
    let opened = server.connections();
    assert!(herd(80).await.iter().all(|answer| answer.0 == "200"));
    assert_eq!(server.connections(), opened);
}

#[tokio::test]
async fn a_stream_above_the_last_one_of_a_goaway_is_sent_again_over_another_connection() {
    let server = Http2Server::raw(&[], |mut wire, number| async move {
        while let Some(seen) = wire.frame().await {
            let ends = seen.ends_stream();
            match (seen.kind, number) {
                (SETTINGS, _) if seen.flags == 0 => wire.send(frame(SETTINGS, 1, 0, &[])).await,
                // The whole request is there, and is still not processed.
                (DATA, 0) if ends => {
                    wire.send(go_away(0, Reason::NO_ERROR)).await;
                    return;
                }
                (DATA, _) if ends => wire.send(ok(seen.stream)).await,
                _ => {}
            }
        }
    })
    .await;
    let front = server.behind().await;
    assert_eq!(exchange(&front, POST).await, ("200".into(), "ok".into()));
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn a_stream_that_a_goaway_lets_go_on_is_not_sent_again() {
    let server = Http2Server::raw(&[], |mut wire, _| async move {
        let request = wire.next(HEADERS).await;
        wire.send(go_away(request.stream, Reason::NO_ERROR)).await;
        wire.send(ok(request.stream)).await;
        while wire.frame().await.is_some() {}
    })
    .await;
    let front = server.behind().await;
    for round in 1..=3 {
        assert_eq!(exchange(&front, GET).await, ("200".into(), "ok".into()));
        assert_eq!(server.connections(), round);
    }
    // Cut off in the middle, it may have been processed.
    let server = Http2Server::raw(&[], |mut wire, _| async move {
        let request = wire.next(HEADERS).await;
        wire.send(go_away(request.stream, Reason::NO_ERROR)).await;
    })
    .await;
    let front = server.behind().await;
    assert_eq!(exchange(&front, POST).await.0, "502");
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_post_that_was_cut_off_is_not_sent_again() {
    let server = Http2Server::start(100, |request, mut sender, _| async move {
        drop(request);
        sender.send_reset(Reason::INTERNAL_ERROR);
    })
    .await;
    let (log, _guard) = CapturedLog::start();
    let front = server.behind().await;
    let (status, body) = exchange(&front, POST).await;
    assert!(
        status == "502" && body.contains("upstream-closed"),
        "{status} {body}"
    );
    assert!(
        log.text().contains("requests to an endpoint fail"),
        "{}",
        log.text()
    );
}

#[tokio::test]
async fn rolling_goaways_under_load_fail_no_request() {
    let server = Http2Server::accepting(|stream, _| async move {
        let mut connection = h2::server::handshake(stream).await.unwrap();
        let mut served = 0;
        while let Some(Ok((request, sender))) = connection.accept().await {
            served += 1;
            tokio::spawn(async move {
                let body = whole(request.into_body()).await.0;
                answer(sender, body);
            });
            if served == 7 {
                connection.graceful_shutdown();
            }
        }
    })
    .await;
    let front = server.behind().await;
    let clients = (0..20).map(|_| async {
        for _ in 0..30 {
            assert_eq!(exchange(&front, POST).await, ("200".into(), "abc".into()));
            assert_eq!(exchange(&front, GET).await, ("200".into(), String::new()));
        }
    });
    futures_util::future::join_all(clients).await;
    assert!(server.connections() > 10, "{}", server.connections());
}

#[tokio::test]
async fn a_complete_response_before_the_end_of_its_request_is_delivered() {
    let server = Http2Server::raw(&[], |mut wire, _| async move {
        while let Some(seen) = wire.frame().await {
            if seen.kind == HEADERS {
                let reset = frame(
                    RST_STREAM,
                    0,
                    seen.stream,
                    &u32::from(Reason::NO_ERROR).to_be_bytes(),
                );
                wire.send([ok(seen.stream), reset].concat()).await;
            }
        }
    })
    .await;
    let front = server.behind().await;
    for _ in 0..20 {
        let mut client = RawConnection::connect(front.address).await;
        client
            .send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nabc")
            .await;
        assert!(client.head().await.starts_with("HTTP/1.1 200"));
        assert!(client.until(b"ok\r\n0\r\n\r\n").await.is_some());
    }
}

#[tokio::test]
async fn a_response_that_is_reset_in_the_middle_is_visibly_incomplete() {
    for (reason, length) in [
        (Reason::INTERNAL_ERROR, None),
        (Reason::NO_ERROR, None),
        (Reason::NO_ERROR, Some("9")),
    ] {
        let server = Http2Server::raw(&[], move |mut wire, _| async move {
            let request = wire.next(HEADERS).await;
            let length = length.map(|length| ("content-length", length));
            let fields: Vec<_> = [(":status", "200")].into_iter().chain(length).collect();
            let head = frame(HEADERS, END_HEADERS, request.stream, &block(&fields));
            wire.send([head, frame(DATA, 0, request.stream, b"half")].concat())
                .await;
            wire.send(frame(
                RST_STREAM,
                0,
                request.stream,
                &u32::from(reason).to_be_bytes(),
            ))
            .await;
            while wire.frame().await.is_some() {}
        })
        .await;
        let front = server.behind().await;
        let broken = if length.is_some() {
            "half"
        } else {
            "half (cut off)"
        };
        assert_eq!(
            exchange(&front, GET).await,
            ("200".into(), broken.into()),
            "{reason:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_takes_nothing_of_a_request_is_given_up() {
    // SETTINGS_INITIAL_WINDOW_SIZE: 0.
    let server = Http2Server::raw(&[(4, 0)], |mut wire, _| async move {
        while let Some(seen) = wire.frame().await {
            if seen.kind == HEADERS && seen.ends_stream() {
                wire.send(ok(seen.stream)).await;
            }
        }
    })
    .await;
    let front = server
        .behind_with(|plan| plan.spec.idle_timeout = Duration::from_millis(300))
        .await;
    assert_eq!(
        exchange(&front, GET).await.0,
        "200",
        "after that, the window is known"
    );
    let (status, body) = exchange(&front, POST).await;
    assert!(
        status == "504" && body.contains("response-timeout"),
        "{status} {body}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_keeps_exchanges_waiting_gets_no_more_until_it_answers_a_ping() {
    let server = Http2Server::raw(&[], |mut wire, number| async move {
        while let Some(seen) = wire.frame().await {
            match seen.kind {
                // The first connection has fallen silent, as one does whose network is gone.
                HEADERS if number > 0 => wire.send(ok(seen.stream)).await,
                _ => {}
            }
        }
    })
    .await;
    let front = server
        .behind_with(|plan| plan.spec.response_timeout = Duration::from_millis(200))
        .await;
    assert_eq!(exchange(&front, GET).await.0, "504");
    assert_eq!(exchange(&front, GET).await, ("200".into(), "ok".into()));
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn a_server_of_http_1_is_no_upstream_of_http_2() {
    let server = ScriptedUpstream::answering(OK).await;
    let (log, _guard) = CapturedLog::start();
    let front = ProxyServer::with(&[], |plan| {
        plan.spec.endpoints = vec![format!("h2c://{}", server.address).parse().unwrap()];
    })
    .await;
    let (status, body) = exchange(&front, GET).await;
    assert!(
        status == "502" && body.contains("upstream-invalid"),
        "{status} {body}"
    );
    assert!(
        log.text().contains("requests to an endpoint fail"),
        "{}",
        log.text()
    );
}

#[tokio::test]
async fn lies_about_a_length_are_no_response() {
    for (lies, more) in [
        (&[("content-length", "5")][..], true),
        (&[("content-length", "1"), ("content-length", "2")], false),
    ] {
        let server = Http2Server::raw(&[], move |mut wire, _| async move {
            let request = wire.next(HEADERS).await;
            let fields = [&[(":status", "200")], lies].concat();
            let flags = if more {
                END_HEADERS | END_STREAM
            } else {
                END_HEADERS
            };
            wire.send(frame(HEADERS, flags, request.stream, &block(&fields)))
                .await;
            while wire.frame().await.is_some() {}
        })
        .await;
        let front = server.behind().await;
        assert_eq!(exchange(&front, GET).await.0, "502", "{lies:?}");
    }
}
