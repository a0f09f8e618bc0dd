use serde_json::json;

use super::*;

#[test]
fn a_body_becomes_a_form_and_the_form_the_body() {
    for (kind, body) in [
        (
            ObjectKind::Strategy,
            json!({"limit": {"key": [{"header": "x"}, "route"], "rate": "10/s", "burst": 20, "hidden": true},
                "resources": ["all"], "client": "client_ip",
                "candidate": {"limit": {"key": "client_ip", "rate": "5/s"}, "on": {"nodes": ["a-*"]}, "over": "5s"}}),
        ),
        (
            ObjectKind::Resource,
            json!({"route": "orders", "match": {"path": "/a", "methods": ["GET"]}}),
        ),
        (ObjectKind::Plan, json!({"limits": {"a": {"rate": "1/s"}}})),
        (
            ObjectKind::Application,
            json!({"description": "12", "routes": ["orders", "items"]}),
        ),
        (ObjectKind::Application, json!({"routes": ["orders"]})),
        (ObjectKind::Assignment, json!({"plan": "gold"})),
    ] {
        let mut shown = of_body(kind, &body);
        assert_eq!(super::body(kind, &mut shown), Some(body), "{shown:?}");
        let sent: Pairs = shown
            .iter()
            .map(|field| (field.name.clone(), field.value.clone()))
            .collect();
        assert_eq!(of_form(kind, &sent), shown);
    }
}

#[test]
fn a_value_has_quotation_marks_where_it_needs_them() {
    for (value, written) in [
        (json!(["all", "checkout"]), "[all, checkout]"),
        (
            json!([{"header": "x-client"}, "route"]),
            "[{header: x-client}, route]",
        ),
        (json!(["10", "a, b"]), "[\"10\",\"a, b\"]"),
        (json!({"a": "b: c"}), "{\"a\":\"b: c\"}"),
        (json!([1, true]), "[1, true]"),
    ] {
        assert_eq!(in_one_line(&value), written);
        assert_eq!(read(written), Ok(Some(value)));
    }
}

#[test]
fn routes_that_are_ticked_become_a_list() {
    for (ticked, list) in [
        (&[][..], None),
        (&["a"], Some(json!(["a"]))),
        (&["a", "b", "c"], Some(json!(["a", "b", "c"]))),
    ] {
        let sent = ticked
            .iter()
            .map(|route| (ROUTES.to_owned(), (*route).to_owned()))
            .collect();
        let body = body(
            ObjectKind::Application,
            &mut of_form(ObjectKind::Application, &sent),
        )
        .unwrap();
        assert_eq!(body.get(ROUTES).cloned(), list);
    }
}

#[test]
fn a_mistake_stands_beside_its_field() {
    let mut shown = of_body(ObjectKind::Strategy, &json!({"limit": {"rate": "fast"}}));
    let place = "applications.shop.strategies.few";
    let mut mistakes = Vec::new();
    for path in [
        "applications.shop.strategies.few.limit.rate",
        "applications.shop.strategies.few.resources[0]",
        "routes[0]",
    ] {
        mistakes.push(MistakeView {
            path: path.to_owned(),
            ..mistake("wrong", "mend it")
        });
    }
    let other = mistakes[2].clone();
    let elsewhere = place_mistakes(&mut shown, place, mistakes);
    let beside: Vec<_> = shown
        .iter()
        .filter(|field| !field.mistakes.is_empty())
        .map(|field| &*field.name)
        .collect();
    assert_eq!(beside, ["limit.rate", "resources"]);
    assert_eq!(elsewhere, [other]);
}

#[test]
fn what_cannot_be_read_is_told_beside_its_field() {
    let sent = vec![
        ("limit.key".to_owned(), "[a".to_owned()),
        (OTHERS.to_owned(), String::new()),
    ];
    let mut shown = of_form(ObjectKind::Strategy, &sent);
    assert_eq!(body(ObjectKind::Strategy, &mut shown), None);
    assert!(!shown[0].mistakes.is_empty());
    let mut shown = of_form(
        ObjectKind::Plan,
        &vec![(OTHERS.to_owned(), "- a".to_owned())],
    );
    assert_eq!(body(ObjectKind::Plan, &mut shown), None);
    assert_eq!(shown[1].mistakes[0].message, "this is no mapping");
}
