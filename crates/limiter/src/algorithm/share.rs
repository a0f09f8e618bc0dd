//! The part of every limit that this node enforces while the shared store is away.
//!
//! Guarantees that the parts of all nodes together never exceed the limit, as long as the nodes
//! agree on how many they are. A node of `n` enforces a `n`-th of rate and burst. Where that is
//! smaller than one request, the shares would deny everything, so the whole limit of such a key
//! belongs to one node, found by a hash that all nodes share; the others deny.

use crate::algorithm::concurrency::ConcurrencyLimit;
use crate::algorithm::held_back::HeldBack;
use crate::algorithm::quota::Quota;

/// How many nodes there are, and which of them this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    nodes: u32,
    rank: u32,
}

/// No node has this rank: this node does not know its rank yet, so it owns no key alone.
const UNPLACED: u32 = u32::MAX;

impl Share {
    /// All of every limit: there is no other node.
    pub const WHOLE: Self = Self { nodes: 1, rank: 0 };

    /// Node `rank` (from 0) of `nodes`. No nodes count as one.
    pub fn new(nodes: u32, rank: u32) -> Self {
        Self {
            nodes: nodes.max(1),
            rank,
        }
    }

    /// The share of a node of `nodes` that does not know its place. If each of them took itself for
    /// the first, a key that one node owns alone would be granted by all: so such keys are denied
    /// until the node has its place.
    pub fn unplaced(nodes: u32) -> Self {
        if nodes <= 1 {
            Self::WHOLE
        } else {
            Self {
                nodes,
                rank: UNPLACED,
            }
        }
    }

    /// Both numbers in one, for an atomic cell.
    #[inline]
    pub(crate) fn packed(self) -> u64 {
        u64::from(self.nodes) | u64::from(self.rank) << 32
    }

    /// Undoes [`Self::packed`].
    #[inline]
    pub(crate) fn unpacked(packed: u64) -> Self {
        let [a, b, c, d, e, f, g, h] = packed.to_le_bytes();
        Self {
            nodes: u32::from_le_bytes([a, b, c, d]),
            rank: u32::from_le_bytes([e, f, g, h]),
        }
    }

    #[inline]
    pub fn nodes(self) -> u32 {
        self.nodes
    }

    /// The place of this node among them, from 0. `None`: it is not known yet.
    pub fn rank(self) -> Option<u32> {
        (self.rank < self.nodes).then_some(self.rank)
    }

    /// The number of parts of the limit of `key`, of which this node enforces one: 1 if it has the
    /// whole of it. `None`: another node has. `largest_cost` is the most tokens that any request
    /// takes of the limit. The answer must not depend on the single request, or a node would grant
    /// dear requests from the whole while others grant cheap ones from their shares.
    #[inline]
    pub fn parts(self, key: &[u8], quota: Quota, largest_cost: u64) -> Option<u32> {
        self.parts_if(quota.shared_by(self.nodes).holds(largest_cost), key)
    }

    /// Like [`Self::parts`], for a limit of requests in flight.
    #[inline]
    pub fn permit_parts(
        self,
        key: &[u8],
        limit: ConcurrencyLimit,
        largest_cost: u64,
    ) -> Option<u32> {
        self.parts_if(largest_cost <= limit.shared_by(self.nodes).most(), key)
    }

    /// The part of the limit that this node, which reaches the store, holds back for silent nodes
    /// with these ranks. A limit that cannot be divided (see [`Self::parts`]) is held back if its
    /// owner is silent.
    pub fn held_back(
        self,
        key: &[u8],
        quota: Quota,
        largest_cost: u64,
        silent: &[u32],
    ) -> HeldBack {
        let nodes = self.nodes;
        let count = self.bounded(u32::try_from(silent.len()).unwrap_or(u32::MAX));
        if count == 0 {
            HeldBack::Nothing
        } else if quota.shared_by(nodes).holds(largest_cost) {
            HeldBack::Shares {
                nodes,
                silent: count,
            }
        } else if silent.iter().any(|rank| self.is_owner(*rank, key)) {
            HeldBack::Whole
        } else {
            HeldBack::Nothing
        }
    }

    /// The part of a limit's rate that is held back for `silent` silent nodes, where the limit
    /// can be divided.
    pub fn held_back_ratio(self, silent: u32) -> f64 {
        f64::from(self.bounded(silent)) / f64::from(self.nodes)
    }

    /// The number of silent nodes, without this one: it reaches the store, whatever is known.
    fn bounded(self, silent: u32) -> u32 {
        silent.min(self.nodes.saturating_sub(1))
    }

    /// The number of parts of a limit that can be divided or not.
    fn parts_if(self, is_divisible: bool, key: &[u8]) -> Option<u32> {
        if is_divisible {
            Some(self.nodes)
        } else if self.is_owner(self.rank, key) {
            Some(1)
        } else {
            None
        }
    }

    /// Whether the node with this rank has the whole of a limit that cannot be divided.
    fn is_owner(self, rank: u32, key: &[u8]) -> bool {
        fnv1a(key) % u64::from(self.nodes) == u64::from(rank)
    }
}

/// FNV-1a, 64 bits: the same on every node, unlike the seeded hash of the local store.
pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;
    use crate::algorithm::token_bucket::TokenBucket;

    fn quota(tokens: u64, burst: u64) -> Quota {
        fn nonzero(number: u64) -> NonZeroU64 {
            NonZeroU64::new(number).unwrap()
        }
        TokenBucket::new(nonzero(tokens), nonzero(1_000_000), nonzero(burst))
            .unwrap()
            .into()
    }

    #[test]
    fn a_share_smaller_than_a_request_makes_one_node_the_owner() {
        let tiny = quota(2, 2);
        for key in [b"a".as_slice(), b"b", b"c", b"per-user\0alice"] {
            let owners = (0..3)
                .filter(|rank| Share::new(3, *rank).parts(key, tiny, 1) == Some(1))
                .count();
            let deniers = (0..3)
                .filter(|rank| Share::new(3, *rank).parts(key, tiny, 1).is_none())
                .count();
            assert_eq!((owners, deniers), (1, 2));
        }
    }

    #[test]
    fn a_cheap_request_follows_the_dearest_of_its_limit() {
        let limit = quota(8, 8);
        let owners = (0..2)
            .filter(|rank| Share::new(2, *rank).parts(b"k", limit, 5).is_some())
            .count();
        assert_eq!(owners, 1);
        assert_eq!(Share::new(2, 0).parts(b"k", limit, 4), Some(2));
    }

    #[test]
    fn the_share_of_silent_nodes_is_held_back_and_no_more() {
        let limit = quota(100, 100);
        let held = Share::new(4, 0).held_back(b"k", limit, 1, &[2]);
        assert_eq!(
            held,
            HeldBack::Shares {
                nodes: 4,
                silent: 1
            }
        );
        assert_eq!(
            (held.charge(3, 100), held.charge(4, 100), held.quota(10)),
            (4, 6, 7)
        );
        assert_eq!(
            Share::new(4, 0).held_back(b"k", limit, 1, &[]),
            HeldBack::Nothing
        );
        assert_eq!(
            Share::new(2, 0).held_back(b"k", limit, 1, &[0, 1]),
            HeldBack::Shares {
                nodes: 2,
                silent: 1
            }
        );
        assert_eq!(
            Share::WHOLE.held_back(b"k", limit, 1, &[0]),
            HeldBack::Nothing
        );
    }

    #[test]
    fn the_ratio_that_is_held_back_is_that_of_the_silent_nodes_and_never_all() {
        let ratios = [0, 1, 3, 4].map(|silent| Share::new(4, 0).held_back_ratio(silent));
        assert_eq!(ratios, [0.0, 0.25, 0.75, 0.75]);
        assert_eq!(Share::WHOLE.held_back_ratio(1), 0.0);
    }

    #[test]
    fn a_limit_that_one_node_owns_alone_is_held_back_if_that_one_is_silent() {
        let tiny = quota(2, 2);
        let owner = (0..3)
            .find(|rank| Share::new(3, *rank).parts(b"k", tiny, 1).is_some())
            .unwrap();
        let held = Share::new(3, 0).held_back(b"k", tiny, 1, &[owner]);
        assert_eq!((held, held.quota(2)), (HeldBack::Whole, 0));
        assert!(held.charge(1, 2) > 2);
        assert_eq!(
            held.scaled(1),
            1,
            "what is spent is charged, and locks nobody out"
        );
        assert_eq!(
            Share::new(3, 0).held_back(b"k", tiny, 1, &[(owner + 1) % 3]),
            HeldBack::Nothing
        );
    }

    #[test]
    fn a_node_without_a_place_owns_nothing_alone() {
        assert_eq!(Share::unplaced(3).parts(b"k", quota(2, 2), 1), None);
        assert_eq!(Share::unplaced(1).parts(b"k", quota(2, 2), 2), Some(1));
    }
}
