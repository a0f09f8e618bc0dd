//! API keys that were taken away.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use tokio::runtime::Handle;
use tokio::task::block_in_place;
use tollgate_policies::database::CommitError;
use tollgate_policies::model::{Expected, ObjectEdit, ObjectId, ObjectKind, PolicyState};

use crate::drafts::{commit, draft, edit, fine, id};
use crate::servers::{Product, TestDatabase};

over_all! {
    a_key_that_was_taken_away_stays_away_from_its_application,
    a_key_that_is_taken_away_meanwhile_does_not_come_back,
}

fn key(name: &str, hash: &str) -> ObjectEdit {
    edit(
        &id(ObjectKind::ApiKey, name),
        Expected::Any,
        json!({ "key_sha256": hash }),
    )
}

/// A hash of this byte over and over.
fn of(byte: &str) -> String {
    byte.repeat(32)
}

fn revoked(name: &str) -> ObjectEdit {
    edit(&id(ObjectKind::ApiKey, name), Expected::Any, None)
}

async fn a_key_that_was_taken_away_stays_away_from_its_application(test: TestDatabase) {
    let database = test.migrated().await;
    commit(&database, vec![key("a", &of("0A")), key("b", &of("0b"))]).await;
    commit(&database, vec![revoked("a")]).await;
    for again in [
        key("a", &of("0a")),
        key("c", &of("0A")),
        key("b", &of("0a")),
    ] {
        let draft = draft("ada", vec![key("d", &of("0d")), again.clone()]);
        let refused = CommitError::Revoked(again.id.clone());
        assert_eq!(database.commit(&draft, fine).await, Err(refused.clone()));
        assert_eq!(database.preview(&draft).await.unwrap_err(), refused);
        let text = format!(
            "{} has a key that was taken away before: it is not taken again",
            again.id
        );
        assert_eq!(refused.to_string(), text);
    }
    // A key may be of another application, and one that stands may have another name.
    let other = ObjectId::new(ObjectKind::ApiKey, "bank", "a").unwrap();
    let moved = vec![
        key("e", &of("0B")),
        revoked("b"),
        edit(&other, Expected::Absent, json!({ "key_sha256": of("0a") })),
    ];
    assert_eq!(
        database
            .preview::<()>(&draft("ada", moved.clone()))
            .await
            .unwrap()
            .changes
            .len(),
        3
    );
    commit(&database, moved).await;
    commit(
        &database,
        vec![edit(
            &id(ObjectKind::ApiKey, "e"),
            Expected::Any,
            json!({ "key_sha256": of("0b"), "client": "x" }),
        )],
    )
    .await;
}

/// The check stands for all that takes its time between the look at the newest state and the swap.
async fn a_key_that_is_taken_away_meanwhile_does_not_come_back(test: TestDatabase) {
    let database = test.migrated().await;
    commit(&database, vec![key("a", &of("0a"))]).await;
    let (other, is_revoked) = (test.handle(), AtomicBool::new(false));
    let check = |_: &PolicyState| {
        if !is_revoked.swap(true, Ordering::Relaxed) {
            block_in_place(|| Handle::current().block_on(commit(&other, vec![revoked("a")])));
        }
        Ok::<(), String>(())
    };
    let copied = key("copy", &of("0a"));
    let refused = database
        .commit(&draft("ada", vec![copied.clone()]), check)
        .await;
    assert_eq!(refused, Err(CommitError::Revoked(copied.id)));
    assert!(test.handle().state(None).await.unwrap().is_empty());
}

/// A look at each former key for each new one would take minutes.
#[tokio::test]
async fn many_keys_are_looked_for_among_many() {
    const KEYS: usize = 20_000;
    let test = TestDatabase::new(Product::Sqlite).await;
    let database = test.migrated().await;
    let keys = |rotation: usize| {
        (0..KEYS)
            .map(|at| key(&format!("k{at}"), &format!("{rotation:032}{at:032}")))
            .collect()
    };
    for rotation in 0..3 {
        let commit = commit(&database, keys(rotation));
        let committed = tokio::time::timeout(std::time::Duration::from_secs(60), commit).await;
        assert_eq!(committed.unwrap().edits, KEYS as u64);
    }
}
