//! Revisions that do not fit a node's file.

use serde_json::json;
use tollgate_policies::model::ObjectKind;
use tollgate_policies::people::{ApplicationRole, Rights};

use crate::editor::{
    APPLIED, REFUSED, REVISION, await_log, await_revision, edit, first_edits, owning, routes,
    spend, strategy,
};
use crate::process::{Gateway, curl, eventually};
use crate::scene::new_database;

const REJECTED: &str = "tollgate_config_reloads_total{outcome=\"rejected\"}";

#[test]
fn a_revision_that_names_a_route_which_is_gone_is_refused_until_the_file_has_it() {
    let (folder, url, editor) = new_database();
    editor.commit(first_edits());
    let session = editor.sign_in();
    let written = routes(&url, folder.path(), "");
    let node = Gateway::start(&written);
    let carts = edit(ObjectKind::Resource, "carts", json!({"route": "carts"}));
    let owned = owning(&["orders", "items", "carts"]);
    editor.commit(vec![
        owned,
        carts,
        strategy("carts", 1, "carts"),
        strategy("few", 9, "all"),
    ]);
    eventually("the revision is refused", || {
        (node.metric(REFUSED) == 1.0).then_some(())
    });
    await_log(
        &node,
        "policies of revision 2: applications.shop.routes[2]: the file has no route",
    );
    let console = curl(&["-H", &session, &format!("http://{}/console", node.admin)]);
    assert!(
        console.contains("has no route") && console.contains("Revision 2 of the policies"),
        "{console}"
    );
    editor.make_account("vera", Rights::new("bank", ApplicationRole::Owner));
    for page in ["/console", "/console/data?view=overview"] {
        let seen = curl(&[
            "-H",
            &editor.begin_session("vera"),
            &format!("http://{}{page}", node.admin),
        ]);
        assert!(
            seen.contains("an operator finds in the log what is wrong")
                && !seen.contains("has no route"),
            "{seen}"
        );
    }
    // The whole revision: its good parts neither.
    assert_eq!(
        (
            node.metric(REVISION),
            node.metric(APPLIED),
            spend(&node, "/orders/1", 5)
        ),
        (1.0, 0.0, 3)
    );
    let carts = "  - {name: carts, match: {path: /carts}, respond: {status: 200}}\n";
    node.rewrite(&format!("{written}{carts}"));
    await_revision(&node, 2);
    assert_eq!((node.metric(APPLIED), spend(&node, "/carts", 3)), (1.0, 1));
    let console = curl(&["-H", &session, &format!("http://{}/console", node.admin)]);
    assert!(!console.contains("has no route"), "{console}");
    // Without the route again, neither revision nor file can go on alone.
    node.rewrite(&written);
    eventually("the file is refused", || {
        (node.metric(REJECTED) == 1.0).then_some(())
    });
    assert_eq!((node.metric(REVISION), spend(&node, "/carts", 3)), (2.0, 0));
}

#[test]
fn a_file_that_changes_keeps_the_revision_that_runs_when_the_newest_does_not_fit() {
    let (folder, url, editor) = new_database();
    editor.commit(first_edits());
    let written = routes(&url, folder.path(), "");
    let node = Gateway::start(&written);
    editor.commit(vec![edit(
        ObjectKind::Resource,
        "carts",
        json!({"route": "carts"}),
    )]);
    eventually("the revision is refused", || {
        (node.metric(REFUSED) == 1.0).then_some(())
    });
    node.rewrite(&written.replace("path: /free", "path: /gratis"));
    eventually("the file is applied", || {
        (spend(&node, "/gratis", 1) == 1).then_some(())
    });
    assert_eq!(
        (node.metric(REVISION), spend(&node, "/orders/1", 5)),
        (1.0, 3)
    );
    // A file that nobody can read keeps no policies back.
    node.rewrite("listeners: [");
    eventually("the file is refused", || {
        (node.metric(REJECTED) == 1.0).then_some(())
    });
    editor.commit(vec![
        edit(ObjectKind::Resource, "carts", json!({"route": "items"})),
        strategy("carts", 2, "carts"),
    ]);
    await_revision(&node, 3);
    assert_eq!(spend(&node, "/items", 3), 2);
}

#[test]
fn an_object_of_a_wrong_shape_is_told_by_its_place() {
    let (folder, url, editor) = new_database();
    editor.commit(first_edits());
    let node = Gateway::start(&routes(&url, folder.path(), ""));
    editor.commit(vec![edit(
        ObjectKind::Assignment,
        "ada",
        json!({"plan": "gold", "until": "june"}),
    )]);
    await_log(
        &node,
        "applications.shop.clients.ada: an assignment names a plan, and nothing else",
    );
    assert_eq!((node.metric(REVISION), node.metric(REFUSED)), (1.0, 1.0));
}
