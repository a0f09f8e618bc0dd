//! Clients that say who they are, as curl and the echo of a route show it.

use std::fs;
use std::process::Command;

use tempfile::TempDir;

use crate::authenticators::{key_entry, outcome};
use crate::process::{Gateway, curl, eventually, status};

const ROUTES: &str = "
workers: 1
access_log: json
listeners: [{address: '127.0.0.1:0'}]
admin: {address: '127.0.0.1:0'}
authenticators:
  partners: {api_key: {header: x-api-key, keys: 'FOLDER/keys.yaml'}}
  links: {api_key: {query: api_key, keys: 'FOLDER/keys.yaml'}}
  browsers: {api_key: {cookie: sid, keys: 'FOLDER/keys.yaml'}, forward_credential: true}
limits:
  per-client: {key: identity, rate: 2/h, plans: {by: {identity: plan}, table: {gold: {rate: 5/h}}}}
  per-team: {key: {identity: label.team}, rate: 1000/h, on_missing: skip}
  all: {key: {constant: all}, rate: 1000/h}
routes:
  - name: closed
    match: {path: /closed}
    echo: true
    authenticate: [partners, links, browsers]
    limits: [per-client, per-team]
    request_headers:
      set: {x-user: '{identity}', x-plan: '{identity.plan}', x-team: '{identity.label.team}',
        x-by: '{identity.authenticator}', x-target: '{uri}'}
  - name: pages
    match: {path: /pages}
    echo: true
    authenticate: [partners]
    cors: {origins: ['https://app.example.com']}
    limits: [all]
  - name: told
    match: {path: /told}
    respond: {status: 200}
    authenticate: [partners]
    response_headers: {set: {x-who: '{identity}', x-team: '{identity.label.team}', x-ip: '{client_ip}'}}
  - {name: open, match: {path: /open}, echo: true}
";

/// Secrets that may stand nowhere but in requests.
const SECRETS: [&str; 3] = ["ada-old-secret", "ada-new-secret", "bob-secret"];

fn keys() -> String {
    let ada = "id: ada, plan: gold, labels: {team: web}";
    [
        key_entry(SECRETS[0], ada),
        key_entry(SECRETS[1], ada),
        key_entry(SECRETS[2], "id: bob"),
    ]
    .concat()
}

/// The gateway, and the folder with its file of keys.
fn start() -> (Gateway, TempDir) {
    start_with(ROUTES)
}

fn start_with(routes: &str) -> (Gateway, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("keys.yaml"), keys()).unwrap();
    let gateway = Gateway::start(&routes.replace("FOLDER", &folder.path().display().to_string()));
    (gateway, folder)
}

#[test]
fn an_answer_tells_its_client_who_that_is_and_others_nothing() {
    let (gateway, _folder) = start();
    let answer = |key: &str| {
        curl(&[
            "-i",
            "-H",
            &format!("x-api-key: {key}"),
            &gateway.url("/told"),
        ])
    };
    let known = answer(SECRETS[0]);
    assert!(
        known.contains("x-who: ada\r\n") && known.contains("x-team: web\r\n"),
        "{known}"
    );
    let unknown = answer("wrong");
    assert!(
        unknown.starts_with("HTTP/1.1 401 ") && unknown.contains("x-ip: 127.0.0.1\r\n"),
        "{unknown}"
    );
    assert!(
        !unknown.contains("x-who") && !unknown.contains("x-team"),
        "{unknown}"
    );
}

#[test]
fn a_file_of_keys_that_becomes_a_pipe_changes_nothing_and_keeps_nobody_waiting() {
    let (mut gateway, folder) = start();
    let keys = folder.path().join("keys.yaml");
    fs::remove_file(&keys).unwrap();
    assert!(
        Command::new("mkfifo")
            .arg(&keys)
            .status()
            .unwrap()
            .success()
    );
    eventually("it is refused", || {
        gateway
            .log()
            .contains("cannot read: it is not a file")
            .then_some(())
    });
    assert_eq!(by_key(&gateway, SECRETS[0]), 200);
    gateway.signal("HUP");
    eventually("so is the configuration", || {
        gateway
            .log()
            .contains("not reloaded: nothing has changed")
            .then_some(())
    });
    assert!(gateway.metric("tollgate_connections") >= 0.0);
    gateway.signal("TERM");
    gateway.wait();
}

#[test]
fn one_file_of_keys_is_read_once_for_all_of_its_authenticators() {
    let (gateway, folder) = start();
    fs::write(
        folder.path().join("keys.yaml"),
        format!("{}{}", keys(), key_entry("new-secret", "id: eve")),
    )
    .unwrap();
    for authenticator in ["partners", "links", "browsers"] {
        let line = format!("\"authenticator\":\"{authenticator}\",\"entries\":4");
        eventually("it is taken over", || {
            gateway.log().contains(&line).then_some(())
        });
    }
    assert_eq!(by_key(&gateway, "new-secret"), 200);
    fs::write(
        folder.path().join("keys.yaml"),
        "- {id: eve, key_sha256: none}\n",
    )
    .unwrap();
    eventually("it is refused", || {
        gateway
            .log()
            .contains("this is not a SHA-256")
            .then_some(())
    });
    assert_eq!(
        gateway.log().matches("this is not a SHA-256").count(),
        1,
        "{}",
        gateway.log()
    );
    assert_eq!(by_key(&gateway, "new-secret"), 200);
}

fn by_key(gateway: &Gateway, key: &str) -> u16 {
    status(&["-H", &format!("x-api-key: {key}"), &gateway.url("/closed")])
}

#[test]
fn a_request_without_a_credential_is_challenged_and_one_with_a_wrong_one_too() {
    let (gateway, _folder) = start();
    for fields in [
        &[][..],
        &["-H", "x-api-key: wrong"],
        &["-H", "x-api-key:  "],
        &["-H", "authorization: Bearer x"],
    ] {
        let answer = curl(&[&["-i"], fields, &[&gateway.url("/closed")]].concat());
        assert!(
            answer.starts_with("HTTP/1.1 401 ")
                && answer.contains("www-authenticate: ApiKey realm="),
            "{answer}"
        );
        assert!(
            answer.contains("\"type\":\"urn:tollgate:problem:unauthenticated\""),
            "{answer}"
        );
        assert!(
            !answer.contains("ratelimit"),
            "it takes no tokens: {answer}"
        );
    }
    assert_eq!(
        (
            outcome(&gateway, "partners", "rejected"),
            outcome(&gateway, "partners", "absent")
        ),
        (1.0, 3.0)
    );
    assert_eq!(status(&[&gateway.url("/open")]), 200);
}

#[test]
fn a_key_in_a_field_a_query_or_a_cookie_says_who_the_client_is_and_goes_no_further() {
    let (gateway, _folder) = start();
    let closed = gateway.url("/closed");
    let by_field = curl(&[
        "-H",
        &format!("x-api-key: {}", SECRETS[0]),
        "-H",
        "x-user: root",
        "-H",
        "x_team: ops",
        &closed,
    ]);
    assert!(
        by_field.contains("\"x-user\": [\n      \"ada\"\n    ]") && by_field.contains("\"gold\""),
        "{by_field}"
    );
    assert!(
        by_field.contains("\"web\"")
            && by_field.contains("\"partners\"")
            && !by_field.contains("ops"),
        "{by_field}"
    );
    assert!(!by_field.contains("x-api-key"), "{by_field}");
    let by_query = curl(&[&format!("{closed}?a=1&api%5Fkey={}&b=2", SECRETS[1])]);
    assert!(
        by_query.contains("\"query\": \"a=1&b=2\"") && by_query.contains("\"links\""),
        "{by_query}"
    );
    assert!(
        by_query.contains("\"/closed?a=1&b=2\"") && !by_query.contains(SECRETS[1]),
        "{by_query}"
    );
    let by_cookie = curl(&["-H", &format!("cookie: a=1; sid={}", SECRETS[2]), &closed]);
    assert!(
        by_cookie.contains("\"bob\"") && by_cookie.contains("sid=bob-secret"),
        "it is to be forwarded: {by_cookie}"
    );
    assert!(!by_cookie.contains("x-plan"), "{by_cookie}");
}

#[test]
fn the_first_authenticator_that_finds_its_credential_decides_and_no_other_makes_it_good() {
    let (gateway, _folder) = start();
    let good = format!("{}?api_key={}", gateway.url("/closed"), SECRETS[2]);
    assert_eq!(status(&["-H", "x-api-key: wrong", &good]), 401);
    let echoed = curl(&["-H", &format!("x-api-key: {}", SECRETS[0]), &good]);
    assert!(
        echoed.contains("\"ada\"") && !echoed.contains("bob"),
        "no credential of the list goes on: {echoed}"
    );
    assert_eq!(
        status(&[
            "-H",
            "x-api-key: bob-secret",
            "-H",
            "x-api-key: bob-secret",
            &gateway.url("/closed")
        ]),
        401
    );
}

#[test]
fn an_identity_is_a_key_of_limits_and_picks_the_plan() {
    let (gateway, _folder) = start();
    let ada: Vec<u16> = (0..6).map(|n| by_key(&gateway, SECRETS[n % 2])).collect();
    assert_eq!(
        ada,
        [200, 200, 200, 200, 200, 429],
        "both keys are one client's"
    );
    assert_eq!(
        [0; 3].map(|_| by_key(&gateway, SECRETS[2])),
        [200, 200, 429]
    );
    let level = curl(&[&format!(
        "http://{}/buckets/per-client?identity.id=partners/bob",
        gateway.admin
    )]);
    assert!(level.contains("per-client:partners/bob"), "{level}");
}

#[test]
fn a_preflight_is_not_asked_who_it_is_and_a_page_may_read_the_challenge() {
    let (gateway, _folder) = start();
    let origin = ["-i", "-H", "origin: https://app.example.com"];
    let preflight = ["-X", "OPTIONS", "-H", "access-control-request-method: GET"];
    let answer = curl(&[&origin[..], &preflight, &[&gateway.url("/pages")]].concat());
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let answer = curl(&[&origin[..], &[&gateway.url("/pages")]].concat());
    assert!(
        answer.starts_with("HTTP/1.1 401 ") && answer.contains("access-control-allow-origin"),
        "{answer}"
    );
}

#[test]
fn a_call_of_grpc_without_a_credential_is_unauthenticated() {
    let (gateway, _folder) = start();
    let call = [
        "-i",
        "--http2-prior-knowledge",
        "-X",
        "POST",
        "-H",
        "content-type: application/grpc",
        "-H",
        "te: trailers",
    ];
    let answer = curl(&[&call[..], &[&gateway.url("/closed")]].concat());
    assert!(answer.contains("grpc-status: 16\r\n"), "{answer}");
}

#[test]
fn keys_change_under_load_and_a_bad_file_changes_nothing() {
    let (gateway, folder) = start_with(&ROUTES.replace("2/h", "9999/h"));
    let file = folder.path().join("keys.yaml");
    let replace = |text: &str| {
        fs::write(folder.path().join("next"), text).unwrap();
        fs::rename(folder.path().join("next"), &file).unwrap();
    };
    let reloads = |outcome: &str| {
        let labels = format!("authenticator=\"partners\",outcome=\"{outcome}\"");
        gateway
            .find_metric(&format!("tollgate_authenticator_reloads_total{{{labels}}}"))
            .unwrap_or(0.0)
    };
    let bob = || {
        assert_eq!(
            by_key(&gateway, SECRETS[2]),
            200,
            "a client whose key stays loses no request"
        )
    };
    replace(&(keys() + &key_entry("carol-secret", "id: carol")));
    eventually("a new key", || {
        bob();
        (by_key(&gateway, "carol-secret") == 200).then_some(())
    });
    for (bad, why) in [
        ("", "the file is empty"),
        (
            "- {id: eve, key_sha256: bob-secret}",
            "this is not a SHA-256",
        ),
        (
            &*(key_entry("x", "id: eve") + &key_entry("x", "id: eve")),
            "this key is on line 1 already",
        ),
        (
            &*(key_entry("x", "id: eve, plan: gold") + &key_entry("y", "id: eve")),
            "has another plan or other labels on line 1",
        ),
    ] {
        let before = reloads("rejected");
        replace(bad);
        eventually("the bad file is refused", || {
            bob();
            (reloads("rejected") > before).then_some(())
        });
        eventually("it says why", || gateway.log().contains(why).then_some(()));
    }
    fs::remove_file(&file).unwrap();
    eventually("it is missed", || {
        gateway
            .log()
            .contains("a file of credentials is gone")
            .then_some(())
    });
    bob();
    replace(&key_entry(SECRETS[2], "id: bob"));
    eventually("a key is taken back", || {
        bob();
        (by_key(&gateway, SECRETS[0]) == 401).then_some(())
    });
    let log = gateway.log();
    for secret in SECRETS.into_iter().chain(["carol-secret"]) {
        assert!(
            !log.contains(secret) && !gateway.metrics().contains(secret),
            "{secret} is in the log or the metrics"
        );
    }
}

#[test]
fn the_access_log_has_the_client_and_no_credential() {
    let (gateway, _folder) = start();
    by_key(&gateway, SECRETS[0]);
    status(&[&format!(
        "{}?api_key={}",
        gateway.url("/closed"),
        SECRETS[2]
    )]);
    by_key(&gateway, "a-wrong-secret");
    let log = eventually("the lines", || {
        Some(gateway.log()).filter(|log| log.contains("\"status\":401"))
    });
    assert!(
        log.contains("\"identity\":\"ada\",\"authenticator\":\"partners\""),
        "{log}"
    );
    assert!(
        log.contains("\"identity\":\"bob\",\"authenticator\":\"links\""),
        "{log}"
    );
    for secret in SECRETS.into_iter().chain(["a-wrong-secret"]) {
        assert!(
            !log.contains(secret) && !gateway.metrics().contains(secret),
            "{secret}"
        );
    }
}

#[test]
fn a_file_of_keys_that_cannot_be_used_keeps_the_gateway_from_starting() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("routes.yaml");
    fs::write(
        &path,
        ROUTES.replace("FOLDER", &folder.path().display().to_string()),
    )
    .unwrap();
    let check = || {
        let checked = std::process::Command::new(env!("CARGO_BIN_EXE_tollgate"))
            .arg("check")
            .arg(&path)
            .output()
            .unwrap();
        (
            checked.status.code(),
            String::from_utf8(checked.stderr).unwrap(),
        )
    };
    let (code, said) = check();
    assert!(
        code == Some(1) && said.contains("keys.yaml: cannot read"),
        "{said}"
    );
    fs::write(
        folder.path().join("keys.yaml"),
        "- {id: ada, key: hunter2}\n",
    )
    .unwrap();
    let (code, said) = check();
    assert!(
        code == Some(1)
            && said.contains("keys.yaml:1:13: [0].key: unknown key")
            && !said.contains("hunter2"),
        "{said}"
    );
    fs::write(folder.path().join("keys.yaml"), keys()).unwrap();
    assert_eq!(check().0, Some(0));
}

#[test]
fn a_key_that_was_made_opens_the_route() {
    let (gateway, folder) = start();
    let made = std::process::Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args([
            "key", "new", "--id", "eve", "--plan", "gold", "--label", "team=ops",
        ])
        .output()
        .unwrap();
    let made = String::from_utf8(made.stdout).unwrap();
    let key = made
        .lines()
        .find(|line| line.starts_with("tg_"))
        .unwrap()
        .to_owned();
    let entry = made.lines().find(|line| line.starts_with("- ")).unwrap();
    assert!(key.len() == 46 && !entry.contains(&key), "{made}");
    assert_eq!(by_key(&gateway, &key), 401, "nobody has it yet");
    fs::write(
        folder.path().join("keys.yaml"),
        format!("{}{entry}\n", keys()),
    )
    .unwrap();
    eventually("the new key", || {
        (by_key(&gateway, &key) == 200).then_some(())
    });
}
