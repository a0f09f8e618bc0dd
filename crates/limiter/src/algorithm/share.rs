//! The part of every limit that this node enforces while the shared store is away.
//!
//! Guarantees that the parts of all nodes together never exceed the limit, as long as the nodes
//! agree on how many they are. A node of `n` enforces a `n`-th of rate and burst. Where that is
//! smaller than one request, the shares would deny everything. Such a limit is divided among as
//! many nodes as have room for a request each, found by a hash of the key that all nodes share; the
//! others deny.

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

    /// The number of parts of the limit of `key`, of which this node enforces one. `None`: it has
    /// none. `largest_cost` is the most tokens that any request takes of the limit. The answer must
    /// not depend on the single request, or a node would grant dear requests from a larger part
    /// while others grant cheap ones from theirs.
    #[inline]
    pub fn parts(self, key: &[u8], quota: Quota, largest_cost: u64) -> Option<u32> {
        let parts = self.parts_of(quota, largest_cost);
        self.has_one_of(parts, self.rank, key).then_some(parts)
    }

    /// Like [`Self::parts`], for a limit of requests in flight.
    #[inline]
    pub fn permit_parts(
        self,
        key: &[u8],
        limit: ConcurrencyLimit,
        largest_cost: u64,
    ) -> Option<u32> {
        let parts = self.most_parts(limit.most(), largest_cost);
        self.has_one_of(parts, self.rank, key).then_some(parts)
    }

    /// Whether the node with this rank has a part of the limit of `key`.
    pub(crate) fn has_part(self, rank: u32, key: &[u8], quota: Quota, largest_cost: u64) -> bool {
        self.has_one_of(self.parts_of(quota, largest_cost), rank, key)
    }

    /// The part of the limit that this node, which reaches the store, holds back for silent nodes
    /// with these ranks: their parts (see [`Self::parts`]).
    pub fn held_back(
        self,
        key: &[u8],
        quota: Quota,
        largest_cost: u64,
        silent: &[u32],
    ) -> HeldBack {
        let nodes = self.parts_of(quota, largest_cost);
        let silent = silent.iter();
        let with_part = silent.filter(|rank| self.has_one_of(nodes, **rank, key));
        let mut silent = u32::try_from(with_part.count()).unwrap_or(u32::MAX);
        if nodes == self.nodes {
            silent = self.bounded(silent);
        }
        if silent == 0 {
            HeldBack::Nothing
        } else if silent < nodes {
            HeldBack::Shares { nodes, silent }
        } else {
            HeldBack::Whole
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

    /// The number of nodes that have a part of a limit: all, or as many as have room for its
    /// largest request, or one.
    #[inline]
    fn parts_of(self, quota: Quota, largest_cost: u64) -> u32 {
        if quota.shared_by(self.nodes).holds(largest_cost) {
            return self.nodes;
        }
        let mut parts = self.most_parts(quota.burst(), largest_cost);
        // A leased limit keeps a part of each share back.
        while parts > 1 && !quota.shared_by(parts).holds(largest_cost) {
            parts -= 1;
        }
        parts
    }

    /// The nodes that could have `largest_cost` of `tokens` each, one at least.
    fn most_parts(self, tokens: u64, largest_cost: u64) -> u32 {
        let parts = tokens.checked_div(largest_cost).unwrap_or(u64::MAX).max(1);
        u32::try_from(parts).map_or(self.nodes, |parts| parts.min(self.nodes))
    }

    /// Whether the node with this rank has one of `parts` parts of the limit of `key`.
    #[inline]
    fn has_one_of(self, parts: u32, rank: u32, key: &[u8]) -> bool {
        if parts >= self.nodes {
            return true;
        }
        let nodes = u64::from(self.nodes);
        let first = fnv1a(key) % nodes;
        rank < self.nodes && (u64::from(rank) + nodes - first) % nodes < parts.into()
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
    use crate::algorithm::concurrency::Scope;
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
    fn a_limit_smaller_than_a_request_of_each_node_is_divided_among_as_many_as_have_room() {
        for key in [b"a".as_slice(), b"b", b"c", b"per-user\0alice"] {
            for (burst, nodes, owners) in [(2, 3, 2), (1, 3, 1), (3, 8, 3), (3, 2, 2)] {
                let tiny = quota(burst, burst);
                let parts: Vec<_> = (0..nodes)
                    .filter_map(|rank| Share::new(nodes, rank).parts(key, tiny, 1))
                    .collect();
                assert_eq!(parts, vec![owners; owners as usize], "{burst} of {nodes}");
                assert!(tiny.shared_by(owners).holds(1));
            }
        }
    }

    #[test]
    fn permits_are_divided_among_as_many_nodes_as_can_admit_the_largest_request() {
        let limit = ConcurrencyLimit::new(5, Scope::Fleet);
        let parts = |largest_cost| {
            let nodes = (0..4).map(|rank| Share::new(4, rank));
            nodes
                .filter_map(|share| share.permit_parts(b"k", limit, largest_cost))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            [parts(1), parts(2), parts(3)],
            [vec![4; 4], vec![2; 2], vec![1]]
        );
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
    fn a_small_limit_is_held_back_for_those_that_have_a_part_of_it() {
        let small = quota(2, 2);
        let owners: Vec<u32> = (0..3)
            .filter(|rank| Share::new(3, *rank).parts(b"k", small, 1).is_some())
            .collect();
        let [first, second] = owners.try_into().unwrap();
        let held = |silent: &[u32]| Share::new(3, 0).held_back(b"k", small, 1, silent);
        let half = HeldBack::Shares {
            nodes: 2,
            silent: 1,
        };
        assert_eq!([held(&[first]), held(&[second])], [half; 2]);
        assert_eq!(held(&[first, second]), HeldBack::Whole);
        assert_eq!(held(&[3 - first - second]), HeldBack::Nothing);
    }

    #[test]
    fn a_limit_that_one_node_owns_alone_is_held_back_if_that_one_is_silent() {
        let tiny = quota(1, 1);
        let owner = (0..3)
            .find(|rank| Share::new(3, *rank).parts(b"k", tiny, 1).is_some())
            .unwrap();
        let held = Share::new(3, 0).held_back(b"k", tiny, 1, &[owner]);
        assert_eq!((held, held.quota(1)), (HeldBack::Whole, 0));
        assert!(held.charge(1, 1) > 1);
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
