//! A database that is away: what runs goes on, and what starts begins with the copy.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use crate::editor::{
    AGE, APPLIED, Editor, REFUSED, REVISION, await_log, await_revision, copy, first_edits, routes,
    spend, strategy,
};
use crate::front::{Fault, Front};
use crate::process::{Gateway, eventually, status};
use crate::servers::{PASSWORD, Product, TestDatabase};

/// A database of SQLite in a folder that can be taken away, which holds a revision.
fn database(folder: &Path) -> (String, Editor) {
    fs::create_dir(folder.join("database")).unwrap();
    let url = format!("sqlite://{}/database/policies.db", folder.display());
    let editor = Editor::of(&url);
    editor.commit(first_edits());
    (url, editor)
}

fn take_away(folder: &Path) {
    fs::rename(folder.join("database"), folder.join("away")).unwrap();
}

fn bring_back(folder: &Path) {
    fs::rename(folder.join("away"), folder.join("database")).unwrap();
}

/// Runs a gateway until it has written its copy.
fn leave_copy(routes: &str, folder: &Path) {
    let mut node = Gateway::start(routes);
    eventually("the copy is written", || {
        Path::new(&copy(folder)).exists().then_some(())
    });
    node.signal("TERM");
    assert!(node.wait().success());
}

/// Asks again and again, and counts answers that are not 200.
fn load(node: &Gateway) -> (Arc<AtomicBool>, thread::JoinHandle<(usize, usize)>) {
    let stop = Arc::new(AtomicBool::new(false));
    let (stopped, url) = (stop.clone(), node.url("/free"));
    let client = thread::spawn(move || {
        let (sent, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
        while !stopped.load(Ordering::Relaxed) {
            sent.fetch_add(1, Ordering::Relaxed);
            failed.fetch_add(usize::from(status(&[&url]) != 200), Ordering::Relaxed);
        }
        (sent.into_inner(), failed.into_inner())
    });
    (stop, client)
}

#[test]
fn a_database_that_goes_away_changes_nothing_but_the_age() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let database = runtime.block_on(TestDatabase::new(Product::Postgres));
    let front = runtime.block_on(Front::start(database.port()));
    let editor = Editor::of(&database.url);
    editor.commit(first_edits());
    let node = Gateway::start(&routes(
        &database.url_through(front.port),
        folder.path(),
        "",
    ));
    await_revision(&node, 1);
    assert_eq!(spend(&node, "/orders/1", 1), 1);
    let (stop, client) = load(&node);
    for (fault, revision) in [(Fault::Closed, 2), (Fault::Silent, 3)] {
        front.set(fault);
        assert_eq!(
            editor.commit(vec![strategy("items", revision, "items")]),
            revision
        );
        eventually("the age grows", || (node.metric(AGE) > 3.0).then_some(()));
        assert_eq!(node.metric(REVISION) as u64, revision - 1);
        front.set(Fault::None);
        front.close_all();
        await_revision(&node, revision);
        eventually("the age is small again", || {
            (node.metric(AGE) < 3.0).then_some(())
        });
    }
    stop.store(true, Ordering::Relaxed);
    let (sent, failed) = client.join().unwrap();
    assert!(
        sent > 10 && failed == 0,
        "{failed} of {sent} requests failed"
    );
    assert_eq!((node.metric(APPLIED), node.metric(REFUSED)), (2.0, 0.0));
    assert_eq!(
        (spend(&node, "/orders/1", 4), spend(&node, "/items", 4)),
        (2, 3)
    );
    await_log(&node, "answers again");
    assert!(!node.log().contains(PASSWORD), "the log shows the password");
}

#[test]
fn a_node_starts_with_its_copy_and_follows_when_the_database_is_back() {
    let folder = tempfile::tempdir().unwrap();
    let (url, editor) = database(folder.path());
    let routes = routes(&url, folder.path(), "");
    leave_copy(&routes, folder.path());
    let mode = fs::metadata(copy(folder.path()))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let beside = fs::read_dir(folder.path().join("node")).unwrap().count();
    assert_eq!(beside, 1, "half a copy was left");
    take_away(folder.path());
    let node = Gateway::start(&routes);
    await_log(&node, "beginning with the copy of the policies");
    assert_eq!(
        (node.metric(REVISION), spend(&node, "/orders/1", 5)),
        (1.0, 3)
    );
    bring_back(folder.path());
    editor.commit(vec![strategy("items", 1, "items")]);
    await_revision(&node, 2);
    assert_eq!(
        (spend(&node, "/orders/1", 2), spend(&node, "/items", 3)),
        (0, 1)
    );
}

#[test]
fn a_successor_takes_over_with_the_copy() {
    let folder = tempfile::tempdir().unwrap();
    let (url, _editor) = database(folder.path());
    let more = format!("handover: {}/handover.sock", folder.path().display());
    let routes = routes(&url, folder.path(), &more);
    let mut old = Gateway::start(&routes);
    eventually("the copy is written", || {
        Path::new(&copy(folder.path())).exists().then_some(())
    });
    take_away(folder.path());
    let node = Gateway::take_over(&routes);
    assert!(old.wait().success());
    assert_eq!(
        (node.metric(REVISION), spend(&node, "/orders/1", 5)),
        (1.0, 3)
    );
}

#[test]
fn a_start_with_neither_database_nor_copy_fails_and_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let (url, editor) = database(folder.path());
    let written = routes(&url, folder.path(), "");
    take_away(folder.path());
    let mut node = Gateway::start_unready(&written);
    assert!(!node.wait().success());
    for words in [
        "there are no policies to begin with",
        "there is no copy at",
        "required: false",
        "is away",
    ] {
        await_log(&node, words);
    }
    let lenient = written.replace("policies.json'}", "policies.json', required: false}");
    assert_ne!(lenient, written);
    let node = Gateway::start(&lenient);
    await_log(&node, "only the limits of the file hold");
    assert_eq!(
        (node.metric(REVISION), spend(&node, "/orders/1", 5)),
        (0.0, 5)
    );
    bring_back(folder.path());
    await_revision(&node, 1);
    assert_eq!(spend(&node, "/orders/1", 5), 3);
    drop(editor);
}

#[test]
fn a_copy_that_is_damaged_or_of_another_database_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let (url, _editor) = database(folder.path());
    let written = routes(&url, folder.path(), "");
    leave_copy(&written, folder.path());
    take_away(folder.path());
    let path = copy(folder.path());
    let whole = fs::read_to_string(&path).unwrap();
    for (content, words) in [
        (whole[..whole.len() / 2].to_owned(), "is damaged"),
        (
            whole.replace("policies.db", "others.db"),
            "is of another database",
        ),
        (
            whole.replace("policy-copy/1", "policy-copy/9"),
            "is of the format",
        ),
    ] {
        fs::write(&path, content).unwrap();
        let mut node = Gateway::start_unready(&written);
        assert!(!node.wait().success());
        await_log(&node, words);
    }
}

/// The other one has a revision of the number that the node runs.
#[test]
fn another_database_in_place_of_the_one_that_was_followed_is_read_anew() {
    let folder = tempfile::tempdir().unwrap();
    let (url, _editor) = database(folder.path());
    let routes = routes(&url, folder.path(), "");
    leave_copy(&routes, folder.path());
    take_away(folder.path());
    let node = Gateway::start(&routes);
    assert_eq!(node.metric(REVISION), 1.0);
    let other = tempfile::tempdir_in(folder.path()).unwrap();
    let editor = Editor::of(&format!("sqlite://{}/policies.db", other.path().display()));
    let mut edits = first_edits();
    edits.push(strategy("items", 1, "items"));
    assert_eq!(editor.commit(edits), 1);
    drop(editor);
    fs::rename(other.path(), folder.path().join("database")).unwrap();
    await_log(&node, "it was restored, or is another one");
    eventually("the other database's policies are at work", || {
        (node.metric(APPLIED) > 0.0).then_some(())
    });
    assert_eq!((node.metric(REVISION), spend(&node, "/items", 3)), (1.0, 1));
}

/// An operator restores a backup, or a slip takes a file away.
#[test]
fn a_file_that_is_replaced_or_deleted_while_it_is_followed_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let (url, editor) = database(folder.path());
    let file = |name: &str| folder.path().join("database").join(name);
    // A backup has none before it is used by more than one.
    let take_logs = || {
        ["policies.db-wal", "policies.db-shm"]
            .iter()
            .for_each(|name| drop(fs::remove_file(file(name))))
    };
    let written = TestDatabase {
        product: Product::Sqlite,
        url: url.clone(),
        folder: None,
    };
    editor.wait(written.run(&format!("VACUUM INTO '{}'", file("backup.db").display())));
    let node = Gateway::start(&routes(&url, folder.path(), ""));
    assert_eq!(editor.commit(vec![strategy("items", 2, "items")]), 2);
    await_revision(&node, 2);
    take_logs();
    fs::rename(file("backup.db"), file("policies.db")).unwrap();
    await_revision(&node, 1);
    await_log(&node, "it was restored, or is another one");
    assert_eq!(editor.commit(vec![strategy("items", 1, "items")]), 2);
    await_revision(&node, 2);
    assert_eq!(spend(&node, "/items", 3), 1);
    take_logs();
    fs::remove_file(file("policies.db")).unwrap();
    eventually("the age grows", || (node.metric(AGE) > 3.0).then_some(()));
    await_log(&node, "is away: ");
}

/// A URL with a slip makes a database of its own.
#[test]
fn an_empty_database_in_place_of_the_one_of_the_copy_begins_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (url, _editor) = database(folder.path());
    let right = routes(&url, folder.path(), "");
    leave_copy(&right, folder.path());
    let wrong = right.replace("policies.db", "polices.db");
    let mut node = Gateway::start_unready(&wrong);
    assert!(!node.wait().success());
    for words in [
        "the database has no policies, and this node ran those of sqlite:",
        "is the right one",
    ] {
        await_log(&node, words);
    }
    // An operator who means it takes the copy away.
    fs::remove_file(copy(folder.path())).unwrap();
    assert_eq!(Gateway::start(&wrong).metric(REVISION), 0.0);
}

/// A disk that is not mounted, or a database that was made anew.
#[test]
fn a_database_that_has_lost_all_policies_takes_none_of_them_away() {
    let folder = tempfile::tempdir().unwrap();
    let (url, _editor) = database(folder.path());
    let routes = routes(&url, folder.path(), "");
    leave_copy(&routes, folder.path());
    let empty = tempfile::tempdir_in(folder.path()).unwrap();
    drop(Editor::of(&format!(
        "sqlite://{}/policies.db",
        empty.path().display()
    )));
    take_away(folder.path());
    let mut node = Gateway::start(&routes);
    fs::rename(empty.path(), folder.path().join("database")).unwrap();
    await_log(
        &node,
        "the database has no policies, and this node knows revision 1",
    );
    assert_eq!(
        (node.metric(REVISION), spend(&node, "/orders/1", 4)),
        (1.0, 3)
    );
    node.signal("TERM");
    assert!(node.wait().success());
    let node = Gateway::start(&routes);
    await_log(&node, "beginning with the copy of the policies");
    assert_eq!(
        (node.metric(REVISION), spend(&node, "/orders/1", 4)),
        (1.0, 3)
    );
    // Policies that are put into the database hold from then on.
    let editor = Editor::of(&url);
    let mut edits = first_edits();
    edits.push(strategy("few", 1, "all"));
    edits.remove(3);
    editor.commit(edits);
    eventually("the new policies are at work", || {
        (node.metric(APPLIED) > 0.0).then_some(())
    });
}

/// Of neither of the two is known that there were no policies.
#[test]
fn an_emptied_database_and_a_copy_that_cannot_be_read_begin_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (url, editor) = database(folder.path());
    let routes = routes(&url, folder.path(), "");
    leave_copy(&routes, folder.path());
    drop(editor);
    fs::remove_dir_all(folder.path().join("database")).unwrap();
    fs::create_dir(folder.path().join("database")).unwrap();
    drop(Editor::of(&url));
    let path = copy(folder.path());
    let whole = fs::read_to_string(&path).unwrap();
    let refused = |words: &str| {
        let mut node = Gateway::start_unready(&routes);
        assert!(!node.wait().success());
        for words in ["the database has no policies", words] {
            await_log(&node, words);
        }
    };
    for (content, words) in [
        (whole[..300].to_owned(), "is damaged"),
        (
            whole.replace("policy-copy/1", "policy-copy/9"),
            "is of the format",
        ),
    ] {
        fs::write(&path, content).unwrap();
        refused(words);
    }
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    refused("cannot be read: ");
    fs::remove_dir(&path).unwrap();
    assert_eq!(Gateway::start(&routes).metric(REVISION), 0.0);
}

#[test]
fn a_database_or_a_copy_that_others_of_the_machine_may_read_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let (url, _editor) = database(folder.path());
    let routes = routes(&url, folder.path(), "");
    leave_copy(&routes, folder.path());
    let files = [
        folder.path().join("database/policies.db"),
        copy(folder.path()).into(),
    ];
    let told = |modes: [u32; 2]| {
        files.iter().zip(modes).for_each(|(file, mode)| {
            fs::set_permissions(file, fs::Permissions::from_mode(mode)).unwrap();
        });
        let log = Gateway::start(&routes).log();
        files.each_ref().map(|file| {
            log.lines()
                .any(|line| line.contains("chmod 600") && line.contains(&*file.to_string_lossy()))
        })
    };
    assert_eq!(told([0o600, 0o600]), [false, false]);
    assert_eq!(
        (told([0o640, 0o600]), told([0o600, 0o602])),
        ([true, false], [false, true])
    );
}
