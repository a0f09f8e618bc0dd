//! TLS to upstreams: whom the gateway trusts, what it shows, and what a client learns when that
//! fails.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::proxy_server::{ForwarderConfig, ProxyServer};
use metrics_exporter_prometheus::PrometheusBuilder;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tollgate_limiter::clock;
use tollgate_proxy::upstream::tls::UpstreamTls;
use tollgate_testing::nginx::NginxServer;
use tollgate_testing::pace;
use tollgate_testing::topology::{CapturedLog, CertificateAuthority};
use tollgate_testing::upstream::{RawConnection, ScriptedUpstream};
use tollgate_wire::transport::tls::client::{ClientTls, ClientTlsSpec, PeerName};

/// A response that says what the server saw.
const SEEN: &str = "keepalive_timeout 0; location / { return 200 \
                    \"$ssl_protocol [$ssl_server_name] [$ssl_client_s_dn] $ssl_session_reused $server_protocol;\"; }";

fn settings(change: impl FnOnce(&mut ClientTlsSpec)) -> UpstreamTls {
    let mut spec = ClientTlsSpec::default();
    change(&mut spec);
    UpstreamTls {
        settings: Arc::new(ClientTls::new(spec).unwrap()),
        server_name: None,
        files: Vec::new(),
    }
}

fn trusting(authority: &CertificateAuthority) -> UpstreamTls {
    settings(|spec| spec.ca = Some(authority.pem("ca.pem").into()))
}

/// A gateway before the endpoint with these settings.
async fn gateway(
    endpoint: &str,
    tls: UpstreamTls,
    change: impl FnOnce(&mut ForwarderConfig),
) -> ProxyServer {
    ProxyServer::with(&[], |plan| {
        plan.spec.endpoints = vec![endpoint.parse().unwrap()];
        plan.spec.tls = Some(tls);
        change(plan);
    })
    .await
}

/// The status and the body of the answer to a GET.
async fn get(front: &ProxyServer) -> (String, String) {
    let mut client = RawConnection::connect(front.address).await;
    client
        .send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .await;
    let head = client.head().await;
    (
        head.split(' ').nth(1).unwrap().to_owned(),
        client.rest().await,
    )
}

fn nginx(authority: &CertificateAuthority, name: &str, more: &str) -> NginxServer {
    let (cert, key) = (
        authority.path(&format!("{name}.pem")),
        authority.path(&format!("{name}.key")),
    );
    let files = format!(
        "ssl_certificate {}; ssl_certificate_key {};",
        cert.display(),
        key.display()
    );
    let protocols = if more.contains("ssl_protocols") {
        ""
    } else {
        "ssl_protocols TLSv1.2 TLSv1.3;"
    };
    NginxServer::start("ssl", &format!("{files}\n{protocols}{more}\n{SEEN}"))
}

fn authority_with(name: &str, subject: &str) -> CertificateAuthority {
    let authority = CertificateAuthority::create();
    authority.issue(name, subject);
    authority
}

#[tokio::test]
async fn an_endpoint_is_verified_and_asked_for_by_its_name() {
    let authority = authority_with("server", "DNS:localhost");
    let server = nginx(&authority, "server", "");
    let endpoint = format!("https://localhost:{}", server.address.port());
    let front = gateway(&endpoint, trusting(&authority), |_| {}).await;
    let (status, seen) = get(&front).await;
    assert_eq!(
        (&*status, &*seen),
        ("200", "TLSv1.3 [localhost] [] . HTTP/1.1;")
    );
}

#[tokio::test]
async fn sessions_are_resumed() {
    let authority = authority_with("server", "DNS:localhost");
    let server = nginx(&authority, "server", "");
    let endpoint = format!("https://localhost:{}", server.address.port());
    let front = gateway(&endpoint, trusting(&authority), |_| {}).await;
    get(&front).await;
    assert_eq!(get(&front).await.1, "TLSv1.3 [localhost] [] r HTTP/1.1;");
}

#[tokio::test]
async fn a_certificate_for_another_name_is_refused_unless_it_is_asked_for() {
    let authority = authority_with("server", "DNS:orders.internal");
    let server = nginx(&authority, "server", "");
    let endpoint = format!("https://{}", server.address);
    let (log, _guard) = CapturedLog::start();
    let front = gateway(&endpoint, trusting(&authority), |_| {}).await;
    let (status, body) = get(&front).await;
    assert!(
        status == "502" && body.contains("tls-failed"),
        "{status} {body}"
    );
    let text = log.text();
    assert!(
        text.contains("upstream=test") && text.contains("not valid for name"),
        "{text}"
    );
    let named = UpstreamTls {
        server_name: PeerName::parse("orders.internal"),
        ..trusting(&authority)
    };
    let front = gateway(&endpoint, named, |_| {}).await;
    assert_eq!(
        get(&front).await,
        (
            "200".into(),
            "TLSv1.3 [orders.internal] [] . HTTP/1.1;".into()
        )
    );
}

#[tokio::test]
async fn an_address_may_be_the_name_of_a_certificate() {
    let authority = authority_with("server", "IP:127.0.0.1");
    let server = nginx(&authority, "server", "ssl_protocols TLSv1.2;");
    let front = gateway(
        &format!("https://{}", server.address),
        trusting(&authority),
        |_| {},
    )
    .await;
    assert_eq!(
        get(&front).await,
        ("200".into(), "TLSv1.2 [] [] . HTTP/1.1;".into())
    );
}

#[tokio::test]
async fn a_certificate_of_an_unknown_authority_is_refused_unless_nothing_is_verified() {
    let authority = authority_with("server", "DNS:localhost");
    let server = nginx(&authority, "server", "");
    let endpoint = format!("https://localhost:{}", server.address.port());
    let (log, _guard) = CapturedLog::start();
    let front = gateway(&endpoint, trusting(&CertificateAuthority::create()), |_| {}).await;
    assert_eq!(get(&front).await.0, "502");
    assert!(
        log.text().contains("invalid peer certificate"),
        "{}",
        log.text()
    );
    let front = gateway(&endpoint, settings(|spec| spec.verify = false), |_| {}).await;
    assert_eq!(get(&front).await.0, "200");
}

#[tokio::test]
async fn an_expired_certificate_is_refused() {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let certificate = params.self_signed(&key).unwrap().pem();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::File::create(&path)
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
        path.display().to_string()
    };
    let (cert, key) = (
        path("cert.pem", &certificate),
        path("key.pem", &key.serialize_pem()),
    );
    let server = NginxServer::start(
        "ssl",
        &format!("ssl_certificate {cert}; ssl_certificate_key {key}; {SEEN}"),
    );
    let (log, _guard) = CapturedLog::start();
    let tls = settings(|spec| spec.ca = Some(certificate.into_bytes().into()));
    let front = gateway(
        &format!("https://localhost:{}", server.address.port()),
        tls,
        |_| {},
    )
    .await;
    assert_eq!(get(&front).await.0, "502");
    assert!(log.text().contains("expired"), "{}", log.text());
}

#[tokio::test]
async fn a_client_certificate_is_shown() {
    let authority = authority_with("server", "DNS:localhost");
    authority.issue("gateway", "DNS:gateway");
    let ca = authority.path("ca.pem");
    let server = nginx(
        &authority,
        "server",
        &format!(
            "ssl_client_certificate {}; ssl_verify_client on;",
            ca.display()
        ),
    );
    let endpoint = format!("https://localhost:{}", server.address.port());
    let front = gateway(&endpoint, trusting(&authority), |_| {}).await;
    assert_eq!(
        get(&front).await.0,
        "400",
        "nginx answers so without a certificate"
    );
    let tls = settings(|spec| {
        spec.ca = Some(authority.pem("ca.pem").into());
        spec.identity = Some((
            authority.pem("gateway.pem").into(),
            authority.pem("gateway.key").into(),
        ));
    });
    let front = gateway(&endpoint, tls, |_| {}).await;
    assert_eq!(
        get(&front).await,
        (
            "200".into(),
            "TLSv1.3 [localhost] [CN=a test] . HTTP/1.1;".into()
        )
    );
}

#[tokio::test]
async fn a_handshake_takes_no_longer_than_connecting_may() {
    let server = ScriptedUpstream::start(|mut wire, _| async move {
        wire.rest().await;
    })
    .await;
    let tls = settings(|spec| spec.verify = false);
    let front = gateway(&format!("https://{}", server.address), tls, |plan| {
        plan.spec.connect_timeout = Duration::from_millis(200);
    })
    .await;
    let (status, body) = get(&front).await;
    assert!(
        status == "504" && body.contains("connect-timeout"),
        "{status} {body}"
    );
}

#[tokio::test]
async fn a_server_in_the_clear_is_no_tls_server() {
    let server =
        ScriptedUpstream::answering("HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n").await;
    let front = gateway(
        &format!("https://{}", server.address),
        settings(|spec| spec.verify = false),
        |plan| {
            plan.spec.connect_timeout = Duration::from_millis(500);
        },
    )
    .await;
    // It waits for the end of a header section that does not come, unless it happens to see one in
    // the handshake.
    assert!(["502", "504"].contains(&&*get(&front).await.0));
}

/// A server that speaks these versions of HTTP.
fn acceptor(authority: &CertificateAuthority, versions: &[&str]) -> tokio_rustls::TlsAcceptor {
    let chain = CertificateDer::pem_slice_iter(&authority.pem("server.pem"))
        .map(Result::unwrap)
        .collect();
    let key = PrivateKeyDer::from_pem_slice(&authority.pem("server.key")).unwrap();
    let mut config = rustls::ServerConfig::builder_with_provider(Arc::new(
        rustls::crypto::ring::default_provider(),
    ))
    .with_safe_default_protocol_versions()
    .unwrap()
    .with_no_client_auth()
    .with_single_cert(chain, key)
    .unwrap();
    config.alpn_protocols = versions
        .iter()
        .map(|version| version.as_bytes().to_vec())
        .collect();
    Arc::new(config).into()
}

#[tokio::test]
async fn a_websocket_goes_over_http_2_where_a_server_speaks_nothing_else() {
    let authority = authority_with("server", "DNS:localhost");
    let acceptor = acceptor(&authority, &["h2"]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let refused = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&refused);
    let server = tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            // The first offer is HTTP/1.1 alone.
            let Ok(tls) = acceptor.accept(socket).await else {
                count.fetch_add(1, Ordering::SeqCst);
                continue;
            };
            let mut connection = h2::server::Builder::new()
                .enable_connect_protocol()
                .handshake(tls)
                .await
                .unwrap();
            tokio::spawn(async move {
                while let Some(Ok((request, mut sender))) = connection.accept().await {
                    assert_eq!(
                        request
                            .extensions()
                            .get::<h2::ext::Protocol>()
                            .unwrap()
                            .as_str(),
                        "websocket"
                    );
                    let mut stream = sender
                        .send_response(http::Response::new(()), false)
                        .unwrap();
                    stream
                        .send_data(bytes::Bytes::from_static(b"over h2"), true)
                        .unwrap();
                }
            });
        }
    });
    let recorder = PrometheusBuilder::new().build_recorder();
    let recording = metrics::set_default_local_recorder(&recorder);
    let front = gateway(
        &format!("https://localhost:{port}"),
        trusting(&authority),
        |_| {},
    )
    .await;
    for _ in 0..3 {
        let mut client = RawConnection::connect(front.address).await;
        client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: a\r\n\r\n").await;
        assert!(client.head().await.starts_with("HTTP/1.1 101"));
        client.until(b"over h2").await.unwrap();
    }
    assert_eq!(refused.load(Ordering::SeqCst), 1);
    drop(recording);
    let counted = recorder.handle().render();
    let failed = "tollgate_upstream_connects_total{upstream=\"test\",outcome=\"tls_failed\"} 0";
    assert!(counted.contains(failed), "{counted}");
    server.abort();
}

#[tokio::test]
async fn both_versions_together_are_offered_for_no_longer_than_connecting_may_take() {
    let authority = authority_with("server", "DNS:localhost");
    let acceptor = acceptor(&authority, &["h2"]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        // Each handshake alone is fast enough.
        for handshake in [Duration::from_millis(300), Duration::from_millis(200)] {
            let (socket, _) = listener.accept().await.unwrap();
            pace::pause_until(clock::now() + handshake).await;
            let Ok(tls) = acceptor.accept(socket).await else {
                continue;
            };
            let mut builder = h2::server::Builder::new();
            let mut connection = builder
                .enable_connect_protocol()
                .handshake::<_, bytes::Bytes>(tls)
                .await
                .unwrap();
            while let Some(Ok((_, mut sender))) = connection.accept().await {
                sender.send_response(http::Response::new(()), true).unwrap();
            }
        }
    });
    let limit = |plan: &mut ForwarderConfig| plan.spec.connect_timeout = Duration::from_millis(400);
    let front = gateway(
        &format!("https://localhost:{port}"),
        trusting(&authority),
        limit,
    )
    .await;
    let mut client = RawConnection::connect(front.address).await;
    client
        .send("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: a\r\n\r\n")
        .await;
    let head = client.head().await;
    assert!(head.starts_with("HTTP/1.1 504"), "{head}");
    server.abort();
}

#[tokio::test]
async fn a_server_that_takes_no_version_of_http_is_backed_off_from() {
    let authority = authority_with("server", "DNS:localhost");
    let upgrade = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: a\r\n\r\n";
    for request in ["GET / HTTP/1.1\r\nHost: a\r\n\r\n", upgrade] {
        let acceptor = acceptor(&authority, &["h3"]);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                assert!(acceptor.accept(socket).await.is_err());
            }
        });
        let (log, _guard) = CapturedLog::start();
        let front = gateway(
            &format!("https://localhost:{port}"),
            trusting(&authority),
            |_| {},
        )
        .await;
        let mut client = RawConnection::connect(front.address).await;
        client.send(request).await;
        assert!(client.head().await.starts_with("HTTP/1.1 502"));
        assert!(
            log.text().contains("an endpoint accepts no connection"),
            "{}",
            log.text()
        );
        server.abort();
    }
}

#[tokio::test]
async fn a_connection_over_tls_can_leave_http_1_even_of_a_server_that_speaks_http_2() {
    for versions in [&[][..], &["h2", "http/1.1"]] {
        leave_http(versions).await;
    }
}

async fn leave_http(versions: &[&str]) {
    let authority = authority_with("server", "DNS:localhost");
    let acceptor = acceptor(&authority, versions);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        let (socket, _) = listener.accept().await.unwrap();
        let mut tls = acceptor.accept(socket).await.unwrap();
        let mut read = vec![0; 4096];
        let length = tls.read(&mut read).await.unwrap();
        assert!(String::from_utf8_lossy(&read[..length]).contains("upgrade: echo"));
        let switch = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\nhello ";
        tls.write_all(switch.as_bytes()).await.unwrap();
        let length = tls.read(&mut read).await.unwrap();
        tls.write_all(&read[..length]).await.unwrap();
        tls.shutdown().await.unwrap();
    });
    let front = gateway(
        &format!("https://localhost:{port}"),
        trusting(&authority),
        |_| {},
    )
    .await;
    let mut client = RawConnection::connect(front.address).await;
    client
        .send("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")
        .await;
    assert!(client.head().await.starts_with("HTTP/1.1 101"));
    client.until(b"hello ").await.unwrap();
    client.send("wss").await;
    assert_eq!(client.rest().await, "wss");
    server.await.unwrap();
}
