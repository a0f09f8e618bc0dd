//! Databases that are away, go away, say nothing, are locked, or hold what nobody wrote.

use std::time::Duration;

use serde_json::json;
use sqlx::{ConnectOptions as _, Connection as _, Executor as _};
use tokio::time::timeout;
use tollgate_policies::database::{CommitError, DatabaseError, Page, PolicyDatabase};
use tollgate_policies::model::Expected;

use crate::drafts::{commit, draft, edit, fine, gone, named, rate, rates, strategy};
use crate::front::{Fault, Front};
use crate::servers::{PASSWORD, PATIENCE, Product, TestDatabase};

over_all! {
    a_database_that_is_away_is_used_once_it_is_there,
    connections_that_were_closed_are_opened_again,
    a_silent_database_is_not_waited_for,
    a_locked_database_is_read_and_tells_writers_to_try_again,
    a_commit_whose_answer_was_lost_is_looked_up,
    what_nobody_wrote_is_told_and_not_served,
    many_conflicts_are_a_few_queries,
}

/// A handle through a relay.
async fn through_front(test: &TestDatabase, limit: Duration) -> (PolicyDatabase, Front) {
    let front = Front::start(test.port()).await;
    (
        PolicyDatabase::open_with(&test.url_through(front.port), limit).unwrap(),
        front,
    )
}

fn is_away(error: &DatabaseError, database: &PolicyDatabase) -> bool {
    let text = format!("{error} {error:?} {database:?}");
    assert!(!text.contains(PASSWORD), "{text}");
    assert!(
        error
            .to_string()
            .starts_with(&format!("the database {} is away: ", database.place())),
        "{error}"
    );
    matches!(error, DatabaseError::Away { .. })
}

async fn a_database_that_is_away_is_used_once_it_is_there(test: TestDatabase) {
    if test.product == Product::Sqlite {
        let folder = test.folder.as_ref().unwrap().path().join("later");
        let database =
            PolicyDatabase::open(&format!("sqlite://{}/p.db", folder.display())).unwrap();
        assert!(is_away(&database.head().await.unwrap_err(), &database));
        assert!(is_away(&database.migrate().await.unwrap_err(), &database));
        std::fs::create_dir(folder).unwrap();
        database.migrate().await.unwrap();
        return assert_eq!(commit(&database, vec![rate("a", 1)]).await.number, 1);
    }
    let (database, front) = through_front(&test, PATIENCE).await;
    front.set(Fault::Closed);
    assert!(is_away(&database.head().await.unwrap_err(), &database));
    assert!(is_away(&database.migrate().await.unwrap_err(), &database));
    let refused = database
        .commit(&draft("ada", vec![rate("a", 1)]), fine)
        .await
        .unwrap_err();
    assert!(
        matches!(&refused, CommitError::Database(error) if is_away(error, &database)),
        "{refused:?}"
    );
    front.set(Fault::None);
    database.migrate().await.unwrap();
    commit(&database, vec![rate("a", 1)]).await;
    front.set(Fault::Closed);
    assert!(is_away(&database.state(None).await.unwrap_err(), &database));
    assert!(is_away(
        &database.people().accounts().await.unwrap_err(),
        &database
    ));
    front.set(Fault::None);
    assert_eq!(
        rates(&database.state(None).await.unwrap()),
        named(&[("a", 1)])
    );
    let wrong = PolicyDatabase::open(&test.url.replace(PASSWORD, "hunter3")).unwrap();
    let denied = wrong.head().await.unwrap_err();
    assert!(
        is_away(&denied, &wrong) && !denied.to_string().contains("hunter3"),
        "{denied}"
    );
    let missing = PolicyDatabase::open(&format!("{}_missing", test.url)).unwrap();
    assert!(is_away(&missing.head().await.unwrap_err(), &missing));
}

async fn connections_that_were_closed_are_opened_again(test: TestDatabase) {
    test.migrated().await;
    if test.product == Product::Sqlite {
        return;
    }
    let (database, front) = through_front(&test, PATIENCE).await;
    for number in 1..=3 {
        assert_eq!(
            commit(&database, vec![rate("a", number)]).await.number,
            number
        );
        front.close_each().await;
    }
    let together = (0..6).map(|_| {
        tokio::spawn({
            let database = database.clone();
            async move { database.state(Some(2)).await.unwrap().len() }
        })
    });
    for one in together.collect::<Vec<_>>() {
        assert_eq!(one.await.unwrap(), 1);
    }
    front.close_each().await;
    assert_eq!(database.head().await.unwrap().revision, 3);
}

async fn a_silent_database_is_not_waited_for(test: TestDatabase) {
    test.migrated().await;
    if test.product == Product::Sqlite {
        return;
    }
    let (database, front) = through_front(&test, Duration::from_secs(4)).await;
    commit(&database, vec![rate("a", 1)]).await;
    front.set(Fault::Silent);
    for _ in 0..2 {
        let error = timeout(PATIENCE, database.head())
            .await
            .unwrap()
            .unwrap_err();
        assert!(
            is_away(&error, &database) && error.to_string().ends_with("no answer within 4s"),
            "{error}"
        );
    }
    front.set(Fault::None);
    assert_eq!(commit(&database, vec![rate("a", 2)]).await.number, 2);
}

async fn a_locked_database_is_read_and_tells_writers_to_try_again(test: TestDatabase) {
    commit(&test.migrated().await, vec![rate("a", 1)]).await;
    let database = PolicyDatabase::open_with(&test.url, Duration::from_secs(2)).unwrap();
    let heads = "SELECT * FROM tollgate_heads FOR UPDATE";
    match test.product {
        Product::Sqlite => {
            let options: sqlx::sqlite::SqliteConnectOptions = test.url.parse().unwrap();
            let mut holder = options.connect().await.unwrap();
            holder.execute("BEGIN EXCLUSIVE").await.unwrap();
            is_locked(&database).await;
            holder.execute("ROLLBACK").await.unwrap();
        }
        Product::Postgres => {
            let mut holder = sqlx::PgConnection::connect(&test.url).await.unwrap();
            holder
                .execute(sqlx::raw_sql(&format!("BEGIN; {heads}")))
                .await
                .unwrap();
            is_locked(&database).await;
            holder.execute("ROLLBACK").await.unwrap();
        }
        Product::MariaDb => {
            let mut holder = sqlx::MySqlConnection::connect(&test.url).await.unwrap();
            holder
                .execute(sqlx::raw_sql(&format!("BEGIN; {heads}")))
                .await
                .unwrap();
            is_locked(&database).await;
            holder.execute(sqlx::raw_sql("ROLLBACK")).await.unwrap();
        }
    }
    assert_eq!(commit(&database, vec![rate("a", 2)]).await.number, 2);
}

async fn is_locked(database: &PolicyDatabase) {
    let refused = database
        .commit(&draft("ada", vec![rate("a", 2)]), fine)
        .await
        .unwrap_err();
    assert!(
        matches!(refused, CommitError::Database(DatabaseError::Busy { .. })),
        "{refused:?}"
    );
    let message = format!(
        "the database {} is locked by somebody else: ",
        database.place()
    );
    assert!(refused.to_string().starts_with(&message), "{refused}");
    assert_eq!(
        rates(&database.state(None).await.unwrap()),
        named(&[("a", 1)]),
        "readers do not wait"
    );
}

async fn a_commit_whose_answer_was_lost_is_looked_up(test: TestDatabase) {
    test.migrated().await;
    if test.product == Product::Sqlite {
        return;
    }
    let (database, front) = through_front(&test, PATIENCE).await;
    // The statement itself, and not a part of another.
    let statement = if test.product == Product::Postgres {
        "COMMIT\0"
    } else {
        "\u{3}COMMIT"
    };
    assert_eq!(commit(&database, vec![rate("a", 1)]).await.number, 1);
    front.set(Fault::CutAfter(statement));
    assert_eq!(
        commit(&database, vec![rate("a", 2)]).await.number,
        2,
        "it stands, so it is no error"
    );
    assert_eq!(front.fault(), Fault::None, "the answer was lost");
    front.set(Fault::CutBefore(statement));
    let refused = database
        .commit(&draft("ada", vec![rate("a", 3)]), fine)
        .await
        .unwrap_err();
    assert!(
        matches!(&refused, CommitError::Database(error) if is_away(error, &database)),
        "{refused:?}"
    );
    assert_eq!(front.fault(), Fault::None);
    assert_eq!(
        rates(&database.state(None).await.unwrap()),
        named(&[("a", 2)]),
        "it was not made"
    );
    assert_eq!(commit(&database, vec![rate("a", 3)]).await.number, 3);
    assert_eq!(database.history(Page::default()).await.unwrap().len(), 3);
}

async fn what_nobody_wrote_is_told_and_not_served(test: TestDatabase) {
    let database = test.migrated().await;
    commit(&database, vec![rate("a", 1)]).await;
    for (sql, message) in [
        (
            "UPDATE tollgate_objects SET body = '{\"limit\":'",
            "the body of strategy shop/a is no JSON",
        ),
        (
            "UPDATE tollgate_objects SET body = '[]'",
            "the body of strategy shop/a is no JSON object",
        ),
        (
            "UPDATE tollgate_objects SET body = '{}', name = 'a b'",
            "\"a b\" is not a name",
        ),
        ("UPDATE tollgate_heads SET mark = 'x'", "\"x\" is no token"),
        ("DELETE FROM tollgate_heads", "has no row for policies"),
    ] {
        test.run(sql).await;
        let error = test.handle().state(None).await.unwrap_err();
        assert!(
            matches!(error, DatabaseError::Broken { .. }),
            "{sql}: {error:?}"
        );
        assert!(error.to_string().contains(message), "{sql}: {error}");
    }
}

/// A check has one of few places until it has ended.
async fn many_conflicts_are_a_few_queries(test: TestDatabase) {
    const OBJECTS: u64 = 500;
    test.migrated().await;
    let (database, front) = if test.product == Product::Sqlite {
        (test.handle(), None)
    } else {
        let (database, front) = through_front(&test, PATIENCE).await;
        (database, Some(front))
    };
    let names: Vec<_> = (0..OBJECTS).map(|number| format!("s{number}")).collect();
    let made = names.iter().map(|name| rate(name, 1));
    commit(&database, made.collect()).await;
    let removed = names.iter().map(|name| gone(name));
    commit(&database, removed.collect()).await;
    let mut edits = Vec::new();
    for name in &names {
        edits.push(edit(&strategy(name), Expected::Revision(1), json!({})));
    }
    let before = front.as_ref().map_or(0, Front::sent);
    let refused = database.commit(&draft("bob", edits), fine).await;
    let asked = front.as_ref().map_or(0, Front::sent) - before;
    let Err(CommitError::Conflict(conflicts)) = refused else {
        panic!("{refused:?}")
    };
    for conflict in &conflicts {
        let last = conflict.last.as_ref().unwrap();
        assert_eq!((&*last.by, last.revision), ("ada", 2));
    }
    assert_eq!(conflicts.len() as u64, OBJECTS);
    assert!(asked < 50, "{asked}");
}
