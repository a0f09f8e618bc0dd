//! Connections to upstreams: opened, asked, given back. The only file that names the HTTP client.
//!
//! Guarantees that a connection is reused only after both of its messages ended, and closed otherwise. One task drives
//! each connection for all its life; a request spawns nothing. Knows nothing of what is in a message.

use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{HeaderValue, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use pin_project_lite::pin_project;
use tokio::time::{Instant, timeout};

use super::alarm::Alarm;
use super::body::{Phase, Progress, Upload};
use super::pool::{Pool, Pooled};
use super::retry::{Failed, Permission};
use crate::body::{Body, BoxError, Tail};
use crate::clock;
use crate::error::Failure;
use crate::gather::Gather;
use crate::upstream::endpoints::{ConnectError, InFlight};
use crate::upstream::meters::OpenConnection;
use crate::upstream::{Upstream, UpstreamSpec};

/// What one connection buffers at most, each way: 64 KiB of body with its head, which then come and go in one piece. Only
/// connections whose bodies fill it get there. By measurement: more costs memory, and for such bodies gains nothing.
const BUFFER: usize = 72 * 1024;

/// Bytes of a response's header section.
const MAX_HEAD: usize = 64 * 1024;

/// How long a connection just given back may take to get ready. It needs one turn of its task.
const SETTLE: Duration = Duration::from_millis(20);

/// One worker's connections.
pub struct Client {
    pool: Arc<Pool<Box<Connection>>>,
    http: Builder,
}

/// A connection, with the exchange it carries. Dropped in the middle of one, it closes.
pub struct Connection {
    sender: SendRequest<Upload>,
    alarm: Alarm,
    home: Weak<Pool<Box<Connection>>>,
    key: Arc<str>,
    spec: Arc<UpstreamSpec>,
    _open: Arc<OpenConnection>,
    /// It has carried an exchange before this one.
    used: bool,
    leased_at: Instant,
    exchange: Exchange,
}

/// What is true of one exchange only.
#[derive(Default)]
struct Exchange {
    endpoint: Option<InFlight>,
    upload: Option<Arc<Progress>>,
    /// The server closes the connection after it.
    last: bool,
    /// The alarm is set for the response body's next frame.
    waiting: bool,
}

pin_project! {
    /// A request on its way. Not an async block, which would hold what it is given twice, and that is a whole request.
    struct Sending<'a, F> {
        #[pin]
        answer: F,
        connection: &'a mut Connection,
    }
}

/// The upstream stopped in the middle of its response.
#[derive(Debug, thiserror::Error)]
#[error("the upstream's response stalled")]
struct Stalled;

impl Client {
    pub fn new() -> Self {
        let mut http = Builder::new();
        http.max_buf_size(BUFFER).max_header_size(MAX_HEAD).writev(true);
        Self { pool: Arc::default(), http }
    }

    /// Drops connections that were idle for too long. Cheap; to be called every few seconds.
    pub fn sweep(&self) {
        self.pool.sweep(clock::now());
    }

    /// Connections without work.
    pub fn idle(&self) -> usize {
        self.pool.len()
    }

    /// An idle connection to the endpoint, unless a `fresh` one is wanted or there is none.
    pub async fn lease(
        &self,
        upstream: &Upstream,
        endpoint: InFlight,
        fresh: bool,
    ) -> Result<Box<Connection>, ConnectError> {
        let now = clock::now();
        let kept = if fresh { None } else { self.kept(endpoint.key(), now).await };
        let mut connection = match kept {
            Some(mut connection) => {
                connection.leased_at = now;
                connection
            }
            // Boxed: rare, and large.
            None => Box::pin(self.open(upstream, &endpoint)).await?,
        };
        if !Arc::ptr_eq(&connection.spec, upstream.spec()) {
            connection.spec = Arc::clone(upstream.spec());
        }
        connection.exchange.endpoint = Some(endpoint);
        Ok(connection)
    }

    async fn kept(&self, key: &str, now: Instant) -> Option<Box<Connection>> {
        while let Some(mut connection) = self.pool.take(key, now) {
            let sender = &mut connection.sender;
            if sender.is_ready() || matches!(Box::pin(timeout(SETTLE, sender.ready())).await, Ok(Ok(()))) {
                return Some(connection);
            }
        }
        None
    }

    async fn open(&self, upstream: &Upstream, endpoint: &InFlight) -> Result<Box<Connection>, ConnectError> {
        let stream = match endpoint.connect(upstream.spec().connect_timeout).await {
            Ok(stream) => stream,
            Err(error) => {
                upstream.meters().connect_failed(&error);
                if endpoint.note_refused() {
                    tracing::warn!(endpoint = %endpoint.key(), %error, "an endpoint accepts no connection");
                }
                return Err(error);
            }
        };
        if endpoint.note_connected() {
            tracing::info!(endpoint = %endpoint.key(), "an endpoint accepts connections again");
        }
        let shaken = self.http.handshake(TokioIo::new(Gather(stream))).await;
        let (sender, driver) = shaken.map_err(|error| ConnectError::Failed(std::io::Error::other(error)))?;
        let now = clock::now();
        let open = Arc::new(upstream.meters().connected());
        let (key, held) = (Arc::clone(endpoint.key()), Arc::clone(&open));
        tokio::spawn(async move {
            if let Err(error) = driver.with_upgrades().await {
                tracing::debug!(endpoint = %key, %error, "an upstream connection broke");
            }
            drop(held);
        });
        Ok(Box::new(Connection {
            sender,
            alarm: Alarm::new(now + upstream.spec().response_timeout),
            home: Arc::downgrade(&self.pool),
            key: Arc::clone(endpoint.key()),
            spec: Arc::clone(upstream.spec()),
            _open: open,
            used: false,
            leased_at: now,
            exchange: Exchange::default(),
        }))
    }
}

impl Connection {
    /// It comes from the pool, so the server may be about to close it.
    pub fn is_used(&self) -> bool {
        self.used
    }

    /// When this exchange got it.
    pub fn leased_at(&self) -> Instant {
        self.leased_at
    }

    /// The `Host` of its server.
    pub fn host(&self) -> Option<HeaderValue> {
        self.exchange.endpoint.as_ref().map(|endpoint| endpoint.host().clone())
    }

    /// The server closes it after this exchange.
    pub fn mark_last(&mut self) {
        self.exchange.last = true;
    }

    /// Sends the request and waits for the response's header section.
    pub fn send(
        &mut self,
        mut request: Request<Upload>,
    ) -> impl Future<Output = Result<Response<Incoming>, Failed>> + Send + '_ {
        release_on_continue(&mut request);
        self.exchange.upload = request.body().progress().cloned();
        let first_look = match self.exchange.upload {
            Some(_) => self.spec.idle_timeout.min(self.spec.response_timeout),
            None => self.spec.response_timeout,
        };
        self.alarm.set(self.leased_at + first_look);
        Sending { answer: self.sender.try_send_request(request), connection: self }
    }

    fn explain(&mut self, mut error: TrySendError<Request<Upload>>) -> Failed {
        let unsent = error.take_message();
        if unsent.is_some() {
            // Its body goes on elsewhere: the end of this exchange must not stop it.
            self.exchange.upload = None;
        }
        let error = error.into_error();
        tracing::debug!(endpoint = %self.key, %error, cause = error.source(), used = self.used, "an exchange failed");
        Failed::new(&error, unsent, self.used)
    }

    /// The response's body. With its end the connection is free again; dropped before, it closes.
    pub fn carry(self: Box<Self>, incoming: Incoming) -> Body {
        if http_body::Body::is_end_stream(&incoming) {
            self.ended();
            Body::from(incoming)
        } else {
            Body::tailed(incoming, self)
        }
    }
}

impl<F> Future for Sending<'_, F>
where
    F: Future<Output = Result<Response<Incoming>, TrySendError<Request<Upload>>>>,
{
    type Output = Result<Response<Incoming>, Failed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let answered = this.answer.poll(cx);
        let connection = &mut **this.connection;
        match answered {
            Poll::Ready(answered) => Poll::Ready(answered.map_err(|error| connection.explain(error))),
            Poll::Pending => {
                let (alarm, upload) = (&mut connection.alarm, connection.exchange.upload.as_deref());
                ready!(poll_overdue(alarm, upload, &connection.spec, cx));
                Poll::Ready(Err(Failed { failure: Failure::ResponseTimeout, permission: Permission::Never }))
            }
        }
    }
}

/// A body held back goes out when the server says 100 (RFC 9110 §10.1.1).
fn release_on_continue(request: &mut Request<Upload>) {
    let held = request.body().progress().filter(|upload| upload.phase() == Phase::Held);
    if let Some(upload) = held.cloned() {
        hyper::ext::on_informational(request, move |response| {
            if response.status() == StatusCode::CONTINUE {
                upload.release();
            }
        });
    }
}

/// Ready when the response is overdue. Its time starts when the request is complete; until then it is the upstream's
/// taking nothing that counts, and a client that sends nothing is the upload's own business.
fn poll_overdue(alarm: &mut Alarm, upload: Option<&Progress>, spec: &UpstreamSpec, cx: &mut Context<'_>) -> Poll<()> {
    loop {
        ready!(alarm.poll(cx));
        let Some(upload) = upload else { return Poll::Ready(()) };
        let left = match upload.phase() {
            Phase::Held | Phase::Starved => spec.idle_timeout,
            Phase::Sending => spec.idle_timeout.saturating_sub(upload.idle_for()),
            Phase::Whole => spec.response_timeout.saturating_sub(upload.idle_for()),
        };
        if left.is_zero() {
            return Poll::Ready(());
        }
        alarm.set(clock::now() + left);
    }
}

impl Pooled for Box<Connection> {
    fn key(&self) -> &Arc<str> {
        &self.key
    }

    fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
}

impl Tail for Connection {
    fn progressed(&mut self) {
        self.exchange.waiting = false;
    }

    fn poll_stalled(&mut self, cx: &mut Context<'_>) -> Poll<BoxError> {
        if !std::mem::replace(&mut self.exchange.waiting, true) {
            self.alarm.set(clock::now() + self.spec.idle_timeout);
        }
        self.alarm.poll(cx).map(|()| Stalled.into())
    }

    fn ended(mut self: Box<Self>) {
        let exchange = std::mem::take(&mut self.exchange);
        let whole = exchange.upload.as_ref().is_none_or(|upload| upload.phase() == Phase::Whole);
        if whole
            && !exchange.last
            && let Some(home) = self.home.upgrade()
        {
            self.used = true;
            let (limit, expires) = (self.spec.keepalive_connections, clock::now() + self.spec.keepalive_timeout);
            home.put(self, limit, expires);
        }
    }
}

/// However an exchange ends, what is left of its request is not sent.
impl Drop for Exchange {
    fn drop(&mut self) {
        if let Some(upload) = self.upload.take() {
            upload.stop();
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http_body_util::{BodyExt, StreamBody};
    use tokio::net::TcpListener;

    use super::*;
    use crate::upstream::Balance;
    use crate::upstream::balance::Tried;

    fn upload() -> Upload {
        let frames = futures_util::stream::iter([Ok(http_body::Frame::data(Bytes::from("abc")))]);
        Upload::new(Body::boxed(StreamBody::new(frames)), Duration::from_secs(5), false)
    }

    #[tokio::test]
    async fn a_request_that_comes_back_unsent_still_has_its_body() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let seconds = Duration::from_secs(5);
        let upstream = Upstream::new(Arc::new(UpstreamSpec {
            name: "test".into(),
            endpoints: vec![listener.local_addr().unwrap().to_string().parse().unwrap()],
            balance: Balance::RoundRobin,
            connect_timeout: seconds,
            response_timeout: seconds,
            idle_timeout: seconds,
            keepalive_timeout: seconds,
            keepalive_connections: 1,
        }));
        let endpoint = upstream.pick(&mut Tried::default()).unwrap();
        let mut connection = Client::new().lease(&upstream, endpoint, false).await.unwrap();
        let busy = connection.sender.try_send_request(Request::new(Upload::empty()));

        let failed = connection.send(Request::new(upload())).await.err().unwrap();
        drop((connection, busy));
        let Permission::Unsent(request) = failed.permission else { panic!("{:?}", failed.failure) };
        assert_eq!(request.into_body().collect().await.unwrap().to_bytes(), "abc");
    }
}
