//! The two ports of the admin server: probes and metrics alone on the one, all else on the other,
//! which may speak TLS.

use std::net::TcpStream;
use std::process::Command;

use tollgate_testing::topology::CertificateAuthority;

use crate::process::{Gateway, curl, eventually, status};

fn routes(admin: &str, more: &str) -> String {
    format!(
        "workers: 1
listeners: [{{address: '127.0.0.1:0'}}]
admin: {{address: '127.0.0.1:0', {admin}}}
{more}
limits: {{per-client: {{key: client_ip, rate: 1/h}}}}
routes: [{{name: all, respond: {{status: 200}}, limits: [per-client]}}]
"
    )
}

/// The `tls` of an admin server whose certificate is this authority's `admin`.
fn tls(authority: &CertificateAuthority, more: &str) -> String {
    let (cert, key) = (authority.path("admin.pem"), authority.path("admin.key"));
    format!(
        "tls: {{certificates: [{{cert: '{}', key: '{}'}}]{more}}}",
        cert.display(),
        key.display()
    )
}

/// The answer of the admin port to curl over TLS, which trusts `authority` alone; or what curl
/// complains of.
fn over_tls(gateway: &Gateway, authority: &CertificateAuthority, path: &str) -> String {
    let output = Command::new("curl")
        .args([
            "-sS",
            "-i",
            "--max-time",
            "20",
            "-w",
            "\n%{ssl_verify_result} %{certs}",
            "--cacert",
        ])
        .arg(authority.path("ca.pem"))
        .arg(format!("https://{}{path}", gateway.admin))
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn the_port_of_probes_has_nothing_else() {
    let gateway = Gateway::start(&routes("probe_address: '127.0.0.1:0'", ""));
    let probes = gateway.probes.unwrap();
    assert_ne!(probes, gateway.admin);
    let at = |path: &str| format!("http://{probes}{path}");
    assert_eq!(
        (curl(&[&at("/livez")]), curl(&[&at("/readyz")])),
        ("live\n".to_owned(), "ready\n".to_owned())
    );
    assert!(curl(&[&at("/metrics")]).contains("\ntollgate_connections_total "));
    for path in [
        "/",
        "/limits",
        "/buckets/per-client?client_ip=127.0.0.1",
        "/upstreams",
        "/nodes",
        "/explain?url=http://a/",
        "/openapi.json",
        "/console",
        "/console/data",
        "/console/sign-in",
        "/console/assets/console.css",
        "/livez/",
        "//livez",
    ] {
        assert_eq!(status(&["-g", "--path-as-is", &at(path)]), 404, "{path}");
    }
    let operator = ["-H", "X-Tollgate-Operator: ada"];
    let reset = at("/buckets/per-client?client_ip=127.0.0.1");
    assert_eq!(
        status(&[&["-X", "DELETE", &reset][..], &operator].concat()),
        404
    );
    assert_eq!(
        status(&[&["-X", "POST", &at("/livez")][..], &operator].concat()),
        405
    );
    // The other port has all of it, probes too.
    for path in ["/livez", "/metrics", "/limits", "/console"] {
        assert_eq!(
            status(&[&format!("http://{}{path}", gateway.admin)]),
            200,
            "{path}"
        );
    }
}

#[test]
fn the_admin_port_speaks_tls_and_follows_its_certificate() {
    let authority = CertificateAuthority::create();
    authority.issue("admin", "IP:127.0.0.1");
    let admin = format!(
        "{}, probe_address: '127.0.0.1:0'",
        tls(&authority, ", hsts: {}")
    );
    let gateway = Gateway::start(&routes(&admin, ""));
    let answer = over_tls(&gateway, &authority, "/limits");
    assert!(
        answer.starts_with("HTTP/2 200") && answer.contains("per-client"),
        "{answer}"
    );
    assert!(
        answer.contains("strict-transport-security: max-age=31536000"),
        "{answer}"
    );
    let clear = Command::new("curl")
        .args(["-sS", &format!("http://{}/limits", gateway.admin)])
        .output()
        .unwrap();
    assert!(
        !String::from_utf8_lossy(&clear.stdout).contains("per-client"),
        "in the clear"
    );
    assert_eq!(
        status(&[&format!("http://{}/readyz", gateway.probes.unwrap())]),
        200,
        "probes know of no authority"
    );
    let other = CertificateAuthority::create();
    assert!(
        over_tls(&gateway, &other, "/limits").contains("certificate"),
        "of an authority that nobody trusts"
    );
    // A new certificate is taken over while the port serves.
    let (new_cert, new_key) = (other.path("admin.pem"), other.path("admin.key"));
    other.issue("admin", "IP:127.0.0.1");
    std::fs::copy(new_key, authority.path("admin.key")).unwrap();
    std::fs::copy(new_cert, authority.path("admin.pem")).unwrap();
    eventually("the new certificate is shown", || {
        over_tls(&gateway, &other, "/limits")
            .starts_with("HTTP/2 200")
            .then_some(())
    });
    assert!(
        over_tls(&gateway, &authority, "/limits").contains("certificate"),
        "the old one is gone"
    );
}

#[test]
fn a_successor_takes_over_both_ports() {
    let folder = tempfile::tempdir().unwrap();
    let handover = format!("handover: {}/handover.sock", folder.path().display());
    let file = routes("probe_address: '127.0.0.1:0'", &handover);
    let mut first = Gateway::start(&file);
    let second = Gateway::take_over(&file);
    assert_eq!((second.admin, second.probes), (first.admin, first.probes));
    assert!(first.wait().success());
    assert_eq!(
        status(&[&format!("http://{}/readyz", second.probes.unwrap())]),
        200
    );
    assert_eq!(status(&[&format!("http://{}/limits", second.admin)]), 200);
}

#[test]
fn health_asks_the_port_of_probes() {
    let authority = CertificateAuthority::create();
    authority.issue("admin", "IP:127.0.0.1");
    let admin = tls(&authority, "");
    let gateway = Gateway::start(&routes(
        &format!("{admin}, probe_address: '127.0.0.1:0'"),
        "",
    ));
    let health = |admin: &str| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("routes.yaml");
        std::fs::write(&path, routes(admin, "")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command
            .env_remove("TOLLGATE_ADMIN")
            .args(["health", "--config"])
            .arg(&path);
        let output = command.output().unwrap();
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
    };
    let probes = gateway.probes.unwrap();
    assert_eq!(
        health(&format!("{admin}, probe_address: '{probes}'")),
        format!("ready: http://{probes}\n")
    );
    let said = health(&admin);
    assert!(
        said.contains("add `probe_address: 127.0.0.1:9902` to `admin`"),
        "{said}"
    );
}

#[test]
fn no_address_holds_all_connections_of_the_admin_port() {
    let gateway = Gateway::start(&routes("probe_address: '127.0.0.1:0'", ""));
    for port in [gateway.admin, gateway.probes.unwrap()] {
        let live = format!("http://{port}/livez");
        // Some are closed while they connect.
        let held: Vec<TcpStream> = (0..300)
            .filter_map(|_| TcpStream::connect(port).ok())
            .collect();
        eventually("the address has no room", || {
            is_refused(&live).then_some(())
        });
        assert_eq!(
            curl(&["--interface", "127.0.0.2", &live]),
            "live\n",
            "{port}"
        );
        drop(held);
        eventually("it has room again", || (!is_refused(&live)).then_some(()));
    }
}

/// Whether curl's connection is closed before it gets an answer.
fn is_refused(url: &str) -> bool {
    let output = Command::new("curl")
        .args(["-sS", "--max-time", "20", url])
        .output()
        .unwrap();
    output.stdout.is_empty()
}
