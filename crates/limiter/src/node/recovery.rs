//! Finds out when the shared store decides again, and settles what the node admitted meanwhile.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use crate::algorithm::token_bucket::TokenBucket;
use crate::clock;
use crate::limit::key::Key;
use crate::node::Node;
use crate::node::breaker::Breaker;
use crate::store::{BucketCharge, Store};

/// Pause between two rounds of probes: how late a recovery may be noticed, at ten calls per second and connection.
const PROBE_INTERVAL: Duration = Duration::from_millis(100);

/// The same while a worker starts and nobody waits yet but its listeners.
const FIRST_INTERVAL: Duration = Duration::from_millis(5);

/// Few enough that the calls of requests don't wait behind them.
const DEBTS_OF_A_CALL: usize = 64;

/// `!` starts no limit's name, so no limit's bucket is probed away.
const PROBE_KEY: &str = "!probe";

/// Closes the breaker whenever every one of `stores`, the workers' own, decides again, and settles before that what the node
/// admitted meanwhile; settles what single failed calls left, too. Runs until dropped; a second one on the same node ends
/// at once.
pub async fn run_control(node: Arc<Node>, stores: Vec<Arc<dyn Store>>) {
    let breaker = &node.breaker;
    let (Some(_turn), Some(charges)) = (breaker.claim_prober(), probe()) else { return };
    loop {
        tokio::select! {
            () = breaker.until_open() => {}
            () = node.debts.until_owed() => {}
        }
        while breaker.is_open() {
            let answers = join_all(stores.iter().map(|store| store.take(&charges, 1))).await;
            // They tell an operator what is wrong by now: requests no longer do.
            answers.iter().for_each(|answer| node.outcomes.count(answer));
            if answers.iter().all(Result::is_ok) {
                settle(&node, &stores).await;
                breaker.close();
            } else {
                tokio::time::sleep(PROBE_INTERVAL).await;
            }
        }
        settle(&node, &stores).await;
        tokio::time::sleep(PROBE_INTERVAL).await;
    }
}

/// Charges to the store what the node owes, a part after the other. What fails is owed still.
async fn settle(node: &Node, stores: &[Arc<dyn Store>]) {
    let Some(store) = stores.first() else { return };
    let mut away = false;
    for part in node.debts.collect(clock::monotonic_micros(), DEBTS_OF_A_CALL) {
        away = away || store.adjust(&part).await.is_err();
        if away {
            let now_us = clock::monotonic_micros();
            node.debts.restore(&part, |quota| node.memory.timestamp(quota, now_us));
        }
    }
}

/// Waits until `store` decides for the first time, so that no request is spent on connecting. When it has not by the end
/// of `patience`, the breaker opens: a store that is away at start is an outage like any other.
pub async fn first_contact(breaker: &Breaker, store: &dyn Store, patience: Duration) {
    let Some(charges) = probe() else { return };
    let deadline = clock::now() + patience;
    while let Err(error) = store.take(&charges, 1).await {
        if clock::now() >= deadline {
            return breaker.trip(&error);
        }
        tokio::time::sleep(FIRST_INTERVAL).await;
    }
}

/// A request on a bucket of its own, wide enough to be granted, so that it proves writing too.
fn probe() -> Option<[BucketCharge; 1]> {
    let plenty = std::num::NonZeroU64::new(1_000_000)?;
    let shape = TokenBucket::new(plenty, plenty, plenty).ok()?;
    Some([BucketCharge { key: Key::from(PROBE_KEY), quota: shape.into(), cost: 1, largest_cost: 1 }])
}
