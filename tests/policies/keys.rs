//! API keys of applications: made in each way, taken on the application's routes alone, and taken
//! away on all nodes.

use std::path::Path;
use std::process::Command;

use serde_json::{Value as Json, json};
use tollgate_policies::model::{Expected, ObjectEdit, ObjectId, ObjectKind};
use tollgate_policies::people::{ApplicationRole, Rights};

use crate::editor::{Editor, REVISION, await_revision, edit, owning};
use crate::port::{Port, PortAnswer};
use crate::process::{Gateway, curl, eventually, status};
use crate::scene::new_database;
use crate::visit::{Visit, form, with};

const KEYS: &str = "/policies/applications/shop/api_keys";

/// A gateway whose listener takes the keys of policies. A limit of the file counts each caller on
/// all routes.
fn routes(database: &str, folder: &Path, more: &str) -> String {
    let copy = folder.join("policies.json").display().to_string();
    format!(
        "workers: 1
listeners: [{{address: '127.0.0.1:0', authenticate: [keys]}}]
admin: {{address: '127.0.0.1:0'}}
authenticators: {{keys: {{api_key: {{header: x-api-key, policies: true}}}}}}
policies: {{database: '{database}', copy: '{copy}'{more}}}
limits:
  everywhere: {{key: identity, rate: 1/h, burst: 5, plans: {{by: {{identity: plan}}, table: {{gold: {{rate: 1/h, burst: 9}}}}}}}}
routes:
  - {{name: orders, match: {{path: '/orders/*'}}, limits: [everywhere], respond: {{status: 200, body: ok}}}}
  - name: free
    match: {{path: /free}}
    limits: [everywhere]
    respond: {{status: 200, body: ok}}
    response_headers: {{set: {{x-client: '{{identity}} {{identity.authenticator}} {{identity.plan}} {{identity.label.team}}'}}}}
  - {{name: nobody, match: {{path: /nobody}}, respond: {{status: 200, body: ok}}}}
"
    )
}

/// A key, and its hash.
fn new_key() -> (String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(["key", "new", "--id", "x", "--json"])
        .output();
    let entry: Json = serde_json::from_slice(&output.unwrap().stdout).unwrap();
    let text = |name: &str| entry[name].as_str().unwrap().to_owned();
    (text("key"), text("key_sha256"))
}

fn bank(kind: ObjectKind, name: &str, body: Json) -> ObjectEdit {
    let id = match kind {
        ObjectKind::Application => ObjectId::of_application("bank"),
        kind => ObjectId::new(kind, "bank", name),
    };
    ObjectEdit {
        id: id.unwrap(),
        expected: Expected::Any,
        body: Some(body),
    }
}

/// The shop with a limit for each of its callers, two for all but those with the plan gold; and the
/// bank.
fn applications() -> Vec<ObjectEdit> {
    let per_caller =
        json!({"limit": {"key": "identity", "rate": "1/h", "burst": 2}, "resources": ["all"]});
    vec![
        owning(&["orders"]),
        edit(ObjectKind::Resource, "all", json!({"route": "orders"})),
        edit(
            ObjectKind::Resource,
            "checkout",
            json!({"route": "orders", "match": {"path": "/orders/checkout"}}),
        ),
        edit(ObjectKind::Strategy, "per-caller", per_caller),
        edit(
            ObjectKind::Plan,
            "gold",
            json!({"limits": {"per-caller": {"rate": "1/h", "burst": 4}}}),
        ),
        edit(ObjectKind::Assignment, "ada", json!({"plan": "gold"})),
        bank(ObjectKind::Application, "bank", json!({"routes": ["free"]})),
        bank(ObjectKind::Plan, "gold", json!({})),
        bank(ObjectKind::Assignment, "ada", json!({"plan": "gold"})),
    ]
}

fn sent(gateway: &Gateway, path: &str, key: &str) -> u16 {
    status(&["-H", &format!("x-api-key: {key}"), &gateway.url(path)])
}

/// How many of so many requests pass. The others are denied by a limit.
fn passed(gateway: &Gateway, path: &str, key: &str, requests: usize) -> usize {
    let all: Vec<u16> = (0..requests).map(|_| sent(gateway, path, key)).collect();
    assert!(
        all.iter().all(|status| [200, 429].contains(status)),
        "{path}: {all:?}"
    );
    all.iter().filter(|status| **status == 200).count()
}

/// The key in an output: it is shown once.
fn shown(text: &str) -> String {
    let keys: Vec<&str> = text
        .split(|letter: char| !letter.is_ascii_alphanumeric() && !"_-".contains(letter))
        .collect();
    let keys: Vec<_> = keys
        .into_iter()
        .filter(|word| word.starts_with("tg_") && word.len() == 46)
        .collect();
    let [key] = keys[..] else {
        panic!("{} keys in {text}", keys.len())
    };
    key.to_owned()
}

#[test]
fn keys_made_in_each_way_are_taken_on_the_routes_of_their_application_alone() {
    let (folder, url, editor) = new_database();
    editor.commit(applications());
    let nodes =
        ["one", "two"].map(|name| Gateway::start(&routes(&url, &folder.path().join(name), "")));
    nodes.iter().for_each(|node| await_revision(node, 1));
    let gateway = &nodes[0];
    let owner = Port::of(
        gateway,
        &editor,
        "owner",
        Rights::new("shop", ApplicationRole::Owner),
    );
    let banker = Port::of(
        gateway,
        &editor,
        "banker",
        Rights::new("bank", ApplicationRole::Owner),
    );
    let (by_port, hash) = new_key();
    assert_eq!(sent(gateway, "/orders/1", &by_port), 401);
    assert_eq!(status(&[&gateway.url("/orders/1")]), 401);

    // By the port: the client is ada, and has her plan.
    let body = json!({"client": "ada", "key_sha256": hash, "labels": {"team": "web"}});
    assert_eq!(
        owner
            .put(&format!("{KEYS}/mobile?reason=x"), "", &body)
            .status,
        200
    );
    nodes.iter().for_each(|node| await_revision(node, 2));
    assert_eq!(passed(gateway, "/orders/1", &by_port, 5), 4);
    assert_eq!(
        sent(&nodes[1], "/orders/1", &by_port),
        200,
        "each node has buckets of its own here"
    );
    for path in ["/free", "/nobody", "/nowhere"] {
        assert_eq!(sent(gateway, path, &by_port), 401, "{path}");
    }

    // By the command line: another key of hers takes from the same bucket, on a part of the route
    // as well.
    let text = owner.policy_text(&[
        "key", "new", "shop", "spare", "--client", "ada", "--label", "team=web", "--reason", "x",
    ]);
    let by_command = shown(&text);
    nodes.iter().for_each(|node| await_revision(node, 3));
    assert_eq!(sent(gateway, "/orders/1", &by_command), 429);
    assert_eq!(sent(gateway, "/orders/checkout", &by_command), 429);
    let trial = owner.policy_text(&["key", "new", "shop", "trial", "--reason", "x", "--dry-run"]);
    assert!(
        trial.contains("api_key shop/trial") && !trial.contains("tg_"),
        "{trial}"
    );
    let json = owner.policy_text(&[
        "key",
        "new",
        "shop",
        "json",
        "--reason",
        "x",
        "--dry-run",
        "--format",
        "json",
    ]);
    assert!(
        json.contains("key_sha256") && !json.contains("tg_"),
        "{json}"
    );

    // By the console: the page to review has the key, and it works once that is saved.
    let visit = Visit::with(gateway, editor.begin_session("owner"));
    assert!(visit.page("/applications/shop").contains("Add a key"));
    let fields = form(
        &visit.page("/edit?application=shop&kind=api_key"),
        "A new API key",
    );
    let review = visit.submit(
        "/edit",
        &with(
            fields,
            &[("name", "kiosk"), ("step", "review"), ("action", "write")],
        ),
    );
    let by_console = shown(&review);
    let saved = visit.submit("/edit", &with(form(&review, "Save"), &[("reason", "x")]));
    assert!(saved.contains("/console/revisions/4?done"), "{saved}");
    nodes.iter().for_each(|node| await_revision(node, 4));
    assert_eq!(sent(gateway, "/orders/checkout", &by_console), 200);
    assert_eq!(
        passed(gateway, "/orders/1", &by_console, 3),
        1,
        "the client is called like the key, and has no plan"
    );
    assert!(
        visit
            .page("/edit?application=shop&kind=api_key&name=kiosk")
            .contains("SHA-256")
    );

    // The bank has an ada as well, who is somebody else, and whose plan is none of the file's.
    let words = [
        "key", "new", "bank", "ada", "--label", "team=web", "--reason", "x", "--format", "json",
    ];
    let of_bank = shown(&banker.policy_text(&words));
    nodes.iter().for_each(|node| await_revision(node, 5));
    let answer = curl(&[
        "-si",
        "-H",
        &format!("x-api-key: {of_bank}"),
        &gateway.url("/free"),
    ]);
    assert!(
        answer.contains("x-client: @bank/ada @bank @bank/gold @bank/web\r"),
        "{answer}"
    );
    assert_eq!(passed(gateway, "/free", &of_bank, 6), 4);
    assert_eq!(sent(gateway, "/orders/1", &of_bank), 401);

    // Taken away, they are refused everywhere.
    assert_eq!(
        owner
            .send(
                "DELETE",
                &format!("{KEYS}/mobile?reason=lost"),
                &["If-Match: *"],
                None
            )
            .status,
        200
    );
    owner.policy_text(&["key", "revoke", "shop", "spare", "--reason", "lost"]);
    nodes.iter().for_each(|node| await_revision(node, 7));
    for node in &nodes {
        for key in [&by_port, &by_command] {
            assert_eq!(sent(node, "/orders/1", key), 401);
        }
        assert_ne!(sent(node, "/orders/1", &by_console), 401);
    }

    // None of them stands anywhere.
    let admin = Port::admin(gateway, &editor);
    let mut places = vec![
        gateway.log(),
        nodes[1].log(),
        admin.policy_text(&["export"]),
    ];
    for page in [
        "/metrics",
        "/policies",
        "/policies/diff?from=1",
        "/audit?limit=500",
        "/limits",
    ] {
        places.push(curl(&[
            "-s",
            "-H",
            &format!("Authorization: Bearer {}", admin.token),
            &format!("http://{}{page}", gateway.admin),
        ]));
    }
    let files = [
        folder.path().join("policies.db"),
        folder.path().join("policies.db-wal"),
        folder.path().join("one/policies.json"),
    ];
    places.extend(
        files
            .iter()
            .filter_map(|file| std::fs::read(file).ok())
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
    );
    assert!(
        places.iter().any(|place| place.contains(&hash)),
        "the hashes are what is kept"
    );
    for (at, place) in places.iter().enumerate() {
        for key in [&by_port, &by_command, &by_console, &of_bank] {
            assert!(!place.contains(key.as_str()), "a key stands in place {at}");
        }
    }
}

#[test]
fn only_owners_see_and_change_the_keys_of_an_application() {
    let (folder, url, editor) = new_database();
    let (key, hash) = new_key();
    editor.commit(
        applications()
            .into_iter()
            .chain([edit(ObjectKind::ApiKey, "old", json!({"key_sha256": hash}))])
            .collect(),
    );
    let gateway = Gateway::start(&routes(&url, folder.path(), ""));
    await_revision(&gateway, 1);
    assert_eq!(sent(&gateway, "/orders/1", &key), 200);
    let body = json!({"key_sha256": new_key().1});
    let document = |keys: Json| json!({"applications": {"shop": {"keys": keys}}});
    let roles = [
        ("viewer", Rights::new("shop", ApplicationRole::Viewer)),
        ("editor", Rights::new("shop", ApplicationRole::Editor)),
        ("banker", Rights::new("bank", ApplicationRole::Owner)),
    ];
    for (name, rights) in roles {
        let port = Port::of(&gateway, &editor, name, rights);
        for answer in [
            port.put(&format!("{KEYS}/new?reason=x"), "", &body),
            port.put(&format!("{KEYS}/old?reason=x"), "*", &body),
            port.send(
                "DELETE",
                &format!("{KEYS}/old?reason=x"),
                &["If-Match: *"],
                None,
            ),
            port.post("/policies?reason=x", &document(json!({"new": body}))),
            port.post(
                "/policies?reason=x&dry_run=true",
                &document(json!({"new": body})),
            ),
            port.get(KEYS),
            port.get(&format!("{KEYS}/old")),
            port.get(&format!("{KEYS}/old/history")),
        ] {
            assert_eq!(answer.status, 403, "{name}: {answer:?}");
        }
        for page in [
            "/policies",
            "/policies/revisions/1",
            "/policies/diff?from=0",
        ] {
            let answer = port.get(page);
            assert_eq!(answer.status, 200, "{name}: {answer:?}");
            assert!(
                !answer.body.to_string().contains(&hash),
                "{name} sees a hash in {page}"
            );
        }
        let visit = Visit::with(&gateway, editor.begin_session(name));
        for page in [
            "/applications/shop",
            "/revisions/1",
            "/edit?application=shop&kind=api_key&name=old",
        ] {
            assert!(
                !visit.page(page).contains(&hash),
                "{name} sees a hash in {page}"
            );
        }
        assert!(
            !visit.page("/applications/shop").contains("API keys"),
            "{name}"
        );
    }
    let owner = Port::of(
        &gateway,
        &editor,
        "owner",
        Rights::new("shop", ApplicationRole::Owner),
    );
    assert_eq!(owner.get(KEYS).body[0]["body"]["key_sha256"], hash);
    assert!(owner.get("/policies").body.to_string().contains(&hash));
    // A document without keys, of somebody who does not see them, takes none away.
    let of_editor = json!({"applications": {"shop": {
        "routes": ["orders"],
        "resources": {"all": {"route": "orders"}, "checkout": {"route": "orders", "match": {"path": "/orders/checkout"}}},
        "strategies": {"per-caller": {"limit": {"key": "identity", "rate": "1/h", "burst": 3}, "resources": ["all"]}},
        "plans": {"gold": {"limits": {"per-caller": {"rate": "1/h", "burst": 4}}}},
        "clients": {"ada": "gold"},
    }}});
    let someone = Port::of(
        &gateway,
        &editor,
        "someone",
        Rights::new("shop", ApplicationRole::Editor),
    );
    assert_eq!(
        someone
            .post("/policies?reason=x&mode=replace", &of_editor)
            .status,
        200
    );
    await_revision(&gateway, 2);
    assert_ne!(sent(&gateway, "/orders/1", &key), 401);

    // A key is one client's.
    let twice = owner.put(
        &format!("{KEYS}/again?reason=x"),
        "",
        &json!({"key_sha256": hash}),
    );
    let mistake = &twice.body["mistakes"][0];
    assert_eq!(
        (twice.status, mistake["hint"].as_str()),
        (
            422,
            Some("a key is one client's: remove one of the two entries")
        )
    );
    assert!(!twice.body.to_string().contains(&hash), "{twice:?}");
    let odd = owner.put(
        &format!("{KEYS}/again?reason=x"),
        "",
        &json!({"key_sha256": key}),
    );
    assert_eq!(odd.status, 422);
    assert!(
        !odd.body.to_string().contains(&key) && !gateway.log().contains(&key),
        "{odd:?}"
    );
}

#[test]
fn a_key_that_was_taken_away_does_not_come_back() {
    let (folder, url, editor) = new_database();
    let ((key, hash), (kept, kept_hash)) = (new_key(), new_key());
    let named =
        |name: &str, hash: &str| edit(ObjectKind::ApiKey, name, json!({"key_sha256": hash}));
    editor.commit(applications());
    editor.commit(vec![
        named("leak", &hash),
        edit(ObjectKind::Assignment, "eva", json!({"plan": "gold"})),
    ]);
    let gateway = Gateway::start(&routes(&url, folder.path(), ""));
    await_revision(&gateway, 2);
    assert_eq!(sent(&gateway, "/orders/1", &key), 200);
    let admin = Port::admin(&gateway, &editor);
    let before = admin.get("/policies").body;
    assert_eq!(
        admin
            .send(
                "DELETE",
                &format!("{KEYS}/leak?reason=leaked"),
                &["If-Match: *"],
                None
            )
            .status,
        200
    );
    assert_eq!(
        admin
            .put(
                &format!("{KEYS}/kept?reason=x"),
                "",
                &json!({"key_sha256": kept_hash})
            )
            .status,
        200
    );
    await_revision(&gateway, 4);
    let refused = |answer: &PortAnswer| {
        assert_eq!(answer.status, 422, "{answer:?}");
        assert!(
            answer.body["hint"]
                .as_str()
                .is_some_and(|hint| hint.contains("make a new key")),
            "{answer:?}"
        );
    };

    // The key is refused as it was, under another name, spelt otherwise, and in yesterday's
    // document.
    for (name, hash) in [("leak", hash.clone()), ("other", hash.to_uppercase())] {
        let body = json!({"key_sha256": hash});
        refused(&admin.put(&format!("{KEYS}/{name}?reason=x"), "", &body));
        refused(&admin.put(&format!("{KEYS}/{name}?reason=x&dry_run=true"), "", &body));
    }
    refused(&admin.post("/policies?reason=x", &before));
    refused(&admin.post("/policies?reason=x&mode=replace", &before));
    refused(&admin.post("/policies/revisions/3/undo?reason=x", &json!({})));
    let visit = Visit::with(&gateway, editor.begin_session("ada"));
    assert!(!visit.page("/revisions/3").contains("Take it back"));
    assert!(visit.page("/revisions/4").contains("Take it back"));

    // Other changes of a revision are undone, and a revert leaves keys alone that were made since.
    assert_eq!(
        admin
            .post("/policies/revisions/1/revert?reason=x", &json!({}))
            .status,
        200
    );
    assert_eq!(
        admin
            .post("/policies/revisions/2/revert?reason=x", &json!({}))
            .status,
        200
    );
    await_revision(&gateway, 6);
    assert_eq!(
        (
            sent(&gateway, "/orders/1", &key),
            sent(&gateway, "/orders/1", &kept)
        ),
        (401, 200)
    );

    // A key that stands may have another name and another client.
    let mut renamed = admin.get("/policies").body;
    renamed["applications"]["shop"]["keys"] = json!({"kiosk": {"key_sha256": kept_hash}});
    let answer = admin.post("/policies?reason=x&mode=replace", &renamed);
    assert_eq!(answer.status, 200, "{answer:?}");
    let relabelled = json!({"key_sha256": kept_hash, "client": "eva"});
    assert_eq!(
        admin
            .put(&format!("{KEYS}/kiosk?reason=x"), "*", &relabelled)
            .status,
        200
    );
    await_revision(&gateway, 8);
    assert_eq!(sent(&gateway, "/orders/1", &kept), 200);
}

/// The node runs a revision older than the one that took the key away.
#[test]
fn a_revoked_key_is_refused_by_a_node_that_the_revision_does_not_fit() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("database")).unwrap();
    let url = format!("sqlite://{}/database/policies.db", folder.path().display());
    let editor = Editor::of(&url);
    let ((lost, lost_hash), (kept, kept_hash)) = (new_key(), new_key());
    let mut edits = applications();
    for (name, hash) in [("lost", &lost_hash), ("kept", &kept_hash)] {
        edits.push(edit(ObjectKind::ApiKey, name, json!({"key_sha256": hash})));
    }
    editor.commit(edits);
    let routes = routes(&url, folder.path(), "");
    let mut node = Gateway::start(&routes);
    let refused =
        |node: &Gateway| [&lost, &kept].map(|key| sent(node, "/orders/checkout", key) == 401);
    assert_eq!(refused(&node), [false, false]);
    editor.commit(vec![owning(&["orders", "missing"])]);
    let revoked = ObjectEdit {
        body: None,
        ..edit(ObjectKind::ApiKey, "lost", json!({}))
    };
    editor.commit(vec![revoked]);
    eventually("the key is refused", || refused(&node)[0].then_some(()));
    assert_eq!(
        (node.metric(REVISION), refused(&node)),
        (1.0, [true, false])
    );

    // After a restart too, and when the database is away then.
    let copy = folder.path().join("policies.json");
    let is_written = || std::fs::read_to_string(&copy).is_ok_and(|text| !text.contains(&lost_hash));
    eventually("the copy has no such key", || is_written().then_some(()));
    for is_away in [false, true] {
        node.signal("TERM");
        assert!(node.wait().success());
        if is_away {
            std::fs::rename(folder.path().join("database"), folder.path().join("away")).unwrap();
        }
        node = Gateway::start(&routes);
        assert_eq!(
            (node.metric(REVISION), refused(&node)),
            (1.0, [true, false])
        );
    }
}

/// A revision changes policies alone, so none of the files that the configuration names is read for
/// it.
#[test]
fn a_key_is_revoked_while_files_of_the_configuration_are_broken_or_gone() {
    let (folder, url, editor) = new_database();
    let (key, hash) = new_key();
    let mut edits = applications();
    edits.push(edit(ObjectKind::ApiKey, "old", json!({"key_sha256": hash})));
    editor.commit(edits);
    let file = |name: &str, content: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    };
    let hashed = "ada:$2y$04$LnGkMOMx3Dyuw0b4zOhdeeSYN0ssa1qPTQJmFzlIEFbWLBuvhuYge\n";
    let users = file("htpasswd", hashed);
    let endpoints = file("endpoints.yaml", "[http://127.0.0.1:1]\n");
    let page = file("page.html", "away");
    let named = format!(
        "upstreams: {{unused: {{discover: {{file: '{}'}}}}}}
error_pages: [{{status: [5xx], type: text/html, file: '{}'}}]
authenticators: {{users: {{basic: {{users: '{}'}}}}, ",
        endpoints.display(),
        page.display(),
        users.display()
    );
    let written = routes(&url, folder.path(), "").replace("authenticators: {", &named);
    let gateway = Gateway::start(&written);
    await_revision(&gateway, 1);
    assert_eq!(sent(&gateway, "/orders/1", &key), 200);
    std::fs::remove_file(&users).unwrap();
    std::fs::remove_file(&page).unwrap();
    std::fs::write(&endpoints, "[").unwrap();
    let revoked = ObjectEdit {
        body: None,
        ..edit(ObjectKind::ApiKey, "old", json!({}))
    };
    editor.commit(vec![revoked]);
    await_revision(&gateway, 2);
    assert_eq!(sent(&gateway, "/orders/1", &key), 401);
}

#[test]
fn a_key_cannot_be_judged_before_any_policies_are_known() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(&routes(
        "postgres://127.0.0.1:1/none",
        folder.path(),
        ", required: false",
    ));
    assert_eq!(sent(&gateway, "/orders/1", &new_key().0), 503);
    assert_eq!(status(&[&gateway.url("/orders/1")]), 401);
    assert_eq!(sent(&gateway, "/nowhere", &new_key().0), 401);
}
