//! Nodes that are cut off from the store, and a bucket that was asked for every token: what is owed
//! is repaid.

use super::*;

/// Tokens of a request: it can be scaled for any number of silent nodes.
const COST: u64 = 60;

/// The time in which an empty bucket is full.
const FILL_US: u64 = 6 * SECOND;

/// Each charge is rounded by less.
const ROUNDING_US: u64 = 100;

fn requests(count: u64) -> BucketCharge {
    fn nonzero(number: u64) -> NonZeroU64 {
        NonZeroU64::new(number).unwrap()
    }
    let shape = TokenBucket::new(nonzero(10 * COST), nonzero(SECOND), nonzero(60 * COST)).unwrap();
    BucketCharge {
        key: Key::from("k"),
        quota: shape.into(),
        cost: count * COST,
        largest_cost: COST,
        local_us: u64::MAX,
    }
}

/// A model of the script in `lua/adjust.lua`, and of the takes of nodes that hold back.
struct SharedBucket {
    memory: MemoryStore,
    nodes: u64,
    full_at_us: Option<u64>,
}

impl SharedBucket {
    fn left_us(&self, now_us: u64) -> u64 {
        self.memory
            .take_at(&[requests(1)], 0, now_us, Share::WHOLE)
            .levels[0]
            .reset_after_us
    }

    /// Takes while so many nodes are known to be silent.
    fn take(&self, silent: u64, now_us: u64) -> bool {
        let scaled = BucketCharge {
            cost: COST * self.nodes / (self.nodes - silent),
            ..requests(1)
        };
        self.memory
            .take_at(&[scaled], 1, now_us, Share::WHOLE)
            .units
            == 1
    }

    fn charge(&mut self, owed: &Adjustment, now_us: u64) {
        let Change::Charge { charge, since_us } = owed.change else {
            panic!("a debt")
        };
        let is_full = self.left_us(now_us) == 0;
        if is_full {
            self.full_at_us = Some(now_us);
        }
        let full_at_us = self.full_at_us.filter(|at| now_us - at <= NOTICE_US);
        let age_us = now_us.saturating_sub(since_us);
        let paid_us = full_at_us.map_or(0, |at| age_us.saturating_sub(now_us - at) / self.nodes);
        let Quota::TokenBucket(shape) = owed.quota else {
            panic!("a bucket")
        };
        let charge = charge.saturating_sub(shape.tick_rate().ticks(paid_us));
        let change = Change::Charge {
            charge,
            since_us: now_us,
        };
        self.memory.adjust_at(
            [&Adjustment {
                change,
                ..owed.clone()
            }],
            now_us,
        );
    }
}

/// Nodes, the first few of which are cut off from 0 on.
struct PartitionedFleet {
    store: SharedBucket,
    /// The bucket as it would be, had it been asked for every token.
    truth: MemoryStore,
    nodes: u32,
    locals: Vec<LocalNode>,
    /// The time that charges take.
    late_us: u64,
}

struct LocalNode {
    memory: MemoryStore,
    debts: Debts,
    /// When it is back. 0: it was never away.
    back_us: u64,
    settled: bool,
}

impl PartitionedFleet {
    fn new(backs_us: &[u64], used: u32) -> Self {
        let truth = MemoryStore::new(10);
        let shared = MemoryStore::new(10);
        let nodes = backs_us.len();
        truth.take_at(&[requests(1)], used, 0, Share::WHOLE);
        let level = shared.take_at(&[requests(1)], used, 0, Share::WHOLE).levels[0];
        let store = SharedBucket {
            memory: shared,
            nodes: nodes as u64,
            full_at_us: None,
        };
        let locals = backs_us
            .iter()
            .map(|back_us| {
                let memory = MemoryStore::new(10);
                memory.observe(&requests(1), &level, 0);
                LocalNode {
                    memory,
                    debts: Debts::new(),
                    back_us: *back_us,
                    settled: *back_us == 0,
                }
            })
            .collect();
        Self {
            store,
            truth,
            nodes: u32::try_from(nodes).unwrap(),
            locals,
            late_us: 0,
        }
    }

    /// Nodes whose time has come are back, and charge their debts.
    fn settle(&mut self, now_us: u64) {
        for local in self
            .locals
            .iter_mut()
            .filter(|local| !local.settled && local.back_us <= now_us)
        {
            local.settled = true;
            for owed in local.debts.collect(local.back_us, 10, |_| true) {
                self.store.charge(&owed, local.back_us + self.late_us);
            }
        }
    }

    fn ask(&mut self, rank: u32, now_us: u64) -> bool {
        let local = &self.locals[rank as usize];
        let share = Share::new(self.nodes, rank);
        let granted = if local.settled {
            let silent = self
                .locals
                .iter()
                .filter(|one| !one.settled && now_us >= NOTICE_US)
                .count();
            self.store.take(silent as u64, now_us)
        } else {
            let known_us = local
                .memory
                .take_at(&[requests(1)], 0, now_us, share)
                .levels[0]
                .reset_after_us;
            let granted = local.memory.take_at(&[requests(1)], 1, now_us, share).units == 1;
            if granted {
                let at = Timestamp {
                    now_us,
                    ..Timestamp::default()
                };
                local.debts.incur(&requests(1), self.nodes, known_us, at);
            }
            granted
        };
        if granted {
            let change = Change::Charge {
                charge: requests(1).quota.charge(COST),
                since_us: now_us,
            };
            self.truth.adjust_at(
                [&Adjustment {
                    key: Key::from("k"),
                    quota: requests(1).quota,
                    change,
                }],
                now_us,
            );
        }
        granted
    }

    /// All nodes that reach the store spend what it has. If there is none, each spends its share.
    fn contend(&mut self, now_us: u64) {
        let is_reached = self.locals.iter().any(|local| local.settled);
        for rank in 0..self.nodes {
            while self.locals[rank as usize].settled == is_reached && self.ask(rank, now_us) {}
        }
    }

    /// Plays requests, until all nodes are back and have charged their debts. Returns what the
    /// store's bucket lacks, and what it should lack at least, in microseconds.
    fn play(&mut self, asked: &[(u32, u64)], is_contended: bool) -> [u64; 2] {
        let backs = self.locals.iter().map(|local| local.back_us);
        let end_us = backs.clone().max().unwrap_or_default();
        let mut times: Vec<(u64, Option<u32>)> = backs
            .chain((0..end_us).step_by(500_000))
            .map(|at| (at, None))
            .collect();
        let mut now_us = 0;
        for (rank, wait_us) in asked {
            now_us += wait_us;
            times.push((now_us, Some(rank % self.nodes)));
        }
        times.retain(|(at, _)| *at <= end_us);
        times.sort_unstable();
        for (now_us, rank) in times {
            if is_contended {
                self.contend(now_us);
            }
            self.settle(now_us);
            rank.map(|rank| self.ask(rank, now_us));
        }
        let end_us = end_us + self.late_us;
        let truth = self
            .truth
            .take_at(&[requests(1)], 0, end_us, Share::WHOLE)
            .levels[0]
            .reset_after_us;
        [self.store.left_us(end_us), truth]
    }
}

fn any_requests(count: usize) -> impl Strategy<Value = Vec<(u32, u64)>> {
    prop::collection::vec((0_u32..5, prop_oneof![0..SECOND / 10, 0..SECOND]), 1..count)
}

proptest! {
    #[test]
    fn an_outage_for_all_nodes_is_repaid_and_leaves_no_more_than_an_empty_bucket(
        nodes in 1_usize..5,
        for_us in 0..9 * SECOND,
        used in 0_u32..60,
        asked in any_requests(150),
        late_us in prop_oneof![Just(0), 0..20 * SECOND],
        is_contended: bool,
    ) {
        let mut fleet = PartitionedFleet { late_us, ..PartitionedFleet::new(&vec![for_us + 1; nodes], used) };
        let [store, truth] = fleet.play(&asked, is_contended);
        prop_assert!(store + ROUNDING_US >= truth, "{store} of {truth}");
        prop_assert!(store <= FILL_US + ROUNDING_US, "{store}, and {truth} are due");
    }

    #[test]
    fn nodes_that_come_back_one_after_the_other_repay_all_that_did_not_flow_off_beside_earlier_debts(
        backs_us in prop::collection::vec(1..6 * SECOND, 1..5),
        used in 0_u32..60,
        asked in any_requests(150),
    ) {
        let mut fleet = PartitionedFleet::new(&backs_us, used);
        let [store, truth] = fleet.play(&asked, true);
        // While the store repays a debt, it is in use by nobody, and the debts of nodes that are
        // still away flow off too.
        let nodes = backs_us.len() as u64;
        let beside_us = (FILL_US + NOTICE_US) / nodes * (nodes - 1) / 2;
        prop_assert!(store + beside_us + ROUNDING_US >= truth, "{store} of {truth}");
        prop_assert!(store <= 2 * FILL_US + NOTICE_US + ROUNDING_US, "{store}, and {truth} are due");
    }

    #[test]
    fn a_partial_outage_of_a_contended_bucket_is_repaid_in_full(
        cut in 1_usize..4,
        others in 1_usize..3,
        for_us in 1..9 * SECOND,
        used in 0_u32..60,
        asked in any_requests(150),
    ) {
        let backs_us = [vec![for_us; cut], vec![0; others]].concat();
        let mut fleet = PartitionedFleet::new(&backs_us, used);
        let [store, truth] = fleet.play(&asked, true);
        prop_assert!(store + ROUNDING_US >= truth, "{store} of {truth}");
        prop_assert!(store <= 2 * FILL_US + NOTICE_US + ROUNDING_US, "{store}, and {truth} are due");
    }

    #[test]
    fn a_partial_outage_of_any_bucket_is_repaid_but_for_a_share_that_nobody_asked_for(
        cut in 1_usize..4,
        others in 1_usize..3,
        for_us in 1..9 * SECOND,
        used in 0_u32..60,
        asked in any_requests(150),
    ) {
        let backs_us = [vec![for_us; cut], vec![0; others]].concat();
        let mut fleet = PartitionedFleet::new(&backs_us, used);
        let [store, truth] = fleet.play(&asked, false);
        let share_us = (FILL_US + NOTICE_US) * cut as u64 / (cut + others) as u64;
        prop_assert!(store + share_us + ROUNDING_US >= truth, "{store} of {truth}");
        prop_assert!(store <= 2 * FILL_US + NOTICE_US + ROUNDING_US, "{store}, and {truth} are due");
    }
}
