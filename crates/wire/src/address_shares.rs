//! Shares of something that is bounded, by client address: no client takes all of it.
//!
//! Guarantees that only clients that have a share take memory.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;

/// The shares of all clients. Clients of one network of IPv6 (/64) are one.
#[derive(Debug, Default)]
pub struct AddressShares(Mutex<HashMap<IpAddr, usize>>);

/// A share of one client. Dropping a share gives it back.
#[derive(Debug)]
pub struct AddressShare {
    shares: Arc<AddressShares>,
    client: IpAddr,
    units: usize,
}

impl AddressShares {
    /// Takes `units` for the client at `ip`. `None`: the client would have more than `most`.
    pub fn take(self: &Arc<Self>, ip: IpAddr, units: usize, most: usize) -> Option<AddressShare> {
        let mut share = AddressShare {
            shares: self.clone(),
            client: network(ip),
            units: 0,
        };
        if share.grow_to(units, most) {
            Some(share)
        } else {
            None
        }
    }
}

impl AddressShare {
    /// Takes `units` in all, unless the client would have more than `most`. Returns whether it has
    /// taken them.
    pub fn grow_to(&mut self, units: usize, most: usize) -> bool {
        let more = units.saturating_sub(self.units);
        let mut clients = self.shares.0.lock();
        let before = clients.get(&self.client).copied().unwrap_or_default();
        let Some(total) = before.checked_add(more) else {
            return false;
        };
        if total > most {
            return false;
        }
        if total > 0 {
            clients.insert(self.client, total);
        }
        self.units += more;
        true
    }
}

impl Drop for AddressShare {
    fn drop(&mut self) {
        if self.units == 0 {
            return;
        }
        let mut clients = self.shares.0.lock();
        if let Entry::Occupied(mut entry) = clients.entry(self.client) {
            *entry.get_mut() = entry.get().saturating_sub(self.units);
            if *entry.get() == 0 {
                entry.remove();
            }
        }
    }
}

/// The address that stands for a client: its own, or its network's. A client of IPv6 has all
/// addresses of its network (/64) to choose from.
pub fn network(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
        ip => ip,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_its_share_and_others_have_theirs() {
        let shares = Arc::new(AddressShares::default());
        fn ip(text: &str) -> IpAddr {
            text.parse().unwrap()
        }
        let mut first = shares.take(ip("192.0.2.1"), 4, 10).unwrap();
        assert!(
            first.grow_to(7, 10) && first.grow_to(3, 10),
            "it never shrinks"
        );
        assert!(shares.take(ip("192.0.2.1"), 4, 10).is_none());
        assert!(shares.take(ip("::ffff:192.0.2.1"), 4, 10).is_none());
        assert!(shares.take(ip("192.0.2.2"), 10, 10).is_some());
        drop(first);
        let in_network = shares.take(ip("2001:db8::1"), 10, 10);
        assert!(
            shares.take(ip("2001:db8::2"), 1, 10).is_none()
                && shares.take(ip("2001:db8:0:1::2"), 1, 10).is_some()
        );
        drop(in_network);
        assert!(shares.0.lock().is_empty());
    }
}
