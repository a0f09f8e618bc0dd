//! Keys that the store's servers evicted to make room (`maxmemory-policy`): each such bucket begins
//! anew, full, and its client may take a burst again.
//!
//! Guarantees one warning for all of a process's time. A server that does not tell, since the user
//! may not send `INFO`, is left out.

use std::collections::HashMap;
use std::time::Duration;

use fred::clients::Client;
use fred::interfaces::ClientLike;
use fred::types::{ClusterHash, CustomCommand, Value};
use metrics::{Counter, counter};

use crate::store::redis::topology::any_topology::Topology;

/// Pause between two looks.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// The words of a server about itself.
struct Evictions {
    /// Another one after each start. Servers of a cluster may be known by two names.
    run_id: String,
    /// Since its start.
    keys: u64,
}

/// The evictions that were seen.
struct EvictionCount {
    evicted: Counter,
    /// The count of each server at the last look, by its `run_id`.
    known: HashMap<String, u64>,
    is_logged: bool,
}

/// Looks every few seconds, counts what was evicted since the first look, and says it once. Runs
/// until dropped.
pub(crate) async fn watch(topology: &Topology) {
    let mut count = EvictionCount::new();
    loop {
        for client in topology.clients() {
            if let Some(evictions) = Evictions::of_server(&client).await {
                count.add(evictions);
            }
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

impl EvictionCount {
    fn new() -> Self {
        Self {
            evicted: counter!("tollgate_store_evicted_keys_total"),
            known: HashMap::new(),
            is_logged: false,
        }
    }

    fn add(&mut self, Evictions { run_id, keys }: Evictions) {
        let before = self.known.insert(run_id, keys).unwrap_or(keys);
        let newly = keys.saturating_sub(before);
        self.evicted.increment(newly);
        if newly > 0 && !self.is_logged {
            self.is_logged = true;
            tracing::warn!(
                "Redis evicts keys: a limit whose bucket is evicted admits its burst again; give Redis more maxmemory, \
                 or set maxmemory-policy to noeviction"
            );
        }
    }
}

impl Evictions {
    /// `None`: the server does not tell.
    async fn of_server(client: &Client) -> Option<Self> {
        let command = CustomCommand::new_static("INFO", ClusterHash::FirstKey, false);
        let info: String = client.custom(command, Vec::<Value>::new()).await.ok()?;
        Some(Self {
            run_id: field(&info, "run_id:")?.to_owned(),
            keys: field(&info, "evicted_keys:")?.parse().ok()?,
        })
    }
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines()
        .find_map(|line| line.strip_prefix(name))
        .map(str::trim)
}
