//! Migrations, and databases of other versions.

use std::os::unix::fs::PermissionsExt as _;

use tollgate_policies::database::{DatabaseError, Migrated, SCHEMA};

use crate::drafts::{commit, draft, fine, rate};
use crate::servers::{PASSWORD, Product, TestDatabase};

over_all! {
    ten_nodes_that_start_at_once_migrate_once,
    a_database_without_tables_asks_to_be_migrated,
    a_newer_schema_is_refused_by_every_call,
    a_migration_that_broke_off_is_done_again,
    an_older_schema_is_brought_up_to_this_one_with_all_that_it_has,
    whoever_may_only_read_can_follow,
}

async fn ten_nodes_that_start_at_once_migrate_once(test: TestDatabase) {
    let nodes = (0..10).map(|_| {
        let handle = test.handle();
        tokio::spawn(async move { handle.migrate().await.unwrap() })
    });
    let mut made = 0;
    for node in nodes.collect::<Vec<_>>() {
        let migrated = node.await.unwrap();
        assert_eq!(migrated.to, SCHEMA);
        made += u32::from(migrated.from == 0);
    }
    assert_eq!(made, 1);
    let database = test.handle();
    assert_eq!(
        database.migrate().await.unwrap(),
        Migrated {
            from: SCHEMA,
            to: SCHEMA
        }
    );
    commit(&database, vec![rate("a", 1)]).await;
    database.migrate().await.unwrap();
    assert_eq!(database.state(None).await.unwrap().len(), 1);
    if test.product == Product::Sqlite {
        let folder = std::fs::read_dir(test.folder.as_ref().unwrap().path()).unwrap();
        for file in folder.map(|file| file.unwrap()) {
            let mode = file.metadata().unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o600, "{:?} is its owner's alone", file.path());
        }
    }
}

async fn a_database_without_tables_asks_to_be_migrated(test: TestDatabase) {
    let database = test.handle();
    let missing = database.head().await.unwrap_err();
    if test.product == Product::Sqlite {
        assert!(
            matches!(missing, DatabaseError::Away { .. }),
            "there is no file: {missing}"
        );
        assert!(missing.to_string().contains("permission"), "{missing}");
        assert!(!test.file().exists(), "whoever only reads makes none");
        std::fs::write(test.file(), "").unwrap();
    }
    let place = database.place().to_owned();
    let empty = database.head().await.unwrap_err();
    assert_eq!(
        empty,
        DatabaseError::SchemaOlder {
            place: place.as_str().into(),
            found: 0,
            known: SCHEMA
        }
    );
    assert_eq!(
        empty.to_string(),
        format!("the database {place} has no tables of Tollgate yet: migrate it")
    );
    database.migrate().await.unwrap();
    assert_eq!(
        database.head().await.unwrap().revision,
        0,
        "the handle goes on"
    );
}

async fn a_newer_schema_is_refused_by_every_call(test: TestDatabase) {
    let database = test.migrated().await;
    commit(&database, vec![rate("a", 1)]).await;
    test.run("UPDATE tollgate_schema SET version = 7").await;
    let newer = DatabaseError::SchemaNewer {
        place: database.place().into(),
        found: 7,
        known: SCHEMA,
    };
    let message = format!(
        "the database {} is of schema 7, this version knows {SCHEMA}: upgrade Tollgate",
        database.place()
    );
    assert_eq!(newer.to_string(), message);
    for handle in [&database, &test.handle()] {
        assert_eq!(handle.migrate().await.unwrap_err(), newer);
        assert_eq!(handle.head().await.unwrap_err(), newer);
        assert_eq!(handle.state(None).await.unwrap_err(), newer);
        assert_eq!(handle.people().accounts().await.unwrap_err(), newer);
        let refused = handle
            .commit(&draft("ada", vec![rate("a", 2)]), fine)
            .await
            .unwrap_err();
        assert_eq!(refused.to_string(), message);
    }
    test.run("UPDATE tollgate_schema SET version = 0").await;
    let older = database.head().await.unwrap_err();
    assert_eq!(
        older,
        DatabaseError::SchemaOlder {
            place: database.place().into(),
            found: 0,
            known: SCHEMA
        }
    );
}

/// MySQL keeps the tables that were made before a crash: the others take them back with the
/// transaction.
async fn a_migration_that_broke_off_is_done_again(test: TestDatabase) {
    if test.product != Product::MariaDb {
        return test.migrated().await.head().await.map(drop).unwrap();
    }
    test.migrated().await;
    for table in ["tollgate_audit", "tollgate_tokens"] {
        test.run(&format!("DROP TABLE {table}")).await;
    }
    test.run("DELETE FROM tollgate_schema").await;
    let database = test.handle();
    assert_eq!(
        database.migrate().await.unwrap(),
        Migrated {
            from: 0,
            to: SCHEMA
        }
    );
    commit(&database, vec![rate("a", 1)]).await;
    assert!(
        test.try_run("DELETE FROM tollgate_audit WHERE number = 1")
            .await
            .is_ok(),
        "there is none"
    );
    assert!(
        database
            .people()
            .audit(tollgate_policies::database::Page::default())
            .await
            .unwrap()
            .is_empty()
    );
}

async fn an_older_schema_is_brought_up_to_this_one_with_all_that_it_has(test: TestDatabase) {
    let database = test.migrated().await;
    commit(&database, vec![rate("a", 1)]).await;
    if test.product == Product::Sqlite {
        test.run("DROP TRIGGER tollgate_audit_insert").await;
    }
    test.run("UPDATE tollgate_schema SET version = 1").await;
    assert!(matches!(
        test.handle().head().await,
        Err(DatabaseError::SchemaOlder { found: 1, .. })
    ));
    assert_eq!(
        test.handle().migrate().await.unwrap(),
        Migrated {
            from: 1,
            to: SCHEMA
        }
    );
    assert_eq!(test.handle().state(None).await.unwrap().len(), 1);
    if test.product == Product::Sqlite {
        let again =
            test.try_run("CREATE TRIGGER tollgate_audit_insert BEFORE INSERT ON tollgate_audit BEGIN SELECT 1; END");
        assert!(
            again
                .await
                .unwrap_err()
                .to_string()
                .contains("already exists")
        );
    }
}

async fn whoever_may_only_read_can_follow(test: TestDatabase) {
    let database = test.migrated().await;
    commit(&database, vec![rate("a", 1)]).await;
    let reader = format!("r{}", fastrand::u32(..));
    match test.product {
        // Root writes to every file.
        Product::Sqlite => return,
        Product::Postgres => {
            test.run(&format!("CREATE ROLE {reader} LOGIN PASSWORD '{PASSWORD}'"))
                .await;
            test.run(&format!(
                "GRANT SELECT ON ALL TABLES IN SCHEMA public TO {reader}"
            ))
            .await;
        }
        Product::MariaDb => {
            let name = test.url.rsplit('/').next().unwrap();
            test.run(&format!(
                "CREATE USER {reader}@'%' IDENTIFIED BY '{PASSWORD}'"
            ))
            .await;
            test.run(&format!("GRANT SELECT ON {name}.* TO {reader}@'%'"))
                .await;
        }
    }
    let url = test.url.replace("//tollgate:", &format!("//{reader}:"));
    let follower =
        tollgate_policies::database::PolicyDatabase::open_with(&url, crate::servers::PATIENCE)
            .unwrap();
    assert_eq!(
        follower.state(None).await.unwrap(),
        database.state(Some(1)).await.unwrap()
    );
    assert_eq!(
        follower.migrate().await.unwrap().from,
        SCHEMA,
        "there is nothing to do"
    );
    let refused = follower
        .commit(&draft("ada", vec![rate("a", 2)]), fine)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        refused.starts_with(&format!(
            "the user of the database {} may not do this",
            follower.place()
        )),
        "{refused}"
    );
    assert!(!refused.contains(PASSWORD), "{refused}");
}
