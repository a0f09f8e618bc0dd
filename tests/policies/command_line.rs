//! `tollgate policy`: a file in and out, and the history as people read it.

use tollgate_policies::people::{ApplicationRole, Rights};

use crate::editor::{await_revision, spend};
use crate::port::{Port, file};
use crate::scene::Scene;

const TRIED: &str = "
applications:
  shop:
    routes: [orders]
    resources: {all: {route: orders}}
    strategies:
      few:
        limit: {key: {constant: all}, rate: 1/h, burst: 3}
        resources: [all]
        candidate: {limit: {key: {constant: all}, rate: 1/h, burst: 5}, on: shadow}
";

const FILE: &str = "
applications:
  shop:
    description: The shop's API
    routes: [orders]
    resources: {all: {route: orders}}
    strategies:
      few: {limit: {key: {constant: all}, rate: 1/h, burst: 3}, resources: [all]}
";

#[test]
fn a_file_goes_in_and_comes_out_and_its_history_is_read_and_taken_back() {
    let Scene {
        gateway,
        editor,
        folder,
    } = Scene::empty();
    let port = Port::admin(&gateway, &editor);
    let path = file(folder.path(), "policies.yaml", FILE);
    assert_eq!(port.policy_text(&["history"]), "there is no revision yet\n");
    let checked = port.policy_text(&["check", &path]);
    assert!(
        checked.starts_with("this would change:\n")
            && checked.contains("strategy shop/few  (new)\n"),
        "{checked}"
    );
    let imported = port.policy_text(&["import", &path, "--reason", "the first"]);
    assert!(
        imported.starts_with("revision 1  ") && imported.contains("  + limit.burst: 3\n"),
        "{imported}"
    );
    await_revision(&gateway, 1);
    assert_eq!(spend(&gateway, "/orders/1", 5), 3);

    let exported = port.policy_text(&["export"]);
    assert!(exported.contains("burst: 3"), "{exported}");
    let again = file(folder.path(), "again.yaml", &exported);
    assert_eq!(
        port.policy_text(&["check", &again]),
        "nothing differs\n",
        "what comes out goes in unchanged"
    );

    let head = exported.lines().next().unwrap();
    let upon = head
        .split_whitespace()
        .find(|word| word.starts_with("1-"))
        .unwrap_or_else(|| panic!("{head}"));

    let larger = file(
        folder.path(),
        "larger.yaml",
        &FILE.replace("burst: 3", "burst: 5"),
    );
    port.policy_text(&["import", &larger, "--reason", "more"]);
    // It was made from the first revision, and so was this one.
    let other = file(
        folder.path(),
        "other.yaml",
        &exported.replace("burst: 3", "burst: 4"),
    );
    let refused = port.policy_refusal(&["import", &other, "--upon", upon, "--reason", "fewer"]);
    assert!(refused.contains("strategy shop/few"), "{refused}");
    let beside = file(
        folder.path(),
        "beside.yaml",
        &exported.replace("API", "gateway"),
    );
    let trial = port.policy_text(&[
        "import",
        &beside,
        "--upon",
        upon,
        "--reason",
        "a word",
        "--dry-run",
    ]);
    assert_eq!(
        trial.matches("\n  + ").count(),
        1,
        "the rest is as it was exported: {trial}"
    );
    assert!(
        port.policy_refusal(&["check", &beside, "--upon", "1-ab"])
            .contains("restored, or is another")
    );
    assert_eq!(
        port.policy_text(&["check", &larger, "--upon", upon]),
        "nothing differs\n",
        "it stands already"
    );
    let lines = "strategy shop/few\n  - limit.burst: 3\n  + limit.burst: 5\n";
    assert_eq!(port.policy_text(&["diff"]), lines);
    assert_eq!(port.policy_text(&["diff", "1", "2"]), lines);
    let history = port.policy_text(&["history", "shop/strategies/few"]);
    assert!(
        history.starts_with("revision 2  ") && history.contains("\n    more\n  - limit.burst: 3\n"),
        "{history}"
    );
    let page = port.policy_text(&["history", "--limit", "1"]);
    assert!(page.ends_with("more: --before 2\n"), "{page}");
    assert!(
        port.policy_text(&["undo", "2", "--reason", "x", "--dry-run"])
            .starts_with("this would change:\n")
    );
    let undone = port.policy_text(&["undo", "2", "--reason", "too many"]);
    assert!(
        undone.contains("  - limit.burst: 5\n  + limit.burst: 3\n"),
        "{undone}"
    );
    port.policy_text(&["revert", "2", "--reason", "back"]);
    let json = port.policy_text(&["history", "--format", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["revisions"][0]["revision"], 4);

    let wrong = file(
        folder.path(),
        "wrong.yaml",
        &FILE
            .replace("1/h", "fast")
            .replace("route: orders", "route: none"),
    );
    let refused = port.policy_refusal(&["import", &wrong, "--reason", "x"]);
    assert!(
        refused.contains("applications.shop.strategies.few.limit.rate: ")
            && refused.ends_with("2 mistakes\n"),
        "{refused}"
    );
    let unknown = port.policy_refusal(&["diff", "1", "99"]);
    assert!(
        unknown.contains("there is no revision 99: the newest is 4"),
        "{unknown}"
    );
    let replaced = file(folder.path(), "none.yaml", "applications: {}\n");
    let replaced = port.policy_text(&["import", &replaced, "--replace", "--reason", "all gone"]);
    assert!(
        replaced.contains("application shop  (deleted)\n"),
        "{replaced}"
    );
    assert!(
        port.policy_refusal(&["history", "shop/few"])
            .contains("APPLICATION/KIND/NAME")
    );
}

#[test]
fn a_candidate_is_promoted_or_taken_away_by_a_command_and_by_who_may() {
    let Scene {
        gateway,
        editor,
        folder,
    } = Scene::empty();
    let port = Port::admin(&gateway, &editor);
    let path = file(folder.path(), "tried.yaml", TRIED);
    port.policy_text(&["import", &path, "--reason", "the first"]);
    let trial = port.policy_text(&["promote", "shop", "few", "--reason", "x", "--dry-run"]);
    assert!(
        trial.starts_with("this would change:\n") && trial.contains("  + limit.burst: 5\n"),
        "{trial}"
    );
    let aborted = port.policy_text(&["abort", "shop", "few", "--reason", "too early"]);
    assert!(
        aborted.starts_with("revision 2  ") && aborted.contains("  - candidate."),
        "{aborted}"
    );
    assert!(
        !aborted.contains("limit.burst: 3"),
        "what holds stays: {aborted}"
    );
    let refused = port.policy_refusal(&["promote", "shop", "few", "--reason", "x"]);
    assert!(
        refused.contains("there is no strategy shop/few with a candidate at revision 2"),
        "{refused}"
    );

    port.policy_text(&["undo", "2", "--reason", "again"]);
    let viewer = Port::of(
        &gateway,
        &editor,
        "vic",
        Rights::new("shop", ApplicationRole::Viewer),
    );
    let refused = viewer.policy_refusal(&["promote", "shop", "few", "--reason", "mine"]);
    assert!(
        refused.contains("it needs the role editor of the application shop"),
        "{refused}"
    );
    let other = Port::of(
        &gateway,
        &editor,
        "eve",
        Rights::new("cart", ApplicationRole::Owner),
    );
    other.policy_refusal(&["abort", "shop", "few", "--reason", "mine"]);
    assert_eq!(
        port.get("/policies/revisions").body["revisions"][0]["revision"],
        3
    );
    let promoted = port.policy_text(&["promote", "shop", "few", "--reason", "good"]);
    assert!(
        promoted.starts_with("revision 4  ") && promoted.contains("  + limit.burst: 5\n"),
        "{promoted}"
    );
    await_revision(&gateway, 4);
    assert_eq!(spend(&gateway, "/orders/1", 7), 5);
}
