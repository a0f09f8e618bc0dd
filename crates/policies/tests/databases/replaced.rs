//! A file of SQLite that is replaced or deleted while it is in use.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tollgate_policies::database::{CommitError, DatabaseError, PolicyDatabase};
use tollgate_policies::model::{Expected, ObjectEdit};
use tollgate_policies::people::{AccountChange, NewAccount, SessionTerms};

use crate::drafts::{commit, draft, fine, named, rate, rates, strategy};
use crate::people::ChangedPeople;
use crate::servers::{PATIENCE, Product, TestDatabase};

/// A database with two revisions, a handle that follows it, and a backup of its first.
async fn followed() -> (TestDatabase, PolicyDatabase, PathBuf) {
    let test = TestDatabase::new(Product::Sqlite).await;
    let database = test.migrated().await;
    commit(&database, vec![rate("a", 1)]).await;
    let backup = test.folder.as_ref().unwrap().path().join("backup.db");
    test.run(&format!("VACUUM INTO '{}'", backup.display()))
        .await;
    commit(&database, vec![rate("a", 2)]).await;
    (test, database, backup)
}

fn beside(file: &Path) -> [PathBuf; 2] {
    ["-wal", "-shm"].map(|end| format!("{}{end}", file.display()).into())
}

fn take_logs(file: &Path) {
    beside(file)
        .iter()
        .for_each(|file| fs::remove_file(file).unwrap());
}

async fn has_the_backup(test: &TestDatabase, database: &PolicyDatabase) {
    assert_eq!(
        rates(&database.state(None).await.unwrap()),
        named(&[("a", 1)])
    );
    let other = PolicyDatabase::open_with(&test.url, PATIENCE).unwrap();
    assert_eq!(commit(database, vec![rate("a", 7)]).await.number, 2);
    assert_eq!(
        rates(&other.state(None).await.unwrap()),
        named(&[("a", 7)]),
        "it is in the file"
    );
    assert_eq!(commit(&other, vec![rate("a", 8)]).await.number, 3);
    assert_eq!(
        rates(&database.state(None).await.unwrap()),
        named(&[("a", 8)])
    );
}

#[tokio::test]
async fn a_file_that_was_renamed_to_the_database_is_the_database() {
    let (test, database, backup) = followed().await;
    take_logs(&test.file());
    fs::rename(backup, test.file()).unwrap();
    has_the_backup(&test, &database).await;
}

#[tokio::test]
async fn a_file_that_was_copied_over_the_database_is_the_database() {
    let (test, database, backup) = followed().await;
    take_logs(&test.file());
    fs::copy(backup, test.file()).unwrap();
    has_the_backup(&test, &database).await;
}

#[tokio::test]
async fn a_database_that_a_link_leads_to_is_followed_when_the_link_changes() {
    let (test, _, backup) = followed().await;
    let folder = test.folder.as_ref().unwrap().path().to_owned();
    let link = folder.join("link.db");
    std::os::unix::fs::symlink(test.file(), &link).unwrap();
    let linked = TestDatabase {
        url: format!("sqlite://{}", link.display()),
        ..test
    };
    let database = linked.handle();
    assert_eq!(
        rates(&database.state(None).await.unwrap()),
        named(&[("a", 2)])
    );
    std::os::unix::fs::symlink(backup, folder.join("new.db")).unwrap();
    fs::rename(folder.join("new.db"), &link).unwrap();
    has_the_backup(&linked, &database).await;
}

#[tokio::test]
async fn a_database_whose_file_was_deleted_is_away_until_there_is_one() {
    let (test, database, backup) = followed().await;
    let people = database.people();
    people.accounts().await.unwrap();
    take_logs(&test.file());
    fs::remove_file(test.file()).unwrap();
    for _ in 0..2 {
        assert!(matches!(
            database.head().await,
            Err(DatabaseError::Away { .. })
        ));
        assert!(matches!(
            people.accounts().await,
            Err(DatabaseError::Away { .. })
        ));
        let refused = database
            .commit(&draft("ada", vec![rate("a", 3)]), fine)
            .await
            .unwrap_err();
        assert!(
            matches!(refused, CommitError::Database(DatabaseError::Away { .. })),
            "{refused:?}"
        );
    }
    assert!(!test.file().exists());
    fs::rename(backup, test.file()).unwrap();
    has_the_backup(&test, &database).await;
}

#[tokio::test]
async fn the_log_of_the_file_before_is_not_taken_for_that_of_the_new_one() {
    let (test, database, backup) = followed().await;
    fs::rename(backup, test.file()).unwrap();
    for _ in 0..2 {
        let refused = database.state(None).await.unwrap_err();
        assert!(
            matches!(&refused, DatabaseError::Away { cause, .. } if cause.contains("-wal and -shm")),
            "{refused:?}"
        );
    }
    take_logs(&test.file());
    has_the_backup(&test, &database).await;
}

#[tokio::test]
async fn a_version_that_was_seen_before_a_restore_is_a_conflict_after_it() {
    let (test, database, backup) = followed().await;
    let seen = database
        .state(None)
        .await
        .unwrap()
        .get(&strategy("a"))
        .unwrap()
        .version();
    take_logs(&test.file());
    fs::rename(backup, test.file()).unwrap();
    assert_eq!(commit(&database, vec![rate("a", 7)]).await.number, 2);
    let now = database
        .state(None)
        .await
        .unwrap()
        .get(&strategy("a"))
        .unwrap()
        .version();
    let upon = |version: &str| {
        let edit = ObjectEdit {
            expected: Expected::of_version(version).unwrap(),
            ..rate("a", 8)
        };
        draft("ada", vec![edit])
    };
    let refused = database.commit(&upon(&seen), fine).await.unwrap_err();
    let CommitError::Conflict(conflicts) = &refused else {
        panic!("{seen} is not {now}: {refused:?}")
    };
    assert_eq!(conflicts[0].found, Some(2));
    assert_eq!(database.commit(&upon(&now), fine).await.unwrap().number, 3);
}

/// Connections in use at that moment are waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_callers_at_once_find_the_new_file() {
    let (test, database, backup) = followed().await;
    let callers = |database: &PolicyDatabase| {
        let callers = (0..20).map(|at| {
            let (database, people) = (database.clone(), database.people());
            tokio::spawn(async move {
                if at % 2 == 0 {
                    people.accounts().await.map(drop)?
                }
                database.head().await.map(|head| head.revision)
            })
        });
        callers.collect::<Vec<_>>()
    };
    let before = callers(&database);
    take_logs(&test.file());
    fs::rename(backup, test.file()).unwrap();
    for caller in before {
        assert!(matches!(
            caller.await.unwrap(),
            Ok(1 | 2) | Err(DatabaseError::Away { .. })
        ));
    }
    for caller in callers(&database) {
        assert_eq!(caller.await.unwrap(), Ok(1));
    }
    has_the_backup(&test, &database).await;
}

#[tokio::test]
async fn an_account_that_is_disabled_in_the_new_file_is_out() {
    let test = TestDatabase::new(Product::Sqlite).await;
    let people = ChangedPeople(test.migrated().await.people());
    for name in ["ada", "ed"] {
        let admin = tollgate_policies::people::Rights::admin();
        let account = NewAccount {
            name: name.into(),
            display_name: name.into(),
            rights: admin,
            ..NewAccount::default()
        };
        people.create(&account).await.unwrap();
    }
    let hour = Duration::from_secs(3_600);
    let (secret, _) = people
        .begin_session(
            "ed",
            SessionTerms {
                idle: hour,
                absolute: hour,
            },
        )
        .await
        .unwrap();
    let backup = test.folder.as_ref().unwrap().path().join("backup.db");
    test.run(&format!("VACUUM INTO '{}'", backup.display()))
        .await;
    take_logs(&test.file());
    fs::rename(backup, test.file()).unwrap();
    let command = ChangedPeople(test.handle().people());
    let change = AccountChange {
        disabled: Some(true),
        ..AccountChange::default()
    };
    command.change("ed", &change).await.unwrap();
    assert_eq!(people.session(secret.expose()).await.unwrap(), None);
}
