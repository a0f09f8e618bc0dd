//! Following: what changed after a revision, and when a follower must begin anew.

use tollgate_policies::database::{ChangesAfter, PolicyDatabase};
use tollgate_policies::model::{PolicyState, Position};

use crate::drafts::{commit, gone, rate, strategy};
use crate::servers::TestDatabase;

over_all! {
    a_follower_comes_from_any_revision_to_the_newest,
    a_follower_of_another_database_is_told_to_begin_anew,
    a_diff_has_what_says_something_else,
}

async fn step(database: &PolicyDatabase, state: &PolicyState) -> PolicyState {
    match database.changes_after(state.position()).await.unwrap() {
        ChangesAfter::Known { changes, to } => state.advanced(&changes, to),
        ChangesAfter::Unknown { head } => panic!("{head:?} does not know {:?}", state.position()),
    }
}

async fn a_follower_comes_from_any_revision_to_the_newest(test: TestDatabase) {
    let database = test.migrated().await;
    for edits in [
        vec![rate("a", 1), rate("b", 1)],
        vec![rate("a", 2)],
        vec![gone("b"), rate("c", 3)],
        vec![rate("b", 4), gone("c")],
        vec![rate("a", 1)],
    ] {
        commit(&database, edits).await;
    }
    let follower = test.handle();
    let newest = follower.state(Some(5)).await.unwrap();
    for number in 0..=5 {
        let state = follower.state(Some(number)).await.unwrap();
        assert_eq!(
            step(&follower, &state).await,
            newest,
            "from revision {number}"
        );
    }
    let third = follower.state(Some(3)).await.unwrap();
    let ChangesAfter::Known { changes, .. } =
        follower.changes_after(third.position()).await.unwrap()
    else {
        panic!()
    };
    let names: Vec<_> = changes.iter().map(|change| change.id.name()).collect();
    assert_eq!(
        names,
        ["a", "b", "c"],
        "each once, and nothing that is as it was"
    );
    let nothing = follower.changes_after(newest.position()).await.unwrap();
    assert_eq!(
        nothing,
        ChangesAfter::Known {
            changes: vec![],
            to: newest.position()
        }
    );
}

async fn a_follower_of_another_database_is_told_to_begin_anew(test: TestDatabase) {
    let database = test.migrated().await;
    commit(&database, vec![rate("a", 1)]).await;
    commit(&database, vec![rate("a", 2)]).await;
    let head = database.head().await.unwrap();
    let another = TestDatabase::new(test.product).await;
    let other = another.migrated().await;
    commit(&other, vec![rate("a", 7)]).await;
    commit(&other, vec![rate("a", 8)]).await;
    let ahead = Position {
        revision: 9,
        token: head.token,
    };
    for position in [
        other.head().await.unwrap(),
        ahead,
        other.state(Some(1)).await.unwrap().position(),
    ] {
        let found = database.changes_after(position).await.unwrap();
        assert_eq!(found, ChangesAfter::Unknown { head }, "{position:?}");
    }
    // Restored from a backup of revision 1, and changed since: its second revision is another. A
    // handle that knew the first one reads what there is now.
    let (known, follower) = (database.state(None).await.unwrap(), test.handle());
    for sql in [
        "DELETE FROM tollgate_objects WHERE since = 2",
        "UPDATE tollgate_objects SET until = NULL",
        "DELETE FROM tollgate_revisions WHERE number = 2",
        "UPDATE tollgate_heads SET number = 1, mark = (SELECT token FROM tollgate_revisions WHERE number = 1) \
         WHERE name = 'policies'",
    ] {
        test.run(sql).await;
    }
    commit(&follower, vec![rate("a", 3)]).await;
    assert!(matches!(
        database.changes_after(known.position()).await.unwrap(),
        ChangesAfter::Unknown { .. }
    ));
    let now = database.state(None).await.unwrap();
    assert_eq!(now.get(&strategy("a")).unwrap().body["limit"]["rate"], 3);
}

async fn a_diff_has_what_says_something_else(test: TestDatabase) {
    let database = test.migrated().await;
    commit(&database, vec![rate("a", 1), rate("b", 1), rate("c", 1)]).await;
    commit(&database, vec![rate("a", 2), rate("b", 2)]).await;
    commit(&database, vec![rate("a", 1), gone("c"), rate("d", 3)]).await;
    commit(&database, vec![gone("d")]).await;
    let shown = |changes: Vec<tollgate_policies::model::ObjectChange>| -> Vec<String> {
        let rate = |object: Option<std::sync::Arc<tollgate_policies::model::Object>>| {
            object.map_or("-".to_owned(), |object| {
                object.body["limit"]["rate"].to_string()
            })
        };
        changes
            .into_iter()
            .map(|c| format!("{} {} {}", c.id.name(), rate(c.before), rate(c.after)))
            .collect()
    };
    for (from, to, expected) in [
        (1, 4, &["b 1 2", "c 1 -"][..]),
        (4, 1, &["b 2 1", "c - 1"]),
        (1, 2, &["a 1 2", "b 1 2"]),
        (2, 3, &["a 2 1", "c 1 -", "d - 3"]),
        (0, 1, &["a - 1", "b - 1", "c - 1"]),
        (3, 3, &[]),
    ] {
        assert_eq!(
            shown(database.diff(from, to).await.unwrap()),
            expected,
            "{from} to {to}"
        );
    }
    assert!(database.diff(1, 5).await.is_err() && database.diff(5, 1).await.is_err());
}
