//! A service that is asked about each request, and fails in every way.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::authenticators::{key_entry, outcome};
use crate::process::{Gateway, curl, eventually, status};

const ROUTES: &str = "
workers: 1
access_log: json
listeners: [{address: '127.0.0.1:0'}]
admin: {address: '127.0.0.1:0'}
upstreams:
  auth: {endpoints: ['http://SERVICE'], bounds: {header_size: 8KiB}}
  app: {endpoints: ['http://SERVICE']}
authenticators:
  partners: {api_key: {header: x-api-key, keys: 'FOLDER/keys.yaml'}}
  sso: {forward: {upstream: auth, path: '/check?x=1', copy_headers: [x-role, x-forwarded-user], id_header: x-user,
    plan_header: x-plan, timeout: 5s}}
  says: {forward: {upstream: auth, path: /check, copy_headers: [authorization, x-api-key]}}
  few: {forward: {upstream: auth, path: /check, request_headers: [authorization, x-test, x-original-url]}}
  kept: {forward: {upstream: auth, path: /check, request_headers: [authorization, x-test], copy_headers: [x-role],
    id_header: x-user, plan_header: x-plan, timeout: 5s, cache: {max_age: 1h}}}
  shared: {forward: {upstream: auth, path: /check, request_headers: [authorization, x-test], id_header: x-user,
    timeout: 5s, on_failure: allow, cache: {max_age: 1h, ignore: [uri, method]}}}
  open: {forward: {upstream: auth, path: /check, copy_headers: [x-role], id_header: x-user, timeout: 5s,
    on_failure: allow}}
limits:
  per-user: {key: identity, rate: 2/h, on_missing: skip, plans: {by: {identity: plan}, table: {gold: {rate: 4/h}}}}
routes:
  - {name: app, match: {path: /app/*}, upstream: app, authenticate: [partners, sso], limits: [per-user],
    request_headers: {set: {x-id: '{identity}'}}}
  - {name: plain, match: {path: /plain}, upstream: app, authenticate: [sso]}
  - {name: says, match: {path: /says}, upstream: app, authenticate: [partners, says]}
  - {name: few, match: {path: /few}, upstream: app, authenticate: [few]}
  - {name: kept, match: {path: /kept/*}, upstream: app, authenticate: [kept], request_headers: {set: {x-id: '{identity}'}}}
  - {name: shared, match: {path: /shared/*}, upstream: app, authenticate: [shared], request_headers: {set: {x-id: '{identity}'}}}
  - {name: open, match: {path: /open}, upstream: app, authenticate: [open], request_headers: {set: {x-id: '{identity}'}}}
";

/// A service that answers as the field `x-test` of a request says, and an application beside it.
struct Service {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Service {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, heads) = (listener.local_addr().unwrap(), Arc::new(Mutex::default()));
        let seen: Arc<Mutex<Vec<String>>> = Arc::clone(&heads);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let seen = seen.clone();
                thread::spawn(move || serve(stream.unwrap(), &seen));
            }
        });
        Self { address, heads }
    }

    /// The last head of a request whose target begins like this, in lower case.
    fn last(&self, target: &str) -> String {
        let heads = self.heads.lock().unwrap();
        let found = heads
            .iter()
            .rev()
            .find(|head| head.split(' ').nth(1).unwrap().starts_with(target));
        found
            .unwrap_or_else(|| panic!("no request for {target}"))
            .to_lowercase()
    }

    fn count(&self, target: &str) -> usize {
        self.heads
            .lock()
            .unwrap()
            .iter()
            .filter(|head| head.split(' ').nth(1).unwrap().starts_with(target))
            .count()
    }
}

/// The values of a field in a head.
fn values<'a>(head: &'a str, name: &str) -> Vec<&'a str> {
    let lines = head.lines().filter_map(|line| line.split_once(": "));
    lines
        .filter(|(found, _)| *found == name)
        .map(|(_, value)| value)
        .collect()
}

/// The head, with the first bytes of the body if they came along.
fn read_head(stream: &mut TcpStream) -> Option<String> {
    let (mut text, mut piece) = (Vec::new(), [0; 4096]);
    while !text.windows(4).any(|end| end == b"\r\n\r\n") {
        let read = stream.read(&mut piece).ok().filter(|read| *read > 0)?;
        text.extend_from_slice(&piece[..read]);
    }
    Some(String::from_utf8_lossy(&text).into_owned())
}

fn serve(mut stream: TcpStream, seen: &Mutex<Vec<String>>) {
    while let Some(head) = read_head(&mut stream) {
        seen.lock().unwrap().push(head.clone());
        let lower = head.to_lowercase();
        let test = values(&lower, "x-test").first().copied().unwrap_or("ok");
        let large = "x".repeat(70_000);
        let (status, fields, body) = if !head.split(' ').nth(1).unwrap().starts_with("/check") {
            ("200 OK", "", "from the app")
        } else {
            match test {
                "ok" => (
                    "200 OK",
                    "x-user: ada\r\nx-plan: gold\r\nx-role: admin\r\nx-forwarded-user: ada@example\r\nx-other: no\r\n",
                    "ignored",
                ),
                "no-store" => ("200 OK", "x-user: ada\r\ncache-control: no-store\r\n", ""),
                "at-once" => ("200 OK", "x-user: ada\r\ncache-control: max-age=0\r\n", ""),
                "says" => (
                    "200 OK",
                    "authorization: Bearer of-service\r\nx-api-key: of-service\r\n",
                    "",
                ),
                "nobody" => ("204 No Content", "", ""),
                "twice" => ("200 OK", "x-user: ada\r\nx-user: eve\r\n", ""),
                "odd" => ("200 OK", "x-user: a\tb\r\n", ""),
                "401" => (
                    "401 Unauthorized",
                    "www-authenticate: Bearer realm=\"sso\"\r\nx-why: none\r\nkeep-alive: timeout=9\r\n",
                    "log in",
                ),
                "403" => ("403 Forbidden", "content-type: text/plain\r\n", "not you"),
                "302" => (
                    "302 Found",
                    "location: https://sso.example/login?to=x\r\nset-cookie: state=1; Path=/\r\n",
                    "",
                ),
                "large" => ("403 Forbidden", "", &*large),
                "reset" => return stream.shutdown(Shutdown::Both).unwrap_or_default(),
                "stall" => continue,
                "stall-in-body" => {
                    stream
                        .write_all(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 10\r\n\r\nabc")
                        .unwrap();
                    continue;
                }
                "break-in-body" => {
                    stream
                        .write_all(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 10\r\n\r\nabc")
                        .unwrap();
                    return;
                }
                "garbage" => {
                    stream.write_all(b"SSH-2.0-x\r\n\r\n").unwrap();
                    return;
                }
                code => (code, "", ""),
            }
        };
        let answer = format!(
            "HTTP/1.1 {status}\r\n{fields}content-length: {}\r\n\r\n{body}",
            body.len()
        );
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

fn start() -> (Gateway, Service, tempfile::TempDir) {
    start_with(ROUTES)
}

fn start_with(routes: &str) -> (Gateway, Service, tempfile::TempDir) {
    let (service, folder) = (Service::start(), tempfile::tempdir().unwrap());
    std::fs::write(
        folder.path().join("keys.yaml"),
        key_entry("bob-secret", "id: bob"),
    )
    .unwrap();
    let routes = routes.replace("SERVICE", &service.address.to_string());
    let gateway = Gateway::start(&routes.replace("FOLDER", &folder.path().display().to_string()));
    (gateway, service, folder)
}

#[test]
fn a_request_that_the_service_lets_pass_carries_what_the_service_says_and_nothing_that_the_client_claims()
 {
    let (gateway, service, _folder) = start();
    let forged = [
        "-H",
        "x-role: root",
        "-H",
        "x_role: root",
        "-H",
        "x-forwarded-user: root",
        "-H",
        "x-plan: root",
    ];
    let hidden = ["-H", "connection: x-role, x-id"];
    let url = gateway.url("/app/a");
    for options in [&[][..], &forged, &hidden] {
        assert_eq!(curl(&[options, &[&url]].concat()), "from the app");
        let head = service.last("/app");
        assert_eq!(
            (values(&head, "x-role"), values(&head, "x-id")),
            (vec!["admin"], vec!["ada"]),
            "{head}"
        );
        assert_eq!(values(&head, "x-forwarded-user"), ["ada@example"], "{head}");
        assert!(
            !head.contains("root") && !head.contains("x-other"),
            "{head}"
        );
    }
    assert_eq!(
        curl(&[&[&*gateway.url("/plain")][..], &forged].concat()),
        "from the app"
    );
    let head = service.last("/plain");
    assert_eq!(
        (values(&head, "x-role"), values(&head, "x-forwarded-user")),
        (vec!["admin"], vec!["ada@example"])
    );
    assert!(!head.contains("root"), "{head}");
    let log = eventually("the lines", || {
        Some(gateway.log()).filter(|log| log.contains("\"identity\":\"ada\""))
    });
    assert!(log.contains("\"authenticator\":\"sso\""), "{log}");
    assert_eq!(outcome(&gateway, "sso", "accepted"), 4.0);
}

#[test]
fn fields_of_the_service_go_upstream_where_clients_have_their_credentials() {
    let (gateway, service, _folder) = start();
    let options = [
        "-H",
        "x-test: says",
        "-H",
        "authorization: Bearer mine",
        "-H",
        "x.api.key: mine",
    ];
    let url = gateway.url("/says");
    assert_eq!(
        status(&[&options[..], &[&url]].concat()),
        401,
        "a key in disguise"
    );
    assert_eq!(curl(&[&options[..4], &[&url]].concat()), "from the app");
    let head = service.last("/says");
    assert_eq!(
        (values(&head, "authorization"), values(&head, "x-api-key")),
        (vec!["bearer of-service"], vec!["of-service"])
    );
    assert_eq!(curl(&["-H", "x-api-key: bob-secret", &url]), "from the app");
    assert!(!service.last("/says").contains("secret"));
}

#[test]
fn a_client_that_another_authenticator_knows_cannot_set_the_fields_of_the_service_either() {
    let (gateway, service, _folder) = start();
    let options = [
        "-H",
        "x-api-key: bob-secret",
        "-H",
        "x-role: root",
        "-H",
        "x-user: root",
    ];
    assert_eq!(
        curl(&[&options[..], &[&gateway.url("/app/a")]].concat()),
        "from the app"
    );
    let head = service.last("/app");
    assert!(
        values(&head, "x-id") == ["bob"] && !head.contains("root"),
        "{head}"
    );
    assert_eq!(
        service.count("/check"),
        0,
        "it is not asked about a client that is known"
    );
}

#[test]
fn fields_of_the_service_are_not_a_clients_to_set_on_a_listener_or_a_route_that_does_not_ask_it() {
    let (gateway, service, _folder) = start_with(
        "
workers: 1
listeners: [{address: '127.0.0.1:0', authenticate: [sso]}, {address: '127.0.0.1:0'}]
admin: {address: '127.0.0.1:0'}
upstreams:
  auth: {endpoints: ['http://SERVICE']}
  app: {endpoints: ['http://SERVICE']}
authenticators:
  partners: {api_key: {header: x-api-key, keys: 'FOLDER/keys.yaml'}}
  sso: {forward: {upstream: auth, path: /check, copy_headers: [x-role], id_header: x-user}}
routes:
  - {name: shared, match: {path: /shared}, upstream: app}
  - {name: open, match: {path: /open}, upstream: app, authenticate: []}
  - {name: keys, match: {path: /keys}, upstream: app, authenticate: [partners]}
",
    );
    let forged = [
        "-H",
        "x-role: root",
        "-H",
        "x_role: root",
        "-H",
        "x-user: root",
        "-H",
        "x-api-key: bob-secret",
    ];
    for (listener, path) in [
        (0, "/shared"),
        (0, "/open"),
        (0, "/keys"),
        (1, "/shared"),
        (1, "/open"),
        (1, "/keys"),
    ] {
        let url = format!("http://{}{path}", gateway.listeners[listener]);
        assert_eq!(
            curl(&[&forged[..], &[&url]].concat()),
            "from the app",
            "{listener} {path}"
        );
        let head = service.last(path);
        assert!(!head.contains("root"), "{listener} {path}: {head}");
        assert_eq!(
            values(&head, "x-role").len(),
            usize::from((listener, path) == (0, "/shared")),
            "{head}"
        );
    }
}

#[test]
fn the_service_is_told_what_is_asked_for_and_by_whom_and_gets_no_body() {
    let (gateway, service, _folder) = start();
    let claims = [
        "-H",
        "x-forwarded-uri: /public",
        "-H",
        "x-forwarded-method: GET",
        "-H",
        "x-forwarded-for: 10.0.0.1",
    ];
    let more = [
        "-H",
        "x_forwarded_uri: /public",
        "-H",
        "x-forwarded-host: evil",
        "-H",
        "forwarded: for=10.0.0.1",
    ];
    let original = [
        "-H",
        "x-original-url: /public",
        "-H",
        "x_original_uri: /public",
        "-H",
        "x-rewrite-url: /public",
    ];
    let redirect = [
        "-H",
        "x-auth-request-redirect: /public",
        "-H",
        "x-original-method: GET",
    ];
    let conditions = [
        "-H",
        "if-none-match: *",
        "-H",
        "range: bytes=0-1",
        "-H",
        "expect: 100-continue",
    ];
    let upgrade = [
        "-H",
        "connection: upgrade, x-forwarded-uri",
        "-H",
        "upgrade: websocket",
    ];
    let request = [
        "-X",
        "PUT",
        "-d",
        "the-body",
        "-u",
        "ada:secret",
        "-H",
        "host: shop.example",
        "-b",
        "sid=1",
    ];
    let url = gateway.url("/app/%61?b=1&c=%20");
    let options = [
        &claims[..],
        &more,
        &original,
        &redirect,
        &conditions,
        &upgrade,
        &request,
        &[&url],
    ]
    .concat();
    assert_eq!(curl(&options), "from the app");
    let head = service.last("/check");
    assert!(head.starts_with("get /check?x=1 http/1.1\r\n"), "{head}");
    for (name, value) in [
        ("x-forwarded-method", "put"),
        ("x-forwarded-uri", "/app/%61?b=1&c=%20"),
        ("x-forwarded-host", "shop.example"),
        ("x-forwarded-for", "127.0.0.1"),
        ("x-forwarded-proto", "http"),
        ("cookie", "sid=1"),
        ("host", &service.address.to_string()),
    ] {
        assert_eq!(values(&head, name), [value], "{name}: {head}");
    }
    assert!(
        head.contains("authorization: basic ") && head.ends_with("\r\n\r\n"),
        "{head}"
    );
    for absent in [
        "content-length",
        "transfer-encoding",
        "expect",
        "upgrade",
        "if-none-match",
        "range",
        "x_forwarded_uri",
        "x-original-method",
        "/public",
    ] {
        assert!(!head.contains(absent), "{absent}: {head}");
    }
    assert!(
        service.last("/app").contains("content-length: 8"),
        "the application gets the body"
    );
    assert_eq!(
        curl(&[
            "-H",
            "authorization: Bearer t",
            "-H",
            "x-secret: 1",
            "-H",
            "x-original-url: /secret",
            "-b",
            "sid=1",
            &gateway.url("/few")
        ]),
        "from the app"
    );
    let head = service.last("/check");
    assert_eq!(
        (
            values(&head, "authorization"),
            values(&head, "x-forwarded-uri")
        ),
        (vec!["bearer t"], vec!["/few"])
    );
    assert!(
        !head.contains("x-secret") && !head.contains("cookie"),
        "{head}"
    );
}

#[test]
fn a_client_that_the_service_refuses_or_sends_elsewhere_gets_its_answer() {
    let (gateway, service, _folder) = start();
    let ask = |test: &str, more: &[&str]| {
        curl(
            &[
                &[
                    "-i",
                    "-H",
                    &format!("x-test: {test}"),
                    &*gateway.url("/app/a"),
                ],
                more,
            ]
            .concat(),
        )
    };
    let answer = ask("401", &[]);
    assert!(
        answer.starts_with("HTTP/1.1 401 ") && answer.ends_with("\r\n\r\nlog in"),
        "{answer}"
    );
    assert!(
        answer.contains("www-authenticate: Bearer realm=\"sso\"\r\n")
            && answer.contains("x-why: none\r\n"),
        "{answer}"
    );
    assert!(
        !answer.contains("keep-alive") && !answer.contains("ratelimit"),
        "{answer}"
    );
    assert_eq!(
        answer.matches("content-length: 6\r\n").count(),
        1,
        "{answer}"
    );
    let answer = ask("403", &[]);
    assert!(
        answer.starts_with("HTTP/1.1 403 ") && answer.ends_with("\r\n\r\nnot you"),
        "{answer}"
    );
    let answer = ask("302", &["-X", "POST", "-d", "x"]);
    assert!(answer.starts_with("HTTP/1.1 302 "), "{answer}");
    assert!(
        answer.contains(
            "location: https://sso.example/login?to=x\r\nset-cookie: state=1; Path=/\r\n"
        ),
        "{answer}"
    );
    let answer = ask("401", &["-I"]);
    assert!(
        answer.starts_with("HTTP/1.1 401 ") && !answer.contains("log in"),
        "{answer}"
    );
    assert_eq!(service.count("/app"), 0);
    assert_eq!(
        (
            outcome(&gateway, "sso", "rejected"),
            outcome(&gateway, "sso", "forbidden")
        ),
        (3.0, 1.0)
    );
    let call = [
        "--http2-prior-knowledge",
        "-X",
        "POST",
        "-H",
        "content-type: application/grpc",
        "-H",
        "te: trailers",
    ];
    assert!(
        ask("401", &call).contains("grpc-status: 16\r\n"),
        "a call is told in its own way"
    );
}

#[test]
fn a_service_that_fails_lets_nobody_pass_unless_its_owner_says_so() {
    let (gateway, service, _folder) = start();
    let failures = [
        "500", "404", "304", "reset", "stall", "garbage", "twice", "odd",
    ];
    for test in failures {
        let answer = curl(&[
            "-i",
            "-H",
            &format!("x-test: {test}"),
            &gateway.url("/app/a"),
        ]);
        assert!(
            answer.starts_with("HTTP/1.1 503 ") && answer.contains("retry-after: 1\r\n"),
            "{test}: {answer}"
        );
        assert!(
            answer.contains("urn:tollgate:problem:authentication-unavailable"),
            "{test}: {answer}"
        );
    }
    assert_eq!(service.count("/app"), 0);
    assert_eq!(
        outcome(&gateway, "sso", "unavailable"),
        failures.len() as f64
    );
    for test in ["500", "reset", "stall"] {
        let forged = [
            "-H",
            "x-role: root",
            "-H",
            "x-user: root",
            "-H",
            "x-id: root",
        ];
        let answer = curl(
            &[
                &["-H", &*format!("x-test: {test}"), &gateway.url("/open")],
                &forged[..],
            ]
            .concat(),
        );
        assert_eq!(answer, "from the app", "{test}");
        assert!(
            !service.last("/open").contains("root"),
            "{}",
            service.last("/open")
        );
    }
}

#[test]
fn a_service_that_answers_has_not_failed_whatever_its_answer_is() {
    let (gateway, service, _folder) = start();
    for path in ["/app/a", "/open"] {
        for (test, answer) in [
            ("401", 401),
            ("large", 403),
            ("stall-in-body", 401),
            ("break-in-body", 401),
            ("400", 400),
            ("413", 413),
            ("414", 414),
            ("429", 429),
            ("431", 431),
            ("404", 503),
            ("304", 503),
            ("garbage", 503),
            ("twice", 503),
            ("odd", 503),
        ] {
            assert_eq!(
                status(&["-H", &format!("x-test: {test}"), &gateway.url(path)]),
                answer,
                "{path} {test}"
            );
        }
        let field = format!("x-pad: {}", "x".repeat(9_000));
        assert_eq!(
            status(&["-H", &field, &gateway.url(path)]),
            431,
            "a question that is too long to ask"
        );
    }
    assert_eq!((service.count("/app"), service.count("/open")), (0, 0));
}

#[test]
fn a_question_that_was_asked_is_charged_to_the_listener_and_one_that_nobody_heard_is_free() {
    let service = Service::start();
    let nobody = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let gateway = Gateway::start(&format!(
        "
workers: 1
listeners: [{{address: '127.0.0.1:0', limits: [per-client]}}]
upstreams: {{auth: {{endpoints: ['http://{}']}}, away: {{endpoints: ['http://{nobody}']}}}}
authenticators: {{sso: {{forward: {{upstream: auth, path: /check}}}}, gone: {{forward: {{upstream: away}}}}}}
limits: {{per-client: {{key: client_ip, rate: 3/30d}}}}
routes:
  - {{name: a, match: {{path: /a}}, echo: true, authenticate: [sso]}}
  - {{name: b, match: {{path: /b}}, echo: true, authenticate: [gone]}}
",
        service.address
    ));
    assert_eq!([0; 4].map(|_| status(&[&gateway.url("/b")])), [503; 4]);
    let ask = |test: &str| status(&["-H", &format!("x-test: {test}"), &gateway.url("/a")]);
    assert_eq!(["404", "500", "304", "404"].map(ask), [503, 503, 503, 429]);
}

#[test]
fn the_identity_is_a_key_of_limits_and_picks_the_plan_and_one_without_an_id_is_nobodys() {
    let (gateway, _service, _folder) = start();
    let ask = |test: &str| status(&["-H", &format!("x-test: {test}"), &gateway.url("/app/a")]);
    assert_eq!(
        [0; 5].map(|_| ask("ok")),
        [200, 200, 200, 200, 429],
        "the plan of the service's answer"
    );
    assert_eq!(
        [0; 6].map(|_| ask("nobody")),
        [200; 6],
        "nobody shares a bucket with somebody else"
    );
}

#[test]
fn an_answer_is_kept_for_requests_of_which_the_service_would_be_told_the_same() {
    let (gateway, service, _folder) = start();
    let ask = |options: &[&str], path: &str| {
        assert_eq!(
            curl(&[options, &[&gateway.url(path)]].concat()),
            "from the app",
            "{options:?} {path}"
        );
        service.count("/check")
    };
    let ada = ["-H", "authorization: Bearer ada"];
    assert_eq!(
        [
            ask(&ada, "/kept/a"),
            ask(&ada, "/kept/a"),
            ask(&ada, "/kept/a")
        ],
        [1; 3]
    );
    let forged = [
        "-H",
        "authorization: Bearer ada",
        "-H",
        "x-role: root",
        "-H",
        "x-user: root",
        "-H",
        "x-other: 1",
    ];
    assert_eq!(
        ask(&forged, "/kept/a"),
        1,
        "the service does not get the others"
    );
    let head = service.last("/kept");
    assert_eq!(
        (values(&head, "x-role"), values(&head, "x-id")),
        (vec!["admin"], vec!["ada"]),
        "{head}"
    );
    assert!(!head.contains("root"), "{head}");
    // Another request is another question.
    assert_eq!(ask(&["-H", "authorization: Bearer eve"], "/kept/a"), 2);
    assert_eq!(ask(&ada, "/kept/b"), 3);
    assert_eq!(ask(&ada, "/kept/a?b"), 4);
    assert_eq!(ask(&[&ada[..], &["-X", "POST"]].concat(), "/kept/a"), 5);
    assert_eq!(
        ask(&[&ada[..], &["-H", "host: other"]].concat(), "/kept/a"),
        6
    );
    assert_eq!(ask(&[], "/kept/a"), 7);
    let lookups = |outcome: &str| {
        gateway.metric(&format!(
            "tollgate_forward_auth_lookups_total{{authenticator=\"kept\",outcome=\"{outcome}\"}}"
        ))
    };
    assert_eq!(
        (
            lookups("found"),
            lookups("none"),
            outcome(&gateway, "kept", "accepted")
        ),
        (3.0, 7.0, 10.0)
    );
    // Parts that the operator knows to make no difference.
    let asked = ["/shared/a", "/shared/b?c"].map(|path| {
        (
            ask(&ada, path),
            ask(&[&ada[..], &["-X", "PUT"]].concat(), path),
        )
    });
    assert_eq!(asked, [(8, 8), (8, 8)]);
    assert_eq!(ask(&["-H", "authorization: Bearer eve"], "/shared/a"), 9);
}

#[test]
fn nothing_but_a_permission_that_may_be_kept_is_kept() {
    let (gateway, service, _folder) = start();
    for test in [
        "401", "403", "302", "500", "stall", "reset", "twice", "no-store", "at-once",
    ] {
        let before = service.count("/check");
        let codes =
            [0; 2].map(|_| status(&["-H", &format!("x-test: {test}"), &gateway.url("/kept/a")]));
        assert!(codes[0] == codes[1], "{test}: {codes:?}");
        let asked = service.count("/check") - before;
        // A request that was reset may have been sent again.
        assert!(
            asked == 2 || test == "reset" && asked > 2,
            "{test} is asked about each time: {asked}"
        );
    }
    let before = service.count("/check");
    for _ in 0..2 {
        assert_eq!(
            status(&["-H", "x-test: 500", &gateway.url("/shared/a")]),
            200,
            "its owner says so"
        );
    }
    assert_eq!(
        service.count("/check"),
        before + 2,
        "a failure is no answer"
    );
}

#[test]
fn a_service_that_ends_with_a_question_in_its_hands_has_failed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let gateway = Gateway::start(&format!(
        "workers: 1
listeners: [{{address: '127.0.0.1:0'}}]
admin: {{address: '127.0.0.1:0'}}
upstreams: {{auth: {{endpoints: ['http://{}']}}}}
authenticators: {{open: {{forward: {{upstream: auth, on_failure: allow}}}}}}
routes: [{{name: a, match: {{path: /a}}, echo: true, authenticate: [open]}}]
",
        listener.local_addr().unwrap()
    ));
    let service = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        read_head(&mut stream).unwrap();
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            .unwrap();
        read_head(&mut stream).unwrap();
        // The question is sent again, and finds nobody.
        drop(listener);
    });
    for _ in 0..2 {
        assert_eq!(status(&[&gateway.url("/a")]), 200, "its owner says so");
    }
    service.join().unwrap();
    let again = gateway.metric("tollgate_upstream_retries_total{upstream=\"auth\"}");
    assert_eq!(again, 1.0);
}

#[test]
fn an_authenticator_behind_one_that_always_decides_is_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("routes.yaml");
    let routes = "
listeners: [{address: '127.0.0.1:0'}]
upstreams: {auth: {endpoints: ['http://127.0.0.1:1']}}
authenticators: {sso: {forward: {upstream: auth}}, machines: {client_certificate: san}}
routes: [{name: a, match: {path: /a}, echo: true, authenticate: [sso, machines]}]
";
    std::fs::write(&path, routes).unwrap();
    let checked = std::process::Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .arg("check")
        .arg(&path)
        .output()
        .unwrap();
    let said =
        String::from_utf8(checked.stderr).unwrap() + &String::from_utf8(checked.stdout).unwrap();
    assert!(
        said.contains("\"machines\" is never asked: \"sso\" before it decides about every request"),
        "{said}"
    );
}
