//! The gateway's server around `Proxy::forward` and nothing else, for tests.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{HeaderValue, Request, Response};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tollgate_limiter::clock;
use tollgate_limiter::limit::client_address::TrustedProxies;
use tollgate_limiter::request::permit::Unanswered;
use tollgate_proxy::message::forwarded::ClientOrigin;
use tollgate_proxy::report::{ForwardReport, SentMark};
use tollgate_proxy::upstream::{Destination, Upstream, UpstreamSpec};
use tollgate_proxy::{Proxy, RequestSource, RetryTerms};
use tollgate_server::{
    self, ConnectionInfo, ConnectionLimit, Drained, Handler, InterimSlot, drain,
};
use tollgate_spec::listener::ListenerSpec;
use tollgate_spec::route::retry::RetryPolicy;
use tollgate_spec::route::{Forward, HostPolicy, Rewrite};
use tollgate_testing::topology::CapturedLog;
use tollgate_wire::body::Body;
use tollgate_wire::error::Failure;

/// The server in front of the upstream. Stopped when dropped.
pub struct ProxyServer {
    pub address: SocketAddr,
    pub gate: Arc<Forwarder>,
    server: JoinHandle<Drained>,
}

/// Forwards each request to the upstream.
pub struct Forwarder {
    pub proxy: Proxy,
    pub upstream: Arc<Upstream>,
    pub rule: Forward,
    pub retry: Option<RetryPolicy>,
    pub trusted: TrustedProxies,
    /// How often the last request was sent.
    pub attempts: AtomicU32,
    /// The report of the last failure on whether its request was forwarded.
    pub unanswered: Mutex<Option<Unanswered>>,
}

/// The part of the set-up that a test may change.
pub struct ForwarderConfig {
    pub spec: UpstreamSpec,
    pub rule: Forward,
    /// The retries of a route which sends its requests again.
    pub retry: Option<RetryPolicy>,
    pub trusted: TrustedProxies,
}

impl ProxyServer {
    pub async fn to(endpoints: &[SocketAddr]) -> Self {
        Self::with(endpoints, |_| {}).await
    }

    pub async fn with(endpoints: &[SocketAddr], change: impl FnOnce(&mut ForwarderConfig)) -> Self {
        let mut plan = ForwarderConfig::new(endpoints);
        change(&mut plan);
        let spec = listener_spec();
        let listener = TcpListener::from_std(
            tollgate_server::bind_shared(spec.address.tcp().unwrap()).unwrap(),
        )
        .unwrap();
        let address = listener.local_addr().unwrap();
        let gate = Arc::new(Forwarder::new(plan));
        let handler = ForwardingHandler(Arc::clone(&gate));
        let slots = ConnectionLimit::uncounted(spec.max_connections);
        let server = tokio::spawn(async move {
            // Dropped with the test: nothing is drained.
            let (_signal, drain) = drain::channel();
            tollgate_server::serve(vec![listener], Arc::new(spec), handler, slots, drain).await
        });
        Self {
            address,
            gate,
            server,
        }
    }

    /// Whether no connection to an upstream is left, once those that their upstream has closed are
    /// swept away.
    pub fn keeps_no_connection(&self) -> bool {
        self.gate.proxy.sweep();
        self.gate.proxy.idle_connections() == 0
    }
}

impl Drop for ProxyServer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl ForwarderConfig {
    pub fn new(endpoints: &[SocketAddr]) -> Self {
        let endpoints = endpoints
            .iter()
            .map(|address| format!("http://{address}").parse().unwrap())
            .collect();
        let spec = UpstreamSpec {
            connect_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(60),
            keepalive_timeout: Duration::from_secs(60),
            keepalive_connections: 8,
            ..UpstreamSpec::new("test".into(), endpoints)
        };
        let rule = Forward {
            upstream: "test".into(),
            rewrite: Rewrite::Keep,
            host: HostPolicy::Preserve,
        };
        Self {
            spec,
            rule,
            retry: None,
            trusted: TrustedProxies::default(),
        }
    }
}

impl Forwarder {
    pub fn new(plan: ForwarderConfig) -> Self {
        CapturedLog::prepare();
        let upstream = Arc::new(Upstream::new(Arc::new(plan.spec.clone()), None));
        let ForwarderConfig {
            rule,
            retry,
            trusted,
            ..
        } = plan;
        Self {
            proxy: Proxy::default(),
            upstream,
            rule,
            retry,
            trusted,
            attempts: AtomicU32::new(0),
            unanswered: Mutex::default(),
        }
    }

    pub async fn answer(&self, mut request: Request<Body>, peer: SocketAddr) -> Response<Body> {
        self.answer_after(&mut request, &InterimSlot::default(), peer)
            .await
    }

    /// Answers, and leaves interim responses in `interim` before.
    async fn answer_after(
        &self,
        request: &mut Request<Body>,
        interim: &InterimSlot,
        peer: SocketAddr,
    ) -> Response<Body> {
        let origin = ClientOrigin::resolve(request.headers(), peer.ip(), &self.trusted);
        let id = HeaderValue::from_static("id-1");
        let sent = SentMark::default();
        let source = RequestSource {
            origin: &origin,
            request_id: &id,
            interim,
            sockets: None,
            affinity: None,
            begun: clock::now(),
            deadline: None,
            has_own_fields: false,
            sent: &sent,
        };
        let destination = Destination {
            upstream: &self.upstream,
            spec: self.upstream.spec(),
        };
        let forwarded = match &self.retry {
            None => {
                self.proxy
                    .forward(request, &self.rule, destination, source)
                    .await
            }
            Some(policy) => {
                let mut report = ForwardReport::default();
                let terms = RetryTerms {
                    policy,
                    deadline: None,
                    report: Some(&mut report),
                };
                let answer = self
                    .proxy
                    .forward_with_retries(request, &self.rule, destination, source, terms)
                    .await;
                self.attempts.store(report.attempts, Ordering::SeqCst);
                answer
            }
        };
        forwarded.unwrap_or_else(|failure| {
            let (failure, unanswered) = failure.settle(sent.is_set());
            *self.unanswered.lock().unwrap() = Some(unanswered);
            failure.respond(&id)
        })
    }
}

/// Answers each request with the forwarder.
#[derive(Clone)]
struct ForwardingHandler(Arc<Forwarder>);

impl Handler for ForwardingHandler {
    async fn handle(
        &self,
        connection: &Arc<ConnectionInfo>,
        interim: &InterimSlot,
        request: &mut Request<Body>,
    ) -> Response<Body> {
        self.0
            .answer_after(request, interim, connection.peer.socket_address())
            .await
    }

    fn refuse(&self, _: &Arc<ConnectionInfo>, failure: Failure) -> Response<Body> {
        failure.respond(&HeaderValue::from_static("id-1"))
    }
}

/// Patient with everything.
fn listener_spec() -> ListenerSpec {
    let minute = Duration::from_secs(60);
    ListenerSpec {
        header_timeout: minute,
        keepalive_timeout: minute,
        body_timeout: minute,
        max_connections: 1000,
        ..ListenerSpec::at(SocketAddr::from(([127, 0, 0, 1], 0)).into())
    }
}
