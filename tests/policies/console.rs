//! Policies edited in the console: reviewed first, saved with a reason, refused beside the field,
//! taken back.

use serde_json::json;
use tollgate_policies::model::ObjectKind;
use tollgate_policies::people::{ApplicationRole, Rights};

use crate::editor::{await_revision, edit, first_edits, routes, spend};
use crate::port::Port;
use crate::process::Gateway;
use crate::scene::{Scene, new_database};
use crate::visit::{Visit, form, with};

const FEW: &str = "/edit?application=shop&kind=strategy&name=few";

#[test]
fn a_strategy_is_reviewed_saved_with_a_reason_and_taken_back() {
    let Scene {
        gateway,
        editor,
        folder: _folder,
    } = Scene::of(first_edits());
    let visit = Visit::of(&gateway, &editor);
    assert!(
        visit
            .page("/applications")
            .contains("href=\"/console/applications/shop\"")
    );
    let shop = visit.page("/applications/shop");
    assert!(
        shop.contains("1/h by") && shop.contains("ada, 20"),
        "{shop}"
    );

    let edited = with(form(&visit.page(FEW), "few"), &[("limit.burst", "5")]);
    let review = visit.submit("/edit", &edited);
    assert!(
        review.contains("limit.burst: 5") && review.contains("limit.burst: 3"),
        "{review}"
    );
    assert_eq!(
        gateway.metric("tollgate_policy_revision"),
        1.0,
        "nothing has changed yet"
    );
    let save = form(&review, "Save");
    let bare = visit.submit("/edit", &with(save.clone(), &[("reason", "")]));
    assert!(
        bare.starts_with("HTTP/1.1 400 "),
        "a reason is asked for: {bare}"
    );
    let saved = visit.submit("/edit", &with(save, &[("reason", "more <b>")]));
    assert!(
        saved.contains("location: /console/revisions/2?done"),
        "{saved}"
    );
    await_revision(&gateway, 2);
    assert_eq!(spend(&gateway, "/orders/1", 7), 5);
    let next = visit.page("/revisions/2?done");
    assert!(
        next.contains("Go on with <a href=\"/console/applications/"),
        "{next}"
    );
    let revision = visit.page("/revisions/2");
    assert!(
        revision.contains("more &#60;b&#62;") && !revision.contains("<b>"),
        "{revision}"
    );

    let late = visit.submit("/edit", &edited);
    assert!(
        late.starts_with("HTTP/1.1 409 ") && late.contains("Somebody was faster"),
        "{late}"
    );
    assert!(
        late.contains("href=\"/console/revisions/2\"") && late.contains("value=\"5\""),
        "{late}"
    );

    let undo = with(form(&revision, "Take it back"), &[("reason", "too many")]);
    let undone = visit.submit("/revisions/2", &undo);
    assert!(
        undone.contains("location: /console/revisions/3?done"),
        "{undone}"
    );
    assert!(visit.page("/revisions").contains("too many"));
    let deletion = visit.submit("/edit", &form(&visit.page(FEW), "Delete"));
    let deleted = visit.submit(
        "/edit",
        &with(form(&deletion, "Save"), &[("reason", "gone")]),
    );
    assert!(
        deleted.contains("location: /console/revisions/4?done"),
        "{deleted}"
    );
}

#[test]
fn a_mistake_stands_beside_its_field_and_nothing_is_saved() {
    let Scene {
        gateway,
        editor,
        folder: _folder,
    } = Scene::of(first_edits());
    let visit = Visit::of(&gateway, &editor);
    let wrong = with(
        form(&visit.page(FEW), "few"),
        &[("limit.rate", "fast"), ("resources", "[nothing]")],
    );
    let refused = visit.submit("/edit", &wrong);
    assert!(refused.starts_with("HTTP/1.1 422 "), "{refused}");
    for field in ["limit.rate", "resources"] {
        let (_, beside) = refused.split_once(&format!("id=\"hint-{field}\"")).unwrap();
        assert!(
            beside
                .split("</div>")
                .next()
                .unwrap()
                .contains("class=\"state bad\""),
            "{field}: {refused}"
        );
    }
    assert!(
        refused.contains("value=\"fast\""),
        "what was written is kept"
    );
    let port = Port::of(&gateway, &editor, "bob", Rights::admin());
    assert_eq!(
        port.get("/policies/revisions").body["revisions"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn what_a_page_cannot_read_is_refused_by_a_page() {
    let Scene {
        gateway,
        editor,
        folder: _folder,
    } = Scene::of(first_edits());
    let visit = Visit::of(&gateway, &editor);
    for odd in [
        "/applications/%ff",
        "/people/%ff",
        "/limits?page=many",
        "/revisions/first",
        "/sign-out",
        "/nowhere",
    ] {
        let (status, page) = visit.read(odd);
        assert!((400..500).contains(&status), "{odd}: {status}");
        assert!(
            page.contains("<nav") && page.contains("role=\"alert\""),
            "{odd}: {page}"
        );
    }
}

#[test]
fn a_page_shows_so_much_of_a_change_and_says_what_it_leaves_out() {
    let plans = (0..240).map(|number| {
        edit(
            ObjectKind::Plan,
            &format!("p{number}"),
            json!({"limits": {}}),
        )
    });
    let Scene {
        gateway,
        editor,
        folder: _folder,
    } = Scene::of(first_edits().into_iter().chain(plans).collect());
    let page = Visit::of(&gateway, &editor).page("/revisions/1");
    assert_eq!(page.matches("card change").count(), 200, "{page}");
    assert!(
        page.contains(&format!(
            "And {} more objects",
            240 + first_edits().len() - 200
        )),
        "{page}"
    );
}

#[test]
fn routes_are_chosen_from_those_of_the_file_and_of_the_application() {
    let (folder, url, editor) = new_database();
    let part = json!({"route": "orders", "match": {"path": "/orders/checkout"}});
    editor.commit(
        first_edits()
            .into_iter()
            .chain([edit(ObjectKind::Resource, "checkout", part)])
            .collect(),
    );
    let gateway = Gateway::start(&routes(&url, folder.path(), ""));
    let visit = Visit::of(&gateway, &editor);
    let boxes = |page: &str| {
        let boxes = page
            .split("<input type=\"checkbox\" ")
            .skip(1)
            .map(|rest| rest.split("</label>").next().unwrap());
        boxes
            .map(|one| one.strip_prefix("name=\"routes\" ").unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    // A part is no route of the file.
    let page = visit.page("/edit?application=&kind=application&name=shop");
    let expected = [
        "value=\"orders\" checked> orders",
        "value=\"items\" checked> items",
        "value=\"free\"> free",
    ];
    assert_eq!(boxes(&page), expected);
    let other = visit.page("/edit?kind=application");
    assert_eq!(boxes(&other), ["value=\"free\"> free"]);
    assert!(
        other.contains("<span class=\"taken\">orders <span class=\"hint\">of shop</span></span>"),
        "{other}"
    );

    let ticked = |page: &str, routes: &[&str], name: &str| {
        let mut fields = with(
            form(
                page,
                if name == "shop" {
                    "shop"
                } else {
                    "A new application"
                },
            ),
            &[("name", name)],
        );
        fields.retain(|(name, _)| name != "routes");
        fields.extend(
            routes
                .iter()
                .map(|route| ("routes".to_owned(), (*route).to_owned())),
        );
        visit.submit("/edit", &fields)
    };
    let refused = ticked(&other, &["free", "orders"], "bank");
    assert!(refused.starts_with("HTTP/1.1 422 "), "{refused}");
    let review = ticked(&other, &["free"], "bank");
    let saved = visit.submit(
        "/edit",
        &with(form(&review, "Save"), &[("reason", "a new one")]),
    );
    assert!(
        saved.contains("location: /console/revisions/2?done"),
        "{saved}"
    );
    assert!(
        visit
            .page("/edit?kind=application&name=bank")
            .contains("value=\"free\" checked> free")
    );
    assert!(
        ticked(&page, &["orders", "free"], "shop").starts_with("HTTP/1.1 422 "),
        "it is the bank's by now"
    );

    let resource = visit.page("/edit?application=shop&kind=resource&name=all");
    let options: Vec<_> = resource
        .split("<option ")
        .skip(1)
        .map(|one| one.split("</option>").next().unwrap())
        .collect();
    let own = ["value=\"items\">items", "value=\"orders\" selected>orders"];
    assert!(options.ends_with(&own), "{options:?}");
}

#[test]
fn a_candidate_is_promoted_on_the_page_of_its_strategy() {
    let Scene {
        gateway,
        editor,
        folder: _folder,
    } = Scene::of(first_edits());
    let visit = Visit::of(&gateway, &editor);
    assert!(
        !visit.page(FEW).contains("aria-label=\"Candidate\""),
        "there is nothing to end"
    );
    let limit = json!({"key": {"constant": "all"}, "rate": "1/h", "burst": 5});
    let mut tried = editor.body(ObjectKind::Strategy, "few");
    tried["candidate"] = json!({"limit": limit, "on": "shadow", "bounds": {"denials": "5%"}});
    editor.commit(vec![edit(ObjectKind::Strategy, "few", tried.clone())]);
    let shop = visit.page("/applications/shop");
    assert!(shop.contains("; tried out on shadow: 1/h by"), "{shop}");

    let page = visit.page(FEW);
    let review = visit.submit(
        "/edit",
        &with(form(&page, "Candidate"), &[("action", "promote")]),
    );
    assert!(
        review.contains("limit.burst: 5") && review.contains("limit.burst: 3"),
        "{review}"
    );
    let saved = visit.submit("/edit", &with(form(&review, "Save"), &[("reason", "good")]));
    assert!(
        saved.contains("location: /console/revisions/3?done"),
        "{saved}"
    );
    await_revision(&gateway, 3);
    assert_eq!(
        editor.body(ObjectKind::Strategy, "few"),
        json!({"limit": limit, "resources": ["all"]})
    );
    let late = visit.submit(
        "/edit",
        &with(form(&page, "Candidate"), &[("action", "abort")]),
    );
    assert!(late.contains("has no candidate any more"), "{late}");
}

#[test]
fn a_role_is_given_in_one_of_the_applications_that_there_are() {
    let (folder, url, editor) = new_database();
    editor.make_account("vera", Rights::new("gone", ApplicationRole::Viewer));
    let gateway = Gateway::start(&routes(&url, folder.path(), ""));
    let visit = Visit::of(&gateway, &editor);
    let offered = || {
        let page = visit.page("/people/vera");
        let (_, list) = page
            .split_once("name=\"application\">")
            .unwrap_or_else(|| panic!("no list: {page}"));
        let list = list.split("</select>").next().unwrap();
        list.split("<option>")
            .skip(1)
            .map(|one| one.split('<').next().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        offered(),
        ["gone"],
        "a role in what is gone can be taken back"
    );
    editor.commit(first_edits());
    assert_eq!(offered(), ["gone", "shop"]);
}
