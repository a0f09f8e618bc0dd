//! Finds out when a server of the shared store decides again, and charges the node's debts to it.
//!
//! Guarantees that debts are charged before the breaker closes, and that there is one prober per node.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use crate::clock;
use crate::limit::key::Key;
use crate::node::Node;
use crate::store::{ServerId, Store, StoreFailure, probe};

/// Pause between two rounds of probes: the longest that a recovery goes unnoticed, at ten calls per second and
/// connection.
const PROBE_INTERVAL: Duration = Duration::from_millis(100);

/// Pause between two probes while a worker starts, and only its listeners wait for it.
const FIRST_INTERVAL: Duration = Duration::from_millis(5);

/// Debts of one call: few enough that the calls of requests do not wait behind them.
const DEBTS_OF_A_CALL: usize = 64;

/// Closes a server's circuit when it has decided over the connection of each of `stores`, one per worker, and charges the
/// node's debts before that. Also charges debts that single failed calls left. Runs until dropped; a second one on the same
/// node ends at once.
pub async fn run_control(node: Arc<Node>, stores: Vec<Arc<dyn Store>>) {
    let breaker = &node.breaker;
    let Some(_turn) = breaker.claim_prober() else { return };
    let mut probes = ServerProbes::default();
    loop {
        tokio::select! {
            () = breaker.until_open() => {}
            () = node.debts.until_owed() => {}
        }
        let back = probes.round(&node, &stores).await;
        settle(&node, &stores).await;
        back.into_iter().for_each(|server| breaker.close(server));
        tokio::time::sleep(PROBE_INTERVAL).await;
    }
}

/// The workers over whose connections each server that is away has yet to decide. Not all at once: of many workers, some
/// call is slow nearly always.
#[derive(Default)]
struct ServerProbes(HashMap<ServerId, Vec<usize>>);

impl ServerProbes {
    /// Probes each server that is away. Returns those that are back.
    async fn round(&mut self, node: &Node, stores: &[Arc<dyn Store>]) -> Vec<ServerId> {
        let away = node.breaker.open_servers();
        self.0.retain(|server, _| away.contains(server));
        let probes = away.iter().map(|server| {
            let waiting = self.0.entry(*server).or_insert_with(|| (0..stores.len()).collect()).clone();
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

/// Probes `server` over the connections of the workers that are `waiting`. Returns those that wait still.
async fn ask(node: &Node, stores: &[Arc<dyn Store>], server: ServerId, waiting: Vec<usize>) -> Vec<usize> {
    let answers =
        join_all(waiting.iter().filter_map(|worker| stores.get(*worker)).map(|store| store.probe(server))).await;
    // The outcomes show an operator what is wrong: requests no longer do.
    answers.iter().for_each(|answer| node.outcomes.count(answer.as_ref()));
    waiting.into_iter().zip(answers).filter(|(_, answer)| answer.is_err()).map(|(worker, _)| worker).collect()
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
    let deadline = clock::now() + timeout;
    while let Err(failure) = probe::take(store, Key::from(probe::KEY)).await {
        if clock::now() >= deadline {
            let StoreFailure { server, error } = failure;
            let opened = node.breaker.trip(server, &error, || store.server_name(server));
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
