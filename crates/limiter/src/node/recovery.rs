//! Finds out when the shared store decides again, and charges the node's debts to it.
//!
//! Guarantees that debts are charged before the breaker closes, and that there is one prober per node.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use crate::algorithm::token_bucket::TokenBucket;
use crate::clock;
use crate::limit::key::Key;
use crate::node::Node;
use crate::store::{BucketCharge, Store};

/// Pause between two rounds of probes: the longest that a recovery goes unnoticed, at ten calls per second and
/// connection.
const PROBE_INTERVAL: Duration = Duration::from_millis(100);

/// Pause between two probes while a worker starts, and only its listeners wait for it.
const FIRST_INTERVAL: Duration = Duration::from_millis(5);

/// Debts of one call: few enough that the calls of requests do not wait behind them.
const DEBTS_OF_A_CALL: usize = 64;

/// `!` starts no limit's name, so no limit's bucket is probed away.
const PROBE_KEY: &str = "!probe";

/// Closes the breaker when each of `stores`, one per worker, decides again, and charges the node's debts before that.
/// Also charges debts that single failed calls left. Runs until dropped; a second one on the same node ends at once.
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
            // The outcomes show an operator what is wrong: requests no longer do.
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

/// Charges the node's debts to the store, one part after the other. Parts that fail stay debts.
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

/// Waits until `store` decides for the first time, so that no request is spent on connecting. After `timeout` without a
/// decision, the breaker opens: a store that is away at start is an outage like any other, except that this node does
/// not know of others.
pub async fn first_contact(node: &Node, store: &dyn Store, timeout: Duration) {
    let Some(charges) = probe() else { return };
    let deadline = clock::now() + timeout;
    while let Err(error) = store.take(&charges, 1).await {
        if clock::now() >= deadline {
            if node.breaker.trip(&error) && node.share.get().nodes() == 1 {
                tracing::warn!(
                    "the store was away from the start and expected_nodes is 1: until it is reached, this node enforces \
                     whole limits, and so does every other that starts like this; set expected_nodes of the store to the \
                     number of nodes"
                );
            }
            return;
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
