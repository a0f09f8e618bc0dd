//! The files of an upstream's TLS, while the gateway runs.

use tollgate_testing::nginx::NginxServer;
use tollgate_testing::topology::CertificateAuthority;

use crate::process::{Gateway, eventually, status};

#[test]
fn certificate_files_are_taken_over_when_they_change_and_a_bad_one_changes_nothing() {
    let (authority, other) = (
        CertificateAuthority::create(),
        CertificateAuthority::create(),
    );
    authority.issue("server", "DNS:localhost");
    let path = |file: &str| authority.path(file).display().to_string();
    let files = format!(
        "ssl_certificate {}; ssl_certificate_key {};",
        path("server.pem"),
        path("server.key")
    );
    let server = NginxServer::start(
        "ssl",
        &format!("{files} keepalive_timeout 0; location / {{ return 200 ok; }}"),
    );
    let trusted = tempfile::NamedTempFile::new().unwrap();
    let trust = |pem: &[u8]| std::fs::write(trusted.path(), pem).unwrap();
    trust(&authority.pem("ca.pem"));
    let gateway = Gateway::start(&format!(
        "workers: 1
listeners: [{{address: '127.0.0.1:0'}}]
admin: {{address: '127.0.0.1:0'}}
upstreams: {{up: {{endpoints: ['https://localhost:{}'], tls: {{ca: '{}'}}}}}}
routes: [{{name: all, upstream: up}}]
",
        server.address.port(),
        trusted.path().display()
    ));
    let get = || status(&[&gateway.url("/")]);
    assert_eq!(get(), 200);
    trust(b"nothing of use");
    eventually("the bad file is noticed", || {
        gateway
            .log()
            .contains("there is no certificate in it")
            .then_some(())
    });
    assert_eq!(get(), 200);
    trust(&other.pem("ca.pem"));
    eventually("the other authority counts", || {
        (get() == 502).then_some(())
    });
    assert_eq!(
        gateway.metric("tollgate_config_last_reload_successful"),
        1.0
    );
    trust(&authority.pem("ca.pem"));
    eventually("the first authority counts again", || {
        (get() == 200).then_some(())
    });
}
