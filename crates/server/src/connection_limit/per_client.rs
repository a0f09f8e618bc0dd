//! The number of connections that each client has, for a bound on them.
//!
//! Guarantees that an address costs memory only while it has connections. An IPv6 client owns a
//! /64, which counts as one address.

use std::net::IpAddr;
use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;

use tollgate_wire::address_shares::network;

/// The connections of each client of a listener, all workers together.
#[derive(Debug)]
pub struct ClientCounts {
    most: u32,
    counts: Mutex<HashMap<IpAddr, u32>>,
}

/// Counts a connection of a client until dropped.
#[derive(Debug)]
pub struct ClientPlace {
    counts: Arc<ClientCounts>,
    client: IpAddr,
}

impl ClientCounts {
    /// Counts with a bound of `most` for each client.
    pub fn new(most: u32) -> Self {
        Self {
            most,
            counts: Mutex::default(),
        }
    }

    /// Counts one more connection of `client`. `None`: the client has as many as it may.
    pub fn enter(self: &Arc<Self>, client: IpAddr) -> Option<ClientPlace> {
        let client = network(client);
        let mut counts = self.counts.lock();
        let count = counts.entry(client).or_insert(0);
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(ClientPlace {
            counts: Arc::clone(self),
            client,
        })
    }
}

impl Drop for ClientPlace {
    fn drop(&mut self) {
        let mut counts = self.counts.counts.lock();
        if let Some(count) = counts.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_has_so_many_and_gets_them_back() {
        let counts = Arc::new(ClientCounts::new(2));
        let places = [
            enter(&counts, "10.0.0.1"),
            enter(&counts, "::ffff:10.0.0.1"),
            enter(&counts, "2001:db8::1"),
            enter(&counts, "2001:db8::2"),
        ];
        assert!(places.iter().all(Option::is_some));
        assert!(enter(&counts, "10.0.0.1").is_none());
        assert!(enter(&counts, "2001:db8:0:0:9::").is_none());
        assert!(enter(&counts, "10.0.0.2").is_some());
        assert!(enter(&counts, "2001:db8:0:1::1").is_some());
        drop(places);
        assert!(enter(&counts, "10.0.0.1").is_some());
        assert!(counts.counts.lock().is_empty());
    }

    fn enter(counts: &Arc<ClientCounts>, client: &str) -> Option<ClientPlace> {
        counts.enter(client.parse().unwrap())
    }
}
