//! How many connections each client has, for a bound on them.
//!
//! Guarantees that an address costs memory only while it has connections. An IPv6 client owns a
//! /64, and counts by that.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;

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
    /// At most `most` for each client.
    pub fn new(most: u32) -> Self {
        Self {
            most,
            counts: Mutex::default(),
        }
    }

    /// Counts one more connection of `client`. `None`: it has as many as it may.
    pub fn enter(self: &Arc<Self>, client: IpAddr) -> Option<ClientPlace> {
        let client = owned_prefix(client);
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

/// The address of an IPv4 client, and the /64 of an IPv6 one.
fn owned_prefix(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_has_so_many_and_gets_them_back() {
        let counts = Arc::new(ClientCounts::new(2));
        let enter = |client: &str| counts.enter(client.parse().unwrap());
        let held = [
            enter("10.0.0.1"),
            enter("::ffff:10.0.0.1"),
            enter("2001:db8::1"),
            enter("2001:db8::2"),
        ];
        assert!(held.iter().all(Option::is_some));
        assert!(enter("10.0.0.1").is_none() && enter("2001:db8:0:0:9::").is_none());
        assert!(enter("10.0.0.2").is_some() && enter("2001:db8:0:1::1").is_some());
        drop(held);
        assert!(enter("10.0.0.1").is_some() && counts.counts.lock().is_empty());
    }
}
