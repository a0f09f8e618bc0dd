//! Candidates of strategies: who acts on them, and how they end.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};
use tempfile::TempDir;
use tollgate_limiter::clock;
use tollgate_policies::model::{ObjectKind, Revision};
use tollgate_testing::upstream::{OK, ScriptedUpstream};
use tollgate_testing::{pace, turns};

use crate::editor::{Editor, await_log, await_revision, copy, edit, owning, routes};
use crate::front::{Fault, Front};
use crate::process::{Gateway, curl, eventually, status};
use crate::scene::new_database;
use crate::servers::{Product, TestDatabase};
use crate::traffic::Traffic;

const STOPPED: &str = "tollgate_policy_rollouts_total{outcome=\"stopped\"}";
const ABORTED: &str = "tollgate_policy_rollouts_total{outcome=\"aborted\"}";
const PROMOTED: &str = "tollgate_policy_rollouts_total{outcome=\"promoted\"}";

/// A limit of so many requests of each client.
fn limit(burst: u64) -> Json {
    json!({"key": {"header": "x-client"}, "rate": "1/h", "burst": burst})
}

/// A limit that denies nobody here.
fn generous() -> Json {
    json!({"key": {"header": "x-client"}, "rate": "100000/s"})
}

/// A strategy with a generous limit of all orders, and this candidate.
fn tried(candidate: &Json) -> Json {
    json!({"limit": generous(), "resources": ["all"], "candidate": candidate})
}

/// A candidate of one request of each client, which may deny 5 % of them.
fn tight(on: &Json) -> Json {
    json!({"limit": limit(1), "on": on, "bounds": {"denials": "5%"}, "over": "2s"})
}

/// Nodes that follow a database, each in a folder of its own.
struct Nodes {
    folders: Vec<TempDir>,
    url: String,
    nodes: Vec<Gateway>,
}

impl Nodes {
    fn start(url: &str, names: &[&str]) -> Self {
        let folders: Vec<TempDir> = names.iter().map(|_| tempfile::tempdir().unwrap()).collect();
        let start = |(name, folder): (&&str, &TempDir)| {
            Gateway::start(&Self::file(url, folder.path(), name))
        };
        let nodes = names.iter().zip(&folders).map(start).collect();
        Self {
            folders,
            url: url.to_owned(),
            nodes,
        }
    }

    fn file(url: &str, folder: &Path, name: &str) -> String {
        routes(url, folder, &format!("node_name: {name}"))
    }

    /// Ends a node when it has its copy of `revision`.
    fn end(&mut self, at: usize, revision: u64) {
        let copy = copy(self.folders[at].path());
        let words = format!("\"revision\":{revision}");
        eventually("the copy is written", || {
            fs::read_to_string(&copy)
                .ok()?
                .contains(&words)
                .then_some(())
        });
        let mut node = self.nodes.remove(at);
        node.signal("TERM");
        assert!(node.wait().success());
    }

    fn begin_again(&mut self, at: usize, name: &str) {
        let node = Gateway::start(&Self::file(&self.url, self.folders[at].path(), name));
        self.nodes.insert(at, node);
    }

    fn await_revision(&self, revision: u64) {
        self.nodes
            .iter()
            .for_each(|node| await_revision(node, revision));
    }

    /// The sum of a metric over all nodes.
    fn sum(&self, series: &str) -> f64 {
        self.nodes.iter().map(|node| node.metric(series)).sum()
    }
}

/// A database of SQLite that holds resources, and a strategy with this candidate.
fn sqlite(folder: &Path, candidate: &Json) -> (String, Editor) {
    fs::create_dir(folder.join("database")).unwrap();
    let url = format!("sqlite://{}/database/policies.db", folder.display());
    let editor = Editor::of(&url);
    commit(&editor, candidate);
    (url, editor)
}

fn commit(editor: &Editor, candidate: &Json) -> u64 {
    editor.commit(vec![
        owning(&["orders"]),
        edit(ObjectKind::Resource, "all", json!({"route": "orders"})),
        edit(ObjectKind::Strategy, "per-client", tried(candidate)),
    ])
}

/// The newest revision, if it is one that nodes have made.
fn by_rollout(editor: &Editor) -> Option<Revision> {
    editor
        .history()
        .into_iter()
        .next()
        .filter(|revision| revision.author == "rollout")
}

fn await_rollout(editor: &Editor) -> Revision {
    eventually("a node has committed", || by_rollout(editor))
}

/// The requests of one client that pass, of so many.
fn passed(gateway: &Gateway, client: &str, requests: usize) -> usize {
    let field = format!("x-client: {client}");
    (0..requests)
        .filter(|_| status(&["-H", &field, &gateway.url("/orders/1")]) == 200)
        .count()
}

#[test]
#[expect(clippy::print_stdout, reason = "`make rollouts` shows the figures")]
fn a_candidate_that_would_deny_three_of_ten_requests_is_taken_away_from_all_nodes_in_time() {
    let _turn = turns::among_few();
    let folder = tempfile::tempdir().unwrap();
    let over = Duration::from_secs(5);
    let mut candidate = tight(&json!("shadow"));
    candidate["over"] = json!("5s");
    let (url, editor) = sqlite(folder.path(), &candidate);
    let nodes = Nodes::start(&url, &["edge-1", "edge-2"]);
    nodes.await_revision(1);
    let began = Instant::now();
    let traffic = Traffic::start(&nodes.nodes[0], "/orders/1", 4);
    let revision = await_rollout(&editor);
    let committed = began.elapsed();
    nodes.await_revision(2);
    let (gone, (sent, denied)) = (began.elapsed(), traffic.counts());
    println!(
        "stated {over:?}: revision {} after {committed:.1?}, on both nodes after {gone:.1?}, {sent} requests, {denied} denied: {}",
        revision.number, revision.reason
    );
    let words = [
        "candidate taken away: on node edge-1, in shadow, denials were ",
        " requests in ",
        ", over 5%",
    ];
    assert!(
        words.iter().all(|words| revision.reason.contains(words)),
        "{}",
        revision.reason
    );
    assert_eq!(
        (denied, editor.history().len()),
        (0, 2),
        "a shadow denies nothing"
    );
    let share = revision
        .reason
        .split_once("denials were ")
        .unwrap()
        .1
        .split_once('%')
        .unwrap()
        .0;
    assert!(
        (20.0..40.0).contains(&share.parse::<f64>().unwrap()),
        "{}",
        revision.reason
    );
    let strategy = editor.body(ObjectKind::Strategy, "per-client");
    assert_eq!(strategy, json!({"limit": generous(), "resources": ["all"]}));
    assert_eq!(
        (
            nodes.sum(STOPPED),
            nodes.sum(ABORTED),
            nodes.nodes[0].metric(ABORTED)
        ),
        (1.0, 1.0, 1.0)
    );
    await_log(
        &nodes.nodes[0],
        "candidate stopped: it is out of its bounds",
    );
}

#[test]
fn a_candidate_within_its_bounds_becomes_the_limit_once() {
    let _turn = turns::among_few();
    let folder = tempfile::tempdir().unwrap();
    let bounds = json!({"denials": "50%", "errors": "1%", "latency": "10s"});
    let candidate = json!({"limit": limit(1), "on": "shadow", "bounds": bounds, "over": "1s", "least": 20, "promote_after": "3s"});
    let (url, editor) = sqlite(folder.path(), &candidate);
    let began = Instant::now();
    let nodes = Nodes::start(&url, &["edge-1", "edge-2"]);
    let _traffic = nodes
        .nodes
        .iter()
        .map(|node| Traffic::start(node, "/orders/1", 2))
        .collect::<Vec<_>>();
    let revision = await_rollout(&editor);
    assert!(began.elapsed() >= Duration::from_secs(3), "{revision:?}");
    assert!(
        revision
            .reason
            .contains("candidate promoted: on node edge-"),
        "{}",
        revision.reason
    );
    assert_eq!(
        editor.body(ObjectKind::Strategy, "per-client"),
        json!({"limit": limit(1), "resources": ["all"]})
    );
    nodes.await_revision(2);
    assert_eq!(
        (
            nodes.sum(PROMOTED),
            nodes.sum(STOPPED),
            editor.history().len()
        ),
        (1.0, 0.0, 2)
    );
    nodes
        .nodes
        .iter()
        .for_each(|node| assert_eq!(passed(node, "eve", 3), 1));
}

#[test]
fn a_candidate_that_nobody_asked_is_not_promoted() {
    let _turn = turns::among_few();
    let folder = tempfile::tempdir().unwrap();
    let candidate = json!({"limit": limit(1), "on": "shadow", "bounds": {"errors": "1%"}, "over": "1s", "promote_after": "1s"});
    let (url, editor) = sqlite(folder.path(), &candidate);
    editor.commit(vec![
        owning(&["orders", "free"]),
        edit(ObjectKind::Resource, "rest", json!({"route": "free"})),
        edit(
            ObjectKind::Strategy,
            "asked",
            json!({"resources": ["rest"], "candidate": candidate}),
        ),
    ]);
    let nodes = Nodes::start(&url, &["edge-1"]);
    let traffic = Traffic::start(&nodes.nodes[0], "/free", 1);
    // Both have had the time: the one that was asked has passed.
    await_rollout(&editor);
    assert!(
        editor
            .body(ObjectKind::Strategy, "asked")
            .get("candidate")
            .is_none()
    );
    assert_eq!(editor.history().len(), 3, "{:?}", editor.history());
    let other = editor.body(ObjectKind::Strategy, "per-client");
    assert_eq!(other, tried(&candidate));
    drop(traffic);
    let _traffic = Traffic::start(&nodes.nodes[0], "/orders/1", 4);
    eventually("the other one is asked as well", || {
        let body = editor.body(ObjectKind::Strategy, "per-client");
        body.get("candidate").is_none().then_some(())
    });
}

#[test]
fn errors_and_latency_of_the_routes_that_a_candidate_counts_end_it() {
    let _turn = turns::among_few();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let slow = runtime.block_on(ScriptedUpstream::start(|mut wire, _| async move {
        while wire.try_head().await.is_some() {
            pace::pause_until(clock::now() + Duration::from_millis(300)).await;
            wire.send(OK).await;
        }
    }));
    let (folder, url, editor) = new_database();
    let more = format!(
        "node_name: edge-1\nupstreams: {{slow: {{endpoints: ['http://{}']}}}}",
        slow.address
    );
    let routes = routes(&url, folder.path(), &more)
        + "  - {name: broken, match: {path: /broken}, respond: {status: 503, body: no}}\n"
        + "  - {name: slow, match: {path: /slow}, upstream: slow}\n";
    let node = Gateway::start(&routes);
    let mut revision = 0;
    for (path, bounds, words) in [
        (
            "broken",
            json!({"denials": "50%", "errors": "1%"}),
            "answers 5xx were 100.0% of ",
        ),
        (
            "slow",
            json!({"errors": "1%", "latency": "100ms"}),
            "the latency of 99 % of ",
        ),
    ] {
        // Other nodes' traffic is none of its business.
        let _others = Traffic::start(&node, if path == "slow" { "/broken" } else { "/slow" }, 2);
        let candidate =
            json!({"limit": limit(9), "on": "shadow", "bounds": bounds, "over": "2s", "least": 10});
        revision = editor.commit(vec![
            owning(&["broken", "slow"]),
            edit(ObjectKind::Resource, path, json!({"route": path})),
            edit(
                ObjectKind::Strategy,
                path,
                json!({"resources": [path], "candidate": candidate}),
            ),
        ]);
        await_revision(&node, revision);
        let _traffic = Traffic::start(&node, &format!("/{path}"), 8);
        let found = await_rollout(&editor);
        assert!(found.reason.contains(words), "{}", found.reason);
        assert_eq!(
            editor.body(ObjectKind::Strategy, path),
            json!({"resources": [path]})
        );
        revision += 1;
        await_revision(&node, revision);
    }
    assert_eq!(editor.history().len() as u64, revision);
}

#[test]
fn errors_are_judged_as_well_when_a_resource_has_moved_to_another_route() {
    let _turn = turns::among_few();
    let (folder, url, editor) = new_database();
    let broken = "  - {name: broken, match: {path: /broken}, respond: {status: 503, body: no}}\n";
    let node = Gateway::start(&(routes(&url, folder.path(), "node_name: edge-1") + broken));
    // The one route has answered more before than the other will.
    Traffic::start(&node, "/orders/1", 4).go_on(2_000);
    let candidate = json!({"limit": limit(9), "on": "shadow", "bounds": {"errors": "1%"}, "over": "2s", "least": 10});
    let passing = json!({"limit": limit(9), "on": "shadow", "bounds": {"errors": "1%"}, "over": "1s", "promote_after": "1s"});
    let first = editor.commit(vec![
        owning(&["orders", "broken", "free"]),
        edit(ObjectKind::Resource, "all", json!({"route": "orders"})),
        edit(ObjectKind::Resource, "free", json!({"route": "free"})),
        edit(ObjectKind::Strategy, "per-client", tried(&candidate)),
        edit(
            ObjectKind::Strategy,
            "other",
            json!({"resources": ["free"], "candidate": passing}),
        ),
    ]);
    await_revision(&node, first);
    // A node looks at all of its candidates at once: when one has passed, it has looked at the
    // other.
    let passed = Traffic::start(&node, "/free", 1);
    let promoted = await_rollout(&editor);
    assert!(promoted.reason.contains("promoted"), "{}", promoted.reason);
    await_revision(&node, promoted.number);
    drop(passed);
    let second = editor.commit(vec![edit(
        ObjectKind::Resource,
        "all",
        json!({"route": "broken"}),
    )]);
    await_revision(&node, second);
    let _traffic = Traffic::start(&node, "/broken", 2);
    let found = await_rollout(&editor);
    assert!(
        found.reason.contains("answers 5xx were 100.0% of "),
        "{}",
        found.reason
    );
}

#[test]
fn only_canary_nodes_act_on_a_candidate_and_judge_it() {
    let _turn = turns::among_few();
    let folder = tempfile::tempdir().unwrap();
    let (url, editor) = sqlite(folder.path(), &tight(&json!({"nodes": ["canary-*"]})));
    let nodes = Nodes::start(&url, &["edge-1", "canary-1"]);
    assert_eq!(
        (
            passed(&nodes.nodes[0], "eve", 3),
            passed(&nodes.nodes[1], "eve", 3)
        ),
        (3, 1)
    );
    let traffic = Traffic::start(&nodes.nodes[0], "/orders/1", 4);
    traffic.go_on(1_000);
    assert_eq!((editor.history().len(), traffic.counts().1), (1, 0));
    let canary = Traffic::start(&nodes.nodes[1], "/orders/1", 4);
    let revision = await_rollout(&editor);
    assert!(
        revision
            .reason
            .contains("on node canary-1, on nodes canary-*, denials were "),
        "{}",
        revision.reason
    );
    assert!(canary.counts().1 > 0);
    nodes.await_revision(2);
    assert_eq!(passed(&nodes.nodes[1], "bob", 3), 3);
}

/// A stop changes policies alone, so none of the files that the configuration names is read for it.
#[test]
fn a_node_stops_a_candidate_while_a_file_of_its_configuration_is_gone() {
    let _turn = turns::among_few();
    let folder = tempfile::tempdir().unwrap();
    let (url, _editor) = sqlite(folder.path(), &tight(&json!("100%")));
    let page = folder.path().join("page.html");
    fs::write(&page, "away").unwrap();
    let users = folder.path().join("htpasswd");
    let hashed = "ada:$2y$04$LnGkMOMx3Dyuw0b4zOhdeeSYN0ssa1qPTQJmFzlIEFbWLBuvhuYge\n";
    fs::write(&users, hashed).unwrap();
    let more = format!(
        "authenticators: {{users: {{basic: {{users: '{}'}}}}}}
error_pages: [{{status: [5xx], type: text/html, file: '{}'}}]",
        users.display(),
        page.display()
    );
    let node = Gateway::start(&routes(&url, folder.path(), &more));
    await_revision(&node, 1);
    fs::remove_file(&users).unwrap();
    fs::remove_file(&page).unwrap();
    assert_eq!(passed(&node, "eve", 3), 1);
    let traffic = Traffic::start(&node, "/orders/1", 4);
    eventually("its limit holds alone", || {
        (passed(&node, "ada", 3) == 3).then_some(())
    });
    drop(traffic);
}

#[test]
fn nodes_stop_at_once_while_the_database_is_away_and_one_of_them_commits_when_it_is_back() {
    let _turn = turns::among_few();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let database = runtime.block_on(TestDatabase::new(Product::Postgres));
    let front = runtime.block_on(Front::start(database.port()));
    let editor = Editor::of(&database.url);
    commit(&editor, &tight(&json!("100%")));
    let mut nodes = Nodes::start(&database.url_through(front.port), &["edge-1", "edge-2"]);
    nodes.await_revision(1);
    front.set(Fault::Closed);
    nodes
        .nodes
        .iter()
        .for_each(|node| assert_eq!(passed(node, "eve", 3), 1));
    let traffic = nodes
        .nodes
        .iter()
        .map(|node| Traffic::start(node, "/orders/1", 4))
        .collect::<Vec<_>>();
    for node in &nodes.nodes {
        eventually("the node has stopped it", || {
            (node.find_metric(STOPPED) == Some(1.0)).then_some(())
        });
        eventually("its limit holds alone", || {
            (passed(node, "ada", 3) == 3).then_some(())
        });
    }
    drop(traffic);
    // A candidate that a node has stopped comes back neither by a restart nor with the database.
    nodes.end(0, 1);
    nodes.begin_again(0, "edge-1");
    await_log(&nodes.nodes[0], "beginning with the copy of the policies");
    assert_eq!(passed(&nodes.nodes[0], "mallory", 3), 3);
    assert_eq!(editor.history().len(), 1);
    front.set(Fault::None);
    let revision = await_rollout(&editor);
    nodes.await_revision(2);
    assert_eq!(
        (nodes.sum(ABORTED), editor.history().len()),
        (1.0, 2),
        "{revision:?}"
    );
    nodes
        .nodes
        .iter()
        .for_each(|node| assert_eq!(passed(node, "trudy", 3), 3));
}

#[test]
fn a_node_that_stopped_a_candidate_alone_commits_it_after_a_restart() {
    let _turn = turns::among_few();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let database = runtime.block_on(TestDatabase::new(Product::Postgres));
    let front = runtime.block_on(Front::start(database.port()));
    let editor = Editor::of(&database.url);
    commit(&editor, &tight(&json!("shadow")));
    let mut nodes = Nodes::start(&database.url_through(front.port), &["edge-1"]);
    front.set(Fault::Closed);
    let traffic = Traffic::start(&nodes.nodes[0], "/orders/1", 4);
    let copy = copy(nodes.folders[0].path());
    eventually("it is in the copy", || {
        fs::read_to_string(&copy)
            .ok()?
            .contains("denials were")
            .then_some(())
    });
    drop(traffic);
    nodes.end(0, 1);
    nodes.begin_again(0, "edge-1");
    front.set(Fault::None);
    let revision = await_rollout(&editor);
    assert!(
        revision
            .reason
            .contains("on node edge-1, in shadow, denials were "),
        "{}",
        revision.reason
    );
}

#[test]
fn a_candidate_that_was_taken_away_does_not_come_back_by_a_node_that_had_not_heard() {
    let _turn = turns::among_few();
    let folder = tempfile::tempdir().unwrap();
    let (url, editor) = sqlite(folder.path(), &tight(&json!("100%")));
    let mut nodes = Nodes::start(&url, &["edge-1", "edge-2"]);
    assert_eq!(passed(&nodes.nodes[1], "eve", 3), 1);
    nodes.end(1, 1);
    let traffic = Traffic::start(&nodes.nodes[0], "/orders/1", 4);
    await_rollout(&editor);
    drop(traffic);
    nodes.await_revision(2);
    nodes.end(0, 2);
    drop(editor);
    fs::rename(folder.path().join("database"), folder.path().join("away")).unwrap();
    let node = Gateway::start(&Nodes::file(&url, nodes.folders[1].path(), "edge-2"));
    await_log(&node, "beginning with the copy of the policies");
    assert_eq!(passed(&node, "eve", 3), 3);
    fs::rename(folder.path().join("away"), folder.path().join("database")).unwrap();
    await_revision(&node, 2);
    assert_eq!(passed(&node, "eve", 3), 3);
}

#[test]
fn a_node_that_begins_with_its_copy_acts_on_a_candidate_when_the_database_has_it() {
    let _turn = turns::among_few();
    let folder = tempfile::tempdir().unwrap();
    let (url, editor) = sqlite(folder.path(), &tight(&json!("100%")));
    let mut nodes = Nodes::start(&url, &["edge-1"]);
    nodes.end(0, 1);
    drop(editor);
    fs::rename(folder.path().join("database"), folder.path().join("away")).unwrap();
    nodes.begin_again(0, "edge-1");
    assert_eq!(passed(&nodes.nodes[0], "eve", 3), 3);
    fs::rename(folder.path().join("away"), folder.path().join("database")).unwrap();
    let mut client = 0;
    eventually("it acts", || {
        client += 1;
        (passed(&nodes.nodes[0], &format!("client-{client}"), 2) == 1).then_some(())
    });
}

/// Somebody changes the strategy while a node wants to end its candidate.
#[test]
fn a_change_of_the_strategy_begins_its_candidate_anew() {
    let _turn = turns::among_few();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let database = runtime.block_on(TestDatabase::new(Product::Postgres));
    let front = runtime.block_on(Front::start(database.port()));
    let editor = Editor::of(&database.url);
    commit(&editor, &tight(&json!("shadow")));
    let nodes = Nodes::start(&database.url_through(front.port), &["edge-1"]);
    front.set(Fault::Closed);
    let traffic = Traffic::start(&nodes.nodes[0], "/orders/1", 4);
    eventually("the node has stopped it", || {
        (nodes.nodes[0].find_metric(STOPPED) == Some(1.0)).then_some(())
    });
    drop(traffic);
    let mut changed = tight(&json!("100%"));
    changed["limit"] = limit(2);
    assert_eq!(
        editor.commit(vec![edit(
            ObjectKind::Strategy,
            "per-client",
            tried(&changed)
        )]),
        2
    );
    front.set(Fault::None);
    nodes.await_revision(2);
    assert_eq!(passed(&nodes.nodes[0], "eve", 3), 2);
    assert_eq!((editor.history().len(), nodes.sum(ABORTED)), (2, 0.0));
    let shown = curl(&[&format!("http://{}/metrics", nodes.nodes[0].admin)]);
    assert!(shown.contains(PROMOTED), "{shown}");
}
