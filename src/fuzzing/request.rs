//! Requests of HTTP/1: read in one way only, by the gateway and by upstreams.

use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use http::header::HOST;
use http::{HeaderValue, Method, Request, Uri};
use http_body_util::{BodyExt, Full, StreamBody};

use super::hyper_server::{ReadRequest, read_by_hyper};
use super::pieces::split;
use tollgate_limiter::clock;
use tollgate_proxy::RequestSource;
use tollgate_proxy::connection::upload::UploadPhase;
use tollgate_proxy::connection::upstream_request::UpstreamRequest;
use tollgate_proxy::message::forwarded::ClientOrigin;
use tollgate_proxy::report::SentMark;
use tollgate_server::h1::request_head::RequestHead;
use tollgate_spec::route::{Forward, HostPolicy, Rewrite};
use tollgate_wire::body::{Body, BoxError};
use tollgate_wire::error::Failure;
use tollgate_wire::http::RequestScheme;
use tollgate_wire::http::h1::body_decoder::BodyDecoder;
use tollgate_wire::http::h1::write_buffer::WriteBuffer;
use tollgate_wire::http::h1::{BodyFraming, SectionBounds};
use tollgate_wire::http::interim::InterimSlot;

pub const BOUNDS: SectionBounds = SectionBounds {
    bytes: 16 * 1024,
    fields: 64,
};
/// The first bytes of HTTP/2, which the connection looks for before it reads a head.
const PREFACE: &[u8] = b"PRI * HTTP/2.0";

/// A head that arrives in two pieces is read like one that arrives whole.
pub fn pieces_make_no_difference(data: &[u8]) {
    let (bytes, place) = split(data);
    let whole = RequestHead::default().read(bytes, &BOUNDS);
    let mut head = RequestHead::default();
    let pieces = match head.read(&bytes[..place], &BOUNDS) {
        Ok(None) => head.read(bytes, &BOUNDS),
        decided => decided,
    };
    match (&whole, &pieces) {
        // A line that is too long may be noticed before its other faults are read.
        (Err(Failure::UriTooLong | Failure::HeadersTooLarge), Err(_))
        | (Err(_), Err(Failure::UriTooLong | Failure::HeadersTooLarge)) => {}
        _ => assert_eq!(whole, pieces),
    }
}

/// Every request that the gateway accepts is read by hyper with the same method, target, fields and
/// content.
pub fn hyper_reads_the_same_requests(data: &[u8]) {
    if data.starts_with(PREFACE) {
        return;
    }
    for (ours, theirs) in read_here(data).into_iter().zip(read_by_hyper(data)) {
        assert_eq!(origin_form(ours.0), origin_form(theirs));
    }
}

/// A request that is accepted and forwarded is exactly one request to its reader, with the same
/// method and content.
pub fn a_forwarded_request_is_one_request(data: &[u8]) {
    if data.starts_with(PREFACE) {
        return;
    }
    let Some((request, framing)) = read_here(data).into_iter().next() else {
        return;
    };
    let Some(sent) = forward(&request, framing) else {
        return;
    };
    for only in read_everywhere(&sent) {
        assert_eq!(
            (&only.method, &only.content),
            (&request.method, &request.content)
        );
    }
}

/// The one request that `sent` is to each of its readers, with one `Host`.
pub fn read_everywhere(sent: &[u8]) -> Vec<ReadRequest> {
    let mut read_by_gateway = Vec::new();
    for (request, _) in read_here(sent) {
        read_by_gateway.push(request);
    }
    let mut all = Vec::new();
    for read in [read_by_gateway, read_by_hyper(sent)] {
        let [only] = &read[..] else {
            panic!(
                "{} requests in {:?}",
                read.len(),
                sent.escape_ascii().to_string()
            )
        };
        assert_eq!(only.headers.get_all(HOST).iter().count(), 1);
        all.push(only.clone());
    }
    all
}

/// The whole requests at the start of `bytes`, as the gateway reads them.
fn read_here(mut bytes: &[u8]) -> Vec<(ReadRequest, BodyFraming)> {
    let mut found = Vec::new();
    let mut head = RequestHead::default();
    while let Ok(Some(length)) = head.read(bytes, &BOUNDS) {
        let section = Bytes::copy_from_slice(&bytes[..length]);
        let mut request = Request::new(());
        let Ok(options) = head.finish(&section, &mut request) else {
            break;
        };
        let mut rest = BytesMut::from(&bytes[length..]);
        let Some(content) = read_content(&mut rest, options.framing) else {
            break;
        };
        bytes = &bytes[bytes.len() - rest.len()..];
        let target = request.uri().to_string();
        let (head, ()) = request.into_parts();
        found.push((
            ReadRequest {
                method: head.method,
                target,
                headers: head.headers,
                content,
            },
            options.framing,
        ));
        if !options.keeps_alive {
            break;
        }
    }
    found
}

/// The content at the start of `bytes`, if all of it is there.
fn read_content(bytes: &mut BytesMut, framing: BodyFraming) -> Option<Vec<u8>> {
    let mut decoder = BodyDecoder::new(framing, BOUNDS);
    let mut content = Vec::new();
    while let Some(frame) = decoder.decode(bytes).ok()? {
        content.extend_from_slice(&frame.into_data().unwrap_or_default());
    }
    if decoder.is_over() {
        Some(content)
    } else {
        None
    }
}

/// The bytes that an upstream gets. `None`: the request is not forwarded.
fn forward(read: &ReadRequest, framing: BodyFraming) -> Option<Vec<u8>> {
    let content = Bytes::from(read.content.clone());
    let body = match framing {
        BodyFraming::Length(_) => Body::boxed(Full::new(content).map_err(|never| match never {})),
        BodyFraming::Chunked | BodyFraming::Close => {
            let mut frames = Vec::new();
            if !content.is_empty() {
                frames.push(Ok::<_, BoxError>(http_body::Frame::data(content)));
            }
            Body::boxed(StreamBody::new(futures_util::stream::iter(frames)))
        }
    };
    let mut request = Request::new(body);
    *request.method_mut() = read.method.clone();
    *request.uri_mut() = read.target.parse().ok()?;
    *request.headers_mut() = read.headers.clone();
    sent(request)
}

/// The bytes that an upstream gets of this request. `None`: it is not forwarded, or its body does
/// not come to its end.
pub fn sent(mut request: Request<Body>) -> Option<Vec<u8>> {
    let peer = [192, 0, 2, 1].into();
    let origin = ClientOrigin {
        client_ip: peer,
        peer,
        peer_trusted: false,
        scheme: RequestScheme::Http,
        client: None,
    };
    let rule = Forward {
        upstream: "u".into(),
        rewrite: Rewrite::Keep,
        host: HostPolicy::Preserve,
    };
    let id = HeaderValue::from_static("id");
    let endpoint = HeaderValue::from_static("endpoint");
    let interim = InterimSlot::default();
    let source = RequestSource {
        origin: &origin,
        request_id: &id,
        interim: &interim,
        sockets: None,
        affinity: None,
        begun: clock::now(),
        deadline: None,
        has_own_fields: false,
        sent: &SentMark::default(),
    };
    let mut prepared = UpstreamRequest::prepare(&mut request, &rule, source).ok()?;
    let mut output = WriteBuffer::default();
    let mut upload = prepared.hand_over_upload()?;
    output.push(|out| prepared.write(out, Some(&endpoint), false));
    upload.release();
    let mut sent = Vec::new();
    let mut cx = Context::from_waker(Waker::noop());
    while !upload.is_complete() || output.waiting() > 0 {
        upload.move_to(&mut output, &mut cx).ok()?;
        if upload.phase() == UploadPhase::AwaitingClient {
            return None;
        }
        let Poll::Ready(Ok(())) = output.poll_flush(&mut sent, &mut cx) else {
            return None;
        };
    }
    Some(sent)
}

/// The request in the form that the gateway brings it into. An authority in the target takes the
/// place of Host.
fn origin_form(mut request: ReadRequest) -> ReadRequest {
    request.headers.remove(HOST);
    if let Ok(uri) = request.target.parse::<Uri>()
        && uri.authority().is_some()
    {
        request.target = uri
            .path_and_query()
            .map_or("/", |target| target.as_str())
            .to_owned();
    }
    // An absolute target without a path asks for `*`, which a `Uri` does not tell from `/` (RFC
    // 9112 §3.2.4).
    if request.method == Method::OPTIONS && request.target == "/" {
        request.target = "*".to_owned();
    }
    request
}
