//! Every message that is refused, in both versions of HTTP, and the page that lists them.
//!
//! The page is written from the table: `UPDATE_DOCS=1 cargo test --test http refused_messages`.

pub mod table;

use std::fmt::Write as _;
use std::sync::Arc;

use crate::support::test_server::spec;
use http::{HeaderValue, Request, Response};
use http_body_util::BodyExt;
use table::{Outcome, RefusedMessage, Sent, refused_messages};
use tokio::net::TcpListener;
use tollgate_server::{
    self as server, ConnectionInfo, ConnectionLimit, Handler, InterimSlot, drain,
};
use tollgate_spec::route::path;
use tollgate_testing::raw_http::RawClient;
use tollgate_testing::raw_http2::{FrameClient, GOAWAY, HEADERS, RST_STREAM};
use tollgate_wire::body::Body;
use tollgate_wire::error::Failure;

/// Reads each request as the gateway does: its path, then its body.
#[derive(Clone)]
struct ReadingHandler;

impl Handler for ReadingHandler {
    async fn handle(
        &self,
        connection: &Arc<ConnectionInfo>,
        _: &InterimSlot,
        request: &mut Request<Body>,
    ) -> Response<Body> {
        if let Err(failure) = path::settle(request.uri_mut()) {
            return self.refuse(connection, failure);
        }
        match request.body_mut().collect().await {
            Ok(_) => Response::new(Body::empty()),
            Err(_) => self.refuse(
                connection,
                Failure::BadRequest("the request body is malformed"),
            ),
        }
    }

    fn refuse(&self, _: &Arc<ConnectionInfo>, failure: Failure) -> Response<Body> {
        failure.respond(&HeaderValue::from_static("id"))
    }
}

async fn http_1(address: std::net::SocketAddr, bytes: &[u8]) -> Outcome {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let mut client = RawClient {
        stream,
        buffer: Vec::new(),
    };
    client.send(bytes).await;
    match client.answer().await.status {
        200 => Outcome::Taken,
        status => Outcome::Status(status),
    }
}

async fn http_2(address: std::net::SocketAddr, bytes: &[u8]) -> Outcome {
    let mut client = FrameClient::connect(address).await;
    client.send(bytes).await;
    loop {
        let frame = client.frame().await.unwrap();
        match (frame.kind, frame.stream) {
            (HEADERS, 1) if frame.status() == 200 => return Outcome::Taken,
            (HEADERS, 1) => return Outcome::Status(frame.status()),
            (RST_STREAM, 1) => return Outcome::Stream(frame.code()),
            (GOAWAY, _) => return Outcome::Connection(frame.code()),
            _ => {}
        }
    }
}

#[tokio::test]
async fn every_message_of_the_table_is_refused_as_it_says() {
    let listener =
        TcpListener::from_std(server::bind_shared(spec().address.tcp().unwrap()).unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let (_signal, drain) = drain::channel();
    let limit = ConnectionLimit::uncounted(1000);
    tokio::spawn(server::serve(
        vec![listener],
        Arc::new(spec()),
        ReadingHandler,
        limit,
        drain,
    ));
    let mut wrong = String::new();
    for RefusedMessage {
        what,
        http_1: sent_1,
        http_2: sent_2,
        ..
    } in refused_messages()
    {
        if let Some((bytes, expected)) = sent_1 {
            let outcome = http_1(address, &bytes).await;
            if outcome != expected {
                writeln!(wrong, "HTTP/1: {what}: {outcome:?} instead of {expected:?}").unwrap();
            }
        }
        if let Some((bytes, expected)) = sent_2 {
            let outcome = http_2(address, &bytes).await;
            if outcome != expected {
                writeln!(wrong, "HTTP/2: {what}: {outcome:?} instead of {expected:?}").unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn the_page_lists_every_refused_message() {
    const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/refused-messages.md");
    let page = page();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(PAGE, &page).unwrap();
    }
    let found = std::fs::read_to_string(PAGE).unwrap_or_default();
    assert!(
        found == page,
        "docs/refused-messages.md is not what the table says: run with UPDATE_DOCS=1"
    );
}

fn page() -> String {
    let mut page = "# Refused messages\n\n\
        For operators and auditors: every request that is refused for its form, the rule that it breaks, and what becomes of\n\
        it in each version. The page is generated from the table of a test that sends all of them over real sockets\n\
        (`tests/http/refused_messages/`).\n\n\
        - A number is the status of the answer. Over HTTP/1.1 the connection closes after it, and nothing behind the message\n  \
        is read. Over HTTP/2 only the stream ends.\n\
        - *stream* is a stream error with the code PROTOCOL_ERROR (RFC 9113 §5.4.2): the request has no answer.\n\
        - *connection* is a connection error with the same code: the library of HTTP/2 reads nothing behind such a field.\n\
        - *taken* is a request that this version can read in one way only.\n\
        - A dash is a message that this version cannot write.\n"
        .to_owned();
    let mut group = "";
    for row in refused_messages() {
        if row.group != group {
            group = row.group;
            write!(
                page,
                "\n## {group}\n\n| message | rule | HTTP/1.1 | HTTP/2 |\n|---|---|---|---|\n"
            )
            .unwrap();
        }
        let [http_1, http_2] = [&row.http_1, &row.http_2].map(cell);
        writeln!(
            page,
            "| {} | {} | {http_1} | {http_2} |",
            row.what, row.rule
        )
        .unwrap();
    }
    page
}

fn cell(sent: &Sent) -> String {
    match sent {
        None => "–".to_owned(),
        Some((_, Outcome::Status(status))) => status.to_string(),
        Some((_, Outcome::Taken)) => "taken".to_owned(),
        Some((_, Outcome::Stream(1))) => "*stream*".to_owned(),
        Some((_, Outcome::Stream(code))) => format!("*stream*, code {code}"),
        Some((_, Outcome::Connection(1))) => "*connection*".to_owned(),
        Some((_, Outcome::Connection(code))) => format!("the connection ends with code {code}"),
    }
}
