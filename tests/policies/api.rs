//! The policy API: objects by themselves and all at once, who was faster, what does not check, and
//! back again.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value as Json, json};
use tollgate_policies::database::Page;
use tollgate_policies::people::{ApplicationRole, Rights};

use crate::editor::{await_revision, spend};
use crate::port::Port;
use crate::process::{Gateway, eventually};
use crate::scene::Scene;

const SHOP: &str = "/policies/applications/shop";

fn strategy(burst: u64) -> Json {
    json!({"limit": {"key": {"constant": "all"}, "rate": "1/h", "burst": burst}, "resources": ["all"]})
}

fn document(burst: u64) -> Json {
    json!({"applications": {"shop": {
        "description": "The shop's API",
        "routes": ["orders"],
        "resources": {"all": {"route": "orders"}},
        "strategies": {"few": strategy(burst)}
    }}})
}

#[test]
fn what_is_written_is_enforced_and_read_again_and_can_be_taken_back() {
    let Scene {
        gateway,
        editor,
        folder: _folder,
    } = Scene::empty();
    let port = Port::admin(&gateway, &editor);
    let trial = port.post("/policies?dry_run=true", &document(3));
    assert_eq!(
        (trial.status, &trial.body["revision"]),
        (200, &Json::Null),
        "{trial:?}"
    );
    assert_eq!(
        port.get("/policies").body,
        json!({"applications": {}}),
        "a trial changes nothing"
    );

    let made = port.post("/policies?reason=the%20first%20%C3%A4", &document(3));
    assert_eq!(
        (made.status, made.body["revision"]["revision"].as_u64()),
        (200, Some(1)),
        "{made:?}"
    );
    assert_eq!(
        (
            &made.body["revision"]["author"],
            &made.body["revision"]["reason"]
        ),
        (&json!("ada"), &json!("the first ä"))
    );
    await_revision(&gateway, 1);
    assert_eq!(spend(&gateway, "/orders/1", 5), 3);
    let whole = port.get("/policies");
    assert_eq!(
        (whole.etag.starts_with("\"1-"), &whole.body),
        (true, &document(3))
    );

    let few = format!("{SHOP}/strategies/few");
    let seen = port.get(&few);
    assert_eq!((seen.status, &seen.body["body"]), (200, &strategy(3)));
    assert!(seen.etag.starts_with("\"1-"), "{seen:?}");
    let changed = port.put(&format!("{few}?reason=more"), &seen.etag, &strategy(5));
    assert_eq!(
        changed.body["changes"][0]["lines"][1],
        json!({"added": true, "text": "limit.burst: 5"}),
        "{changed:?}"
    );
    let now = port.get(&few).body;
    assert_eq!(
        (
            &now["created"]["revision"],
            &now["changed"]["revision"],
            &now["changed"]["by"]
        ),
        (&json!(1), &json!(2), &json!("ada"))
    );
    assert_eq!(port.get(&format!("{few}?at=1")).body["body"], strategy(3));
    assert_eq!(port.get("/policies/diff?from=1").body[0]["name"], "few");
    let reasons = |target: &str, at: &str| {
        let listed = port.get(target).body;
        let listed = if at.is_empty() {
            listed
        } else {
            listed[at].clone()
        };
        let reason = |entry: &Json| {
            entry
                .get("revision")
                .filter(|inner| inner.is_object())
                .unwrap_or(entry)["reason"]
                .clone()
        };
        listed
            .as_array()
            .unwrap()
            .iter()
            .map(reason)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        reasons("/policies/revisions", "revisions"),
        ["more", "the first ä"]
    );
    assert_eq!(
        reasons(&format!("{few}/history"), ""),
        ["more", "the first ä"]
    );
    assert_eq!(
        port.get("/policies/revisions/2").body["changes"][0]["before"],
        strategy(3)
    );

    let undone = port.send(
        "POST",
        "/policies/revisions/2/undo?reason=too%20many",
        &[],
        None,
    );
    assert_eq!(
        (undone.status, &undone.body["changes"][0]["after"]),
        (200, &strategy(3)),
        "{undone:?}"
    );
    let gone = port.send(
        "DELETE",
        &format!("{few}?reason=gone"),
        &["If-Match: *"],
        None,
    );
    assert_eq!((gone.status, port.get(&few).status), (200, 404), "{gone:?}");
    await_revision(&gateway, 4);
    assert_eq!(
        spend(&gateway, "/orders/1", 5),
        5,
        "nothing limits them any more"
    );
    let reverted = port.send(
        "POST",
        "/policies/revisions/2/revert?reason=back",
        &[],
        None,
    );
    assert_eq!(
        (reverted.status, port.get(&few).body["body"].clone()),
        (200, strategy(5)),
        "{reverted:?}"
    );
}

#[test]
fn whoever_comes_second_is_told_who_was_faster() {
    let Scene {
        gateway,
        editor,
        folder: _folder,
    } = Scene::empty();
    let port = Port::admin(&gateway, &editor);
    let other = Port::of(
        &gateway,
        &editor,
        "bob",
        tollgate_policies::people::Rights::admin(),
    );
    port.post("/policies?reason=first", &document(3));
    let few = format!("{SHOP}/strategies/few?reason=x");
    assert_eq!(other.put(&few, "\"1\"", &strategy(4)).status, 200);
    let late = port.put(&few, "\"1\"", &strategy(5));
    assert_eq!(
        (late.status, &late.body["type"]),
        (409, &json!("urn:tollgate:problem:conflict")),
        "{late:?}"
    );
    let conflict = &late.body["conflicts"][0];
    assert_eq!(
        (&conflict["name"], &conflict["by"], &conflict["revision"]),
        (&json!("few"), &json!("bob"), &json!(2))
    );
    assert_eq!(
        port.put(&few, "", &strategy(5)).status,
        409,
        "it is not new"
    );
    assert_eq!(port.put(&few, "\"2\"", &strategy(5)).status, 200);
    let undone = port.send("POST", "/policies/revisions/2/undo?reason=x", &[], None);
    assert_eq!(
        (undone.status, &undone.body["conflicts"][0]["revision"]),
        (409, &json!(3)),
        "{undone:?}"
    );
}

#[test]
fn every_mistake_is_told_at_its_place_and_nothing_is_changed() {
    let Scene {
        gateway,
        editor,
        folder: _folder,
    } = Scene::empty();
    let port = Port::admin(&gateway, &editor);
    let mut wrong = document(3);
    wrong["applications"]["shop"]["strategies"]["few"]["limit"]["rate"] = json!("fast");
    wrong["applications"]["shop"]["resources"]["gone"] = json!({"route": "nowhere"});
    let refused = port.post("/policies?reason=x", &wrong);
    assert_eq!(refused.status, 422, "{refused:?}");
    let mistakes = refused.body["mistakes"].as_array().unwrap();
    let mut paths: Vec<_> = mistakes
        .iter()
        .map(|mistake| mistake["path"].as_str().unwrap().to_owned())
        .collect();
    paths.sort();
    assert_eq!(
        paths,
        [
            "applications.shop.resources.gone.route",
            "applications.shop.strategies.few.limit.rate"
        ]
    );
    assert_eq!(port.get("/policies/revisions").body["revisions"], json!([]));

    port.post("/policies?reason=x", &document(3));
    let in_use = port.send(
        "DELETE",
        &format!("{SHOP}/resources/all?reason=x"),
        &["If-Match: *"],
        None,
    );
    assert_eq!(in_use.status, 422, "a strategy counts it: {in_use:?}");
    let draft = json!({"edits": [{"id": {"kind": "plan", "application": "shop", "name": "a/b"}, "expected": "any", "body": {}}]});
    for (answer, status) in [
        (
            port.put(&format!("{SHOP}/strategies/few"), "*", &strategy(4)),
            400,
        ),
        (
            port.send(
                "PUT",
                &format!("{SHOP}/strategies/few?reason=x"),
                &[],
                Some(&strategy(4)),
            ),
            428,
        ),
        (
            port.put(&format!("{SHOP}/strategies/few?reason=x"), "*", &json!([])),
            400,
        ),
        (
            port.put(
                &format!("{SHOP}/strategies/few?reason=x"),
                "*",
                &strategy(3),
            ),
            400,
        ),
        (
            port.put(&format!("{SHOP}/strategies/few?reson=x"), "*", &strategy(4)),
            400,
        ),
        (
            port.put(&format!("{SHOP}/oddities/few?reason=x"), "*", &strategy(4)),
            404,
        ),
        (port.post("/policies/revisions?reason=x", &draft), 400),
        (port.get("/policies/revisions/9"), 404),
        (port.get("/policies/revisions/0"), 400),
        (port.get("/policies/diff?from=0&to=9"), 404),
        (port.get("/policies?at=9"), 404),
        (port.get(&format!("{SHOP}/strategies/none")), 404),
    ] {
        assert_eq!(answer.status, status, "{answer:?}");
        assert!(
            answer.body["type"]
                .as_str()
                .is_some_and(|kind| kind.starts_with("urn:tollgate:problem:")),
            "{answer:?}"
        );
    }
    assert_eq!(
        port.get("/policies/revisions").body["revisions"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn no_body_is_read_of_somebody_who_may_change_nothing_and_no_object_is_larger_than_one_may_be() {
    let Scene {
        gateway, editor, ..
    } = &Scene::empty();
    let admin = Port::admin(gateway, editor);
    let viewer = Port::of(
        gateway,
        editor,
        "eve",
        Rights::new("shop", ApplicationRole::Viewer),
    );
    let large = json!({"description": "x".repeat(200_000)});
    assert_eq!(viewer.put(SHOP, "", &large).status, 403);
    assert_eq!(admin.put(SHOP, "", &large).status, 413);
    assert_eq!(viewer.post("/policies", &document(3)).status, 403);
}

/// The head of a change by somebody, and as much of its body as is given. The last line of `head`
/// is the method and the target; fields may stand before it.
fn begin_change(
    gateway: &Gateway,
    token: &str,
    head: &str,
    (length, body): (usize, &str),
) -> TcpStream {
    let mut stream = TcpStream::connect(gateway.admin).unwrap();
    let sent = format!(
        "{head}\r\nHost: {}\r\nAuthorization: Bearer {token}\r\nX-Tollgate-Operator: ed\r\nIf-Match: *\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}",
        gateway.admin
    );
    stream.write_all(sent.as_bytes()).unwrap();
    stream
}

#[test]
fn a_change_whose_client_has_gone_away_is_recorded() {
    let Scene {
        gateway, editor, ..
    } = &Scene::empty();
    let admin = Port::admin(gateway, editor);
    admin.post("/policies?reason=first", &document(3));
    let body = strategy(2).to_string();
    for made in 2..22 {
        let head = format!("PUT {SHOP}/strategies/few?reason=away{made} HTTP/1.1");
        let body = body.replace("\"burst\":2", &format!("\"burst\":{}", made + 10));
        let before = editor.history().len();
        let stream = begin_change(gateway, &admin.token, &head, (body.len(), &body));
        // Some go away at once, others in the course of their change.
        if made % 2 == 0 {
            eventually("it is under way", || {
                (editor.history().len() > before).then_some(())
            });
        }
        drop(stream);
    }
    let people = editor.database.people();
    let recorded = || {
        let entries = editor
            .wait(people.audit(Page {
                limit: 100,
                ..Page::default()
            }))
            .unwrap();
        entries
            .into_iter()
            .filter(|entry| entry.record.action == "policies.changed")
            .count()
    };
    // Some went away before they were read: what was made has its entry.
    eventually("every revision is in the audit log", || {
        let made = editor.history().len();
        (made > 1 && recorded() == made).then_some(())
    });
}

#[test]
fn somebody_whose_changes_do_not_arrive_keeps_nobody_else_from_theirs() {
    let Scene {
        gateway, editor, ..
    } = &Scene::empty();
    let admin = Port::admin(gateway, editor);
    assert_eq!(
        admin.post("/policies?reason=first", &document(3)).status,
        200
    );
    let slow = Port::of(
        gateway,
        editor,
        "ed",
        Rights::new("shop", ApplicationRole::Editor),
    );
    let head = format!("PUT {SHOP}/strategies/few?reason=slow HTTP/1.1");
    let stalled: Vec<TcpStream> = (0..4)
        .map(|_| begin_change(gateway, &slow.token, &head, (1_000, "{")))
        .collect();
    let change = format!("{SHOP}/strategies/few?reason=mine");
    assert_eq!(
        admin
            .send("PUT", &change, &["If-Match: *"], Some(&strategy(7)))
            .status,
        200
    );
    for stream in &stalled {
        stream.set_nonblocking(true).unwrap();
        assert!(
            stream.peek(&mut [0]).is_err(),
            "nobody had to give a place back"
        );
        stream.set_nonblocking(false).unwrap();
    }
    // Any of them may have come first; the others wait for the account's place meanwhile.
    let said = stalled.iter().map(|mut stream| {
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        said
    });
    let said: Vec<String> = said.collect();
    let (slow, waited): (Vec<_>, Vec<_>) = said
        .iter()
        .partition(|said| said.starts_with("HTTP/1.1 408"));
    assert!(
        !slow.is_empty() && slow.iter().all(|said| said.contains("body-too-slow")),
        "{said:?}"
    );
    assert!(
        waited.iter().all(|said| said.starts_with("HTTP/1.1 503")),
        "{said:?}"
    );
}

#[test]
fn a_gateway_without_policies_says_so() {
    let gateway = Gateway::start(
        "workers: 1
listeners: [{address: '127.0.0.1:0'}]
admin: {address: '127.0.0.1:0'}
routes: [{name: all, match: {path: '/*'}, respond: {status: 200}}]
",
    );
    let said: Json = serde_json::from_str(&crate::process::curl(&[&format!(
        "http://{}/policies",
        gateway.admin
    )]))
    .unwrap();
    assert_eq!(
        (&said["status"], &said["type"]),
        (&json!(404), &json!("urn:tollgate:problem:no-policies"))
    );
}

#[test]
fn an_application_is_taken_away_with_all_that_it_has() {
    let Scene {
        gateway, editor, ..
    } = &Scene::empty();
    let admin = Port::admin(gateway, editor);
    assert_eq!(
        admin.post("/policies?reason=first", &document(3)).status,
        200
    );
    let removed = |reason: &str| {
        admin.send(
            "DELETE",
            &format!("{SHOP}?reason={reason}"),
            &["If-Match: *"],
            None,
        )
    };
    for (kind, name) in [("strategies", "few"), ("resources", "all")] {
        let plan = format!("{SHOP}/plans/{kind}?reason=x");
        assert_eq!(admin.put(&plan, "", &json!({"limits": {}})).status, 200);
        let gone = admin.send(
            "DELETE",
            &format!("{SHOP}/{kind}/{name}?reason=x"),
            &["If-Match: *"],
            None,
        );
        assert_eq!(gone.status, 200, "{gone:?}");
    }
    let refused = removed("half");
    assert_eq!(
        (refused.status, &refused.body["hint"]),
        (
            422,
            &json!(
                "take them away first, or all at once: tollgate policy import --replace, with a document that lacks it"
            )
        ),
        "{refused:?}"
    );
    for plan in ["strategies", "resources"] {
        admin.send(
            "DELETE",
            &format!("{SHOP}/plans/{plan}?reason=x"),
            &["If-Match: *"],
            None,
        );
    }
    assert_eq!(removed("whole").status, 200);
    let absent = admin.get(&format!("{SHOP}/plans"));
    assert_eq!(
        (absent.status, &absent.body["status"]),
        (404, &json!(404)),
        "{absent:?}"
    );
}

#[test]
fn whatever_is_refused_is_a_problem() {
    let Scene {
        gateway, editor, ..
    } = &Scene::empty();
    let admin = Port::admin(gateway, editor);
    for odd in [
        "/policies/applications/%ff",
        "/policies/applications/%ff/plans",
        "/buckets/%ff?client_ip=::1",
    ] {
        let refused = admin.get(odd);
        assert_eq!(
            (refused.status, &refused.body["status"]),
            (400, &json!(400)),
            "{odd}: {refused:?}"
        );
    }
}

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// The commit has been made, and who asked for it is told so.
#[test]
fn a_change_under_way_is_answered_though_the_gateway_stops() {
    let Scene {
        mut gateway,
        editor,
        folder: _folder,
    } = Scene::empty();
    let token = {
        let admin = Port::admin(&gateway, &editor);
        admin.post("/policies?reason=first", &document(3));
        admin.token
    };
    let body = strategy(7).to_string();
    let head = format!("PUT {SHOP}/strategies/few?reason=last HTTP/1.1\r\nExpect: 100-continue");
    let (sent, rest) = body.split_at(body.len() / 2);
    let mut stream = begin_change(&gateway, &token, &head, (body.len(), sent));
    let mut said = [0; CONTINUE.len()];
    stream.read_exact(&mut said).unwrap();
    assert_eq!(said, *CONTINUE, "the body is asked for");
    gateway.signal("TERM");
    eventually("it accepts nothing more", || {
        TcpStream::connect(gateway.listeners[0]).err()
    });
    stream.write_all(rest.as_bytes()).unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    assert!(said.starts_with("HTTP/1.1 200 "), "{said}");
    assert_eq!(editor.history().len(), 2);
    eventually("it ends", || gateway.has_ended().then_some(()));
}
