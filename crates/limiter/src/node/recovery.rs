//! Finds out when a server of the shared store decides again, and charges the node's debts to it.
//!
//! Guarantees that the debts of an outage are charged before the breaker closes, and that there is
//! one prober per node.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;

use crate::clock;
use crate::limit::key::Key;
use crate::node::Node;
use crate::node::outbox::SentBatch;
use crate::store::adjustment::summary;
use crate::store::{PROBE_KEY, ServerId, Store, StoreFailure, probe_bucket};

/// Pause between two rounds of probes: the longest that a recovery goes unnoticed, at ten calls per
/// second and connection.
const PROBE_INTERVAL: Duration = Duration::from_millis(100);

/// Pause between two looks at a store that no request may be asking.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Pause between two probes while a worker starts, and only its listeners wait for it.
const FIRST_INTERVAL: Duration = Duration::from_millis(5);

/// Debts of one call: few enough that the calls of requests do not wait behind them. Measured, such
/// a call takes redis-server 0.35 ms, also where limits changed; one of 64 took up to 1 ms.
const DEBTS_OF_A_CALL: usize = 32;

/// Pause between two such calls, for each node of the fleet, since they all come back at the same
/// time: so Redis spends most of its time on requests.
const CALL_INTERVAL: Duration = Duration::from_millis(2);

/// The longest such pause.
const LONGEST_INTERVAL: Duration = Duration::from_millis(50);

/// Calls in flight at most. Those for a server of a cluster that is away take their whole time.
const CALLS_IN_FLIGHT: usize = 64;

/// Calls without any result, in a row, after which the rest waits for the next round: the store is
/// away.
const TOLERATED_FAILURES: u32 = 8;

/// Closes a server's circuit when it has decided over the connection of each of `stores`, one per
/// worker, and charges the node's debts before that. Also charges debts that single failed calls
/// left. Runs until dropped; a second one on the same node ends at once.
pub async fn run_control(node: Arc<Node>, stores: Vec<Arc<dyn Store>>) {
    let breaker = &node.breaker;
    let Some(_turn) = breaker.claim_prober() else {
        return;
    };
    let mut probes = ServerProbes::default();
    loop {
        tokio::select! {
            () = breaker.until_open() => {}
            () = node.until_owed() => {}
        }
        node.share.note_alone(breaker.is_open_for(ServerId::ONLY));
        let back = probes.round(&node, &stores).await;
        settle(&node, &stores, &back).await;
        back.into_iter().for_each(|server| breaker.close(server));
        node.share.note_alone(breaker.is_open_for(ServerId::ONLY));
        tokio::time::sleep(PROBE_INTERVAL).await;
    }
}

/// The workers over whose connections each server that is away has yet to decide. Not all at once:
/// of many workers, some call is slow nearly always.
#[derive(Default)]
struct ServerProbes(HashMap<ServerId, Vec<usize>>);

impl ServerProbes {
    /// Probes each server that is away. Returns those that are back.
    async fn round(&mut self, node: &Node, stores: &[Arc<dyn Store>]) -> Vec<ServerId> {
        let away = node.breaker.open_servers();
        self.0.retain(|server, _| away.contains(server));
        let probes = away.iter().map(|server| {
            let waiting = self
                .0
                .entry(*server)
                .or_insert_with(|| (0..stores.len()).collect())
                .clone();
            ask(node, stores, *server, waiting)
        });
        let probes: Vec<_> = probes.collect();
        let mut back = Vec::new();
        for (server, waiting) in away.iter().zip(join_all(probes).await) {
            if waiting.is_empty() {
                self.0.remove(server);
                back.push(*server);
            } else {
                self.0.insert(*server, waiting);
            }
        }
        back
    }
}

/// Probes `server` over the connections of the workers that are `waiting`. Returns those that wait
/// still.
async fn ask(
    node: &Node,
    stores: &[Arc<dyn Store>],
    server: ServerId,
    waiting: Vec<usize>,
) -> Vec<usize> {
    let answers = join_all(
        waiting
            .iter()
            .filter_map(|worker| stores.get(*worker))
            .map(|store| store.probe(server)),
    )
    .await;
    // The outcomes show an operator what is wrong: requests no longer do.
    answers
        .iter()
        .for_each(|answer| node.outcomes.count(answer.as_ref().err()));
    waiting
        .into_iter()
        .zip(answers)
        .filter(|(_, answer)| answer.is_err())
        .map(|(worker, _)| worker)
        .collect()
}

/// Whether the server of `key` answers: one of those that are `back`, or one whose circuit is
/// closed.
fn is_reached(key: &Key, node: &Node, store: &dyn Store, back: &[ServerId]) -> bool {
    if !node.breaker.is_open() {
        return true;
    }
    let server = store.server_of(key);
    back.contains(&server) || !node.breaker.is_open_for(server)
}

/// Charges the node's debts to the store. What fails stays in the outbox. A server of a cluster
/// that is away holds up nobody else's debts: batches that failed before are sent beside the
/// others, and no call waits for the one before it.
///
/// Servers that are `back` are asked, although their circuit is still open.
async fn settle(node: &Node, stores: &[Arc<dyn Store>], back: &[ServerId]) {
    let Some(store) = stores.first() else { return };
    let mut left = node.outbox.overdue();
    // A busy node makes new ones all the time: they wait for the next round, and hold no circuit
    // open.
    let mut calls = node.debts.len().div_ceil(DEBTS_OF_A_CALL);
    tokio::join!(
        send_batches(node, &**store, || {
            left = left.checked_sub(1)?;
            node.outbox
                .send_again(|key: &Key| is_reached(key, node, &**store, back))
        }),
        send_batches(node, &**store, || {
            calls = calls.checked_sub(1)?;
            let owed =
                node.debts
                    .collect(clock::monotonic_micros(), DEBTS_OF_A_CALL, |key: &Key| {
                        is_reached(key, node, &**store, back) && !node.outbox.holds(key)
                    });
            (!owed.is_empty()).then(|| node.outbox.send(owed))
        })
    );
    node.count_debts();
}

/// Sends batches at a pace, until there is none, or the store does not answer.
async fn send_batches<'a>(
    node: &'a Node,
    store: &dyn Store,
    mut next: impl FnMut() -> Option<SentBatch<'a>>,
) {
    let interval = (CALL_INTERVAL * node.share.get().nodes()).min(LONGEST_INTERVAL);
    let mut calls = FuturesUnordered::new();
    let mut failures = 0;
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
    node.outcomes.count(summary(&results).err().as_ref());
    node.confirm(sent, &results)
}

/// Waits until `store` decides for the first time, so that no request is spent on connecting. After
/// `timeout` without a decision, the breaker opens: a store that is away at start is an outage like
/// any other, except that this node does not know of others.
pub async fn first_contact(node: &Node, store: &dyn Store, timeout: Duration) {
    let deadline = clock::now() + timeout;
    while let Err(failure) = probe_bucket(store, Key::from(PROBE_KEY)).await {
        if clock::now() >= deadline {
            let StoreFailure { server, error } = failure;
            let opened = node
                .breaker
                .trip(server, &error, || store.server_name(server));
            if opened && node.share.get().nodes() == 1 {
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

/// Looks at the store once a second, so that a node without requests notices that it is away, too.
/// A look counts like a request, and proves writing. Runs until dropped.
pub async fn watch(node: Arc<Node>, store: Arc<dyn Store>) {
    let key = Key::from(PROBE_KEY);
    loop {
        tokio::time::sleep(LOOK_INTERVAL).await;
        // The prober looks after a server whose circuit is open.
        if node.breaker.is_open_for(store.server_of(&key)) {
            continue;
        }
        match probe_bucket(&*store, key.clone()).await {
            Ok(()) => node.breaker.succeeded(store.server_of(&key)),
            Err(StoreFailure { server, error }) => {
                node.outcomes.count(Some(&error));
                node.breaker
                    .failed(server, &error, 1, || store.server_name(server));
            }
        }
    }
}
