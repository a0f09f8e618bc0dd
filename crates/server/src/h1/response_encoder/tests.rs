use std::future::poll_fn;

use http_body_util::StreamBody;
use tokio::io::AsyncReadExt;

use super::*;
use tollgate_limiter::clock;

const GET: ConnectionOptions = ConnectionOptions {
    framing: tollgate_wire::http::h1::BodyFraming::Length(0),
    http_11: true,
    is_head: false,
    keeps_alive: true,
    upgrade: false,
    awaits_continue: false,
    takes_trailers: false,
};
const HEAD: ConnectionOptions = ConnectionOptions {
    is_head: true,
    ..GET
};
const OLD: ConnectionOptions = ConnectionOptions {
    http_11: false,
    ..GET
};

fn response(status: u16, fields: &[(&str, &str)], body: impl Into<Body>) -> Response<Body> {
    let fields = fields
        .iter()
        .fold(Response::builder().status(status), |to, (name, value)| {
            to.header(*name, *value)
        });
    fields.header("date", "now").body(body.into()).unwrap()
}

/// A body of unknown length.
fn streamed(frames: Vec<Result<Frame<Bytes>, BoxError>>) -> Body {
    Body::boxed(StreamBody::new(futures_util::stream::iter(frames)))
}

fn data(text: &'static str) -> Result<Frame<Bytes>, BoxError> {
    Ok(Frame::data(text.into()))
}

/// All that is written, without the date, and whether the connection closes.
async fn written(
    options: &ConnectionOptions,
    response: Response<Body>,
) -> Result<(String, bool), BoxError> {
    let mut output = WriteBuffer::default();
    let mut encoder = ResponseEncoder::begin(&mut output, response, options, false, clock::now())?;
    assert!(poll_fn(|cx| encoder.poll_content(&mut output, cx)).await);
    if encoder.broken.is_some() {
        return Err("broken off".into());
    }
    let (mut near, mut far) = tokio::io::duplex(1 << 20);
    poll_fn(|cx| output.poll_flush(&mut near, cx)).await?;
    drop(near);
    let mut text = String::new();
    far.read_to_string(&mut text).await?;
    Ok((text.replace("date: now\r\n", ""), encoder.closes))
}

fn whole() -> Body {
    Body::from(Bytes::from_static(b"hello"))
}

fn pieces() -> Body {
    streamed(vec![data("he"), data(""), data("llo")])
}

#[tokio::test]
async fn the_body_decides_the_framing() {
    // Framing fields of the handler are ignored.
    let wrong = [("content-length", "9"), ("transfer-encoding", "gzip")];
    for fields in [&[][..], &wrong] {
        let sent = written(&GET, response(200, fields, whole())).await.unwrap();
        assert_eq!(
            sent,
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello".into(),
                false
            )
        );
        let sent = written(&GET, response(200, fields, Body::empty()))
            .await
            .unwrap();
        assert_eq!(
            sent,
            ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".into(), false)
        );
        let chunks =
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n";
        assert_eq!(
            written(&GET, response(200, fields, pieces()))
                .await
                .unwrap(),
            (chunks.into(), false)
        );
        let sent = written(&OLD, response(200, fields, pieces()))
            .await
            .unwrap();
        assert_eq!(
            sent,
            (
                "HTTP/1.0 200 OK\r\nconnection: close\r\n\r\nhello".into(),
                true
            )
        );
        let sent = written(&OLD, response(200, fields, whole())).await.unwrap();
        assert_eq!(
            sent,
            (
                "HTTP/1.0 200 OK\r\ncontent-length: 5\r\nconnection: keep-alive\r\n\r\nhello"
                    .into(),
                false
            )
        );
    }
}

#[tokio::test]
async fn without_content_the_length_is_that_of_another_response() {
    for (options, status, length, body, expected) in [
        (HEAD, 200, Some("7"), "", "content-length: 7\r\n"),
        (HEAD, 200, Some("7"), "hello", "content-length: 7\r\n"),
        (HEAD, 200, None, "hello", "content-length: 5\r\n"),
        (HEAD, 200, None, "", ""),
        (GET, 304, Some("7"), "", "content-length: 7\r\n"),
        (GET, 304, None, "hello", ""),
        (GET, 204, Some("7"), "hello", ""),
        (HEAD, 204, Some("7"), "", ""),
    ] {
        let fields: Vec<_> = length
            .map(|length| ("content-length", length))
            .into_iter()
            .collect();
        let sent = written(
            &options,
            response(status, &fields, Bytes::from_static(body.as_bytes())),
        )
        .await
        .unwrap()
        .0;
        let (_, rest) = sent.split_once("\r\n").unwrap();
        assert_eq!(
            rest,
            format!("{expected}\r\n"),
            "{status} {length:?} {body}"
        );
    }
}

#[tokio::test]
async fn a_handler_may_close_the_connection() {
    let asked_to = ConnectionOptions {
        keeps_alive: false,
        ..GET
    };
    for (options, value) in [
        (GET, "close"),
        (GET, "x, Close"),
        (asked_to, "x"),
        (asked_to, "close"),
    ] {
        let (text, closes) = written(
            &options,
            response(200, &[("connection", value)], Body::empty()),
        )
        .await
        .unwrap();
        assert!(
            closes
                && text.matches("connection:").count() == 1
                && text.contains("connection: close\r\n"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn connection_names_an_upgrade_that_is_asked_for_beside_the_close() {
    let asked_to = ConnectionOptions {
        keeps_alive: false,
        ..GET
    };
    for (options, expected) in [
        (GET, "connection: upgrade\r\n"),
        (asked_to, "connection: close, upgrade\r\n"),
    ] {
        let fields = [("connection", "upgrade"), ("upgrade", "websocket")];
        let (text, _) = written(&options, response(426, &fields, Body::empty()))
            .await
            .unwrap();
        assert!(
            text.contains(expected) && text.matches("connection:").count() == 1,
            "{text}"
        );
    }
}

#[tokio::test]
async fn trailers_go_only_to_clients_that_accept_them() {
    let mut fields = HeaderMap::new();
    fields.insert("x-sum", "1".parse().unwrap());
    for (takes_trailers, end) in [(true, "0\r\nx-sum: 1\r\n\r\n"), (false, "0\r\n\r\n")] {
        let options = ConnectionOptions {
            takes_trailers,
            ..GET
        };
        let frames = vec![data("a"), Ok(Frame::trailers(fields.clone()))];
        let response = response(200, &[("trailer", "x-sum")], streamed(frames));
        let (text, _) = written(&options, response).await.unwrap();
        assert!(
            text.ends_with(&format!("\r\n\r\n1\r\na\r\n{end}")),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_response_without_a_date_gets_one() {
    let (text, _) = written(&GET, Response::new(Body::empty())).await.unwrap();
    assert!(
        text.contains(" GMT\r\n") && text.contains("\r\ndate: "),
        "{text}"
    );
}

#[tokio::test]
async fn a_reason_phrase_is_passed_on() {
    let mut fine = response(200, &[], Body::empty());
    fine.extensions_mut()
        .insert(ReasonPhrase("Fine".parse().unwrap()));
    assert!(
        written(&GET, fine)
            .await
            .unwrap()
            .0
            .starts_with("HTTP/1.1 200 Fine\r\n")
    );
    assert!(
        written(&GET, response(599, &[], Body::empty()))
            .await
            .unwrap()
            .0
            .starts_with("HTTP/1.1 599 \r\n")
    );
}

/// Says that it has five bytes.
struct Five(Vec<&'static str>);

impl http_body::Body for Five {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Poll::Ready(self.0.pop().map(|text| Ok(Frame::data(text.into()))))
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(5)
    }
}

#[tokio::test]
async fn a_body_that_contradicts_its_head_breaks_off() {
    for (pieces, good) in [
        (vec!["llo", "he"], true),
        (vec!["he"], false),
        (vec!["hello!"], false),
        (vec![], false),
    ] {
        let sent = written(&GET, response(200, &[], Body::boxed(Five(pieces.clone())))).await;
        assert_eq!(sent.is_ok(), good, "{pieces:?}");
    }
    for status in [100, 101, 199] {
        assert!(
            written(&GET, response(status, &[], Body::empty()))
                .await
                .is_err(),
            "{status}"
        );
    }
    assert!(
        written(
            &GET,
            response(200, &[], streamed(vec![data("a"), Err("b".into())]))
        )
        .await
        .is_err()
    );
}
