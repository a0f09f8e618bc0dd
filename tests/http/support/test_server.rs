//! The gateway's server around a handler whose answers a test chooses by path.

use std::future::{pending, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::LINK;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body::{Body as _, Frame};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tollgate_server::{
    self, ConnectionInfo, ConnectionLimit, Drain, DrainSignal, Drained, Handler, InterimSlot,
    OnUpgrade,
};
use tollgate_spec::listener::ListenerSpec;
use tollgate_testing::raw_http::RawClient;
use tollgate_testing::{PATIENCE, until};
use tollgate_wire::body::{Body, BodyFailure, BoxError};
use tollgate_wire::error::Failure;

/// Answers by path: `/echo`, `/deny`, `/deny-later`, `/glance`, `/never`, `/endless`, `/later`,
/// `/elsewhere`, `/gate`, `/hints`, `/arrived`, `/break`, `/forgive`, `/upgrade`, `/decline`; the
/// rest with method and target.
#[derive(Clone)]
pub struct ScriptedHandler(pub Arc<HandlerRecord>);

/// The requests that the handler has seen.
pub struct HandlerRecord {
    /// `METHOD target body` of each handled request, in order; the body where it was read.
    pub requests: Mutex<Vec<String>>,
    pub refused: Mutex<Vec<Failure>>,
    /// Requests whose handler was dropped before it answered.
    pub cancelled: AtomicUsize,
    /// `/gate` waits for a permit.
    pub gate: Semaphore,
}

impl Default for HandlerRecord {
    fn default() -> Self {
        Self {
            requests: Mutex::default(),
            refused: Mutex::default(),
            cancelled: AtomicUsize::new(0),
            gate: Semaphore::new(0),
        }
    }
}

struct CancelGuard<'a>(Option<&'a HandlerRecord>);

impl Drop for CancelGuard<'_> {
    fn drop(&mut self) {
        if let Some(seen) = self.0 {
            seen.cancelled.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Handler for ScriptedHandler {
    async fn handle(
        &self,
        _: &Arc<ConnectionInfo>,
        interim: &InterimSlot,
        request: &mut Request<Body>,
    ) -> Response<Body> {
        let mut request = std::mem::replace(request, Request::new(Body::empty()));
        let mut guard = CancelGuard(Some(&self.0));
        let mut line = format!("{} {}", request.method(), request.uri());
        assert!(request.headers().get_all("host").iter().count() <= 1);
        let host = request.headers().get("host").cloned();
        let mut response = match request.uri().path() {
            "/never" => {
                self.0.requests.lock().push(line.clone());
                pending().await
            }
            "/deny" => status(StatusCode::TOO_MANY_REQUESTS),
            "/deny-later" => {
                drop(request.into_body());
                self.0.requests.lock().push(format!("{line} waiting"));
                self.0.gate.acquire().await.unwrap().forget();
                status(StatusCode::TOO_MANY_REQUESTS)
            }
            "/glance" => {
                let mut body = request.into_body();
                let waits =
                    poll_fn(|cx| Poll::Ready(Pin::new(&mut body).poll_frame(cx).is_pending()))
                        .await;
                assert!(waits);
                drop(body);
                if line.ends_with("?later") {
                    self.0.requests.lock().push(format!("{line} waiting"));
                    self.0.gate.acquire().await.unwrap().forget();
                }
                status(StatusCode::TOO_MANY_REQUESTS)
            }
            "/forgive" => {
                let failed = request.into_body().collect().await.is_err();
                assert!(failed);
                status(StatusCode::OK)
            }
            "/endless" => Response::new(Body::boxed(EndlessBody(false, Arc::clone(&self.0)))),
            "/later" => {
                let body = request.into_body();
                let seen = Arc::clone(&self.0);
                tokio::spawn(async move {
                    seen.gate.acquire().await.unwrap().forget();
                    let read = body.collect().await.unwrap().to_bytes();
                    seen.requests
                        .lock()
                        .push(format!("read {}", String::from_utf8_lossy(&read)));
                });
                status(StatusCode::OK)
            }
            "/elsewhere" => {
                let reading = tokio::spawn(request.into_body().collect());
                Response::new(Body::from(reading.await.unwrap().unwrap().to_bytes()))
            }
            "/break" => Response::new(Body::boxed(BreakingBody(false))),
            "/decline" => status(StatusCode::OK),
            "/gate" => {
                self.0.requests.lock().push(format!("{line} waiting"));
                self.0.gate.acquire().await.unwrap().forget();
                status(StatusCode::OK)
            }
            "/hints" => {
                for link in ["</a>", "</b>"] {
                    let fields = HeaderMap::from_iter([(LINK, HeaderValue::from_static(link))]);
                    interim.push(StatusCode::EARLY_HINTS, fields);
                    tokio::task::yield_now().await;
                }
                status(StatusCode::OK)
            }
            "/arrived" => {
                let mut body = request.into_body();
                poll_fn(|cx| body.poll_arrived(cx)).await;
                status(StatusCode::OK)
            }
            "/upgrade" => upgrade(&mut request),
            "/echo" => match request.into_body().collect().await {
                Ok(body) => {
                    let trailers = body
                        .trailers()
                        .map(|t| format!(" {}", t.len()))
                        .unwrap_or_default();
                    let bytes = body.to_bytes();
                    line = format!("{line} {}{trailers}", String::from_utf8_lossy(&bytes));
                    Response::new(Body::from(bytes))
                }
                Err(error) => {
                    line = format!("{line} failed");
                    failed(error.downcast_ref::<BodyFailure>().copied())
                }
            },
            _ => Response::new(Body::from(Bytes::from(line.clone()))),
        };
        if let Some(host) = host {
            response.headers_mut().insert("seen-host", host);
        }
        self.0.requests.lock().push(line);
        guard.0 = None;
        response
    }

    fn refuse(&self, _: &Arc<ConnectionInfo>, failure: Failure) -> Response<Body> {
        self.0.refused.lock().push(failure.clone());
        failure.respond(&HeaderValue::from_static("id"))
    }
}

/// A response body that breaks off.
struct BreakingBody(bool);

impl http_body::Body for BreakingBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let has_begun = std::mem::replace(&mut self.0, true);
        Poll::Ready(Some(if has_begun {
            Err("broken off".into())
        } else {
            Ok(Frame::data(Bytes::from_static(b"begun")))
        }))
    }
}

/// A response body that begins and does not go on. Dropped, it counts as cancelled.
struct EndlessBody(bool, Arc<HandlerRecord>);

impl http_body::Body for EndlessBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if std::mem::replace(&mut self.0, true) {
            Poll::Pending
        } else {
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"begun")))))
        }
    }
}

impl Drop for EndlessBody {
    fn drop(&mut self) {
        self.1.cancelled.fetch_add(1, Ordering::Relaxed);
    }
}

fn status(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::from(Bytes::from_static(b"x")));
    *response.status_mut() = status;
    response
}

fn failed(failure: Option<BodyFailure>) -> Response<Body> {
    let failure = match failure {
        Some(BodyFailure::Timeout) => Failure::RequestTimeout,
        Some(BodyFailure::TooSlow) => Failure::BodyTooSlow,
        Some(BodyFailure::Malformed) => Failure::BadRequest("the body is malformed"),
        Some(BodyFailure::TooLarge) | None => Failure::UpstreamClosed,
    };
    failure.respond(&HeaderValue::from_static("id"))
}

/// Switches to a protocol that echoes.
fn upgrade(request: &mut Request<Body>) -> Response<Body> {
    let on_upgrade = request.extensions_mut().remove::<OnUpgrade>().unwrap();
    tokio::spawn(async move {
        let mut io = on_upgrade.upgraded().await.unwrap();
        let mut buffer = [0; 1024];
        while let Ok(n @ 1..) = io.read(&mut buffer).await {
            io.write_all(&buffer[..n]).await.unwrap();
        }
    });
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response
        .headers_mut()
        .insert("upgrade", HeaderValue::from_static("echo"));
    response
        .headers_mut()
        .insert("connection", HeaderValue::from_static("upgrade"));
    response
}

/// Patient with everything, so that only what a test shortens runs out.
pub fn spec() -> ListenerSpec {
    ListenerSpec {
        header_timeout: PATIENCE * 2,
        keepalive_timeout: PATIENCE * 2,
        body_timeout: PATIENCE * 2,
        max_header_bytes: 16 * 1024,
        max_connections: 1000,
        ..ListenerSpec::at(SocketAddr::from(([127, 0, 0, 1], 0)).into())
    }
}

/// A running server.
pub struct TestServer {
    pub address: SocketAddr,
    pub seen: Arc<HandlerRecord>,
    pub signal: DrainSignal,
    pub done: JoinHandle<Drained>,
}

impl TestServer {
    /// Serves until it is drained or the test ends.
    pub fn start(spec: ListenerSpec) -> Self {
        let listener = TcpListener::from_std(
            tollgate_server::bind_shared(spec.address.tcp().unwrap()).unwrap(),
        )
        .unwrap();
        let (signal, drain): (DrainSignal, Drain) = tollgate_server::drain::channel();
        let seen = Arc::new(HandlerRecord::default());
        let address = listener.local_addr().unwrap();
        let slots =
            ConnectionLimit::new(spec.max_connections).per_client(spec.max_connections_per_client);
        let done = tokio::spawn(tollgate_server::serve(
            vec![listener],
            Arc::new(spec),
            ScriptedHandler(seen.clone()),
            slots,
            drain,
        ));
        Self {
            address,
            seen,
            signal,
            done,
        }
    }

    pub async fn connect(&self) -> RawClient {
        RawClient::connect(self.address).await
    }

    /// The handled requests so far.
    pub fn requests(&self) -> Vec<String> {
        self.seen.requests.lock().clone()
    }

    /// Waits until so many lines were recorded.
    pub async fn handled(&self, count: usize) {
        until("so many requests are handled", || {
            self.seen.requests.lock().len() >= count
        })
        .await;
    }

    /// Drains. How many connections did not end within `within`.
    pub async fn stop(self, within: Duration) -> usize {
        self.signal.start(within);
        timeout(PATIENCE, self.done).await.unwrap().unwrap().cut
    }
}
