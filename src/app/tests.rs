//! A panic ends its request only, and a failed start takes no connection.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::future::BoxFuture;
use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tollgate_limiter::algorithm::concurrency::GrantedPermits;
use tollgate_limiter::decide::limiter::Limiter;
use tollgate_limiter::node::breaker::Breaker;
use tollgate_limiter::store::adjustment::{AdjustmentBatch, AdjustmentResult};
use tollgate_limiter::store::fleet_share::FleetShare;
use tollgate_limiter::store::memory::MemoryStore;
use tollgate_limiter::store::{BucketCharge, Grant, PermitClaim, Store, StoreError, StoreFailure};

use super::assemble;
use super::files::tls::TlsFiles;
use super::listeners::{self, SocketSources};
use super::restart::inherited::{InheritedSockets, SocketGroup};
use tollgate_config as config;
use tollgate_gateway::{Worker, WorkerListener};
use tollgate_server::{self as server, ConnectionLimit, ProcessLimit, drain};
use tollgate_wire::transport::listening_socket::ListeningSocket;

const ROUTES: &str = "
listeners: [{address: '127.0.0.1:0'}]
limits: {panicking: {key: client_ip, rate: 1/s}}
routes:
  - {name: panicking, match: {path: /panicking}, echo: true, limits: [panicking]}
  - {name: fine, match: {path: /fine}, respond: {body: fine}}
";

/// A store that panics.
struct PanickingStore;

impl Store for PanickingStore {
    fn take<'a>(
        &'a self,
        _: &'a [BucketCharge],
        _: u32,
    ) -> BoxFuture<'a, Result<Grant, StoreFailure>> {
        panic!("a bug on purpose")
    }

    fn adjust<'a>(&'a self, _: &'a AdjustmentBatch) -> BoxFuture<'a, Vec<AdjustmentResult>> {
        panic!("a bug on purpose")
    }

    fn claim<'a>(
        &'a self,
        _: &'a [PermitClaim],
    ) -> BoxFuture<'a, Result<Vec<GrantedPermits>, StoreError>> {
        panic!("a bug on purpose")
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(1)
    }
}

async fn serve() -> std::net::SocketAddr {
    let config = config::parse("routes.yaml", ROUTES, &|_| None)
        .unwrap()
        .config;
    let gateway = Arc::new(ArcSwap::from_pointee(
        assemble::gateway(&config, None, None).unwrap(),
    ));
    let memory = Arc::new(MemoryStore::new(1));
    let share = Arc::new(FleetShare::expecting(1));
    let limiter = Limiter::shared(
        memory,
        Arc::new(PanickingStore),
        Arc::new(Breaker::new()),
        share,
    );
    let worker = Worker {
        limiter,
        proxy: Arc::default(),
        in_flight: Arc::default(),
    };
    let handler = WorkerListener {
        gateway,
        index: 0,
        worker,
        tls: None,
    };
    let spec = Arc::new(config.listeners[0].server.clone());
    let listener = TcpListener::bind(spec.address.tcp().unwrap())
        .await
        .unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (_signal, drain) = drain::channel();
        server::serve(
            vec![listener],
            spec,
            handler,
            ConnectionLimit::new(8),
            drain,
        )
        .await
    });
    address
}

async fn ask(client: &mut TcpStream, path: &str, more: &str) -> String {
    client
        .write_all(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{more}\r\n").as_bytes())
        .await
        .unwrap();
    let mut text = String::new();
    client.read_to_string(&mut text).await.unwrap();
    text
}

/// A successor of more workers opens more sockets, which take part of the connections. A start that
/// fails after that would lose them.
#[test]
fn sockets_beside_those_of_a_predecessor_get_no_connection_before_all_else_is_done() {
    let predecessor = server::bind_shared("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = predecessor.local_addr().unwrap();
    let mut config = config::parse("routes.yaml", ROUTES, &|_| None)
        .unwrap()
        .config;
    config.workers = std::num::NonZeroUsize::new(4).unwrap();
    config.listeners[0].server.address = address.into();
    let group = SocketGroup {
        configured: None,
        name: None,
        sockets: vec![ListeningSocket::Tcp(predecessor.try_clone().unwrap())],
    };
    let sources = SocketSources {
        predecessor: InheritedSockets {
            groups: vec![group],
        },
        systemd: InheritedSockets::default(),
    };
    let tls = TlsFiles::load(&config).unwrap();
    let process = ProcessLimit::new(100);
    let bound = listeners::bind(&config, &tls, sources, &process).unwrap();
    assert_eq!(accepted(&predecessor, 40), 40);
    bound.reserved.listen();
    assert!(accepted(&predecessor, 40) < 40);
}

/// How many of so many new clients `listener` accepts.
fn accepted(listener: &std::net::TcpListener, clients: usize) -> usize {
    let address = listener.local_addr().unwrap();
    let _clients: Vec<_> = (0..clients)
        .map(|_| std::net::TcpStream::connect(address).unwrap())
        .collect();
    std::iter::from_fn(|| listener.accept().ok()).count()
}

/// Thousands of each would be millions of copies.
#[test]
fn a_route_has_its_times_for_the_upstreams_that_it_may_use_alone() {
    let text = "
listeners: [{address: '127.0.0.1:0', limits: [all]}]
limits:
  all: {key: client_ip, rate: 1/s, on_limit: {degrade: {upstream: lesser}}}
  own: {key: route, rate: 1/s, on_limit: {degrade: {upstream: least}}}
upstreams: {a: {endpoints: ['http://a']}, b: {endpoints: ['http://b']}, lesser: {endpoints: ['http://c']}, least: {endpoints: ['http://d']}}
routes:
  - {name: own, match: {path: /1}, upstream: b, limits: [own], timeouts: {response: 7s}}
  - {name: same, match: {path: /2}, upstream: lesser, timeouts: {response: 7s}}
  - {name: answered, match: {path: /3}, echo: true, limits: [own], timeouts: {response: 7s}}
  - {name: plain, match: {path: /4}, upstream: a}
";
    let config = config::parse("routes.yaml", text, &|_| None)
        .unwrap_or_else(|mistakes| panic!("{mistakes}"))
        .config;
    let gateway = assemble::gateway(&config, None, None).unwrap();
    let expected: [&[&str]; 4] = [
        &["b", "lesser", "least"],
        &["lesser"],
        &["lesser", "least"],
        &[],
    ];
    for (route, expected) in gateway.routes.iter().zip(expected) {
        let specs = &route.target.timed;
        let names: Vec<&str> = specs.iter().map(|spec| &*spec.name).collect();
        assert_eq!(names, expected);
        for spec in specs {
            assert_eq!(spec.response_timeout, Duration::from_secs(7));
        }
    }
}

#[test]
fn a_panic_ends_its_request_only_and_is_counted() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    metrics::with_local_recorder(&recorder, || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let address = serve().await;
            let mut bystander = TcpStream::connect(address).await.unwrap();
            let mut panicking = TcpStream::connect(address).await.unwrap();
            let answer = ask(&mut panicking, "/panicking", "").await;
            assert!(
                answer.starts_with("HTTP/1.1 500 ") && answer.contains("internal-error"),
                "{answer}"
            );
            assert!(
                answer.contains("connection: close\r\n") && answer.contains("x-request-id: "),
                "{answer}"
            );
            let answer = ask(&mut bystander, "/fine", "Connection: close\r\n").await;
            assert!(
                answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("fine"),
                "{answer}"
            );
        });
    });
    let counted = handle.render();
    assert!(counted.contains("\ntollgate_panics_total 1\n"), "{counted}");
    let series = "tollgate_requests_total{route=\"panicking\",method=\"GET\",status=\"500\"} 1\n";
    assert!(counted.contains(series), "{counted}");
}
