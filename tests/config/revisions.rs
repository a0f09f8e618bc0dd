//! Revisions of policies laid over a file one after the other: an application that has not changed
//! is not read again, and nobody can tell.

use std::fs;
use std::sync::Arc;

use serde_json::{Value as Json, json};
use tempfile::TempDir;
use tollgate_config::{Ground, read_ground};
use tollgate_policies::model::{Object, ObjectChange, ObjectId, ObjectKind, PolicyState, Position};
use tollgate_policies::time::UnixTime;

const ROUTES: [&str; 4] = ["orders", "items", "carts", "bills"];

/// A route that the file does not have, and that is like none of these.
const GONE: &str = "x";

/// A file with some routes.
struct File(TempDir);

impl File {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let route =
            |name| format!("  - {{name: {name}, match: {{path: '/{name}/*'}}, echo: true}}\n");
        let routes: String = ROUTES.map(route).concat();
        let head = "
listeners: [{address: '127.0.0.1:0'}]
node_name: edge-1
defaults: {limits: {burst: 20}}
limits: {shop.one: {key: client_ip, rate: 1/s}}
upstreams: {cheap: {endpoints: ['http://127.0.0.1:1']}, dear: {endpoints: ['http://127.0.0.1:2']}}
routes:
";
        fs::write(folder.path().join("routes.yaml"), format!("{head}{routes}")).unwrap();
        Self(folder)
    }

    /// The file as a node reads it that begins.
    fn ground(&self) -> Ground {
        read_ground(&self.0.path().join("routes.yaml")).0.unwrap()
    }
}

fn object(kind: ObjectKind, application: &str, name: &str, body: Json) -> Arc<Object> {
    let id = match kind {
        ObjectKind::Application => ObjectId::of_application(application),
        kind => ObjectId::new(kind, application, name),
    };
    Arc::new(Object {
        id: id.unwrap(),
        body: Arc::new(body),
        created: 1,
        created_by: "ada".into(),
        created_at: UnixTime::from_millis(0),
        changed_by: "ada".into(),
        changed_at: UnixTime::from_millis(0),
        since: 1,
    })
}

fn set(object: &Arc<Object>) -> ObjectChange {
    ObjectChange {
        id: object.id.clone(),
        before: None,
        after: Some(object.clone()),
    }
}

fn advanced(state: &PolicyState, changes: &[ObjectChange]) -> PolicyState {
    state.advanced(
        changes,
        Position {
            revision: state.revision() + 1,
            ..state.position()
        },
    )
}

/// An object as somebody may write it: a few of them do not fit.
fn any_object() -> Arc<Object> {
    let application = ["shop", "bank", "desk"][fastrand::usize(..3)];
    let name = ["one", "two"][fastrand::usize(..2)];
    let route = ROUTES
        .get(fastrand::usize(..=ROUTES.len()))
        .unwrap_or(&GONE);
    let limit =
        || json!({"key": {"header": "x-client"}, "rate": format!("{}/s", fastrand::u32(1..9))});
    let (kind, body) = match fastrand::usize(..12) {
        0 => (
            ObjectKind::Application,
            json!({"routes": [route], "upstreams": ["cheap"]}),
        ),
        1 => (
            ObjectKind::Application,
            json!({"routes": [route], "description": "for people"}),
        ),
        2 => (
            ObjectKind::Resource,
            json!({"route": route, "match": {"path": format!("/{route}/{name}")}}),
        ),
        3 => (
            ObjectKind::Strategy,
            json!({"limit": limit(), "resources": [name]}),
        ),
        6 => (ObjectKind::Resource, json!({"route": route})),
        7 => (
            ObjectKind::Resource,
            json!({"route": route, "match": {"path": {"regex": format!("^/{route}/{name}")}}}),
        ),
        8 => {
            let mut limit = limit();
            limit["on_limit"] = json!({"degrade": {"upstream": "cheap"}});
            (
                ObjectKind::Strategy,
                json!({"limit": limit, "resources": ["one", "two"]}),
            )
        }
        9 => {
            let on = [
                json!("shadow"),
                json!({"nodes": ["edge-*"]}),
                json!({"nodes": ["core"]}),
            ];
            let candidate = json!({"limit": limit(), "on": on[fastrand::usize(..3)]});
            (
                ObjectKind::Strategy,
                json!({"limit": limit(), "resources": [name], "candidate": candidate}),
            )
        }
        10 => (ObjectKind::Strategy, json!({"resources": [name]})),
        4 => (
            ObjectKind::Plan,
            json!({"limits": {name: {"rate": format!("{}/s", fastrand::u32(0..9))}}}),
        ),
        5 => (ObjectKind::Assignment, json!({"plan": name})),
        _ => (
            ObjectKind::ApiKey,
            json!({"key_sha256": format!("{:064x}", fastrand::u8(..4))}),
        ),
    };
    object(kind, application, name, body)
}

#[test]
fn a_revision_comes_to_what_it_does_on_a_node_that_begins_with_it() {
    let (file, node) = (File::new(), Arc::from("edge-1"));
    let kept = file.ground();
    let (mut good, mut bad) = (0, 0);
    let (mut state, mut last_good) = (PolicyState::empty(), PolicyState::empty());
    for _ in 0..400 {
        let change = any_object();
        let taken_away = ObjectChange {
            id: change.id.clone(),
            before: None,
            after: None,
        };
        let next = advanced(
            &state,
            &[if fastrand::u8(..4) == 0 {
                taken_away
            } else {
                set(&change)
            }],
        );
        let (anew, checked) = (file.ground().on(&node, &next), file.ground().fits(&next));
        assert!(kept.fits(&next) == checked, "{change:?} after {state:?}");
        assert!(kept.on(&node, &next) == anew, "{change:?} after {state:?}");
        let again = kept.fits(&next);
        assert!(again == checked, "{change:?}: {again:?} {checked:?}");
        // A database has good revisions alone, but not to each file.
        if anew.is_ok() {
            good += 1;
            last_good = next.clone();
        } else {
            bad += 1;
        }
        state = if anew.is_ok() || fastrand::u8(..3) == 0 {
            next
        } else {
            last_good.clone()
        };
    }
    assert!(good > 15 && bad > 15, "{good} good, {bad} bad");
}

#[test]
fn warnings_come_in_one_order_whichever_application_has_changed() {
    let (file, node) = (File::new(), Arc::from("edge-1"));
    let kept = file.ground();
    let warned = |application: &str, route: &str, name: &str| {
        let part = json!({"route": route, "match": {"path": format!("/{route}/:{name}")}});
        let without_limit = json!({"resources": [name]});
        [
            set(&object(
                ObjectKind::Application,
                application,
                "",
                json!({"routes": [route]}),
            )),
            set(&object(ObjectKind::Resource, application, name, part)),
            set(&object(
                ObjectKind::Strategy,
                application,
                name,
                without_limit,
            )),
        ]
    };
    let first = advanced(
        &PolicyState::empty(),
        &[warned("bank", "orders", "a"), warned("shop", "items", "a")].concat(),
    );
    let second = advanced(&first, &warned("bank", "orders", "b"));
    for state in [first, second] {
        let anew = file.ground().on(&node, &state).unwrap();
        let places: Vec<_> = anew
            .warnings
            .iter()
            .map(|warning| warning.to_string())
            .collect();
        assert!(kept.on(&node, &state).unwrap() == anew, "{places:?}");
        assert!(places.len() >= 4, "{places:?}");
    }
}

#[test]
fn a_mistake_in_an_unchanged_application_is_one_of_the_newest_revision() {
    let (ground, node) = (File::new().ground(), Arc::from("edge-1"));
    let shop = object(
        ObjectKind::Application,
        "shop",
        "",
        json!({"routes": ["orders"]}),
    );
    let bank = object(
        ObjectKind::Application,
        "bank",
        "",
        json!({"routes": ["items"]}),
    );
    let first = advanced(&PolicyState::empty(), &[set(&shop), set(&bank)]);
    assert!(ground.on(&node, &first).is_ok());
    // By name, the shop is the second of the two.
    let bank = object(
        ObjectKind::Application,
        "bank",
        "",
        json!({"routes": ["orders"]}),
    );
    let second = advanced(&first, &[set(&bank)]);
    let mistakes = ground.on(&node, &second).unwrap_err().to_string();
    let expected = "policies of revision 2: applications.shop.routes[0]: route \"orders\" is of application \"bank\"";
    assert!(mistakes.contains(expected), "{mistakes}");
}

#[test]
fn an_application_has_a_bounded_number_of_bytes() {
    let (ground, node) = (File::new().ground(), Arc::from("edge-1"));
    let shop = object(
        ObjectKind::Application,
        "shop",
        "",
        json!({"routes": ["orders"]}),
    );
    let part = |at: usize| {
        let value = "x".repeat(63 << 10);
        let conditions = json!({"path": "/orders/part", "headers": {"x-part": value}});
        object(
            ObjectKind::Resource,
            "shop",
            &format!("part-{at}"),
            json!({"route": "orders", "match": conditions}),
        )
    };
    let state = |parts: usize| {
        let parts = (0..parts).map(part);
        PolicyState::new(
            Position {
                revision: 1,
                ..Position::default()
            },
            parts.chain([shop.clone()]),
        )
    };
    // Whatever else is wrong with them.
    let told = |parts| ground.on(&node, &state(parts)).unwrap_err().to_string();
    assert!(!told(900).contains("64MiB"));
    assert!(
        told(1_100).contains("applications.shop: application \"shop\" has over 64MiB"),
        "{}",
        told(1_100)
    );
}

#[test]
fn an_application_has_a_bounded_number_of_values() {
    let (ground, node) = (File::new().ground(), Arc::from("edge-1"));
    let shop = object(
        ObjectKind::Application,
        "shop",
        "",
        json!({"routes": ["orders"]}),
    );
    let strategy = |at: usize| {
        let limit = json!({"key": vec![1; 4_000], "rate": "1/s"});
        object(
            ObjectKind::Strategy,
            "shop",
            &format!("s{at}"),
            json!({"limit": limit, "resources": ["one"]}),
        )
    };
    let state = |strategies: usize| {
        let strategies = (0..strategies).map(strategy);
        PolicyState::new(
            Position {
                revision: 1,
                ..Position::default()
            },
            strategies.chain([shop.clone()]),
        )
    };
    let told = |strategies| {
        ground
            .on(&node, &state(strategies))
            .unwrap_err()
            .to_string()
    };
    assert!(!told(2).contains("values"));
    let beyond = told(250);
    assert!(
        beyond.contains("applications.shop: application \"shop\" has over 1000000 values"),
        "{beyond}"
    );
}
