//! Real programs as upstreams over HTTP/2: nginx, and a gRPC service by tonic.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::proxy_server::ProxyServer;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tollgate_proxy::upstream::Http2Policy;
use tollgate_proxy::upstream::tls::UpstreamTls;
use tollgate_testing::nginx::NginxServer;
use tollgate_testing::topology::CertificateAuthority;
use tollgate_testing::until;
use tollgate_wire::transport::tls::client::{ClientTls, ClientTlsSpec};
use tonic::Code;
use tonic::transport::Endpoint;
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tower_service::Service as _;

use super::{GET, POST, exchange};

fn nginx(authority: &CertificateAuthority, options: &str) -> NginxServer {
    let (cert, key) = (authority.path("server.pem"), authority.path("server.key"));
    let files = format!(
        "ssl_certificate {}; ssl_certificate_key {};",
        cert.display(),
        key.display()
    );
    let long = "location /long { return 200 \"$request_body_file\"; }";
    let seen = "location / { return 200 \"$server_protocol\"; }";
    NginxServer::start(
        options,
        &format!("{files} http2_max_concurrent_streams 20; {long} {seen}"),
    )
}

async fn gateway(
    servers: &[&NginxServer],
    authority: &CertificateAuthority,
    http2: Http2Policy,
) -> ProxyServer {
    let spec = ClientTlsSpec {
        ca: Some(authority.pem("ca.pem").into()),
        ..ClientTlsSpec::default()
    };
    let settings = Arc::new(ClientTls::new(spec).unwrap());
    ProxyServer::with(&[], |plan| {
        let url = |server: &&NginxServer| {
            format!("https://localhost:{}", server.address.port())
                .parse()
                .unwrap()
        };
        plan.spec.endpoints = servers.iter().map(url).collect();
        plan.spec.tls = Some(UpstreamTls {
            settings,
            server_name: None,
            files: Vec::new(),
        });
        plan.spec.http2 = http2;
    })
    .await
}

fn authority() -> CertificateAuthority {
    let authority = CertificateAuthority::create();
    authority.issue("server", "DNS:localhost");
    authority
}

#[tokio::test]
async fn nginx_over_tls_takes_http_2_where_it_is_offered() {
    let authority = authority();
    let server = nginx(&authority, "ssl http2");
    let front = gateway(&[&server], &authority, Http2Policy::Auto).await;
    for _ in 0..3 {
        assert_eq!(
            exchange(&front, GET).await,
            ("200".into(), "HTTP/2.0".into())
        );
    }
    assert_eq!(front.gate.proxy.idle_connections(), 1);
    let front = gateway(&[&server], &authority, Http2Policy::Never).await;
    assert_eq!(
        exchange(&front, GET).await,
        ("200".into(), "HTTP/1.1".into())
    );
}

#[tokio::test]
async fn nginx_over_tls_without_http_2_is_spoken_to_in_http_1() {
    let authority = authority();
    let server = nginx(&authority, "ssl");
    let front = gateway(&[&server], &authority, Http2Policy::Auto).await;
    let all = (0..20).map(|_| exchange(&front, GET));
    for answer in futures_util::future::join_all(all).await {
        assert_eq!(answer, ("200".into(), "HTTP/1.1".into()));
    }
    assert!(front.gate.upstream.endpoints()[0].has_declined_http2());
    assert_eq!(exchange(&front, GET).await.1, "HTTP/1.1");
}

#[tokio::test]
async fn nginx_that_takes_ten_requests_a_connection_loses_none() {
    let server = NginxServer::start(
        "http2",
        "keepalive_requests 10; location / { return 200 ok; }",
    );
    let front = ProxyServer::with(&[], |plan| {
        plan.spec.endpoints = vec![format!("h2c://{}", server.address).parse().unwrap()];
        // A request is sent again for so long: a busy machine may take its time.
        plan.spec.connect_timeout = Duration::from_secs(60);
    })
    .await;
    let clients = (0..50).map(|_| async {
        for _ in 0..20 {
            assert_eq!(exchange(&front, GET).await, ("200".into(), "ok".into()));
            assert_eq!(exchange(&front, POST).await, ("200".into(), "ok".into()));
        }
    });
    futures_util::future::join_all(clients).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarts_of_nginx_under_load_fail_no_request() {
    let authority = authority();
    let (mut one, mut other) = (
        nginx(&authority, "ssl http2"),
        nginx(&authority, "ssl http2"),
    );
    let front = Arc::new(gateway(&[&one, &other], &authority, Http2Policy::Auto).await);
    let (answers, stopped) = (
        Arc::new(AtomicUsize::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let (front, answers, stopped) = (
                Arc::clone(&front),
                Arc::clone(&answers),
                Arc::clone(&stopped),
            );
            tokio::spawn(async move {
                while !stopped.load(Ordering::SeqCst) {
                    assert_eq!(
                        exchange(&front, GET).await,
                        ("200".into(), "HTTP/2.0".into())
                    );
                    answers.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    for _ in 0..3 {
        for number in 0..2 {
            // No request is left that has found the other one down.
            let before = answers.load(Ordering::SeqCst);
            let all_answered = || answers.load(Ordering::SeqCst) >= before + 40;
            until("all go on", || {
                all_answered() || clients.iter().any(JoinHandle::is_finished)
            })
            .await;
            (one, other) = tokio::task::spawn_blocking(move || {
                if number == 0 {
                    one.restart()
                } else {
                    other.restart()
                }
                (one, other)
            })
            .await
            .unwrap();
        }
    }
    stopped.store(true, Ordering::SeqCst);
    for client in clients {
        client.await.unwrap();
    }
}

#[tokio::test]
async fn a_grpc_service_answers_streams_and_fails_through_the_gateway() {
    let (reporter, service) = tonic_health::server::health_reporter();
    reporter
        .set_service_status("orders", ServingStatus::Serving)
        .await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let service = service.clone();
            let handle =
                service_fn(move |request: http::Request<Incoming>| service.clone().call(request));
            let serving = http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), handle);
            tokio::spawn(serving);
        }
    });
    let front = ProxyServer::with(&[], |plan| {
        plan.spec.endpoints = vec![format!("h2c://{address}").parse().unwrap()];
    })
    .await;
    let channel = Endpoint::from_shared(format!("http://{}", front.address))
        .unwrap()
        .connect()
        .await
        .unwrap();
    let mut client = HealthClient::new(channel);
    let asked = |service: &str| HealthCheckRequest {
        service: service.to_owned(),
    };

    let serving = ServingStatus::Serving as i32;
    for _ in 0..3 {
        let answer = client.check(asked("orders")).await.unwrap().into_inner();
        assert_eq!(answer.status, serving);
    }
    assert_eq!(
        client.check(asked("nothing")).await.unwrap_err().code(),
        Code::NotFound
    );

    let mut watch = client.watch(asked("orders")).await.unwrap().into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status, serving);
    reporter
        .set_service_status("orders", ServingStatus::NotServing)
        .await;
    assert_ne!(watch.message().await.unwrap().unwrap().status, serving);
    assert_eq!(
        client
            .check(asked("orders"))
            .await
            .unwrap()
            .into_inner()
            .status,
        ServingStatus::NotServing as i32
    );
    drop(watch);
    until("the watch has ended", || {
        front.gate.upstream.endpoints()[0].in_flight() == 0
    })
    .await;
    server.abort();
}
