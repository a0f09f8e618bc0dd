//! Routes under maintenance, as clients and operators see them.

use std::fs;
use std::path::Path;

use crate::process::{Gateway, curl, eventually, status};

/// A gateway whose routes go under maintenance by files in the folder.
fn start(folder: &impl AsRef<Path>) -> Gateway {
    Gateway::start(&routes(folder, "false"))
}

fn routes(folder: &impl AsRef<Path>, planned: &str) -> String {
    ROUTES
        .replace("FOLDER", &folder.as_ref().display().to_string())
        .replace("PLANNED", planned)
}

const ROUTES: &str = "
workers: 1
access_log: json
trusted_proxies: [127.0.0.1]
listeners: [{address: '127.0.0.1:0', limits: [everyone]}]
admin: {address: '127.0.0.1:0'}
limits:
  everyone: {key: {constant: all}, rate: 1000/h, burst: 1000}
  few: {key: {constant: all}, rate: 2/h, burst: 2}
authenticators:
  sso: {forward: {upstream: away}}
upstreams:
  away: {endpoints: ['http://127.0.0.1:9']}
defaults:
  routes:
    maintenance: {when_file: FOLDER/all, retry_after: 7s}
error_pages: [{status: [503], type: application/json, body: '{\"sorry\": true}'}]
routes:
  - name: shop
    match: {path: /shop}
    echo: true
    limits: [few]
    deny: [192.0.2.66]
    cors: {origins: ['https://app.example.com']}
    response_headers: {set: {x-route: '{route}'}}
    maintenance:
      when_file: FOLDER/shop
      allow: [10.0.0.0/8]
      until: 2100-01-01T00:00:00Z
      pages: [{type: text/html, body: '<p>closed for {retry_after} s</p>'}]
  - {name: closed, match: {path: /closed}, echo: true, authenticate: [sso], maintenance: {when_file: FOLDER/shop}}
  - {name: planned, match: {path: /planned}, echo: true, maintenance: PLANNED}
  - {name: other, match: {path: /other}, echo: true}
  - {name: ping, match: {path: /ping}, respond: {status: 200}, maintenance: false}
";

fn from(gateway: &Gateway, client: &str, path: &str) -> u16 {
    status(&[
        "-H",
        &format!("x-forwarded-for: {client}"),
        &gateway.url(path),
    ])
}

fn answer(gateway: &Gateway, accept: &str, path: &str) -> String {
    curl(&["-i", "-H", &format!("accept: {accept}"), &gateway.url(path)])
}

fn until(gateway: &Gateway, path: &str, wanted: u16) {
    eventually(&format!("{path} answers {wanted}"), || {
        (from(gateway, "192.0.2.1", path) == wanted).then_some(())
    });
}

fn left(gateway: &Gateway, limit: &str, path: &str) -> String {
    let head = curl(&[
        "-o",
        "/dev/null",
        "-D",
        "-",
        "-H",
        "x-forwarded-for: 10.0.0.1",
        &gateway.url(path),
    ]);
    let field = head
        .lines()
        .find_map(|line| line.strip_prefix("ratelimit: "))
        .unwrap_or_default()
        .to_owned();
    field
        .split(", ")
        .find(|item| item.starts_with(&format!("\"{limit}\"")))
        .unwrap_or_default()
        .to_owned()
}

#[test]
fn a_route_is_under_maintenance_while_a_file_exists() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = start(&folder);
    let gauge = || gateway.metric("tollgate_route_maintenance{route=\"other\"}");
    assert_eq!((status(&[&gateway.url("/other")]), gauge()), (200, 0.0));
    fs::write(folder.path().join("all"), "").unwrap();
    until(&gateway, "/other", 503);
    let refused = answer(&gateway, "*/*", "/other");
    assert!(
        refused.contains("retry-after: 7\r\n")
            && refused.contains("urn:tollgate:problem:maintenance"),
        "{refused}"
    );
    assert_eq!((gauge(), status(&[&gateway.url("/ping")])), (1.0, 200));
    assert_eq!(
        status(&[&gateway.url("/shop")]),
        200,
        "its own file is not there"
    );
    assert_eq!(status(&[&gateway.url("/nowhere")]), 404);
    let answers = gateway.metric("tollgate_maintenance_answers_total{route=\"other\"}");
    assert_eq!(
        answers,
        gateway.metric("tollgate_requests_total{route=\"other\",method=\"GET\",status=\"503\"}")
    );
    assert!(answers >= 2.0, "{answers}");
    let logged = || {
        gateway
            .log()
            .lines()
            .any(|line| line.contains("\"problem\":\"maintenance\""))
            .then_some(())
    };
    eventually("the access log says so", logged);
    assert!(
        gateway
            .log()
            .contains("maintenance begins: the file is there"),
        "{}",
        gateway.log()
    );

    fs::remove_file(folder.path().join("all")).unwrap();
    until(&gateway, "/other", 200);
    assert_eq!(gauge(), 0.0);
    // Anything of that name counts.
    std::os::unix::fs::symlink("nowhere", folder.path().join("all")).unwrap();
    until(&gateway, "/other", 503);
    fs::remove_file(folder.path().join("all")).unwrap();
    until(&gateway, "/other", 200);
    eventually("the log says so", || {
        gateway
            .log()
            .contains("maintenance has ended: the file is gone")
            .then_some(())
    });
}

#[test]
fn a_gateway_that_starts_during_maintenance_serves_nobody_before_it_looks() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("all"), "").unwrap();
    let gateway = start(&folder);
    assert_eq!(status(&[&gateway.url("/other")]), 503);
    // A reload looks as well, and those that were under maintenance stay so.
    gateway.rewrite(&routes(&folder, "true"));
    gateway.signal("HUP");
    until(&gateway, "/planned", 503);
    assert_eq!(status(&[&gateway.url("/other")]), 503);
    assert_eq!(
        gateway.metric("tollgate_route_maintenance{route=\"other\"}"),
        1.0
    );
}

#[test]
fn a_reload_begins_and_ends_a_maintenance() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = start(&folder);
    let gauge = || gateway.find_metric("tollgate_route_maintenance{route=\"planned\"}");
    assert_eq!((status(&[&gateway.url("/planned")]), gauge()), (200, None));
    gateway.rewrite(&routes(&folder, "{retry_after: 30s}"));
    gateway.signal("HUP");
    until(&gateway, "/planned", 503);
    assert_eq!(gauge(), Some(1.0));
    assert!(answer(&gateway, "*/*", "/planned").contains("retry-after: 30\r\n"));
    gateway.rewrite(&routes(&folder, "false"));
    gateway.signal("HUP");
    until(&gateway, "/planned", 200);
    assert_eq!(gauge(), Some(0.0));
}

#[test]
fn clients_of_some_networks_are_served_and_the_others_cost_no_limit_anything() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("shop"), "").unwrap();
    let gateway = start(&folder);
    for client in ["192.0.2.1", "2001:db8::1", "11.0.0.1"] {
        assert_eq!(from(&gateway, client, "/shop"), 503, "{client}");
    }
    assert_eq!(
        from(&gateway, "192.0.2.66", "/shop"),
        403,
        "a network that is never served"
    );
    assert_eq!(from(&gateway, "10.1.2.3", "/shop"), 200);
    assert_eq!(from(&gateway, "::ffff:10.1.2.3", "/shop"), 200);
    assert!(
        left(&gateway, "few", "/shop").starts_with("\"few\";r=0;"),
        "the two that were served took both"
    );
    // They and this one took a token, and nobody else.
    assert!(left(&gateway, "everyone", "/other").starts_with("\"everyone\";r=997;"));
    // Nobody is asked who sent the request either: the service that knows is away.
    assert_eq!(from(&gateway, "192.0.2.1", "/closed"), 503);
    let asked = gateway
        .metrics()
        .lines()
        .filter(|line| line.starts_with("tollgate_authentications_total"))
        .all(|line| line.ends_with(" 0"));
    assert!(asked, "{}", gateway.metrics());
}

#[test]
fn the_answer_is_in_the_type_that_the_client_asks_for() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("shop"), "").unwrap();
    let gateway = start(&folder);
    let page = answer(&gateway, "text/html,*/*;q=0.8", "/shop");
    let seconds = page
        .lines()
        .find_map(|line| line.strip_prefix("retry-after: "))
        .unwrap()
        .to_owned();
    assert!(
        seconds.parse::<u64>().unwrap() > 1_000_000_000,
        "until 2100: {page}"
    );
    assert!(
        page.ends_with(&format!("<p>closed for {seconds} s</p>")),
        "{page}"
    );
    assert!(
        page.starts_with("HTTP/1.1 503 ") && page.contains("x-route: shop\r\n"),
        "{page}"
    );
    let json = answer(&gateway, "application/json", "/shop");
    assert!(
        json.ends_with("{\"sorry\": true}"),
        "the page for 503 of the gateway: {json}"
    );
    let bare = answer(&gateway, "*/*", "/shop");
    assert!(
        bare.contains("\"type\":\"urn:tollgate:problem:maintenance\""),
        "{bare}"
    );
    let origin = curl(&[
        "-i",
        "-H",
        "origin: https://app.example.com",
        &gateway.url("/shop"),
    ]);
    assert!(
        origin.contains("access-control-allow-origin: https://app.example.com\r\n"),
        "{origin}"
    );
    let preflight = [
        "-X",
        "OPTIONS",
        "-H",
        "origin: https://app.example.com",
        "-H",
        "access-control-request-method: GET",
    ];
    assert_eq!(
        status(&[&preflight[..], &[&gateway.url("/shop")]].concat()),
        200
    );
}

#[test]
fn a_call_of_grpc_is_unavailable_and_told_when_to_come_back() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("all"), "").unwrap();
    let gateway = start(&folder);
    let fields = ["-H", "content-type: application/grpc", "-H", "te: trailers"];
    let url = gateway.url("/other");
    let call = curl(
        &[
            &["-i", "--http2-prior-knowledge", "-X", "POST"][..],
            &fields,
            &[&url],
        ]
        .concat(),
    );
    assert!(
        call.contains("grpc-status: 14\r\n") && call.contains("grpc-retry-pushback-ms: 7000\r\n"),
        "{call}"
    );
}

#[test]
fn the_admin_port_is_ready_and_explains_the_maintenance() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("all"), "").unwrap();
    let gateway = start(&folder);
    for path in ["livez", "readyz"] {
        assert_eq!(
            status(&[&format!("http://{}/{path}", gateway.admin)]),
            200,
            "{path}"
        );
    }
    let explained = curl(&[&format!(
        "http://{}/explain?url=http://a/other",
        gateway.admin
    )]);
    assert!(
        explained.contains("\"maintenance\"") && explained.contains("503"),
        "{explained}"
    );
}

#[test]
fn a_file_that_nobody_can_look_for_changes_nothing() {
    let outer = tempfile::tempdir().unwrap();
    let [folder, aside] = ["files", "aside"].map(|name| outer.path().join(name));
    fs::create_dir(&folder).unwrap();
    let gateway = start(&folder);
    // A link to itself takes the place of the folder: nobody can say whether the file is there.
    let hide = || {
        fs::rename(&folder, &aside).unwrap();
        std::os::unix::fs::symlink(&folder, &folder).unwrap();
    };
    let show = || {
        fs::remove_file(&folder).unwrap();
        fs::rename(&aside, &folder).unwrap();
    };
    hide();
    eventually("the log says so", || {
        gateway
            .log()
            .contains("cannot look for the file of a maintenance")
            .then_some(())
    });
    assert_eq!(status(&[&gateway.url("/shop")]), 200);
    show();
    fs::write(folder.join("shop"), "").unwrap();
    until(&gateway, "/shop", 503);
    hide();
    let stays = "the route stays under maintenance";
    eventually("the log says so", || {
        gateway.log().contains(stays).then_some(())
    });
    assert_eq!(status(&[&gateway.url("/shop")]), 503);
    gateway.rewrite(&routes(&folder, "true"));
    until(&gateway, "/planned", 503);
    assert_eq!(
        status(&[&gateway.url("/shop")]),
        503,
        "a reload opens nothing"
    );
    let restarted = start(&folder);
    assert_eq!(
        status(&[&restarted.url("/shop")]),
        503,
        "nor does a restart"
    );
    assert!(restarted.log().contains(stays));
    fs::remove_file(aside.join("shop")).unwrap();
    show();
    for open in [gateway, restarted] {
        // Its limit may have no token left.
        let is_served = || (from(&open, "192.0.2.1", "/shop") != 503).then_some(());
        eventually("it is served again once the file is gone", is_served);
    }
}
