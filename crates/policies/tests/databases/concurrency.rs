//! Writers at once: every revision is one writer's, and no change is lost.

use std::collections::BTreeSet;

use serde_json::json;
use tollgate_policies::database::{CommitError, Page};
use tollgate_policies::model::{Expected, PolicyState};

use crate::drafts::{commit, draft, edit, fine, rate, strategy};
use crate::servers::TestDatabase;

over_all! {
    eight_writers_at_once_lose_no_update,
    of_eight_who_edit_what_they_saw_one_comes_through,
    the_check_judges_what_the_one_before_has_made,
}

const WRITERS: u64 = 8;
const ROUNDS: u64 = 6;

async fn eight_writers_at_once_lose_no_update(test: TestDatabase) {
    let database = test.migrated().await;
    commit(
        &database,
        vec![edit(
            &strategy("sum"),
            Expected::Absent,
            json!({ "limit": { "rate": 0 } }),
        )],
    )
    .await;
    let writers = (0..WRITERS).map(|writer| {
        let handle = test.handle();
        tokio::spawn(async move {
            let mut numbers = Vec::new();
            for round in 0..ROUNDS {
                numbers.push(
                    commit(&handle, vec![rate(&format!("own{writer}"), round)])
                        .await
                        .number,
                );
                numbers.push(add_one(&handle).await);
            }
            numbers
        })
    });
    let mut numbers = BTreeSet::new();
    for writer in writers.collect::<Vec<_>>() {
        for number in writer.await.unwrap() {
            assert!(numbers.insert(number), "revision {number} was given to two");
        }
    }
    let newest = 1 + 2 * WRITERS * ROUNDS;
    assert_eq!(
        numbers.into_iter().collect::<Vec<_>>(),
        (2..=newest).collect::<Vec<_>>(),
        "without gaps"
    );
    let state = test.handle().state(None).await.unwrap();
    assert_eq!(state.revision(), newest);
    assert_eq!(
        state.get(&strategy("sum")).unwrap().body["limit"]["rate"],
        WRITERS * ROUNDS
    );
    let history = test
        .handle()
        .history(Page {
            before: None,
            limit: 500,
        })
        .await
        .unwrap();
    let times: Vec<_> = history.iter().rev().map(|revision| revision.at).collect();
    assert!(times.is_sorted(), "{times:?}");
}

/// Adds one like an editor: looks, changes what was seen, and looks again when told of a conflict.
async fn add_one(handle: &tollgate_policies::database::PolicyDatabase) -> u64 {
    loop {
        let state = handle.state(None).await.unwrap();
        let seen = state.get(&strategy("sum")).unwrap();
        let sum = seen.body["limit"]["rate"].as_u64().unwrap();
        let body = json!({ "limit": { "rate": sum + 1 } });
        let draft = draft(
            "ada",
            vec![edit(&strategy("sum"), Expected::Revision(seen.since), body)],
        );
        match handle.commit(&draft, fine).await {
            Ok(revision) => return revision.number,
            Err(CommitError::Conflict(_)) => {}
            Err(other) => panic!("{other}"),
        }
    }
}

async fn of_eight_who_edit_what_they_saw_one_comes_through(test: TestDatabase) {
    let database = test.migrated().await;
    commit(&database, vec![rate("a", 0)]).await;
    let writers = (1..=WRITERS).map(|writer| {
        let handle = test.handle();
        tokio::spawn(async move {
            let body = json!({ "limit": { "rate": writer } });
            let draft = draft(
                &format!("w{writer}"),
                vec![edit(&strategy("a"), Expected::Revision(1), body)],
            );
            handle.commit(&draft, fine).await
        })
    });
    let (mut first, mut told) = (Vec::new(), Vec::new());
    for writer in writers.collect::<Vec<_>>() {
        match writer.await.unwrap() {
            Ok(revision) => first.push(revision.author),
            Err(CommitError::Conflict(conflicts)) => {
                told.push(conflicts[0].last.as_ref().unwrap().by.to_string())
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!((first.len(), told.len()), (1, 7));
    assert!(
        told.iter().all(|by| *by == first[0]),
        "{told:?}, but {first:?} was first"
    );
}

/// Each draft alone is within the bound, two together are not: one of them must be refused.
async fn the_check_judges_what_the_one_before_has_made(test: TestDatabase) {
    test.migrated().await;
    let check = |state: &PolicyState| {
        if state.len() <= 4 {
            Ok(())
        } else {
            Err("at most four")
        }
    };
    let writers = (0..WRITERS).map(|writer| {
        let handle = test.handle();
        tokio::spawn(async move {
            handle
                .commit(&draft("ada", vec![rate(&format!("s{writer}"), 1)]), check)
                .await
                .is_ok()
        })
    });
    let mut made = 0;
    for writer in writers.collect::<Vec<_>>() {
        made += u32::from(writer.await.unwrap());
    }
    assert_eq!(
        (made, test.handle().state(None).await.unwrap().len()),
        (4, 4)
    );
}
