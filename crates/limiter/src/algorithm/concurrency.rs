//! The arithmetic of slots for requests in flight, which nodes hold for a while and pass on among their own requests.
//!
//! A node says how many slots it wants and how many of them it cannot do without, because requests are in them already;
//! it gets what the others leave, at least the latter. What it says replaces what it said before, so nothing is counted
//! twice, and what was lost on the way is put right by the next word. A node that says nothing for the time of a lease
//! holds nothing. `lua/concurrency.lua` is the same for the shared store; a test demands the same answers.
//!
//! Guarantees that slots which nobody is in are never given out twice. Refuses to know clocks, keys and stores.

use crate::algorithm::level::Level;

/// Slots in a limit at most.
pub const MAX_PERMITS: u64 = 1_000_000_000;

/// How long a node holds what it was given without saying so again.
pub const LEASE_US: u64 = 3_000_000;

/// When to come back, as far as anybody can tell.
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

/// What a node says of its slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PermitRequest {
    /// As many as it would like to hold.
    pub wanted: u64,
    /// Those that requests are in.
    pub needed: u64,
    /// Says which of a node's words is the latest.
    pub turn: u64,
}

/// What it hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct GrantedPermits {
    /// Slots that are its own from now on.
    pub own: u64,
    /// Slots that other nodes hold.
    pub others: u64,
}

/// One node's slots, as they are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PermitHolder {
    pub node: u64,
    pub slots: u64,
    pub turn: u64,
    pub until_us: u64,
}

impl ConcurrencyLimit {
    /// `most` requests at a time, at least one and at most [`MAX_PERMITS`].
    pub fn new(most: u64, scope: Scope) -> Self {
        Self { most: most.clamp(1, MAX_PERMITS), scope }
    }

    /// Slots in all.
    pub fn most(self) -> u64 {
        self.most
    }

    pub fn scope(self) -> Scope {
        self.scope
    }

    /// The part of it that one of `nodes` equal nodes enforces: all of a limit of one node.
    pub fn shared_by(self, nodes: u32) -> Self {
        match self.scope {
            Scope::Fleet => Self { most: self.most / u64::from(nodes.max(1)), ..self },
            Scope::Node => self,
        }
    }
}

/// What a request of `cost` meets where `used` slots of `part` are in use.
pub fn level(part: ConcurrencyLimit, used: u64, cost: u64) -> Level {
    let remaining = part.most.saturating_sub(used);
    Level {
        remaining,
        retry_after_us: if cost > remaining { RETRY_US } else { 0 },
        reset_after_us: if used > 0 { RETRY_US } else { 0 },
    }
}

/// Takes over what `node` says of its slots, out of `most`, at `now_us`.
pub fn claim(
    holders: &mut Vec<PermitHolder>,
    node: u64,
    most: u64,
    claim: PermitRequest,
    now_us: u64,
) -> GrantedPermits {
    holders.retain(|holder| holder.until_us > now_us);
    let others = holders.iter().filter(|holder| holder.node != node).map(|holder| holder.slots).sum();
    let place = holders.iter().position(|holder| holder.node == node);
    if let Some(own) = place.map(|place| holders[place]).filter(|own| own.turn > claim.turn) {
        // It has said something else since.
        return GrantedPermits { own: own.slots, others };
    }
    let slots = claim.wanted.min(most.saturating_sub(others)).max(claim.needed);
    let until_us = now_us.saturating_add(LEASE_US);
    let own = PermitHolder { node, slots, turn: claim.turn, until_us };
    match place {
        Some(place) if slots > 0 => holders[place] = own,
        Some(place) => drop(holders.remove(place)),
        None if slots > 0 => holders.push(own),
        None => {}
    }
    GrantedPermits { own: slots, others }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(wanted: u64, needed: u64, turn: u64) -> PermitRequest {
        PermitRequest { wanted, needed, turn }
    }

    #[test]
    fn a_node_gets_what_the_others_leave() {
        let mut holders = Vec::new();
        assert_eq!(claim(&mut holders, 1, 10, said(7, 7, 1), 0), GrantedPermits { own: 7, others: 0 });
        assert_eq!(claim(&mut holders, 2, 10, said(7, 1, 1), 0), GrantedPermits { own: 3, others: 7 });
        assert_eq!(claim(&mut holders, 1, 10, said(2, 2, 2), 0), GrantedPermits { own: 2, others: 3 });
        assert_eq!(claim(&mut holders, 2, 10, said(20, 3, 2), 0), GrantedPermits { own: 8, others: 2 });
    }

    #[test]
    fn requests_that_are_in_a_slot_keep_it_and_nobody_else_gets_one_then() {
        let mut holders = Vec::new();
        claim(&mut holders, 1, 10, said(10, 10, 1), 0);
        assert_eq!(claim(&mut holders, 2, 10, said(4, 4, 1), 0), GrantedPermits { own: 4, others: 10 });
        assert_eq!(claim(&mut holders, 3, 10, said(1, 0, 1), 0), GrantedPermits { own: 0, others: 14 });
    }

    #[test]
    fn a_node_that_died_holds_nothing_after_its_lease() {
        let mut holders = Vec::new();
        claim(&mut holders, 1, 10, said(10, 10, 1), 0);
        assert_eq!(claim(&mut holders, 2, 10, said(1, 0, 1), LEASE_US - 1).own, 0);
        assert_eq!(claim(&mut holders, 2, 10, said(1, 0, 2), LEASE_US), GrantedPermits { own: 1, others: 0 });
    }

    #[test]
    fn a_word_that_comes_late_changes_nothing() {
        let mut holders = Vec::new();
        claim(&mut holders, 1, 10, said(5, 5, 7), 0);
        assert_eq!(claim(&mut holders, 1, 10, said(9, 9, 6), 0), GrantedPermits { own: 5, others: 0 });
        assert_eq!(claim(&mut holders, 1, 10, said(0, 0, 8), 0), GrantedPermits { own: 0, others: 0 });
        assert_eq!(holders, []);
    }

    #[test]
    fn a_share_is_a_part_of_the_fleets_slots_and_all_of_a_nodes_own() {
        assert_eq!(ConcurrencyLimit::new(10, Scope::Fleet).shared_by(3).most(), 3);
        assert_eq!(ConcurrencyLimit::new(10, Scope::Node).shared_by(3).most(), 10);
    }
}
