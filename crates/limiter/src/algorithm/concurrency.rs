//! The arithmetic of permits for requests in flight. Nodes hold permits for a while and pass them
//! on among their own requests.
//!
//! A node claims the permits it wants, and says how many it needs because requests hold them
//! already. It gets those that the others leave, and at least the needed ones. A claim replaces the
//! node's claim before, so nothing is counted twice, and a lost claim is put right by the next. A
//! node that claims nothing for the time of a lease holds nothing.
//!
//! A claim also says how many permits the node could use. While the nodes together could use more
//! than there are, each is told its fair share: it gets nothing beyond that, and gives back what it
//! holds beyond as its requests end. `lua/concurrency.lua` does the same in Redis; a test demands
//! the same answers.
//!
//! Guarantees that permits which no request needs are never granted twice.

use crate::algorithm::level::Level;

/// Permits in a limit at most.
pub const MAX_PERMITS: u64 = 1_000_000_000;

/// Microseconds that a node holds its permits without claiming them again.
pub const LEASE_US: u64 = 3_000_000;

/// Microseconds that a demand beyond what the node holds counts for the fair shares. A busy node
/// claims more often.
pub const DEMAND_US: u64 = 200_000;

/// Microseconds after which permits that cannot be divided evenly go to the next nodes. So a limit
/// of one permit serves each of two busy nodes within a second.
pub const ROTATION_US: u64 = 500_000;

/// Microseconds after which a denied request may try again. When a permit becomes free is unknown.
pub const RETRY_US: u64 = 50_000;

/// A limit of requests in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConcurrencyLimit {
    most: u64,
    scope: Scope,
}

/// The requests that count together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Scope {
    /// The requests of all nodes.
    #[default]
    Fleet,
    /// The requests of one node.
    Node,
}

/// The claim of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PermitRequest {
    /// Permits that it would like to hold.
    pub wanted: u64,
    /// Permits that it could use: also for requests that it denied a moment ago.
    pub demand: u64,
    /// Permits that it holds and may give to requests until it has the answer.
    pub kept: u64,
    /// Permits that requests hold.
    pub needed: u64,
    /// The most permits that one request takes: fewer are of no use to a node.
    pub largest_cost: u64,
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
    /// The node's fair share of the limit: all of it, unless the nodes could use more than there
    /// is.
    pub share: u64,
}

/// The permits of a node, as they are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PermitHolder {
    pub node: u64,
    pub permits: u64,
    pub demand: u64,
    pub turn: u64,
    pub until_us: u64,
}

impl ConcurrencyLimit {
    /// `most` requests at a time, at least one and at most [`MAX_PERMITS`].
    pub fn new(most: u64, scope: Scope) -> Self {
        Self {
            most: most.clamp(1, MAX_PERMITS),
            scope,
        }
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
            Scope::Fleet => Self {
                most: self.most / u64::from(nodes.max(1)),
                ..self
            },
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

impl PermitHolder {
    /// Whether the node holds permits at `now_us`, or could use some.
    fn holds_at(&self, now_us: u64) -> bool {
        self.until_us > now_us && self.demand(now_us) > 0
    }

    /// Permits that the node could use, as far as that is known at `now_us`.
    fn demand(&self, now_us: u64) -> u64 {
        let is_recent = self.until_us.saturating_add(DEMAND_US) > now_us.saturating_add(LEASE_US);
        if is_recent {
            self.demand.max(self.permits)
        } else {
            self.permits
        }
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
    let mut overtaken = None;
    let holding = holders.iter().filter(|holder| holder.holds_at(now_us));
    let mut others = 0;
    for holder in holding {
        if holder.node != node {
            others += holder.permits;
        } else if holder.turn > claim.turn {
            // A later claim has overtaken this one.
            overtaken = Some(holder.permits);
        }
    }
    if let Some(own) = overtaken {
        return GrantedPermits {
            own,
            others,
            share: most,
        };
    }
    holders.retain(|holder| holder.holds_at(now_us));
    let until_us = now_us.saturating_add(LEASE_US);
    for holder in holders.iter_mut() {
        holder.demand = holder.demand(now_us);
        // The clock may have stepped back since: nobody holds permits for longer than a lease.
        holder.until_us = holder.until_us.min(until_us);
    }
    let place = holders.iter().position(|holder| holder.node == node);
    let share = fair_share(holders, node, most, claim, now_us);
    let permits = claim
        .wanted
        .min(most.saturating_sub(others))
        .min(claim.kept.max(share))
        .max(claim.needed);
    let own = PermitHolder {
        node,
        permits,
        demand: claim.demand,
        turn: claim.turn,
        until_us,
    };
    let is_stored = permits > 0 || claim.demand > 0;
    match place {
        Some(place) if is_stored => holders[place] = own,
        Some(place) => drop(holders.remove(place)),
        None if is_stored => holders.push(own),
        None => {}
    }
    GrantedPermits {
        own: permits,
        others,
        share,
    }
}

/// The share of `node` in `most` permits: all of them if that is enough for everyone. Otherwise
/// nodes that want little get it, and the rest is divided evenly among the others, in units of the
/// largest request. The units that remain go to a few of those, in turns.
fn fair_share(
    holders: &[PermitHolder],
    node: u64,
    most: u64,
    claim: PermitRequest,
    now_us: u64,
) -> u64 {
    let others = holders.iter().filter(|holder| holder.node != node);
    let wanted = others
        .clone()
        .map(|holder| holder.demand(now_us))
        .fold(claim.demand, u64::saturating_add);
    if wanted <= most {
        return most;
    }
    let unit = claim.largest_cost.clamp(1, most.max(1));
    let own = claim.demand.div_ceil(unit);
    let demands = others
        .map(|holder| holder.demand(now_us).div_ceil(unit))
        .chain([own]);
    let mut left = most / unit;
    let mut contenders = demands.clone().count() as u64;
    loop {
        // Each demand that is met raises the level for the others.
        let level = left / contenders;
        let (met, unmet) = demands.clone().fold((0, 0), |(met, unmet), demand| {
            if demand <= level {
                (met + demand, unmet)
            } else {
                (met, unmet + 1)
            }
        });
        if unmet == 0 {
            return most;
        }
        left = (most / unit).saturating_sub(met);
        if unmet == contenders {
            break;
        }
        contenders = unmet;
    }
    let level = left / contenders;
    let remaining = left % contenders;
    let rank = holders
        .iter()
        .filter(|holder| holder.node < node && holder.demand(now_us).div_ceil(unit) > level)
        .count() as u64;
    let has_one_more = own > level && (rank + now_us / ROTATION_US) % contenders < remaining;
    (level + u64::from(has_one_more)) * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A claim of a node that could use what it wants, and keeps what requests hold.
    fn request(wanted: u64, needed: u64, turn: u64) -> PermitRequest {
        PermitRequest {
            wanted,
            demand: wanted,
            kept: needed,
            needed,
            largest_cost: 1,
            turn,
        }
    }

    /// The permits that are the node's own, and those of the others.
    fn claimed(
        holders: &mut Vec<PermitHolder>,
        node: u64,
        claim: PermitRequest,
        now_us: u64,
    ) -> (u64, u64) {
        let granted = super::claim(holders, node, 10, claim, now_us);
        (granted.own, granted.others)
    }

    #[test]
    fn a_node_gets_what_the_others_leave() {
        let mut holders = Vec::new();
        assert_eq!(claimed(&mut holders, 1, request(7, 7, 1), 0), (7, 0));
        assert_eq!(claimed(&mut holders, 2, request(7, 1, 1), 0), (3, 7));
        assert_eq!(claimed(&mut holders, 1, request(2, 2, 2), 0), (2, 3));
        assert_eq!(claimed(&mut holders, 2, request(20, 3, 2), 0), (8, 2));
    }

    #[test]
    fn requests_keep_their_permits_and_no_other_node_gets_one_then() {
        let mut holders = Vec::new();
        claimed(&mut holders, 1, request(10, 10, 1), 0);
        assert_eq!(claimed(&mut holders, 2, request(4, 4, 1), 0), (4, 10));
        assert_eq!(claimed(&mut holders, 3, request(1, 0, 1), 0), (0, 14));
    }

    #[test]
    fn a_node_that_died_holds_nothing_after_its_lease() {
        let mut holders = Vec::new();
        claimed(&mut holders, 1, request(10, 10, 1), 0);
        assert_eq!(
            claimed(&mut holders, 2, request(1, 0, 1), LEASE_US - 1).0,
            0
        );
        assert_eq!(claimed(&mut holders, 2, request(1, 0, 2), LEASE_US), (1, 0));
    }

    #[test]
    fn a_node_that_died_before_the_clock_stepped_back_holds_nothing_after_its_lease() {
        let mut holders = Vec::new();
        claimed(&mut holders, 1, request(10, 10, 1), 20_000_000);
        assert_eq!(claimed(&mut holders, 2, request(1, 0, 1), 0).0, 0);
        assert_eq!(claimed(&mut holders, 2, request(1, 0, 2), LEASE_US), (1, 0));
    }

    #[test]
    fn a_claim_that_comes_late_changes_nothing() {
        let mut holders = Vec::new();
        claimed(&mut holders, 1, request(5, 5, 7), 0);
        assert_eq!(claimed(&mut holders, 1, request(9, 9, 6), 0), (5, 0));
        assert_eq!(claimed(&mut holders, 1, request(0, 0, 8), 0), (0, 0));
        assert_eq!(holders, []);
    }

    /// The shares of nodes with these demands, each of which holds nothing yet, at `now_us`.
    fn shares(most: u64, demands: &[u64], largest_cost: u64, now_us: u64) -> Vec<u64> {
        let holders: Vec<_> = (0..)
            .zip(demands)
            .map(|(node, demand)| PermitHolder {
                node,
                permits: 0,
                demand: *demand,
                turn: 1,
                until_us: now_us + LEASE_US,
            })
            .collect();
        holders
            .iter()
            .map(|own| {
                let claim = PermitRequest {
                    demand: own.demand,
                    largest_cost,
                    ..PermitRequest::default()
                };
                fair_share(&holders, own.node, most, claim, now_us)
            })
            .collect()
    }

    #[test]
    fn shares_are_even_where_the_demand_is_and_small_demands_are_met() {
        assert_eq!(shares(10, &[4, 6], 1, 0), [10, 10], "there is enough");
        assert_eq!(shares(10, &[50, 50], 1, 0), [5, 5]);
        assert_eq!(shares(10, &[50, 2], 1, 0), [8, 8]);
        assert_eq!(shares(10, &[50, 2, 50], 1, 0), [4, 4, 4]);
        assert_eq!(shares(100, &[u64::MAX, u64::MAX], 1, 0), [50, 50]);
    }

    #[test]
    fn permits_that_cannot_be_divided_go_to_one_node_after_the_other() {
        let turns = [0, 1, 2].map(|rotation| shares(1, &[9, 9], 1, rotation * ROTATION_US));
        assert_eq!(turns, [[1, 0], [0, 1], [1, 0]]);
        assert_eq!(shares(10, &[9, 9, 9], 1, 0), [4, 3, 3]);
        assert_eq!(
            shares(10, &[9, 9, 9], 1, ROTATION_US).iter().sum::<u64>(),
            10
        );
    }

    #[test]
    fn a_share_has_room_for_the_largest_request() {
        assert_eq!(shares(10, &[12, 12], 6, 0), [6, 0]);
        assert_eq!(shares(10, &[12, 12], 6, ROTATION_US), [0, 6]);
        assert_eq!(shares(10, &[12, 12], 99, 0), [10, 0]);
    }

    #[test]
    fn a_node_beyond_its_share_gets_nothing_more_and_gives_back_as_its_requests_end() {
        let mut holders = Vec::new();
        fn claim(
            holders: &mut Vec<PermitHolder>,
            node: u64,
            wanted: u64,
            kept: u64,
            turn: u64,
        ) -> GrantedPermits {
            let claim = PermitRequest {
                wanted,
                demand: wanted,
                kept,
                needed: kept,
                largest_cost: 1,
                turn,
            };
            super::claim(holders, node, 10, claim, turn)
        }
        assert_eq!(
            claim(&mut holders, 1, 20, 0, 1),
            GrantedPermits {
                own: 10,
                others: 0,
                share: 10
            }
        );
        assert_eq!(
            claim(&mut holders, 2, 20, 0, 2),
            GrantedPermits {
                own: 0,
                others: 10,
                share: 5
            }
        );
        assert_eq!(
            claim(&mut holders, 1, 20, 9, 3),
            GrantedPermits {
                own: 9,
                others: 0,
                share: 5
            }
        );
        assert_eq!(
            claim(&mut holders, 2, 20, 0, 4),
            GrantedPermits {
                own: 1,
                others: 9,
                share: 5
            }
        );
        assert_eq!(
            claim(&mut holders, 1, 20, 4, 5),
            GrantedPermits {
                own: 5,
                others: 1,
                share: 5
            }
        );
        assert_eq!(
            claim(&mut holders, 2, 20, 1, 6),
            GrantedPermits {
                own: 5,
                others: 5,
                share: 5
            }
        );
    }

    #[test]
    fn an_old_demand_is_forgotten() {
        let mut holders = Vec::new();
        claimed(&mut holders, 1, request(10, 10, 1), 0);
        claimed(&mut holders, 2, request(10, 0, 1), 0);
        let shares = [DEMAND_US - 1, DEMAND_US]
            .map(|now_us| fair_share(&holders, 1, 10, request(10, 9, 2), now_us));
        assert_eq!(shares, [5, 10]);
    }

    #[test]
    fn a_node_that_gets_no_permit_is_no_holder() {
        let mut holders = Vec::new();
        assert_eq!(claimed(&mut holders, 1, request(0, 0, 1), 0), (0, 0));
        assert_eq!(holders, []);
    }

    #[test]
    fn a_request_that_finds_too_few_permits_may_try_again_soon() {
        fn level_of(used: u64, cost: u64) -> (u64, u64, u64) {
            let level = level(ConcurrencyLimit::new(10, Scope::Fleet), used, cost);
            (level.remaining, level.retry_after_us, level.reset_after_us)
        }
        assert_eq!(level_of(0, 10), (10, 0, 0));
        assert_eq!(level_of(7, 3), (3, 0, RETRY_US));
        assert_eq!(level_of(7, 4), (3, RETRY_US, RETRY_US));
        assert_eq!(
            level_of(12, 1),
            (0, RETRY_US, RETRY_US),
            "more than the limit, after a reload"
        );
    }

    #[test]
    fn a_share_is_a_part_of_the_fleets_permits_and_all_of_a_nodes_own() {
        assert_eq!(
            ConcurrencyLimit::new(10, Scope::Fleet).shared_by(3).most(),
            3
        );
        assert_eq!(
            ConcurrencyLimit::new(10, Scope::Node).shared_by(3).most(),
            10
        );
    }
}
