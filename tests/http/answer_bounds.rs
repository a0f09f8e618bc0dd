//! The bounds on the header and trailer sections of an upstream's answer: the same in both versions
//! of HTTP.

use crate::support::proxy_server::ProxyServer;
use tollgate_proxy::upstream::bounds::RESPONSE_HEAD;
use tollgate_testing::raw_http2::{END_HEADERS, END_STREAM, FrameClient, HEADERS, block, frame};
use tollgate_testing::upstream::{RawConnection, ScriptedUpstream};
use tollgate_wire::http::h1::SectionBounds;

/// An answer: its fields, and its trailers.
#[derive(Clone, Copy, Default)]
struct Answer {
    fields: usize,
    /// Bytes of each value.
    value: usize,
    trailers: usize,
}

impl Answer {
    fn to_http_1(self) -> String {
        let fields = format!("Set-Cookie: {}\r\n", "a".repeat(self.value)).repeat(self.fields);
        let trailers = "x: y\r\n".repeat(self.trailers);
        format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n{fields}\r\n0\r\n{trailers}\r\n")
    }

    fn to_http_2(self, stream: u32) -> Vec<u8> {
        let value = "a".repeat(self.value);
        let mut fields = vec![(":status", "200")];
        fields.resize(self.fields + 1, ("set-cookie", &value));
        let ends = if self.trailers == 0 { END_STREAM } else { 0 };
        let mut frames = frame(HEADERS, END_HEADERS | ends, stream, &block(&fields));
        if self.trailers > 0 {
            let trailers = block(&vec![("x", "y"); self.trailers]);
            frames.extend(frame(HEADERS, END_HEADERS | END_STREAM, stream, &trailers));
        }
        frames
    }
}

/// What a client gets of the answer of an upstream with these bounds, over HTTP/1.1 and HTTP/2: the
/// status, and whether the answer is whole.
async fn received(answer: Answer, bounds: SectionBounds) -> [(String, bool); 2] {
    let mut all = Vec::new();
    for scheme in ["http", "h2c"] {
        let upstream = ScriptedUpstream::start(move |mut wire, _| async move {
            if scheme == "http" {
                wire.head().await;
                wire.send(answer.to_http_1()).await;
                wire.rest().await;
                return;
            }
            let mut peer = FrameClient::accepted(wire.stream, &[]).await;
            let stream = peer.next(HEADERS).await.stream;
            peer.send(answer.to_http_2(stream)).await;
            while peer.frame().await.is_some() {}
        })
        .await;
        let gate = ProxyServer::with(&[upstream.address], |plan| {
            plan.spec.endpoints = vec![format!("{scheme}://{}", upstream.address).parse().unwrap()];
            plan.spec.response_head = bounds;
        })
        .await;
        let mut client = RawConnection::connect(gate.address).await;
        client
            .send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            .await;
        let head = client.head().await;
        let rest = client.rest().await;
        let is_whole = head.contains("content-length: ") || rest.ends_with("0\r\n\r\n");
        all.push((head[9..12].to_owned(), is_whole));
    }
    all.try_into().unwrap()
}

fn whole(status: &str) -> [(String, bool); 2] {
    [(status.to_owned(), true), (status.to_owned(), true)]
}

#[tokio::test]
async fn an_answer_has_as_many_fields_as_its_upstream_may_send() {
    let answer = |fields| Answer {
        fields,
        value: 3,
        ..Answer::default()
    };
    assert_eq!(received(answer(300), RESPONSE_HEAD).await, whole("200"));
    let few = SectionBounds {
        fields: 20,
        ..RESPONSE_HEAD
    };
    assert_eq!(received(answer(19), few).await, whole("200"));
    assert_eq!(received(answer(21), few).await, whole("502"));
}

#[tokio::test]
async fn an_answer_has_a_head_as_large_as_its_upstream_may_send() {
    let answer = |value| Answer {
        fields: 1,
        value,
        trailers: 0,
    };
    let small = SectionBounds {
        bytes: 8192,
        ..RESPONSE_HEAD
    };
    assert_eq!(received(answer(8_000), small).await, whole("200"));
    assert_eq!(received(answer(9_000), small).await, whole("502"));
}

#[tokio::test]
async fn an_answer_with_too_many_trailers_breaks_off() {
    let few = SectionBounds {
        fields: 20,
        ..RESPONSE_HEAD
    };
    let answer = |trailers| Answer {
        trailers,
        ..Answer::default()
    };
    assert_eq!(received(answer(20), few).await, whole("200"));
    let cut = ("200".to_owned(), false);
    assert_eq!(received(answer(21), few).await, [cut.clone(), cut]);
}
