//! Authenticators of listeners, and routes that say otherwise, as clients of two listeners see
//! them.

use std::fs;

use tempfile::TempDir;

use crate::authenticators::key_entry;
use crate::process::{Gateway, curl, eventually, status};

/// The first listener asks who its clients are, the second does not, and the third sends them to
/// HTTPS.
const ROUTES: &str = "
workers: 1
access_log: json
listeners:
  - {address: '127.0.0.1:0', authenticate: [partners], limits: [everyone, each]}
  - {address: '127.0.0.1:0', limits: [everyone]}
  - {address: '127.0.0.1:0', authenticate: [partners], redirect_to_https: true}
admin: {address: '127.0.0.1:0'}
authenticators:
  partners: {api_key: {header: x-api-key, keys: 'FOLDER/keys.yaml'}}
  staff: {api_key: {header: x-staff-key, keys: 'FOLDER/keys.yaml'}}
limits:
  everyone: {key: {constant: all}, rate: 1000/h, burst: 1000}
  each: {key: identity, rate: 3/h, burst: 3}
  own: {key: identity, rate: 1000/h, burst: 1000, on_missing: skip}
routes:
  - name: shared
    match: {path: /shared}
    echo: true
    limits: [own]
    request_headers: {set: {x-user: '{identity}'}}
    response_headers: {set: {x-who: '{identity}'}}
  - {name: open, match: {path: /open}, echo: true, authenticate: []}
  - {name: staff, match: {path: /staff, methods: [GET]}, echo: true, authenticate: [staff]}
  - {name: pages, match: {path: /pages}, echo: true, cors: {origins: ['https://app.example.com']}}
";

fn keys() -> String {
    key_entry("ada-secret", "id: ada") + &key_entry("bob-secret", "id: bob")
}

fn start_with(routes: &str) -> (Gateway, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("keys.yaml"), keys()).unwrap();
    let gateway = Gateway::start(&routes.replace("FOLDER", &folder.path().display().to_string()));
    (gateway, folder)
}

fn start() -> (Gateway, TempDir) {
    start_with(ROUTES)
}

fn url(gateway: &Gateway, listener: usize, path: &str) -> String {
    format!("http://{}{path}", gateway.listeners[listener])
}

/// The answer to a client with this key. An empty one is none.
fn ask(gateway: &Gateway, listener: usize, key: &str, path: &str) -> String {
    curl(&[
        "-i",
        "-H",
        &format!("x-api-key: {key}"),
        &url(gateway, listener, path),
    ])
}

fn code(gateway: &Gateway, listener: usize, key: &str, path: &str) -> u16 {
    status(&[
        "-H",
        &format!("x-api-key: {key}"),
        &url(gateway, listener, path),
    ])
}

#[test]
fn a_shared_route_has_an_identity_on_the_listener_that_asks_and_none_on_the_other() {
    let (gateway, _folder) = start();
    let known = ask(&gateway, 0, "ada-secret", "/shared");
    assert!(
        known.starts_with("HTTP/1.1 200 ") && known.contains("x-who: ada\r\n"),
        "{known}"
    );
    assert!(
        known.contains("\"x-user\"") && !known.contains("ada-secret"),
        "the credential goes no further: {known}"
    );
    assert!(
        known.contains("\"own\";r=999") && known.contains("\"each\";r=2"),
        "{known}"
    );
    let refused = ask(&gateway, 0, "", "/shared");
    assert!(
        refused.starts_with("HTTP/1.1 401 ") && refused.contains("www-authenticate: ApiKey realm="),
        "{refused}"
    );
    assert_eq!(code(&gateway, 0, "wrong", "/shared"), 401);

    let anonymous = ask(&gateway, 1, "", "/shared");
    assert!(
        anonymous.starts_with("HTTP/1.1 200 ") && !anonymous.contains("x-who"),
        "{anonymous}"
    );
    assert!(
        !anonymous.contains("\"own\"") && anonymous.contains("\"everyone\";r="),
        "{anonymous}"
    );
    // Nobody reads the key here, so it is a field like any other.
    let unread = ask(&gateway, 1, "wrong", "/shared");
    assert!(
        unread.starts_with("HTTP/1.1 200 ") && unread.contains("wrong"),
        "{unread}"
    );
    let forged = curl(&[
        "-H",
        "x-user: ada",
        "-H",
        "x_user: ada",
        "-H",
        "x-own: bob",
        &url(&gateway, 1, "/shared"),
    ]);
    // With its quotes: the number of a request may have these letters.
    assert!(
        forged.contains("\"bob\"") && !forged.contains("\"ada\""),
        "a field of an identity is not a client's to set: {forged}"
    );
}

#[test]
fn a_route_replaces_the_authenticators_of_its_listener_or_asks_none() {
    let (gateway, _folder) = start();
    assert_eq!(
        code(&gateway, 0, "ada-secret", "/staff"),
        401,
        "another authenticator is asked"
    );
    for listener in [0, 1] {
        let staff = ["-H", "x-staff-key: bob-secret"];
        assert_eq!(
            status(&[&staff[..], &[&url(&gateway, listener, "/staff")]].concat()),
            200
        );
        assert_eq!(code(&gateway, listener, "", "/staff"), 401);
    }
    let open = ask(&gateway, 0, "", "/open");
    assert!(
        open.starts_with("HTTP/1.1 200 ") && open.contains("\"everyone\";r="),
        "{open}"
    );
    assert!(
        !open.contains("\"each\""),
        "a limit by identity counts nobody where nobody is asked: {open}"
    );
    let open = ask(&gateway, 0, "ada-secret", "/open");
    assert!(
        open.starts_with("HTTP/1.1 200 ") && !open.contains("ada-secret"),
        "clients send it to every path: {open}"
    );
    let unread = ask(&gateway, 1, "ada-secret", "/open");
    assert!(
        unread.contains("ada-secret"),
        "this listener asks nobody: {unread}"
    );
    let staff = curl(&[
        "-H",
        "x-api-key: ada-secret",
        "-H",
        "x-staff-key: bob-secret",
        &url(&gateway, 0, "/staff"),
    ]);
    assert!(
        staff.contains("\"/staff\"") && !staff.contains("secret"),
        "{staff}"
    );
    let codes: Vec<_> = (0..6).map(|_| code(&gateway, 0, "", "/open")).collect();
    assert_eq!(codes, [200; 6], "or all of them would share a bucket");
}

#[test]
fn limits_of_a_listener_count_by_identity() {
    let (gateway, _folder) = start();
    let codes = |key: &str| {
        (0..4)
            .map(|_| code(&gateway, 0, key, "/shared"))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (codes("ada-secret"), codes("bob-secret")),
        (vec![200, 200, 200, 429], vec![200, 200, 200, 429])
    );
}

#[test]
fn a_client_that_nobody_knows_does_not_learn_which_routes_there_are() {
    let (gateway, _folder) = start();
    for path in ["/nowhere", "/", "/shared/below"] {
        assert_eq!(
            (
                code(&gateway, 0, "", path),
                code(&gateway, 0, "wrong", path)
            ),
            (401, 401),
            "{path}"
        );
        assert_eq!(code(&gateway, 1, "", path), 404, "{path}");
    }
    assert_eq!(code(&gateway, 0, "ada-secret", "/nowhere"), 404);
    // The path takes GET alone.
    let post = ["-X", "POST", "-d", "x"];
    let of = |key: &str| status(&[&post[..], &["-H", key, &url(&gateway, 0, "/staff")]].concat());
    assert_eq!(
        (of("x-api-key: wrong"), of("x-api-key: ada-secret")),
        (401, 405)
    );
    assert!(
        gateway.metric("tollgate_requests_total{route=\"none\",method=\"GET\",status=\"401\"}")
            >= 6.0
    );
    // Those that are refused are charged to the limits of the listener that need no identity.
    assert!(ask(&gateway, 0, "", "/nowhere").contains("\"everyone\";r="));
}

#[test]
fn nobody_is_asked_for_a_credential_that_belongs_elsewhere() {
    let (gateway, _folder) = start();
    let redirected = ask(&gateway, 2, "", "/shared");
    assert!(
        redirected.starts_with("HTTP/1.1 301 ") && redirected.contains("location: https://"),
        "{redirected}"
    );
    let odd = curl(&["-i", "--path-as-is", &url(&gateway, 0, "/%2f..%00")]);
    assert!(
        odd.starts_with("HTTP/1.1 400 ") && !odd.contains("www-authenticate"),
        "{odd}"
    );
}

#[test]
fn a_preflight_of_a_page_is_not_asked_who_it_is_from() {
    let (gateway, _folder) = start();
    let fields = [
        "-X",
        "OPTIONS",
        "-H",
        "origin: https://app.example.com",
        "-H",
        "access-control-request-method: GET",
    ];
    let of = |path: &str| status(&[&fields[..], &[&url(&gateway, 0, path)]].concat());
    assert_eq!(
        (of("/pages"), of("/shared"), of("/nowhere")),
        (200, 401, 401)
    );
    let refused = curl(&[
        "-i",
        "-H",
        "origin: https://app.example.com",
        &url(&gateway, 0, "/pages"),
    ]);
    assert!(refused.starts_with("HTTP/1.1 401 "), "{refused}");
    assert!(
        refused.contains("access-control-allow-origin: https://app.example.com\r\n"),
        "{refused}"
    );
}

#[test]
fn a_default_of_routes_goes_before_the_listener_and_a_route_opts_out_of_both() {
    let (gateway, _folder) = start_with(&ROUTES.replace(
        "routes:\n",
        "defaults: {routes: {authenticate: [staff]}}\nroutes:\n",
    ));
    let staff = |listener| {
        status(&[
            "-H",
            "x-staff-key: bob-secret",
            &url(&gateway, listener, "/shared"),
        ])
    };
    assert_eq!(
        (
            staff(0),
            staff(1),
            code(&gateway, 0, "ada-secret", "/shared")
        ),
        (200, 200, 401)
    );
    assert_eq!(
        (
            code(&gateway, 0, "", "/open"),
            code(&gateway, 1, "", "/open")
        ),
        (200, 200)
    );
    assert_eq!(
        code(&gateway, 0, "ada-secret", "/nowhere"),
        404,
        "where there is no route, the listener asks"
    );
}

#[test]
fn a_reload_changes_whom_a_listener_asks() {
    let (gateway, folder) = start();
    assert_eq!(code(&gateway, 1, "", "/shared"), 200);
    let routes = ROUTES.replace(
        "0', limits: [everyone]}",
        "0', limits: [everyone], authenticate: [staff]}",
    );
    gateway.rewrite(&routes.replace("FOLDER", &folder.path().display().to_string()));
    gateway.signal("HUP");
    eventually("it asks", || {
        (code(&gateway, 1, "", "/shared") == 401).then_some(())
    });
    assert_eq!(
        status(&[
            "-H",
            "x-staff-key: ada-secret",
            &url(&gateway, 1, "/shared")
        ]),
        200
    );
}

#[test]
fn an_explanation_knows_which_listener_asks() {
    let (gateway, _folder) = start();
    let explain = |listener: usize, path: &str, more: &str| {
        curl(&[&format!(
            "http://{}/explain?url=http://a{path}&listener={listener}{more}",
            gateway.admin
        )])
    };
    assert!(
        explain(0, "/shared", "").contains("\"unauthenticated\""),
        "{}",
        explain(0, "/shared", "")
    );
    assert!(
        explain(0, "/nowhere", "").contains("\"unauthenticated\""),
        "{}",
        explain(0, "/nowhere", "")
    );
    assert!(
        !explain(1, "/shared", "").contains("\"unauthenticated\""),
        "{}",
        explain(1, "/shared", "")
    );
    let open = explain(0, "/open", "");
    assert!(
        !open.contains("\"unauthenticated\"") && !open.contains("\"each\""),
        "{open}"
    );
    let known = explain(0, "/shared", "&identity.id=partners/ada");
    assert!(known.contains("each:partners/ada"), "{known}");
}

#[test]
fn a_call_of_grpc_without_a_route_is_unauthenticated() {
    let (gateway, _folder) = start();
    let fields = [
        "-H",
        "content-type: application/grpc",
        "-H",
        "te: trailers",
        "-X",
        "POST",
    ];
    let call = |path: &str| {
        curl(
            &[
                &["-i", "--http2-prior-knowledge"][..],
                &fields,
                &[&url(&gateway, 0, path)],
            ]
            .concat(),
        )
    };
    assert!(
        call("/a.B/C").contains("grpc-status: 16\r\n"),
        "{}",
        call("/a.B/C")
    );
    assert!(call("/shared").contains("grpc-status: 16\r\n"));
}
