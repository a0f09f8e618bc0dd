//! The buckets that an attempt to authenticate is charged to, from the narrowest network of its
//! client to the widest.

use std::net::IpAddr;

use sha2::{Digest, Sha256};
use tollgate_limiter::algorithm::token_bucket::TokenBucket;
use tollgate_limiter::limit::key::Key;
use tollgate_limiter::store::BucketCharge;

use super::known_networks::KnownNetworks;

/// Networks of IPv6 that count, and how many times the bound each has. A subscriber has a /56 or a
/// /48 to choose from.
const IPV6: [(u8, u32); 3] = [(64, 1), (56, 4), (48, 16)];

/// An address of IPv4 counts by itself.
const IPV4: [(u8, u32); 1] = [(32, 1)];

/// The buckets of an attempt.
pub struct AttemptClaim {
    /// The buckets of networks, the narrowest first, and then the bucket of the name.
    charges: Vec<BucketCharge>,
    addresses: usize,
    /// The widest network of its client.
    widest: Key,
    /// The key of the name that it claims, whether or not that is charged.
    name: Option<Key>,
}

impl AttemptClaim {
    /// The attempt of a client at `ip`, each of whose networks may fail as `bound` says.
    pub fn new(ip: IpAddr, bound: TokenBucket) -> Self {
        let ip = ip.to_canonical();
        let networks = if ip.is_ipv4() { &IPV4[..] } else { &IPV6[..] };
        let mut charges = Vec::with_capacity(networks.len() + 1);
        for (prefix, times) in networks {
            charges.push(charge(network_key(ip, *prefix), bound.times(*times)));
        }
        let widest = networks.last().map_or(0, |(prefix, _)| *prefix);
        Self {
            addresses: charges.len(),
            charges,
            widest: network_key(ip, widest),
            name: None,
        }
    }

    /// An attempt as `name`, which may fail as `bound` says, unless its owner is known to come from
    /// this network.
    pub fn with_name(mut self, name: &[u8], bound: TokenBucket, known: &KnownNetworks) -> Self {
        let name = name_key(name);
        let is_known = match self.addresses().next() {
            Some(network) => known.has(&name, network),
            None => false,
        };
        if !is_known {
            self.charges.push(charge(name.clone(), bound));
        }
        self.name = Some(name);
        self
    }

    /// Takes note of the network that the owner of its name comes from.
    pub fn note(&self, known: &mut KnownNetworks) {
        if let Some(name) = &self.name
            && let Some(network) = self.addresses().next()
        {
            known.add(name, network);
        }
    }

    pub fn charges(&self) -> &[BucketCharge] {
        &self.charges
    }

    /// The keys of its address, the narrowest first.
    pub fn addresses(&self) -> impl Iterator<Item = &Key> {
        self.charges
            .iter()
            .take(self.addresses)
            .map(|charge| &charge.key)
    }

    /// The key of its client's widest network.
    pub fn widest(&self) -> &Key {
        &self.widest
    }

    /// Whether the bucket at `place` is that of an address.
    pub fn is_address(&self, place: usize) -> bool {
        place < self.addresses
    }
}

fn charge(key: Key, bound: TokenBucket) -> BucketCharge {
    BucketCharge {
        key,
        quota: bound.into(),
        cost: 1,
        largest_cost: 1,
        local_us: u64::MAX,
    }
}

/// The key of a network. Its first word keeps it apart from names.
fn network_key(ip: IpAddr, prefix: u8) -> Key {
    let mut key = Key(b"address:".as_slice().into());
    key.0.push(prefix);
    key.0
        .extend_from_slice(Key::from_ip(ip, prefix.min(32), prefix).as_bytes());
    key
}

/// The key of a name: a hash, since a name is as long as its client likes, and private.
fn name_key(name: &[u8]) -> Key {
    let mut key = Key(b"name:".as_slice().into());
    key.0.extend_from_slice(&Sha256::digest(name)[..16]);
    key
}
