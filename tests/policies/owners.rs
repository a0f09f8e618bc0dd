//! Routes belong to applications: whoever owns one application tries each way to touch the route of
//! another.

use serde_json::{Value as Json, json};
use tollgate_policies::model::{Expected, ObjectEdit, ObjectId, ObjectKind};
use tollgate_policies::people::{ApplicationRole, Rights};

use crate::editor::{await_revision, first_edits, owning, routes, spend};
use crate::port::{Port, PortAnswer, file};
use crate::process::{Gateway, status};
use crate::scene::{Scene, new_database};
use crate::visit::Visit;

const SHOP: &str = "/policies/applications/shop";

/// An edit of the bank, whose route is `free`.
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

fn mistake(answer: &PortAnswer) -> (u16, &str, &str, &str) {
    let first = &answer.body["mistakes"][0];
    let text = |key: &str| first[key].as_str().unwrap_or_default();
    (answer.status, text("path"), text("message"), text("hint"))
}

#[test]
fn an_owner_of_one_application_cannot_touch_the_route_of_another() {
    let (folder, url, editor) = new_database();
    // Once the route was the shop's. Then it became the bank's.
    editor.commit(
        first_edits()
            .into_iter()
            .chain([owning(&["orders", "items", "free"])])
            .skip(1)
            .collect(),
    );
    let few = json!({"limit": {"key": {"constant": "all"}, "rate": "1/h", "burst": 2}, "resources": ["all"]});
    editor.commit(vec![
        owning(&["orders"]),
        ObjectEdit {
            body: None,
            ..crate::editor::edit(ObjectKind::Resource, "items", json!({}))
        },
        bank(ObjectKind::Application, "bank", json!({"routes": ["free"]})),
        bank(ObjectKind::Resource, "all", json!({"route": "free"})),
        bank(ObjectKind::Strategy, "few", few),
    ]);
    let gateway = Gateway::start(&routes(&url, folder.path(), ""));
    await_revision(&gateway, 2);
    assert_eq!(spend(&gateway, "/free", 1), 1);
    let owner = Port::of(
        &gateway,
        &editor,
        "owner",
        Rights::new("shop", ApplicationRole::Owner),
    );
    let visit = Visit::with(&gateway, editor.begin_session("owner"));

    // A resource is the owner's to make, and may name routes of the shop alone.
    let resource = format!("{SHOP}/resources/x?reason=x");
    for body in [
        json!({"route": "free"}),
        json!({"route": "free", "match": {"methods": ["GET"]}}),
    ] {
        let expected = (
            422,
            "applications.shop.resources.x.route",
            "route \"free\" is of another application",
            "name a route of application \"shop\", or take the resource away",
        );
        assert_eq!(mistake(&owner.put(&resource, "", &body)), expected);
        let edit = json!({"id": {"kind": "resource", "application": "shop", "name": "x"}, "expected": "any", "body": body});
        assert_eq!(
            mistake(&owner.post("/policies/revisions?reason=x", &json!({"edits": [edit]}))),
            expected
        );
        let document =
            json!({"applications": {"shop": {"routes": ["orders"], "resources": {"x": body}}}});
        assert_eq!(
            mistake(&owner.post("/policies?reason=x", &document)),
            expected
        );
        let path = file(folder.path(), "mine.json", &document.to_string());
        let refused = owner.policy_refusal(&["import", &path, "--reason", "x"]);
        assert!(
            refused.contains("resources.x.route: route \"free\" is of another application"),
            "{refused}"
        );
    }
    let free = mistake(&owner.put(&resource, "", &json!({"route": "items"})))
        .3
        .to_owned();
    assert_eq!(
        free,
        "write routes: [orders, items] in the application; in a database only an admin may"
    );

    // Which routes are the shop's is for an admin to say.
    let wider = json!({"routes": ["orders", "free"]});
    let edit = |application: &str, body: &Json| json!({"edits": [{"id": {"kind": "application", "application": "", "name": application}, "expected": "any", "body": body}]});
    let document = |application: &str, body: &Json| json!({"applications": {application: body}});
    let path = file(
        folder.path(),
        "wider.json",
        &document("shop", &wider).to_string(),
    );
    for answer in [
        owner.put(&format!("{SHOP}?reason=x"), "*", &wider),
        owner.put(
            "/policies/applications/cart?reason=x",
            "",
            &json!({"routes": ["items"]}),
        ),
        owner.put(
            "/policies/applications/bank?reason=x",
            "*",
            &json!({"routes": ["items"]}),
        ),
        owner.post("/policies/revisions?reason=x", &edit("shop", &wider)),
        owner.post("/policies/revisions?reason=x", &edit("bank", &Json::Null)),
        owner.post("/policies?reason=x", &document("shop", &wider)),
        owner.post("/policies?reason=x&mode=replace", &document("cart", &wider)),
        owner.send(
            "DELETE",
            &format!("{SHOP}?reason=x"),
            &["If-Match: *"],
            None,
        ),
        owner.send(
            "DELETE",
            "/policies/applications/bank?reason=x",
            &["If-Match: *"],
            None,
        ),
        owner.send("POST", "/policies/revisions/1/revert?reason=x", &[], None),
        owner.send("POST", "/policies/revisions/2/undo?reason=x", &[], None),
    ] {
        assert_eq!(
            (answer.status, &answer.body["type"]),
            (403, &json!("urn:tollgate:problem:missing-role")),
            "{answer:?}"
        );
    }
    assert!(
        owner
            .policy_refusal(&["import", &path, "--reason", "x"])
            .contains("admin")
    );
    assert!(
        owner
            .policy_refusal(&["undo", "2", "--reason", "x"])
            .contains("admin")
    );
    let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let sent = |kind: &str, name: &str, body: &str| {
        let token = visit.form_token();
        let known = [
            ("token", &*token),
            ("kind", kind),
            ("name", name),
            ("application", "shop"),
            ("body", body),
        ];
        let more = [
            ("step", "save"),
            ("reason", "x"),
            ("expected", if kind == "resource" { "absent" } else { "2" }),
        ];
        let fields: Vec<_> = known
            .iter()
            .chain(&more)
            .map(|(name, value)| field(name, value))
            .collect();
        visit.submit("/edit", &fields)
    };
    let refused = sent("application", "shop", &wider.to_string());
    assert!(refused.starts_with("HTTP/1.1 403 "), "{refused}");
    let refused = sent("resource", "x", "{\"route\": \"free\"}");
    assert!(
        refused.starts_with("HTTP/1.1 422 ") && refused.contains("is of another application"),
        "{refused}"
    );

    assert_eq!(editor.history().len(), 2, "nothing was changed");
    assert_eq!(spend(&gateway, "/free", 4), 1, "the bank's limit holds");
}

/// Two lists that have one route are an admin's mistake, which names both.
/// A condition is met by any line of its field, so a request may meet those of two routes.
#[test]
fn an_owner_takes_no_request_with_a_line_for_each_of_two_routes() {
    let (folder, url, editor) = new_database();
    editor.commit(vec![
        owning(&["everything"]),
        bank(ObjectKind::Application, "bank", json!({"routes": ["pay"]})),
    ]);
    let file = routes(&url, folder.path(), "")
        + "  - {name: everything, match: {path: /*}, respond: {status: 200}}
  - {name: pay, match: {path: /pay, headers: {x-tenant: bank}}, respond: {status: 401}}
";
    let gateway = Gateway::start(&file);
    await_revision(&gateway, 1);
    let pay = || {
        let url = gateway.url("/pay");
        status(&["-H", "x-tenant: bank", "-H", "x-tenant: shop", &url])
    };
    assert_eq!(pay(), 401);
    let rights = Rights::new("shop", ApplicationRole::Owner);
    let owner = Port::of(&gateway, &editor, "owner", rights);
    let part =
        json!({"route": "everything", "match": {"path": "/pay", "headers": {"x-tenant": "shop"}}});
    let answer = owner.put(&format!("{SHOP}/resources/pay?reason=x"), "", &part);
    let expected = (
        422,
        "applications.shop.resources.pay.match",
        "some of its requests are those of route \"pay\"",
        "narrow it: a part has only requests that its own route has without it",
    );
    assert_eq!(mistake(&answer), expected);
    assert_eq!(pay(), 401);
}

#[test]
fn a_route_is_given_to_one_application_alone() {
    let Scene {
        gateway,
        editor,
        folder: _folder,
    } = Scene::of(first_edits());
    let admin = Port::admin(&gateway, &editor);
    let bank = "/policies/applications/bank?reason=x";
    let refused = admin.put(bank, "", &json!({"routes": ["free", "orders"]}));
    let (status, path, message, _) = mistake(&refused);
    assert_eq!((status, path), (422, "applications.shop.routes[0]"));
    assert!(
        message.contains("\"bank\"") && message.contains("\"shop\""),
        "{message}"
    );
    assert_eq!(
        admin.put(bank, "", &json!({"routes": ["free"]})).status,
        200
    );
    let gone = admin.put(bank, "*", &json!({"routes": ["fee"]}));
    let expected = (
        422,
        "applications.bank.routes[0]",
        "the file has no route \"fee\"",
        "did you mean \"free\"?",
    );
    assert_eq!(mistake(&gone), expected);
}

/// The file of the node has changed since: nothing can be saved until an admin mends it, and an
/// owner of the shop learns no more of the bank than that.
#[test]
fn mistakes_of_another_application_are_not_told() {
    let (folder, url, editor) = new_database();
    let secret = json!({"limit": {"key": "client_ip", "rate": "secret"}, "resources": ["all"]});
    let gateway = Gateway::start(&routes(&url, folder.path(), ""));
    editor.commit(first_edits());
    await_revision(&gateway, 1);
    editor.commit(vec![
        bank(ObjectKind::Application, "bank", json!({"routes": ["free"]})),
        bank(ObjectKind::Resource, "all", json!({"route": "free"})),
        bank(ObjectKind::Strategy, "few", secret),
    ]);
    let owner = Port::of(
        &gateway,
        &editor,
        "owner",
        Rights::new("shop", ApplicationRole::Owner),
    );
    let admin = Port::admin(&gateway, &editor);
    let few = format!("{SHOP}/strategies/few?reason=x");
    let strategy =
        |rate: &str| json!({"limit": {"key": "client_ip", "rate": rate}, "resources": ["all"]});
    let theirs = "mistakes in applications that owner may not look at: ask an admin";
    let refused = owner.put(&few, "*", &strategy("1/s"));
    assert_eq!(
        (refused.status, &refused.body["detail"]),
        (422, &json!(format!("the policies would have {theirs}")))
    );
    let refused = owner.put(&few, "*", &strategy("fast"));
    let (_, path, message, _) = mistake(&refused);
    assert_eq!(
        (path, refused.body["mistakes"].as_array().unwrap().len()),
        ("applications.shop.strategies.few.limit.rate", 1)
    );
    assert!(
        message.contains("fast") && !refused.body.to_string().contains("secret"),
        "{refused:?}"
    );
    let told = admin.put(&few, "*", &strategy("1/s")).body.to_string();
    assert!(
        told.contains("secret") && told.contains("applications.bank.strategies.few.limit.rate"),
        "{told}"
    );
}

/// A role in an application is none in another one that comes to have its name.
#[test]
fn roles_go_with_their_application() {
    let Scene {
        gateway,
        editor,
        folder: _folder,
    } = Scene::of(first_edits());
    let admin = Port::admin(&gateway, &editor);
    let owner = Port::of(
        &gateway,
        &editor,
        "owner",
        Rights::new("shop", ApplicationRole::Owner),
    );
    let few = format!("{SHOP}/strategies/few");
    assert_eq!(owner.get(&few).status, 200);
    let nothing = json!({"applications": {}});
    let trial = admin.post("/policies?mode=replace&reason=x&dry_run=true", &nothing);
    assert_eq!(
        (trial.status, owner.get(&few).status),
        (200, 200),
        "a trial takes no roles: {trial:?}"
    );
    assert_eq!(
        admin
            .post("/policies?mode=replace&reason=x", &nothing)
            .status,
        200
    );
    assert_eq!(
        admin
            .send("POST", "/policies/revisions/2/undo?reason=x", &[], None)
            .status,
        200
    );
    assert_eq!(
        admin.get(&few).status,
        200,
        "the application is there again"
    );
    assert_eq!(owner.get(&few).status, 403);
    let entries = editor
        .wait(
            editor
                .database
                .people()
                .audit(tollgate_policies::database::Page::default()),
        )
        .unwrap();
    let taken = entries
        .iter()
        .find(|entry| entry.record.object == "account owner")
        .unwrap();
    assert_eq!(taken.record.detail, "had a role in shop, which was removed");
    assert_eq!(
        (&*taken.record.account, &*taken.record.action),
        ("ada", "account_change")
    );
}

/// An owner who divides a route into parts does not get a limit of the file once for each.
#[test]
fn the_parts_of_a_route_are_that_route_to_a_limit_of_the_file() {
    let (folder, url, editor) = new_database();
    editor.commit(first_edits());
    let file = routes(
        &url,
        folder.path(),
        "limits: {whole: {key: route, rate: 1/h, burst: 4}}",
    );
    let gateway = Gateway::start(&file.replace("name: orders,", "name: orders, limits: [whole],"));
    await_revision(&gateway, 1);
    let part = |path: &str| json!({"route": "orders", "match": {"path": path}});
    editor.commit(vec![
        crate::editor::edit(ObjectKind::Resource, "one", part("/orders/one")),
        crate::editor::edit(ObjectKind::Resource, "two", part("/orders/two")),
        ObjectEdit {
            body: None,
            ..crate::editor::edit(ObjectKind::Strategy, "few", json!({}))
        },
    ]);
    await_revision(&gateway, 2);
    let passed =
        ["/orders/one", "/orders/two", "/orders/three"].map(|path| spend(&gateway, path, 2));
    assert_eq!(passed, [2, 2, 0]);
}
