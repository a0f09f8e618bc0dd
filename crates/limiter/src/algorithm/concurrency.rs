//! The arithmetic of permits for requests in flight. Nodes hold permits for a while and pass them on among their own
//! requests.
//!
//! A node claims the permits it wants, and says how many it needs because requests hold them already. It gets those
//! that the others leave, and at least the needed ones. A claim replaces the node's claim before, so nothing is counted
//! twice, and a lost claim is put right by the next. A node that claims nothing for the time of a lease holds nothing.
//! `lua/concurrency.lua` does the same in Redis; a test demands the same answers.
//!
//! Guarantees that permits which no request needs are never granted twice.

use crate::algorithm::level::Level;

/// Permits in a limit at most.
pub const MAX_PERMITS: u64 = 1_000_000_000;

/// Microseconds that a node holds its permits without claiming them again.
pub const LEASE_US: u64 = 3_000_000;

/// Microseconds after which a denied request may try again. When a permit becomes free is unknown.
pub const RETRY_US: u64 = 50_000;

/// A limit of requests in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConcurrencyLimit {
    most: u64,
    scope: Scope,
}

/// Whose requests count together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Scope {
    /// Those of all nodes.
    #[default]
    Fleet,
    /// Those of one node.
    Node,
}

/// The claim of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PermitRequest {
    /// Permits that it would like to hold.
    pub wanted: u64,
    /// Permits that requests hold.
    pub needed: u64,
    /// The number of the claim among the node's own: the highest is the latest.
    pub turn: u64,
}

/// The answer to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct GrantedPermits {
    /// Permits that are the node's own from now on.
    pub own: u64,
    /// Permits that other nodes hold.
    pub others: u64,
}

/// The permits of a node, as they are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PermitHolder {
    pub node: u64,
    pub permits: u64,
    pub turn: u64,
    pub until_us: u64,
}

impl ConcurrencyLimit {
    /// `most` requests at a time, at least one and at most [`MAX_PERMITS`].
    pub fn new(most: u64, scope: Scope) -> Self {
        Self { most: most.clamp(1, MAX_PERMITS), scope }
    }

    /// Permits in all.
    #[inline]
    pub fn most(self) -> u64 {
        self.most
    }

    #[inline]
    pub fn scope(self) -> Scope {
        self.scope
    }

    /// The part of it that one of `nodes` equal nodes enforces: all of a limit of one node.
    #[inline]
    pub fn shared_by(self, nodes: u32) -> Self {
        match self.scope {
            Scope::Fleet => Self { most: self.most / u64::from(nodes.max(1)), ..self },
            Scope::Node => self,
        }
    }
}

/// The level that a request of `cost` meets where `used` permits of `part` are in use.
#[inline]
pub fn level(part: ConcurrencyLimit, used: u64, cost: u64) -> Level {
    let remaining = part.most.saturating_sub(used);
    Level {
        remaining,
        retry_after_us: if cost > remaining { RETRY_US } else { 0 },
        reset_after_us: if used > 0 { RETRY_US } else { 0 },
    }
}

/// Takes over the claim of `node` on `most` permits, at `now_us`.
pub fn claim(
    holders: &mut Vec<PermitHolder>,
    node: u64,
    most: u64,
    claim: PermitRequest,
    now_us: u64,
) -> GrantedPermits {
    holders.retain(|holder| holder.until_us > now_us);
    let others = holders.iter().filter(|holder| holder.node != node).map(|holder| holder.permits).sum();
    let place = holders.iter().position(|holder| holder.node == node);
    if let Some(own) = place.map(|place| holders[place]).filter(|own| own.turn > claim.turn) {
        // A later claim has overtaken this one.
        return GrantedPermits { own: own.permits, others };
    }
    let permits = claim.wanted.min(most.saturating_sub(others)).max(claim.needed);
    let until_us = now_us.saturating_add(LEASE_US);
    let own = PermitHolder { node, permits, turn: claim.turn, until_us };
    match place {
        Some(place) if permits > 0 => holders[place] = own,
        Some(place) => drop(holders.remove(place)),
        None if permits > 0 => holders.push(own),
        None => {}
    }
    GrantedPermits { own: permits, others }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(wanted: u64, needed: u64, turn: u64) -> PermitRequest {
        PermitRequest { wanted, needed, turn }
    }

    #[test]
    fn a_node_gets_what_the_others_leave() {
        let mut holders = Vec::new();
        assert_eq!(claim(&mut holders, 1, 10, request(7, 7, 1), 0), GrantedPermits { own: 7, others: 0 });
        assert_eq!(claim(&mut holders, 2, 10, request(7, 1, 1), 0), GrantedPermits { own: 3, others: 7 });
        assert_eq!(claim(&mut holders, 1, 10, request(2, 2, 2), 0), GrantedPermits { own: 2, others: 3 });
        assert_eq!(claim(&mut holders, 2, 10, request(20, 3, 2), 0), GrantedPermits { own: 8, others: 2 });
    }

    #[test]
    fn requests_keep_their_permits_and_no_other_node_gets_one_then() {
        let mut holders = Vec::new();
        claim(&mut holders, 1, 10, request(10, 10, 1), 0);
        assert_eq!(claim(&mut holders, 2, 10, request(4, 4, 1), 0), GrantedPermits { own: 4, others: 10 });
        assert_eq!(claim(&mut holders, 3, 10, request(1, 0, 1), 0), GrantedPermits { own: 0, others: 14 });
    }

    #[test]
    fn a_node_that_died_holds_nothing_after_its_lease() {
        let mut holders = Vec::new();
        claim(&mut holders, 1, 10, request(10, 10, 1), 0);
        assert_eq!(claim(&mut holders, 2, 10, request(1, 0, 1), LEASE_US - 1).own, 0);
        assert_eq!(claim(&mut holders, 2, 10, request(1, 0, 2), LEASE_US), GrantedPermits { own: 1, others: 0 });
    }

    #[test]
    fn a_claim_that_comes_late_changes_nothing() {
        let mut holders = Vec::new();
        claim(&mut holders, 1, 10, request(5, 5, 7), 0);
        assert_eq!(claim(&mut holders, 1, 10, request(9, 9, 6), 0), GrantedPermits { own: 5, others: 0 });
        assert_eq!(claim(&mut holders, 1, 10, request(0, 0, 8), 0), GrantedPermits { own: 0, others: 0 });
        assert_eq!(holders, []);
    }

    #[test]
    fn a_node_that_gets_no_permit_is_no_holder() {
        let mut holders = Vec::new();
        assert_eq!(claim(&mut holders, 1, 10, request(0, 0, 1), 0), GrantedPermits { own: 0, others: 0 });
        assert_eq!(holders, []);
    }

    #[test]
    fn a_request_that_finds_too_few_permits_may_try_again_soon() {
        let limit = ConcurrencyLimit::new(10, Scope::Fleet);
        let level_of = |used, cost| {
            let level = level(limit, used, cost);
            (level.remaining, level.retry_after_us, level.reset_after_us)
        };
        assert_eq!(level_of(0, 10), (10, 0, 0));
        assert_eq!(level_of(7, 3), (3, 0, RETRY_US));
        assert_eq!(level_of(7, 4), (3, RETRY_US, RETRY_US));
        assert_eq!(level_of(12, 1), (0, RETRY_US, RETRY_US), "more than the limit, after a reload");
    }

    #[test]
    fn a_share_is_a_part_of_the_fleets_permits_and_all_of_a_nodes_own() {
        assert_eq!(ConcurrencyLimit::new(10, Scope::Fleet).shared_by(3).most(), 3);
        assert_eq!(ConcurrencyLimit::new(10, Scope::Node).shared_by(3).most(), 10);
    }
}
