//! TLS on listeners, with the programs that people use: curl and openssl.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use tollgate_testing::PATIENCE;
use tollgate_testing::topology::CertificateAuthority;

use crate::process::{Gateway, eventually};

/// The output of curl, and its complaints.
struct Seen {
    out: String,
    errors: String,
}

/// A gateway with certificates for `a.example` and `*.b.example`, the first one default, and its
/// authority.
fn secured(more: &str) -> (Gateway, CertificateAuthority) {
    let authority = CertificateAuthority::create();
    authority.issue("a", "DNS:a.example");
    authority.issue("b", "DNS:*.b.example,DNS:c.example");
    authority.issue_to(
        "client",
        "/O=Example, Inc/CN=billing",
        "DNS:billing.example,URI:spiffe://x/billing",
        "2",
    );
    let gateway = Gateway::start(&routes(&authority, more));
    (gateway, authority)
}

fn routes(authority: &CertificateAuthority, more: &str) -> String {
    let folder = authority
        .path("ca.pem")
        .with_file_name("")
        .display()
        .to_string();
    let folder = folder.trim_end_matches('/');
    let more = more.replace("FOLDER", folder);
    format!(
        "workers: 2
listeners:
  - address: 127.0.0.1:0
    tls:
      certificates:
        - {{cert: {folder}/a.pem, key: {folder}/a.key}}
        - {{cert: {folder}/b.pem, key: {folder}/b.key}}
      {more}
admin: {{address: '127.0.0.1:0'}}
limits:
  per-service: {{key: {{client_certificate: subject}}, rate: 1/h, burst: 2, on_missing: skip}}
routes:
  - {{name: limited, match: {{path: /limited}}, respond: {{body: ok}}, limits: [per-service]}}
  - {{name: echo, echo: true}}
"
    )
}

/// Asks for `host` and `path` over TLS, as curl does it with `arguments`.
fn curl(
    gateway: &Gateway,
    authority: &CertificateAuthority,
    host: &str,
    path: &str,
    arguments: &[&str],
) -> Seen {
    let port = gateway.listeners[0].port();
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--max-time", "20", "--cacert"])
        .arg(authority.path("ca.pem"))
        .args([
            "--resolve",
            &format!("{host}:{port}:127.0.0.1"),
            "--write-out",
            "\n%{http_version} %{http_code}",
        ])
        .args(arguments)
        .arg(format!("https://{host}:{port}{path}"))
        .current_dir(authority.path("ca.pem").with_file_name(""))
        .output()
        .unwrap_or_else(|error| panic!("curl is needed ({error})"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Seen {
        out: text(&output.stdout),
        errors: text(&output.stderr),
    }
}

impl Seen {
    /// The version of HTTP and the status.
    fn ended(&self) -> &str {
        self.out.lines().last().unwrap_or_default()
    }
}

const IDENTITY: [&str; 4] = ["--cert", "client.pem", "--key", "client.key"];

/// The report of `openssl s_client` of a connection on which it sends nothing.
fn s_client(gateway: &Gateway, authority: &CertificateAuthority, arguments: &[&str]) -> String {
    let mut child = Command::new("openssl")
        .args([
            "s_client",
            "-ign_eof",
            "-connect",
            &gateway.listeners[0].to_string(),
            "-CAfile",
            "ca.pem",
        ])
        .args(arguments)
        .current_dir(authority.path("ca.pem").with_file_name(""))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let request = b"GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";
    let _ = child.stdin.take().unwrap().write_all(request);
    let mut text = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    child.wait().unwrap();
    text
}

/// Sends `bytes` and reads until the gateway closes.
fn raw(gateway: &Gateway, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(gateway.listeners[0]).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(bytes).unwrap();
    let mut received = Vec::new();
    // A reset is a close, too.
    match stream.read_to_end(&mut received) {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
            panic!("the connection stays open")
        }
        _ => received,
    }
}

fn handshakes(gateway: &Gateway, outcome: &str) -> f64 {
    gateway.metric(&format!(
        "tollgate_tls_handshakes_total{{outcome=\"{outcome}\"}}"
    ))
}

#[test]
fn both_versions_of_http_and_of_tls_are_spoken() {
    let (gateway, authority) = secured("");
    let ask = |arguments: &[&str]| curl(&gateway, &authority, "a.example", "/", arguments);
    assert_eq!(ask(&["--http2"]).ended(), "2 200");
    assert_eq!(ask(&["--http1.1"]).ended(), "1.1 200");
    assert_eq!(ask(&["--no-alpn"]).ended(), "1.1 200");
    for (version, most) in [("--tlsv1.2", "1.2"), ("--tlsv1.3", "1.3")] {
        assert_eq!(
            ask(&[version, "--tls-max", most]).ended(),
            "2 200",
            "{version}"
        );
    }
    let old = s_client(
        &gateway,
        &authority,
        &["-tls1_1", "-cipher", "DEFAULT@SECLEVEL=0"],
    );
    assert!(old.contains("Cipher is (NONE)"), "{old}");
}

#[test]
fn the_oldest_version_of_tls_is_a_setting() {
    let (gateway, authority) = secured("min_version: \"1.3\"");
    let ask = |arguments: &[&str]| curl(&gateway, &authority, "a.example", "/", arguments);
    assert_eq!(ask(&["--tlsv1.2", "--tls-max", "1.2"]).ended(), "0 000");
    assert_eq!(ask(&[]).ended(), "2 200");
}

#[test]
fn the_certificate_is_chosen_by_the_name_that_is_asked_for() {
    let (gateway, authority) = secured("");
    for host in ["a.example", "x.b.example", "c.example"] {
        let seen = curl(&gateway, &authority, host, "/", &[]);
        assert_eq!(seen.ended(), "2 200", "{host}: {}", seen.errors);
    }
    for host in ["b.example", "x.y.b.example", "z.example"] {
        let seen = curl(&gateway, &authority, host, "/", &[]);
        assert!(
            seen.errors
                .contains("no alternative certificate subject name matches"),
            "{host}: {}",
            seen.errors
        );
    }
    let nameless = s_client(&gateway, &authority, &["-noservername"]);
    assert!(nameless.contains("HTTP/1.1 200"), "{nameless}");
    // An address is no name (RFC 6066 §3). Anybody may send one, as often as it likes: no line
    // each.
    let address = s_client(&gateway, &authority, &["-servername", "127.0.0.1"]);
    assert!(address.contains("HTTP/1.1 200"), "{address}");
    assert!(!gateway.log().contains("SNI"), "{}", gateway.log());
}

#[test]
fn a_session_is_resumed_whichever_worker_the_client_meets() {
    let (gateway, authority) = secured("");
    for version in ["-tls1_2", "-tls1_3"] {
        let first = s_client(
            &gateway,
            &authority,
            &[version, "-servername", "a.example", "-sess_out", "session"],
        );
        assert!(first.contains("New, TLSv1"), "{first}");
        for _ in 0..8 {
            let again = s_client(
                &gateway,
                &authority,
                &[version, "-servername", "a.example", "-sess_in", "session"],
            );
            assert!(again.contains("Reused, TLSv1"), "{version}: {again}");
        }
    }
    assert_eq!(
        (
            handshakes(&gateway, "full"),
            handshakes(&gateway, "resumed")
        ),
        (2.0, 16.0)
    );
}

#[test]
fn upstream_and_gateway_know_the_scheme_of_the_connection_whatever_a_target_says() {
    let (gateway, authority) = secured("");
    let seen = curl(
        &gateway,
        &authority,
        "a.example",
        "/",
        &["--http1.1", "--request-target", "http://a.example/x"],
    );
    assert!(seen.out.contains("\"scheme\": \"https\""), "{}", seen.out);
    assert!(seen.out.contains("\"path\": \"/x\""), "{}", seen.out);
}

#[test]
fn a_client_without_a_valid_certificate_is_refused_where_one_is_required() {
    let (gateway, authority) = secured("client_ca: FOLDER/ca.pem");
    authority.issue_to("expired", "/CN=late", "DNS:late.example", "-1");
    let stranger = CertificateAuthority::create();
    stranger.issue("client", "DNS:billing.example");
    let other = [stranger.path("client.pem"), stranger.path("client.key")]
        .map(|path| path.display().to_string());
    let ask = |arguments: &[&str]| curl(&gateway, &authority, "a.example", "/", arguments);
    let cases: [(&[&str], &str); 3] = [
        (&[], "certificate required"),
        (
            &["--cert", "expired.pem", "--key", "expired.key"],
            "certificate expired",
        ),
        (&["--cert", &other[0], "--key", &other[1]], "alert"),
    ];
    for (arguments, alert) in cases {
        let seen = ask(arguments);
        assert_eq!(
            seen.ended().split(' ').next_back(),
            Some("000"),
            "{arguments:?}"
        );
        assert!(
            seen.errors.contains(alert),
            "{arguments:?}: {}",
            seen.errors
        );
    }
    eventually("all are counted", || {
        (handshakes(&gateway, "client_certificate") == 3.0).then_some(())
    });
    assert_eq!(ask(&IDENTITY).ended(), "2 200");
}

#[test]
fn a_client_may_lack_a_certificate_where_it_is_optional_but_not_have_a_bad_one() {
    let (gateway, authority) = secured("client_ca: FOLDER/ca.pem\n      client_auth: optional");
    authority.issue_to("expired", "/CN=late", "DNS:late.example", "-1");
    let ask = |arguments: &[&str]| curl(&gateway, &authority, "a.example", "/", arguments);
    assert_eq!(ask(&[]).ended(), "2 200");
    assert_eq!(ask(&IDENTITY).ended(), "2 200");
    assert!(
        ask(&["--cert", "expired.pem", "--key", "expired.key"])
            .errors
            .contains("certificate expired")
    );
}

#[test]
fn a_resumed_session_does_not_outlive_its_client_certificate() {
    let (gateway, authority) = secured("client_ca: FOLDER/ca.pem");
    let arguments = [
        "-servername",
        "a.example",
        "-cert",
        "client.pem",
        "-key",
        "client.key",
    ];
    let first = s_client(
        &gateway,
        &authority,
        &[&arguments[..], &["-sess_out", "session"]].concat(),
    );
    assert!(first.contains("HTTP/1.1 200"), "{first}");
    let resume = || {
        s_client(
            &gateway,
            &authority,
            &[&arguments[..2], &["-sess_in", "session"]].concat(),
        )
    };
    let again = resume();
    assert!(
        again.contains("Reused, ") && again.contains("HTTP/1.1 200"),
        "{again}"
    );
    // The authority that signed it is not trusted any more.
    let stranger = CertificateAuthority::create();
    std::fs::copy(stranger.path("ca.pem"), authority.path("ca.new")).unwrap();
    std::fs::rename(authority.path("ca.new"), authority.path("ca.pem")).unwrap();
    gateway.signal("HUP");
    eventually("the reload", || {
        gateway.log().contains("\"reloaded\"").then_some(())
    });
    let refused = resume();
    assert!(
        !refused.contains("Reused, ") && !refused.contains("HTTP/1.1 200"),
        "{refused}"
    );
}

#[test]
fn limits_count_by_the_subject_of_a_client_certificate() {
    let (gateway, authority) = secured("client_ca: FOLDER/ca.pem");
    authority.issue_to("other", "/CN=other", "DNS:other.example", "2");
    let ask = |identity: &[&str]| {
        curl(&gateway, &authority, "a.example", "/limited", identity)
            .ended()
            .to_owned()
    };
    assert_eq!(
        [ask(&IDENTITY), ask(&IDENTITY), ask(&IDENTITY)],
        ["2 200", "2 200", "2 429"]
    );
    assert_eq!(ask(&["--cert", "other.pem", "--key", "other.key"]), "2 200");
    let explained = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args([
            "explain",
            "https://a.example/limited",
            "--client-certificate",
            "subject=CN=billing,O=Example\\, Inc",
        ])
        .args(["--admin", &format!("http://{}", gateway.admin)])
        .output()
        .unwrap();
    let explained = String::from_utf8_lossy(&explained.stdout).into_owned();
    assert!(
        explained.contains("per-service:CN=billing,O=Example"),
        "{explained}"
    );
}

#[test]
fn a_client_that_proved_itself_for_one_name_is_not_let_in_by_another() {
    let (gateway, authority) = secured("client_ca: FOLDER/ca.pem");
    let ask = |version: &str, host: &str| {
        let arguments = [&IDENTITY[..], &[version, "--header", host]].concat();
        curl(&gateway, &authority, "a.example", "/", &arguments)
            .ended()
            .to_owned()
    };
    assert_eq!(ask("--http2", "host: c.example"), "2 421");
    assert_eq!(ask("--http1.1", "host: c.example"), "1.1 421");
    assert_eq!(ask("--http1.1", "host: A.example:443"), "1.1 200");
}

#[test]
fn a_shared_connection_is_not_for_hosts_that_another_certificate_is_for() {
    let (gateway, authority) = secured("");
    let ask = |version: &str, host: &str| {
        curl(
            &gateway,
            &authority,
            "a.example",
            "/",
            &[version, "--header", host],
        )
        .ended()
        .to_owned()
    };
    assert_eq!(ask("--http2", "host: c.example"), "2 421");
    assert_eq!(
        ask("--http2", "host: unknown.example"),
        "2 200",
        "no other connection would do better"
    );
    assert_eq!(
        ask("--http1.1", "host: c.example"),
        "1.1 200",
        "HTTP/1 clients share no connection among hosts"
    );
}

#[test]
fn http_in_the_clear_gets_an_answer_that_says_so() {
    let (gateway, _authority) = secured("");
    for request in [
        &b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let answer = raw(&gateway, request);
        let text = String::from_utf8_lossy(&answer);
        assert!(text.starts_with("HTTP/1.1 400 "), "{text}");
    }
    let answer =
        String::from_utf8_lossy(&raw(&gateway, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")).into_owned();
    assert!(
        answer.contains("HTTP in the clear to a port for HTTPS")
            && answer.contains("connection: close"),
        "{answer}"
    );
    assert_eq!(handshakes(&gateway, "plain_http"), 3.0);
}

#[test]
fn what_is_no_handshake_ends_in_an_alert_and_a_close() {
    let (gateway, _authority) = secured("");
    let huge = [
        &[0x16, 3, 1, 0x40, 0][..],
        &[1, 0xff, 0xff, 0xff],
        &[0; 16_380],
    ]
    .concat();
    for garbage in [
        &b"\x00\x01\x02\x03\x04\x05"[..],
        b"\x16\x03\x01\xff\xff",
        b"\x80\x2e\x01\x00\x02",
        &huge,
    ] {
        let answer = raw(&gateway, garbage);
        assert!(
            answer.is_empty() || answer.starts_with(&[0x15, 3]),
            "{}",
            answer.escape_ascii()
        );
    }
    eventually("all are counted", || {
        (handshakes(&gateway, "failed") == 4.0).then_some(())
    });
}

#[test]
fn a_handshake_that_stalls_is_cut_and_holds_nobody_up() {
    let authority = CertificateAuthority::create();
    authority.issue("a", "DNS:a.example");
    authority.issue("b", "DNS:b.example");
    let file = routes(&authority, "max_handshakes: 1");
    let gateway = Gateway::start(&file.replace("    tls:", "    header_timeout: 5s\n    tls:"));
    // The first says nothing, another half of a hello, and one nothing more after its hello.
    let hello = client_hello(&authority);
    let parts = [&hello[..0], &hello[..hello.len() / 2], &hello];
    let mut stalled: Vec<TcpStream> = parts
        .iter()
        .flat_map(|part| std::iter::repeat_n(part, 4))
        .map(|part| {
            let mut stream = TcpStream::connect(gateway.listeners[0]).unwrap();
            stream.write_all(part).unwrap();
            stream
        })
        .collect();
    assert_eq!(
        curl(&gateway, &authority, "a.example", "/", &[]).ended(),
        "2 200"
    );
    for stream in &mut stalled {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
    }
    eventually("all are counted", || {
        (handshakes(&gateway, "timeout") == 12.0).then_some(())
    });
}

#[test]
fn connections_that_have_sent_nothing_make_room_before_and_after_their_handshake() {
    let authority = CertificateAuthority::create();
    authority.issue("a", "DNS:a.example");
    authority.issue("b", "DNS:b.example");
    let file = routes(&authority, "");
    let bounds =
        "    header_timeout: 60s\n    keepalive_timeout: 60s\n    max_connections: 2\n    tls:";
    // Each worker has a queue of its own, and those that wait in that of another worker need no
    // room yet.
    let gateway = Gateway::start(
        &file
            .replace("    tls:", bounds)
            .replace("workers: 2", "workers: 1"),
    );
    let mut silent: Vec<_> = (0..4)
        .map(|_| TcpStream::connect(gateway.listeners[0]).unwrap())
        .collect();
    assert_eq!(
        curl(&gateway, &authority, "a.example", "/", &[]).ended(),
        "2 200"
    );
    // Five connections came to two places: the first three went, each for another one.
    for stream in &mut silent[..3] {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    }
    // And the fourth, if one of them took longer to close than the gateway waits before it asks
    // another.
    let made_room = gateway.metric("tollgate_connections_closed_for_room_total");
    assert!([3.0, 4.0].contains(&made_room), "{made_room}");
    eventually("each is counted as evicted", || {
        (handshakes(&gateway, "evicted") == made_room).then_some(())
    });
    // And those that have agreed on a version of HTTP.
    for protocol in ["h2", "http/1.1"] {
        let before = handshakes(&gateway, "full");
        let mut children: Vec<_> = (0..2)
            .map(|_| {
                Command::new("openssl")
                    .args([
                        "s_client",
                        "-connect",
                        &gateway.listeners[0].to_string(),
                        "-alpn",
                        protocol,
                    ])
                    .stdin(Stdio::piped())
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .spawn()
                    .unwrap()
            })
            .collect();
        eventually("both are open", || {
            (handshakes(&gateway, "full") == before + 2.0).then_some(())
        });
        assert_eq!(
            curl(&gateway, &authority, "a.example", "/", &[]).ended(),
            "2 200",
            "{protocol}"
        );
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
    drop(silent);
}

/// The first flight of a client, as openssl makes it.
fn client_hello(authority: &CertificateAuthority) -> Vec<u8> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut child = Command::new("openssl")
        .args([
            "s_client",
            "-connect",
            &listener.local_addr().unwrap().to_string(),
            "-servername",
            "a.example",
        ])
        .current_dir(authority.path("ca.pem").with_file_name(""))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    let mut head = [0; 5];
    stream.read_exact(&mut head).unwrap();
    let mut body = vec![0; usize::from(u16::from_be_bytes([head[3], head[4]]))];
    stream.read_exact(&mut body).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    [&head[..], &body].concat()
}

#[test]
fn certificates_change_under_load_without_a_failed_request() {
    let (gateway, authority) = secured("");
    let (stop, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let clients: Vec<_> = (0..3)
            .map(|index| {
                let (gateway, authority, stop, answered) = (&gateway, &authority, &stop, &answered);
                scope.spawn(move || {
                    // Ten requests on each connection, then another connection.
                    let version = if index % 2 == 0 {
                        "--http2"
                    } else {
                        "--http1.1"
                    };
                    while !stop.load(Ordering::Relaxed) {
                        let seen = curl(
                            gateway,
                            authority,
                            "a.example",
                            "/[1-10]",
                            &[version, "--output", "/dev/null"],
                        );
                        assert_eq!(
                            seen.out.matches(" 200").count(),
                            10,
                            "{} {}",
                            seen.out,
                            seen.errors
                        );
                        answered.fetch_add(10, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        for round in 1..=12 {
            // Key and certificate one after the other, as tools do: each must wait for the other.
            authority.issue("next", "DNS:a.example");
            std::fs::rename(authority.path("next.key"), authority.path("a.key")).unwrap();
            std::fs::rename(authority.path("next.pem"), authority.path("a.pem")).unwrap();
            gateway.signal("HUP");
            eventually("the reload", || {
                (gateway.log().matches("\"reloaded\"").count() >= round).then_some(())
            });
        }
        let failed = clients.iter().any(thread::ScopedJoinHandle::is_finished);
        stop.store(true, Ordering::Relaxed);
        assert!(!failed);
    });
    assert!(answered.load(Ordering::Relaxed) > 0);
    assert!(
        gateway
            .metrics()
            .contains("tollgate_config_reloads_total{outcome=\"rejected\"} 0")
    );
}

#[test]
fn changed_files_are_taken_over_and_bad_ones_change_nothing() {
    let (gateway, authority) = secured("");
    let serial = || {
        let shown = s_client(&gateway, &authority, &["-servername", "a.example"]);
        let start = shown.find("-----BEGIN").unwrap();
        shown[start..start + 400].to_owned()
    };
    let reloads = |outcome: &str| {
        gateway.metric(&format!(
            "tollgate_tls_certificate_reloads_total{{outcome=\"{outcome}\"}}"
        ))
    };
    let before = serial();
    // A certificate that another key belongs to.
    authority.issue("next", "DNS:a.example");
    std::fs::copy(authority.path("next.pem"), authority.path("a.pem")).unwrap();
    eventually("the refusal", || (reloads("rejected") == 1.0).then_some(()));
    eventually("why", || {
        gateway.log().contains("is not the key of").then_some(())
    });
    assert_eq!(serial(), before);
    // Its key follows.
    std::fs::copy(authority.path("next.key"), authority.path("a.key")).unwrap();
    eventually("the change", || (reloads("applied") == 1.0).then_some(()));
    assert_ne!(serial(), before);
    assert_eq!(reloads("rejected"), 1.0);
}

#[test]
fn a_start_with_files_that_cannot_be_used_says_which_and_why() {
    let authority = CertificateAuthority::create();
    authority.issue("a", "DNS:a.example");
    authority.issue("b", "DNS:b.example");
    let check = |change: &dyn Fn(&str) -> String| {
        let path = authority.path("routes.yaml");
        std::fs::write(&path, change(&routes(&authority, ""))).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_tollgate"))
            .arg("check")
            .arg(&path)
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        (
            output.status.success(),
            String::from_utf8_lossy(&said).into_owned(),
        )
    };
    std::fs::write(authority.path("empty.pem"), "").unwrap();
    std::fs::write(
        authority.path("locked.key"),
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAA==\n-----END ENCRYPTED PRIVATE KEY-----\n",
    )
    .unwrap();
    assert!(check(&str::to_owned).0);
    for (from, to, message) in [
        ("a.key", "b.key", "b.key: is not the key of"),
        ("a.pem", "none.pem", "none.pem: cannot read: No such file"),
        ("a.pem", "empty.pem", "empty.pem: holds no certificate"),
        ("a.key", "empty.pem", "empty.pem: holds no private key"),
        ("a.key", "locked.key", "locked.key: is encrypted"),
    ] {
        let (fine, said) = check(&|file: &str| file.replacen(from, to, 1));
        assert!(!fine && said.contains(message), "{from} → {to}: {said}");
    }
}

#[test]
fn the_metrics_say_when_certificates_expire_and_the_log_warns_before() {
    let authority = CertificateAuthority::create();
    authority.issue_to("a", "/CN=a", "DNS:a.example", "-1");
    authority.issue("b", "DNS:b.example");
    let gateway = Gateway::start(&routes(&authority, ""));
    let series = |name: &str| {
        format!(
            "tollgate_tls_certificate_expiry_timestamp_seconds{{certificate=\"{}\"}}",
            authority.path(name).display()
        )
    };
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_secs_f64();
    assert!(gateway.metric(&series("a.pem")) < now);
    assert!((gateway.metric(&series("b.pem")) - now - 2.0 * 86_400.0).abs() < 600.0);
    assert!(
        gateway.log().contains("a certificate has expired"),
        "{}",
        gateway.log()
    );
}

#[test]
fn a_certificate_that_is_no_file_is_not_waited_for() {
    let authority = CertificateAuthority::create();
    authority.issue("a", "DNS:a.example");
    authority.issue("b", "DNS:b.example");
    let gateway = Gateway::start(&routes(&authority, ""));
    let certificate = authority.path("a.pem");
    std::fs::remove_file(&certificate).unwrap();
    assert!(
        Command::new("mkfifo")
            .arg(&certificate)
            .status()
            .unwrap()
            .success()
    );
    eventually("it is refused", || {
        gateway.log().contains("is not a file").then_some(())
    });
    assert!(gateway.metric("tollgate_connections") >= 0.0);
}

#[test]
fn limits_of_a_listener_count_what_it_sends_elsewhere() {
    let gateway = Gateway::start(
        "workers: 1
listeners: [{address: '127.0.0.1:0', redirect_to_https: true, limits: [l]}]
admin: {address: '127.0.0.1:0'}
limits: {l: {key: client_ip, rate: 1/h, burst: 2}}
routes: [{name: echo, echo: true}]
",
    );
    let statuses: Vec<u16> = (0..4)
        .map(|_| crate::process::status(&[&gateway.url("/")]))
        .collect();
    assert_eq!(statuses, [301, 301, 429, 429]);
}

#[test]
fn clients_in_the_clear_are_sent_to_https_and_told_to_stay_there() {
    let authority = CertificateAuthority::create();
    authority.issue("a", "DNS:a.example");
    authority.issue("b", "DNS:b.example");
    let clear = "  - {address: '127.0.0.1:0', redirect_to_https: true}\n  - {address: '127.0.0.1:0', redirect_to_https: 8443}\nadmin:";
    let file = routes(&authority, "hsts: {include_subdomains: true}").replacen("admin:", clear, 1);
    let gateway = Gateway::start(&format!("trusted_proxies: [127.0.0.1]\n{file}"));
    let ask = |listener: usize, arguments: &[&str]| {
        let url = format!("http://{}/a%20b?c=d", gateway.listeners[listener]);
        let output = Command::new("curl")
            .args(["-sS", "-i", "--path-as-is"])
            .args(arguments)
            .arg(url)
            .output()
            .unwrap();
        String::from_utf8(output.stdout)
            .unwrap()
            .to_ascii_lowercase()
    };
    let moved = ask(1, &["-H", "host: A.example:80"]);
    assert!(
        moved.starts_with("http/1.1 301 ")
            && moved.contains("location: https://a.example/a%20b?c=d\r\n"),
        "{moved}"
    );
    assert!(!moved.contains("strict-transport-security"), "{moved}");
    let moved = ask(2, &["-H", "host: a.example", "-d", "x"]);
    assert!(
        moved.starts_with("http/1.1 308 ")
            && moved.contains("location: https://a.example:8443/a%20b?c=d\r\n"),
        "{moved}"
    );
    let said = ask(1, &["-H", "x-forwarded-proto: https"]);
    assert!(said.starts_with("http/1.1 200 "), "{said}");
    let secured = curl(&gateway, &authority, "a.example", "/", &["--include"]);
    assert!(
        secured
            .out
            .contains("strict-transport-security: max-age=31536000; includeSubDomains"),
        "{}",
        secured.out
    );
}

#[test]
fn the_certificate_of_a_client_is_its_identity() {
    let authority = CertificateAuthority::create();
    authority.issue("a", "DNS:a.example");
    authority.issue_to(
        "client",
        "/O=Example, Inc/CN=billing",
        "DNS:billing.example,URI:spiffe://x/billing",
        "2",
    );
    authority.issue_to("nameless", "/CN=nameless", "IP:192.0.2.1", "2");
    let files = routes(
        &authority,
        "client_ca: FOLDER/ca.pem\n      client_auth: optional",
    );
    let files = files.replace("        - {cert: FOLDER/b.pem, key: FOLDER/b.key}\n", "");
    let file = files
        .lines()
        .filter(|line| !line.contains("/b.pem"))
        .collect::<Vec<_>>()
        .join("\n");
    let head = file.split("limits:").next().unwrap();
    let gateway = Gateway::start(&format!(
        "{head}authenticators:
  services: {{client_certificate: subject}}
  names: {{client_certificate: san}}
limits:
  each: {{key: identity, rate: 1/h, burst: 2}}
routes:
  - {{name: subject, match: {{path: /subject}}, echo: true, authenticate: [services], limits: [each], request_headers: {{set: {{x-user: '{{identity}}'}}}}}}
  - {{name: names, match: {{path: /names}}, echo: true, authenticate: [names], request_headers: {{set: {{x-user: '{{identity}}'}}}}}}
"
    ));
    let ask =
        |path: &str, arguments: &[&str]| curl(&gateway, &authority, "a.example", path, arguments);
    let nobody = ask(
        "/subject",
        &[
            "--header",
            "x-forwarded-client-cert: Subject=\"CN=billing\"",
        ],
    );
    assert_eq!(
        nobody.ended(),
        "2 403",
        "there is no challenge for certificates: {}",
        nobody.out
    );
    assert!(
        nobody.out.contains("a client certificate is needed"),
        "{}",
        nobody.out
    );
    let known = ask("/subject", &IDENTITY);
    assert!(
        known.ended() == "2 200" && known.out.contains("CN=billing"),
        "{}",
        known.out
    );
    assert_eq!(
        [
            ask("/subject", &IDENTITY).ended(),
            ask("/subject", &IDENTITY).ended()
        ],
        ["2 200", "2 429"]
    );
    let named = ask("/names", &IDENTITY);
    assert!(named.out.contains("billing.example"), "{}", named.out);
    let other = CertificateAuthority::create();
    other.issue_to(
        "client",
        "/O=Example, Inc/CN=billing",
        "DNS:billing.example",
        "2",
    );
    let [pem, key] =
        ["client.pem", "client.key"].map(|file| other.path(file).display().to_string());
    let forged = ask("/subject", &["--cert", &pem, "--key", &key]);
    assert_eq!(
        forged.ended(),
        "0 000",
        "an authority that nobody named: {} {}",
        forged.out,
        forged.errors
    );
}
