//! Sends copies of requests to another upstream, and drops the answers.
//!
//! Guarantees that the request itself waits for nothing. The body is copied as it passes, up to a
//! bound. The copy is sent once the whole body has passed, if that takes no longer than
//! [`LONGEST_UPLOAD`]. The number of copies at a time is bounded, and each takes at most
//! [`LONGEST`].

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{EXPECT, UPGRADE};
use http::{HeaderName, HeaderValue, Method, Request};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt as _;
use metrics::{Counter, counter};
use tokio::runtime::Handle;
use tokio::time::{Sleep, sleep, timeout};

use super::forward::Proxy;
use super::message::forwarded::ClientOrigin;
use super::message::headers;
use super::report::SentMark;
use super::request_source::RequestSource;
use crate::upstream::affinity::Affinity;
use crate::upstream::{Destination, Upstream};
use tollgate_limiter::clock;
use tollgate_limiter::limit::key::is_same_variable;
use tollgate_spec::route::Forward;
use tollgate_spec::route::distribution::{MirrorSpec, WHOLE};
use tollgate_wire::body::{Body, BodySource, BoxError};
use tollgate_wire::error::Failure;
use tollgate_wire::fields;
use tollgate_wire::http::interim::InterimSlot;
use tollgate_wire::transport::peer::SocketPair;

/// The longest time that a copy may take, its answer included.
const LONGEST: Duration = Duration::from_secs(60);

/// The longest time that a request may take to send its body. Slower requests are not copied:
/// uploads that stall must not take the places of all copies.
const LONGEST_UPLOAD: Duration = Duration::from_secs(10);

/// A longer answer is not read to its end: its connection is closed.
const MOST_DRAINED: usize = 1 << 20;

/// The mark of a copy.
const X_MIRRORED: HeaderName = HeaderName::from_static("x-mirrored");

/// Copies the requests of a route.
pub struct Mirror {
    pub upstream: Arc<Upstream>,
    rule: Forward,
    spec: MirrorSpec,
    in_flight: AtomicUsize,
    metrics: MirrorMetrics,
}

/// The outcomes of copies of a route's requests.
struct MirrorMetrics {
    answered: Counter,
    failed: Counter,
    too_many: Counter,
    too_large: Counter,
    incomplete: Counter,
}

/// A copy, and all that is needed to send it. Counts as in flight until it is dropped.
struct RequestCopy {
    mirror: Arc<Mirror>,
    proxy: Arc<Proxy>,
    request: Request<Body>,
    origin: ClientOrigin,
    request_id: HeaderValue,
    sockets: Option<SocketPair>,
    affinity: Option<Affinity>,
    has_own_fields: bool,
}

/// A body that is copied as it passes.
struct CopiedBody {
    body: Body,
    copied: BytesMut,
    /// `None`: the body became too long, took too long or has been sent.
    copy: Option<Box<RequestCopy>>,
    deadline: Pin<Box<Sleep>>,
}

impl Mirror {
    /// Copies requests of `route`, forwarded by `rule`, to `upstream`. Resolves the metrics.
    pub fn new(route: &str, spec: MirrorSpec, upstream: Arc<Upstream>, rule: Forward) -> Self {
        Self {
            upstream,
            rule,
            spec,
            in_flight: AtomicUsize::new(0),
            metrics: MirrorMetrics::new(route),
        }
    }

    /// Sends a copy of `request` once its body has passed, if this request is among those to be
    /// copied. A request for another protocol is not copied.
    pub fn copy(
        self: &Arc<Self>,
        request: &mut Request<Body>,
        proxy: &Arc<Proxy>,
        source: RequestSource<'_>,
    ) {
        let leaves_http =
            request.headers().contains_key(UPGRADE) || *request.method() == Method::CONNECT;
        if leaves_http || !self.spec.share.has(fastrand::u16(..WHOLE)) {
            return;
        }
        if request.body().size_hint().lower() > self.spec.max_body as u64 {
            self.metrics.too_large.increment(1);
            return;
        }
        if !self.take_place() {
            self.metrics.too_many.increment(1);
            return;
        }
        let copy = Box::new(RequestCopy {
            mirror: Arc::clone(self),
            proxy: Arc::clone(proxy),
            request: head_of(request),
            origin: source.origin.clone(),
            request_id: source.request_id.clone(),
            sockets: source.sockets.copied(),
            affinity: source.affinity,
            has_own_fields: source.has_own_fields,
        });
        if request.body().is_end_stream() {
            return copy.send(Bytes::new());
        }
        let body = std::mem::replace(request.body_mut(), Body::empty());
        let deadline = Box::pin(sleep(LONGEST_UPLOAD));
        let copied = CopiedBody {
            body,
            copied: BytesMut::new(),
            copy: Some(copy),
            deadline,
        };
        *request.body_mut() = Body::from_source(Box::new(copied));
    }

    /// Counts another copy in flight, if there may be one more.
    fn take_place(&self) -> bool {
        let counted = self
            .in_flight
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
                if count < self.spec.max_in_flight {
                    Some(count + 1)
                } else {
                    None
                }
            });
        counted.is_ok()
    }
}

/// The head of the copy.
fn head_of(request: &Request<Body>) -> Request<Body> {
    let mut copy = Request::new(Body::empty());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    let fields = copy.headers_mut();
    // Connection is settled first, or a client could have the mark removed again.
    headers::settle_connection(fields);
    fields::remove(fields, |name| {
        is_same_variable(name.as_str(), X_MIRRORED.as_str())
    });
    fields.remove(EXPECT);
    fields.insert(X_MIRRORED, HeaderValue::from_static("1"));
    copy
}

impl RequestCopy {
    /// Sends the copy with this body, in a task of its own.
    fn send(mut self: Box<Self>, body: Bytes) {
        *self.request.body_mut() = body.into();
        // Workers all have a runtime.
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        runtime.spawn(async move {
            let done = timeout(LONGEST, self.exchange()).await;
            let metrics = &self.mirror.metrics;
            if matches!(done, Ok(Ok(()))) {
                metrics.answered.increment(1)
            } else {
                metrics.failed.increment(1)
            }
        });
    }

    /// Sends the copy, and reads the answer to its end.
    async fn exchange(&mut self) -> Result<(), Failure> {
        let interim = InterimSlot::default();
        let Self {
            mirror,
            proxy,
            request,
            origin,
            request_id,
            sockets,
            affinity,
            has_own_fields,
        } = self;
        let source = RequestSource {
            origin,
            request_id,
            interim: &interim,
            sockets: sockets.as_ref(),
            affinity: *affinity,
            begun: clock::now(),
            deadline: None,
            has_own_fields: *has_own_fields,
            sent: &SentMark::default(),
        };
        let destination = Destination {
            upstream: &mirror.upstream,
            spec: mirror.upstream.spec(),
        };
        let response = proxy
            .forward(request, &mirror.rule, destination, source)
            .await?;
        drain(response.into_body()).await;
        Ok(())
    }
}

impl Drop for RequestCopy {
    fn drop(&mut self) {
        self.mirror.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn drain(mut body: Body) {
    let mut drained = 0;
    while let Some(Ok(frame)) = body.frame().await {
        drained += frame.data_ref().map_or(0, Bytes::len);
        if drained > MOST_DRAINED {
            return;
        }
    }
}

impl CopiedBody {
    /// Drops the copy. The body itself goes on.
    fn stop_copying(&mut self) {
        self.copy = None;
        self.copied = BytesMut::new();
    }
}

impl BodySource for CopiedBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(copy) = &self.copy
            && self.deadline.as_mut().poll(cx).is_ready()
        {
            copy.mirror.metrics.incomplete.increment(1);
            self.stop_copying();
        }
        let polled = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let (Some(copy), Some(Ok(frame))) = (&self.copy, &polled)
            && let Some(data) = frame.data_ref()
        {
            if self.copied.len() + data.len() <= copy.mirror.spec.max_body {
                self.copied.extend_from_slice(data);
            } else {
                copy.mirror.metrics.too_large.increment(1);
                self.stop_copying();
            }
        }
        Poll::Ready(polled)
    }

    fn poll_arrived(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.body.poll_arrived(cx)
    }

    fn is_over(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }

    fn ended(mut self: Box<Self>) {
        if let Some(copy) = self.copy.take() {
            copy.send(std::mem::take(&mut self.copied).freeze());
        }
    }
}

/// The upstream did not read the whole body, or the client did not send it.
impl Drop for CopiedBody {
    fn drop(&mut self) {
        if let Some(copy) = &self.copy {
            copy.mirror.metrics.incomplete.increment(1);
        }
    }
}

impl MirrorMetrics {
    fn new(route: &str) -> Self {
        let outcomes = ["answered", "failed", "too_many", "too_large", "incomplete"];
        let [answered, failed, too_many, too_large, incomplete] = outcomes.map(|outcome| {
            counter!("tollgate_mirrored_requests_total", "route" => route.to_owned(), "outcome" => outcome)
        });
        Self {
            answered,
            failed,
            too_many,
            too_large,
            incomplete,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use futures_util::StreamExt as _;
    use http_body_util::StreamBody;
    use tokio::time::advance;

    use super::*;
    use crate::upstream::test_spec;
    use tollgate_spec::route::distribution::TrafficShare;
    use tollgate_spec::route::{HostPolicy, Rewrite};
    use tollgate_wire::http::RequestScheme;

    /// A body that stalls after its first piece.
    fn stalled() -> Body {
        let first = futures_util::stream::iter([Ok(Frame::data(Bytes::from_static(b"first")))]);
        Body::boxed(StreamBody::new(
            first.chain(futures_util::stream::pending()),
        ))
    }

    async fn has_frame(body: &mut Body) -> bool {
        poll_fn(|cx| Poll::Ready(Pin::new(&mut *body).poll_frame(cx).is_ready())).await
    }

    #[tokio::test(start_paused = true)]
    async fn an_upload_that_stalls_gives_the_place_of_its_copy_back() {
        let endpoints = ["http://10.0.0.1".to_owned()].into_iter();
        let upstream = Arc::new(Upstream::new(Arc::new(test_spec(endpoints)), None));
        let forward = Forward {
            upstream: "copies".into(),
            rewrite: Rewrite::Keep,
            host: HostPolicy::Preserve,
        };
        let share = TrafficShare::from_hundredths(WHOLE).unwrap();
        let spec = MirrorSpec {
            upstream: "copies".into(),
            share,
            max_body: 1024,
            max_in_flight: 1,
        };
        let mirror = Arc::new(Mirror::new("r", spec, upstream, forward));
        let proxy = Arc::new(Proxy::default());
        let peer = [192, 0, 2, 1].into();
        let origin = ClientOrigin {
            client_ip: peer,
            peer,
            peer_trusted: false,
            scheme: RequestScheme::Http,
            client: None,
        };
        let id = HeaderValue::from_static("id");
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
        let mut request = Request::new(stalled());
        mirror.copy(&mut request, &proxy, source);
        assert!(has_frame(request.body_mut()).await);
        advance(LONGEST_UPLOAD - Duration::from_millis(2)).await;
        assert!(!has_frame(request.body_mut()).await);
        assert_eq!(mirror.in_flight.load(Ordering::Relaxed), 1);
        // The deadline wakes the reader of the body: nothing else would poll it.
        let reading = tokio::spawn(async move { drop(request.body_mut().frame().await) });
        sleep(Duration::from_millis(5)).await;
        assert_eq!(mirror.in_flight.load(Ordering::Relaxed), 0);
        assert!(!reading.is_finished());
        reading.abort();
    }
}
