//! The smallest server around `Proxy::forward`, for tests.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Request};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tollgate::body::Body;
use tollgate::gateway::route::{Forward, HostPolicy, Rewrite};
use tollgate::proxy::Proxy;
use tollgate::proxy::forwarded::{Origin, TrustedProxies};
use tollgate::upstream::{Balance, Upstream, UpstreamSpec};

/// What is in front of the upstream.
pub struct Front {
    pub address: SocketAddr,
    pub gate: Arc<Gate>,
    acceptor: JoinHandle<()>,
}

/// What each request goes through.
pub struct Gate {
    pub proxy: Proxy,
    pub upstream: Arc<Upstream>,
    pub rule: Forward,
    pub trusted: TrustedProxies,
}

/// What a test may change.
pub struct Plan {
    pub spec: UpstreamSpec,
    pub rule: Forward,
    pub trusted: TrustedProxies,
    pub http2: bool,
}

impl Front {
    pub async fn to(endpoints: &[SocketAddr]) -> Self {
        Self::with(endpoints, |_| {}).await
    }

    pub async fn with(endpoints: &[SocketAddr], change: impl FnOnce(&mut Plan)) -> Self {
        let mut plan = Plan::new(endpoints);
        change(&mut plan);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let http2 = plan.http2;
        let gate = Arc::new(Gate::new(plan));
        let shared = Arc::clone(&gate);
        let acceptor = tokio::spawn(async move {
            loop {
                let (stream, peer) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, peer, Arc::clone(&shared), http2));
            }
        });
        Self { address, gate, acceptor }
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.acceptor.abort();
    }
}

impl Plan {
    pub fn new(endpoints: &[SocketAddr]) -> Self {
        let spec = UpstreamSpec {
            name: "test".into(),
            endpoints: endpoints.iter().map(|address| address.to_string().parse().unwrap()).collect(),
            balance: Balance::RoundRobin,
            connect_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(60),
            keepalive_timeout: Duration::from_secs(60),
            keepalive_connections: 8,
        };
        let rule = Forward { upstream: "test".into(), rewrite: Rewrite::Keep, host: HostPolicy::Preserve };
        Self { spec, rule, trusted: TrustedProxies::default(), http2: false }
    }
}

impl Gate {
    pub fn new(plan: Plan) -> Self {
        let upstream = Arc::new(Upstream::new(Arc::new(plan.spec)));
        Self { proxy: Proxy::default(), upstream, rule: plan.rule, trusted: plan.trusted }
    }

    pub async fn answer(&self, request: Request<Body>, peer: SocketAddr) -> http::Response<Body> {
        let origin = Origin::resolve(request.headers(), peer.ip(), &self.trusted);
        let id = HeaderValue::from_static("id-1");
        let forwarded = self.proxy.forward(request, &self.rule, &self.upstream, &origin, &id).await;
        forwarded.unwrap_or_else(|failure| failure.respond(&id))
    }
}

async fn serve(stream: TcpStream, peer: SocketAddr, gate: Arc<Gate>, http2: bool) {
    stream.set_nodelay(true).unwrap();
    let service = service_fn(move |request: Request<Incoming>| {
        let gate = Arc::clone(&gate);
        async move { Ok::<_, Infallible>(gate.answer(request.map(Body::from), peer).await) }
    });
    // How a client's connection ends is for the client's side of the test to judge.
    let _ = if http2 {
        let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        server.serve_connection(TokioIo::new(stream), service).await
    } else {
        let server = hyper::server::conn::http1::Builder::new();
        server.serve_connection(TokioIo::new(stream), service).with_upgrades().await
    };
}
