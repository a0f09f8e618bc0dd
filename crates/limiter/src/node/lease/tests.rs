use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::num::NonZeroU64;

use proptest::prelude::*;

use super::*;
use crate::algorithm::share::Share;
use crate::store::adjustment::{Adjustment, Change};
use crate::store::memory::MemoryStore;

const SECOND: u64 = 1_000_000;
const NODES: u32 = 3;

fn charge(tokens: u64, burst: u64, cost: u64) -> BucketCharge {
    fn nonzero(number: u64) -> NonZeroU64 {
        NonZeroU64::new(number).unwrap()
    }
    let shape = TokenBucket::new(nonzero(tokens), nonzero(SECOND), nonzero(burst))
        .unwrap()
        .leased(cost);
    assert!(shape.lease_us() > 0);
    BucketCharge {
        key: Key::from("k"),
        quota: shape.into(),
        cost,
        largest_cost: cost,
        local_us: u64::MAX,
    }
}

/// An event at a node.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// `count` requests come: served from the lease, and the rest by a call that takes so long each
    /// way.
    Requests {
        count: u32,
        there_us: u64,
        back_us: u64,
    },
    /// It gives back what it has left, which arrives so much later.
    GivesBack { there_us: u64 },
    /// It dies, and another takes its place.
    Dies,
}

/// A message on its way, by when it arrives.
#[derive(Debug)]
enum Message {
    Call {
        node: usize,
        requests: u32,
        units: u32,
        sent_us: u64,
        back_us: u64,
    },
    Reply {
        node: usize,
        life: u32,
        tokens: u64,
        level: Level,
        source: LeaseSource,
    },
    GiveBack {
        tokens: u64,
        taken_at_us: u64,
    },
}

/// Nodes, a store, and time. Each node's clock is off by its own offset.
struct World {
    charge: BucketCharge,
    store: MemoryStore,
    nodes: Vec<(Leases, u32, Vec<LeaseSource>)>,
    now_us: u64,
    wire: BTreeMap<(u64, Reverse<u32>), Message>,
    sent: u32,
    /// Tokens that passed, and when.
    admitted: Vec<(u64, u64)>,
}

impl World {
    fn new(charge: BucketCharge) -> Self {
        let nodes = (0..NODES).map(|_| (Leases::new(), 0, Vec::new())).collect();
        let store = MemoryStore::new(10);
        let wire = BTreeMap::new();
        Self {
            charge,
            store,
            nodes,
            now_us: SECOND,
            wire,
            sent: 0,
            admitted: Vec::new(),
        }
    }

    fn clock(&self, node: usize) -> u64 {
        self.now_us + 7_919 * (1 + node as u64)
    }

    fn store_clock(&self) -> u64 {
        self.now_us + 50 * SECOND
    }

    fn send(&mut self, after_us: u64, message: Message) {
        self.sent += 1;
        self.wire
            .insert((self.now_us + after_us, Reverse(self.sent)), message);
    }

    fn advance(&mut self, by_us: u64) {
        let until = self.now_us + by_us;
        while let Some(arrived) = self
            .wire
            .first_entry()
            .filter(|first| first.key().0 <= until)
        {
            self.now_us = arrived.key().0;
            let message = arrived.remove();
            self.arrive(&message);
        }
        self.now_us = until;
    }

    fn admit(&mut self, units: u32) {
        if units > 0 {
            self.admitted
                .push((self.now_us, u64::from(units) * self.charge.cost));
        }
    }

    fn arrive(&mut self, message: &Message) {
        match *message {
            Message::Call {
                node,
                requests,
                units,
                sent_us,
                back_us,
            } => {
                let at = self.store_clock();
                let grant =
                    self.store
                        .take_at(std::slice::from_ref(&self.charge), units, at, Share::WHOLE);
                self.admit(grant.units.min(requests));
                let tokens = u64::from(grant.units.saturating_sub(requests)) * self.charge.cost;
                let source = LeaseSource {
                    sent_us,
                    taken_at_us: grant.at_us,
                };
                let life = self.nodes[node].1;
                self.send(
                    back_us,
                    Message::Reply {
                        node,
                        life,
                        tokens,
                        level: grant.levels[0],
                        source,
                    },
                );
            }
            Message::Reply {
                node,
                life,
                tokens,
                level,
                source,
            } => {
                if self.nodes[node].1 == life {
                    self.nodes[node]
                        .0
                        .deposit(&self.charge, tokens, level, source);
                    self.nodes[node].2.push(source);
                }
            }
            Message::GiveBack {
                tokens,
                taken_at_us,
            } => {
                let quota = self.charge.quota;
                let change = Change::Refund {
                    charge: quota.charge(tokens),
                    taken_at_us,
                };
                let adjustment = Adjustment {
                    key: self.charge.key.clone(),
                    quota,
                    change,
                };
                self.store.adjust_at(&[adjustment], self.store_clock());
            }
        }
    }

    fn happen(&mut self, node: usize, event: Event, hoard: u32) {
        let clock = self.clock(node);
        match event {
            Event::Requests {
                count,
                there_us,
                back_us,
            } => {
                let paid = (0..count)
                    .take_while(|_| {
                        self.nodes[node]
                            .0
                            .spend(&self.charge, NODES, clock, 0)
                            .is_some()
                    })
                    .count() as u32;
                self.admit(paid);
                let requests = count - paid;
                let needed = u64::from(requests) * self.charge.cost;
                let ahead =
                    self.nodes[node].0.ahead(&self.charge, needed, NODES, clock) / self.charge.cost;
                // More than it would: the bound must not depend on modest nodes.
                let units = requests + ahead as u32 + hoard;
                self.send(
                    there_us,
                    Message::Call {
                        node,
                        requests,
                        units,
                        sent_us: clock,
                        back_us,
                    },
                );
            }
            Event::GivesBack { there_us } => {
                for source in std::mem::take(&mut self.nodes[node].2) {
                    let tokens = self.nodes[node].0.withdraw(&self.charge, source);
                    self.send(
                        there_us,
                        Message::GiveBack {
                            tokens,
                            taken_at_us: source.taken_at_us,
                        },
                    );
                }
            }
            Event::Dies => self.nodes[node] = (Leases::new(), self.nodes[node].1 + 1, Vec::new()),
        }
    }

    /// In no window more than `burst + rate * t`, exactly.
    fn assert_within(&self, tokens: u64, burst: u64) {
        for (first, (from, _)) in self.admitted.iter().enumerate() {
            let mut sum = 0;
            for (at, amount) in &self.admitted[first..] {
                sum += amount;
                assert!(
                    sum * SECOND <= burst * SECOND + tokens * (at - from),
                    "{sum} in {} us",
                    at - from
                );
            }
        }
    }
}

/// Often nothing, seldom long: most of what can go wrong needs several things at the same moment.
fn any_delay(longest_us: u64) -> impl Strategy<Value = u64> {
    prop_oneof![4 => Just(0), 1 => 0..longest_us / 8, 2 => longest_us / 2..longest_us]
}

fn any_event() -> impl Strategy<Value = Event> {
    let count = prop_oneof![Just(0), 1_u32..20, 100_u32..2_000];
    prop_oneof![
        12 => (count, any_delay(20_000), any_delay(60_000))
            .prop_map(|(count, there_us, back_us)| Event::Requests { count, there_us, back_us }),
        3 => any_delay(60_000).prop_map(|there_us| Event::GivesBack { there_us }),
        1 => Just(Event::Dies),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn nodes_with_leases_that_stall_give_back_and_die_never_exceed_the_limit(
        (tokens, burst, cost) in (100_u64..5_000, 40_u64..1_000, 1_u64..4)
            .prop_filter("knows leases", |(tokens, burst, cost)| *burst >= 40 * cost && burst * 200 > *tokens),
        hoard in 0_u32..2_000,
        events in prop::collection::vec((0_usize..3, any_delay(50_000), any_event()), 1..120),
    ) {
        let mut world = World::new(charge(tokens, burst, cost));
        for (node, wait_us, event) in events {
            world.advance(wait_us);
            world.happen(node, event, hoard);
        }
        world.advance(SECOND);
        world.assert_within(tokens, burst);
    }
}

/// Everything that can be had is taken ahead, tokens_left to the last moment, and spent together
/// with all that flowed in since.
#[test]
fn the_worst_that_nodes_can_do_uses_up_the_reserve_and_no_more() {
    let charge = charge(1_000, 200, 1);
    let lease_us = charge.quota.lease_us();
    let mut world = World::new(charge);
    let quick = |count| Event::Requests {
        count,
        there_us: 0,
        back_us: 0,
    };
    world.happen(0, quick(0), 1_000);
    world.advance(lease_us);
    world.happen(1, quick(1_000), 0);
    world.advance(0);
    world.happen(0, quick(1_000), 0);
    world.advance(0);
    world.assert_within(1_000, 200);
    assert_eq!(
        world.admitted.iter().map(|(_, tokens)| tokens).sum::<u64>(),
        200
    );
}

#[test]
fn a_token_is_spent_until_its_lease_ends_and_not_a_microsecond_longer() {
    let leases = Leases::new();
    let charge = charge(1_000, 1_000, 1);
    let source = LeaseSource {
        sent_us: 100,
        taken_at_us: 0,
    };
    leases.deposit(&charge, 2, Level::default(), source);
    let end = 100 + charge.quota.lease_us();
    assert_eq!(
        leases.spend(&charge, 1, end - 10, 11),
        None,
        "it would be late"
    );
    assert!(leases.spend(&charge, 1, end, 0).is_some());
    assert_eq!(leases.spend(&charge, 1, end + 1, 0), None);
    assert_eq!(leases.withdraw(&charge, source), 0);
}

#[test]
fn tokens_that_another_limits_denial_made_useless_are_put_back() {
    let leases = Leases::new();
    let charge = charge(1_000, 1_000, 1);
    leases.deposit(
        &charge,
        1,
        Level::default(),
        LeaseSource {
            sent_us: 0,
            taken_at_us: 0,
        },
    );
    let spent = leases.spend(&charge, 1, 0, 0).unwrap();
    assert_eq!(leases.spend(&charge, 1, 0, 0), None);
    leases.give_back(&charge, spent.source);
    assert!(leases.spend(&charge, 1, 0, 0).is_some());
}

#[test]
fn tokens_of_a_changed_limit_are_worth_nothing() {
    let leases = Leases::new();
    let old = charge(1_000, 1_000, 1);
    leases.deposit(
        &old,
        10,
        Level::default(),
        LeaseSource {
            sent_us: 0,
            taken_at_us: 0,
        },
    );
    let new = charge(1_000, 500, 1);
    assert_eq!(leases.spend(&new, 1, 0, 0), None);
    leases.ahead(&new, 1, 1, 0);
    assert_eq!(leases.spend(&old, 1, 0, 0), None);
}

#[test]
fn a_lease_covers_half_of_what_is_needed_and_no_more_than_a_fair_share() {
    let leases = Leases::new();
    let charge = charge(100_000, 100_000, 1);
    let full = Level {
        remaining: 90_000,
        ..Level::default()
    };
    leases.deposit(
        &charge,
        0,
        full,
        LeaseSource {
            sent_us: 0,
            taken_at_us: 0,
        },
    );
    // 2000 in 20 ms: 5000 in the 50 ms of the lease.
    assert_eq!(leases.ahead(&charge, 2_000, 1, 20_000), 2_500);
    // 20000 more in 20 ms: 50000 in the 50 ms of the lease.
    assert_eq!(
        leases.ahead(&charge, 20_000, 10, 40_000),
        4_500,
        "half of a tenth of what is there"
    );
    leases.deposit(
        &charge,
        0,
        Level::default(),
        LeaseSource {
            sent_us: 0,
            taken_at_us: 0,
        },
    );
    assert_eq!(
        leases.ahead(&charge, 0, 10, 40_001),
        500,
        "a tenth of what flows in"
    );
    assert_eq!(
        leases.ahead(&charge, 0, 1, 400_000),
        0,
        "nothing is needed any more"
    );
}

#[test]
fn a_lease_that_cannot_pay_is_filled_for_the_demand_and_not_at_every_request() {
    let leases = Leases::new();
    let charge = charge(100_000, 100_000, 100);
    // 100 in 20 ms: 250 in the 50 ms of the lease, and half of that is covered.
    assert_eq!(leases.lack(&charge, 1, 20_000), 125);
    assert_eq!(
        [20_001, 26_249, 26_250].map(|now_us| leases.lack(&charge, 1, now_us)),
        [0, 0, 125]
    );
}

#[test]
fn the_demand_is_measured_for_a_quarter_of_the_lease_at_least() {
    let leases = Leases::new();
    let charge = charge(100_000, 100_000, 1);
    let full = Level {
        remaining: 90_000,
        ..Level::default()
    };
    leases.deposit(
        &charge,
        0,
        full,
        LeaseSource {
            sent_us: 0,
            taken_at_us: 0,
        },
    );
    assert_eq!(
        leases.ahead(&charge, 2_000, 1, 12_499),
        0,
        "too early to tell"
    );
    // 2000 in 12.5 ms: 8000 in the 50 ms of the lease.
    assert_eq!(leases.ahead(&charge, 0, 1, 12_500), 4_000);
    assert_eq!(
        leases.ahead(&charge, 1_000, 1, 12_501),
        4_000,
        "a microsecond tells nothing"
    );
}

#[test]
fn a_pause_halves_the_measured_demand_and_one_of_four_leases_ends_it() {
    let leases = Leases::new();
    let charge = charge(100_000, 100_000, 1);
    let full = Level {
        remaining: 90_000,
        ..Level::default()
    };
    leases.deposit(
        &charge,
        0,
        full,
        LeaseSource {
            sent_us: 0,
            taken_at_us: 0,
        },
    );
    let ahead = |needed, now_us| leases.ahead(&charge, needed, 1, now_us);
    assert_eq!(ahead(4_000, 50_000), 2_000);
    assert_eq!(
        [150_000, 350_000, 550_001].map(|now_us| ahead(0, now_us)),
        [1_000, 500, 0]
    );
}
