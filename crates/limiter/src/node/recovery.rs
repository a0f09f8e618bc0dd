//! Finds out when the shared store decides again, and charges the node's debts to it.
//!
//! Guarantees that debts are charged before the breaker closes, and that there is one prober per node.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;

use crate::algorithm::token_bucket::TokenBucket;
use crate::clock;
use crate::limit::key::Key;
use crate::node::Node;
use crate::node::breaker::Breaker;
use crate::node::outbox::SentBatch;
use crate::store::adjustment::summary;
use crate::store::{BucketCharge, Store};

/// Pause between two rounds of probes: the longest that a recovery goes unnoticed, at ten calls per second and
/// connection.
const PROBE_INTERVAL: Duration = Duration::from_millis(100);

/// Pause between two probes while a worker starts, and only its listeners wait for it.
const FIRST_INTERVAL: Duration = Duration::from_millis(5);

/// Debts of one call: few enough that the calls of requests do not wait behind them. Measured, such a call takes
/// redis-server 0.35 ms, also where limits changed; one of 64 took up to 1 ms.
const DEBTS_OF_A_CALL: usize = 32;

/// Pause between two such calls, for each node of the fleet, since they all come back at the same time: so Redis spends
/// most of its time on requests.
const CALL_INTERVAL: Duration = Duration::from_millis(2);

/// The longest such pause.
const LONGEST_INTERVAL: Duration = Duration::from_millis(50);

/// Calls in flight at most. Those for a server of a cluster that is away take their whole time.
const CALLS_IN_FLIGHT: usize = 64;

/// Calls without any result, in a row, after which the rest waits for the next round: the store is away.
const TOLERATED_FAILURES: u32 = 8;

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
            () = node.until_owed() => {}
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

/// Charges the node's debts to the store. What fails stays in the outbox. A server of a cluster that is away holds up
/// nobody else's debts: batches that failed before are sent beside the others, and no call waits for the one before it.
async fn settle(node: &Node, stores: &[Arc<dyn Store>]) {
    let Some(store) = stores.first() else { return };
    let mut left = node.outbox.overdue();
    let failed_before = || {
        left = left.checked_sub(1)?;
        node.outbox.send_again()
    };
    let debts = || {
        let wanted = |key: &Key| !node.outbox.holds(key);
        let owed = node.debts.collect(clock::monotonic_micros(), DEBTS_OF_A_CALL, wanted);
        (!owed.is_empty()).then(|| node.outbox.send(owed))
    };
    tokio::join!(send_batches(node, &**store, failed_before), send_batches(node, &**store, debts));
    node.count_debts();
}

/// Sends batches at a pace, until there is none, or the store does not answer.
async fn send_batches<'a>(node: &'a Node, store: &dyn Store, mut next: impl FnMut() -> Option<SentBatch<'a>>) {
    let interval = (CALL_INTERVAL * node.share.get().nodes()).min(LONGEST_INTERVAL);
    let (mut calls, mut failures) = (FuturesUnordered::new(), 0);
    while failures < TOLERATED_FAILURES
        && let Some(sent) = next()
    {
        calls.push(send_batch(node, store, sent));
        let mut pause = pin!(tokio::time::sleep(interval));
        loop {
            tokio::select! {
                () = &mut pause, if calls.len() < CALLS_IN_FLIGHT => break,
                Some(confirmed) = calls.next() => failures = if confirmed { 0 } else { failures + 1 },
            }
        }
    }
    while calls.next().await.is_some() {}
}

/// Sends a batch. Whether any of it was confirmed.
async fn send_batch(node: &Node, store: &dyn Store, sent: SentBatch<'_>) -> bool {
    let results = store.adjust(&sent.batch).await;
    node.outcomes.count(&summary(&results));
    node.confirm(sent, &results)
}

/// Waits until `store` decides for the first time, so that no request is spent on connecting. After `timeout` without a
/// decision, the breaker opens: a store that is away at start is an outage like any other.
pub async fn first_contact(breaker: &Breaker, store: &dyn Store, timeout: Duration) {
    let Some(charges) = probe() else { return };
    let deadline = clock::now() + timeout;
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
