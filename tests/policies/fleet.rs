//! Nodes that follow: a change reaches all of them as a whole, however large it is.

use serde_json::json;
use tollgate_limiter::clock;
use tollgate_limiter::limit::key::Key;
use tollgate_limiter::store::inspect::{ChangeNotice, Inspect as _};
use tollgate_limiter::store::redis::inspect::RedisInspector;
use tollgate_limiter::store::redis::spec::RedisSpec;
use tollgate_policies::model::ObjectKind;
use tollgate_testing::redis::RedisServer;

use crate::editor::{
    APPLIED, Editor, await_revision, edit, first_edits, owning, routes, spend, strategy,
};
use crate::process::{Gateway, status};
use crate::scene::new_database;

#[test]
fn a_change_reaches_all_nodes_as_a_whole_and_leaves_other_buckets_alone() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let url = format!("sqlite://{}/policies.db", folders[0].path().display());
    let editor = Editor::of(&url);
    assert_eq!(editor.commit(first_edits()), 1);
    let nodes = folders
        .each_ref()
        .map(|folder| Gateway::start(&routes(&url, folder.path(), "")));
    for node in &nodes {
        assert_eq!(node.metric(APPLIED), 0.0);
        await_revision(node, 1);
        assert_eq!(spend(node, "/orders/1", 2), 2);
    }
    let more = vec![
        edit(
            ObjectKind::Resource,
            "checkout",
            json!({"route": "orders", "match": {"path": "/orders/checkout"}}),
        ),
        strategy("checkouts", 1, "checkout"),
        strategy("items", 2, "items"),
    ];
    assert_eq!(editor.commit(more), 2);
    for node in &nodes {
        await_revision(node, 2);
        assert_eq!(node.metric(APPLIED), 1.0);
        assert_eq!(spend(node, "/items", 4), 2);
        // A token of the three is left, and the limit of the whole route counts its part, too.
        assert_eq!(spend(node, "/orders/checkout", 3), 1);
        assert_eq!(
            (spend(node, "/orders/1", 2), spend(node, "/free", 2)),
            (0, 2)
        );
    }
}

#[test]
fn a_hundred_thousand_assignments_are_taken_over_at_once_and_changed_one_by_one() {
    let (folder, url, editor) = new_database();
    let limit = json!({"key": {"header": "x-client"}, "rate": "1/h", "burst": 1});
    let mut edits = vec![
        owning(&["orders"]),
        edit(ObjectKind::Resource, "all", json!({"route": "orders"})),
        edit(
            ObjectKind::Strategy,
            "per-client",
            json!({"limit": limit, "resources": ["all"]}),
        ),
        edit(
            ObjectKind::Plan,
            "gold",
            json!({"limits": {"per-client": {"rate": "1/h", "burst": 4}}}),
        ),
    ];
    let assigned = |client: &str| edit(ObjectKind::Assignment, client, json!({"plan": "gold"}));
    edits.extend((0..100_000).map(|client| assigned(&format!("c{client}"))));
    editor.commit(edits);
    let node = Gateway::start(&routes(&url, folder.path(), ""));
    let passes = |client: &str| {
        let header = format!("x-client: {client}");
        (0..6)
            .filter(|_| status(&["-H", &header, &node.url("/orders/1")]) == 200)
            .count()
    };
    assert_eq!((passes("c77777"), passes("other")), (4, 1));
    editor.commit(vec![assigned("later")]);
    await_revision(&node, 2);
    assert_eq!((passes("later"), passes("c99999")), (4, 4));
}

/// Told of a revision, nodes do not wait for their next look.
#[test]
fn a_notice_in_redis_is_faster_than_looking_each_second() {
    let redis = RedisServer::start();
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let url = format!("sqlite://{}/policies.db", folders[0].path().display());
    let editor = Editor::of(&url);
    let mut number = editor.commit(first_edits());
    let store = format!("store: {{redis: '{}', timeout: 5s}}", redis.url());
    let nodes = folders
        .each_ref()
        .map(|folder| Gateway::start(&routes(&url, folder.path(), &store)));
    nodes.iter().for_each(|node| await_revision(node, number));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let inspector = runtime
        .block_on(async { RedisInspector::connect(&RedisSpec::new(redis.url().as_str())) })
        .unwrap();
    // The notice of a revision, as the node publishes it through which it was committed.
    let notice = ChangeNotice {
        key: Key::from("!policies"),
        full_in_us: 0,
    };
    let mut took = |announced: bool| {
        let began = clock::now();
        for _ in 0..8 {
            number = editor.commit(vec![strategy("few", 3 + number, "all")]);
            if announced {
                runtime.block_on(inspector.publish(&notice)).unwrap();
            }
            nodes.iter().for_each(|node| await_revision(node, number));
        }
        clock::now().saturating_duration_since(began)
    };
    // A busy machine may hold up any round of them.
    let is_faster = (0..10).any(|_| took(true).mul_f64(1.5) < took(false));
    assert!(is_faster, "revisions arrive no sooner with notices");
}
