//! The networks from which names have succeeded: there, failures elsewhere keep their owners out no
//! more.
//!
//! Guarantees a bounded memory, which whoever has a name cannot fill for others.

use std::collections::{HashMap, VecDeque};

use tollgate_limiter::limit::key::Key;

/// Networks of one name. Further ones make room.
pub const MOST_OF_A_NAME: usize = 16;

/// Names. Further ones are bounded as if they had never succeeded.
const MOST_NAMES: usize = 65_536;

/// Names and their networks, those of the last success at the end.
#[derive(Default)]
pub struct KnownNetworks(HashMap<Key, VecDeque<Key>>);

impl KnownNetworks {
    pub fn has(&self, name: &Key, network: &Key) -> bool {
        match self.0.get(name) {
            Some(networks) => networks.contains(network),
            None => false,
        }
    }

    pub fn add(&mut self, name: &Key, network: &Key) {
        if self.0.len() >= MOST_NAMES && !self.0.contains_key(name) {
            return;
        }
        let networks = self.0.entry(name.clone()).or_default();
        networks.retain(|known| known != network);
        if networks.len() == MOST_OF_A_NAME {
            networks.pop_front();
        }
        networks.push_back(network.clone());
    }
}
