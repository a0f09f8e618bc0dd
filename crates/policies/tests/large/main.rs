//! A hundred thousand assignments: what a revision costs then, in bytes and in what is read.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]
#![expect(
    clippy::print_stdout,
    reason = "how long each step took, for whoever looks"
)]

#[path = "../databases/servers.rs"]
#[expect(dead_code, reason = "the other suite uses all of it")]
mod servers;

use std::alloc::System;
use std::convert::Infallible;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::json;
use servers::{Product, TestDatabase};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tollgate_policies::database::ChangesAfter;
use tollgate_policies::model::{Draft, Expected, ObjectEdit, ObjectId, ObjectKind, PolicyState};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const CLIENTS: usize = 100_000;

/// An object with its id and its places in the map, its plan being shared.
const MOST_BYTES_EACH: usize = 400;

fn assignment(client: usize, plan: usize) -> ObjectEdit {
    let id = ObjectId::new(
        ObjectKind::Assignment,
        "shop",
        &format!("client-{client:06}@example.com"),
    )
    .unwrap();
    ObjectEdit {
        id,
        expected: Expected::Any,
        body: Some(json!({ "plan": format!("plan{plan}") })),
    }
}

fn draft(edits: Vec<ObjectEdit>) -> Draft {
    Draft {
        edits,
        author: "ada".into(),
        reason: "many".into(),
    }
}

fn fine(_: &PolicyState) -> Result<(), Infallible> {
    Ok(())
}

/// Prints how long a step took.
#[expect(clippy::disallowed_methods, reason = "real servers take real time")]
async fn step<T>(product: Product, name: &str, work: impl Future<Output = T>) -> T {
    let begun = std::time::Instant::now();
    let done = work.await;
    println!("{product:?}: {name}: {:?}", begun.elapsed());
    done
}

async fn a_revision_costs_what_it_changes(product: Product) {
    let test = TestDatabase::new(product).await;
    let database = test.migrated().await;
    let all = draft(
        (0..CLIENTS)
            .map(|client| assignment(client, client % 12))
            .collect(),
    );
    step(
        product,
        "100 000 assignments committed",
        database.commit(&all, fine),
    )
    .await
    .unwrap();
    drop(all);
    for number in 2..=20 {
        database
            .commit(&draft(vec![assignment(number, 100 + number)]), fine)
            .await
            .unwrap();
    }

    let follower = test.handle();
    let region = Region::new(ALLOCATOR);
    let first = step(product, "state at revision 1 read", follower.state(Some(1)))
        .await
        .unwrap();
    let kept = region.change();
    let bytes = kept.bytes_allocated.saturating_sub(kept.bytes_deallocated);
    println!("{product:?}: {} bytes each", bytes / CLIENTS);
    assert_eq!(first.len(), CLIENTS);
    assert!(
        bytes / CLIENTS <= MOST_BYTES_EACH,
        "{} bytes for each of the objects",
        bytes / CLIENTS
    );

    let newest = step(product, "newest state read", follower.state(None))
        .await
        .unwrap();
    let position = follower.state(Some(18)).await.unwrap().position();
    let region = Region::new(ALLOCATOR);
    let found = step(
        product,
        "changes after revision 18",
        follower.changes_after(position),
    )
    .await
    .unwrap();
    let allocated = region.change().bytes_allocated;
    let ChangesAfter::Known { changes, .. } = found else {
        panic!("it is known")
    };
    assert_eq!(changes.len(), 2);
    assert!(allocated < 256 * 1024, "two changes took {allocated} bytes");
    let position = first.position();
    let found = step(
        product,
        "changes after revision 1",
        follower.changes_after(position),
    )
    .await
    .unwrap();
    let ChangesAfter::Known { changes, to } = found else {
        panic!("it is known")
    };
    assert_eq!(
        (changes.len(), first.advanced(&changes, to) == newest),
        (19, true)
    );

    step(
        product,
        "one more committed",
        database.commit(&draft(vec![assignment(0, 99)]), fine),
    )
    .await
    .unwrap();
    let all_gone = (0..CLIENTS)
        .map(|number| ObjectEdit {
            body: None,
            ..assignment(number, 0)
        })
        .collect();
    let emptied = step(
        product,
        "all of it taken away",
        database.commit(&draft(all_gone), fine),
    )
    .await
    .unwrap();
    assert_eq!(emptied.edits, CLIENTS as u64);
    assert!(follower.state(None).await.unwrap().is_empty());
}

/// Tests run one after the other: what they allocate is counted.
fn alone(product: Product) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let limit = Duration::from_secs(600);
    runtime.block_on(async {
        tokio::time::timeout(limit, a_revision_costs_what_it_changes(product))
            .await
            .unwrap()
    });
}

#[test]
fn a_hundred_thousand_assignments_in_sqlite() {
    alone(Product::Sqlite);
}

#[test]
fn a_hundred_thousand_assignments_in_postgres() {
    alone(Product::Postgres);
}

#[test]
fn a_hundred_thousand_assignments_in_mariadb() {
    alone(Product::MariaDb);
}
