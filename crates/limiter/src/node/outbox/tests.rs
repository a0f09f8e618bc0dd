use std::collections::HashSet;
use std::num::NonZeroU64;

use proptest::prelude::*;

use super::*;
use crate::algorithm::quota::Quota;
use crate::algorithm::token_bucket::TokenBucket;
use crate::algorithm::window::Timestamp;
use crate::algorithm::window::Window;
use crate::node::debt::Debts;
use crate::store::BucketCharge;
use crate::store::StoreError;
use crate::store::adjustment::AdjustmentOutcome;

fn bucket() -> Quota {
    fn nonzero(number: u64) -> NonZeroU64 {
        NonZeroU64::new(number).unwrap()
    }
    TokenBucket::new(nonzero(10), nonzero(1_000_000), nonzero(20))
        .unwrap()
        .into()
}

fn owed(key: &str, quota: Quota, tokens: u64) -> Adjustment {
    let change = Change::Charge {
        charge: quota.charge(tokens),
        since_us: 0,
    };
    Adjustment {
        key: Key::from(key),
        quota,
        change,
    }
}

fn three() -> Vec<Adjustment> {
    ["a", "b", "c"].map(|key| owed(key, bucket(), 3)).to_vec()
}

const DONE: AdjustmentResult = Ok(AdjustmentOutcome::Applied);
const LOST: AdjustmentResult = Err(StoreError::Timeout);

/// The keys and places of the batch that is sent again, which then fails again.
fn sent_again(outbox: &Outbox) -> Vec<(String, u32)> {
    let sent = outbox.send_again(|_| true);
    let names = sent.iter().flat_map(|sent| sent.batch.placed());
    names
        .map(|one| {
            (
                String::from_utf8_lossy(one.adjustment.key.as_bytes()).into_owned(),
                one.place,
            )
        })
        .collect()
}

#[test]
fn what_failed_is_sent_again_under_its_id_and_place_and_nothing_else() {
    let outbox = Outbox::new();
    let sent = outbox.send(three());
    let id = sent.batch.id;
    sent.answered(&[DONE, LOST, DONE]);
    assert_eq!(
        (
            outbox.len(),
            outbox.holds(&Key::from("b")),
            outbox.holds(&Key::from("a"))
        ),
        (1, true, false)
    );
    let again = outbox.send_again(|_| true).unwrap();
    assert_eq!(
        (
            again.batch.id,
            again.batch.placed()[0].place,
            again.batch.len()
        ),
        (id, 2, 1)
    );
    assert!(outbox.send_again(|_| true).is_none(), "it is in flight");
    again.answered(&[DONE]);
    assert_eq!(
        (
            outbox.len(),
            outbox.overdue(),
            outbox.holds(&Key::from("b"))
        ),
        (0, 0, false)
    );
    assert!(outbox.send_again(|_| true).is_none());
}

#[test]
fn a_batch_whose_task_is_dropped_or_that_has_too_few_results_is_sent_again() {
    let outbox = Outbox::new();
    drop(outbox.send(three()));
    assert_eq!(outbox.len(), 3);
    outbox.send(three()).answered(&[DONE]);
    assert_eq!((outbox.len(), outbox.overdue()), (5, 2));
}

#[test]
fn batches_that_fail_take_turns() {
    let outbox = Outbox::new();
    ["a", "b", "c"]
        .iter()
        .for_each(|key| drop(outbox.send(vec![owed(key, bucket(), 1)])));
    let turns: Vec<_> = (0..6)
        .flat_map(|_| sent_again(&outbox))
        .map(|(key, _)| key)
        .collect();
    assert_eq!(turns, ["a", "b", "c", "a", "b", "c"]);
}

#[test]
fn an_operator_waives_what_waits_or_is_in_flight() {
    let outbox = Outbox::new();
    drop(outbox.send(three()));
    outbox.forget(&Key::from("a"));
    let in_flight = outbox.send_again(|_| true).unwrap();
    outbox.forget(&Key::from("b"));
    drop(in_flight);
    assert_eq!(sent_again(&outbox), [("c".to_owned(), 3)]);
    outbox.lower(&Key::from("c"), 200_000);
    let charges = |outbox: &Outbox| -> Vec<Change> {
        outbox
            .send_again(|_| true)
            .iter()
            .flat_map(|sent| sent.batch.iter().map(|one| one.change).collect::<Vec<_>>())
            .collect()
    };
    assert_eq!(
        charges(&outbox),
        [Change::Charge {
            charge: bucket().charge(2),
            since_us: 0
        }]
    );
    outbox.lower(&Key::from("c"), 0);
    assert_eq!((charges(&outbox), outbox.overdue()), (vec![], 0));
}

#[test]
fn a_window_owes_all_until_it_is_reset_and_a_refund_is_no_debt() {
    let outbox = Outbox::new();
    let window = Quota::from(Window::sliding(20, 60_000_000).unwrap());
    let refund = Change::Refund {
        charge: 5,
        taken_at_us: 0,
    };
    drop(outbox.send(vec![
        owed("w", window, 3),
        Adjustment {
            change: refund,
            ..owed("w", window, 0)
        },
    ]));
    outbox.lower(&Key::from("w"), 1);
    assert_eq!(outbox.len(), 2);
    outbox.lower(&Key::from("w"), 0);
    assert_eq!(sent_again(&outbox), [("w".to_owned(), 2)]);
}

#[test]
fn beyond_its_bound_the_oldest_batch_is_waived() {
    let outbox = Outbox::new();
    for n in 0..=CAPACITY / 64 {
        drop(
            outbox.send(
                (0..64)
                    .map(|place| owed(&format!("{n}-{place}"), bucket(), 1))
                    .collect(),
            ),
        );
    }
    assert_eq!(outbox.len(), CAPACITY);
    assert!(!outbox.holds(&Key::from("0-0")) && outbox.holds(&Key::from("1-0")));
    assert_eq!(outbox.batches.lock().keys.len(), CAPACITY);
}

/// A store that makes each place of a batch once. Of each four calls for a key, one is lost before
/// it is made, and one after.
#[derive(Default)]
struct LossyStore {
    made: HashSet<(u64, u32)>,
    charged: HashMap<Key, u64>,
}

impl LossyStore {
    /// `fates`: two bits for each place, which say what is lost.
    fn adjust(&mut self, batch: &AdjustmentBatch, fates: u64) -> Vec<AdjustmentResult> {
        let mut make = |(index, placed): (usize, &crate::store::adjustment::PlacedAdjustment)| {
            let Change::Charge { charge, .. } = placed.adjustment.change else {
                panic!("{placed:?}")
            };
            let fate = fates >> (2 * index) & 3;
            if fate != 1 && self.made.insert((batch.id.unwrap().number, placed.place)) {
                *self
                    .charged
                    .entry(placed.adjustment.key.clone())
                    .or_default() += charge;
            }
            if [1, 2].contains(&fate) { LOST } else { DONE }
        };
        batch.placed().iter().enumerate().map(&mut make).collect()
    }
}

proptest! {
    #[test]
    fn all_that_was_admitted_is_charged_once_whatever_is_lost(
        steps in prop::collection::vec((0_u8..4, 0_usize..6, 1_u64..60, any::<u64>()), 1..80),
    ) {
        let debts = Debts::new();
        let outbox = Outbox::new();
        let mut store = LossyStore::default();
        let keys = ["a", "b", "c", "d", "e", "f"].map(Key::from);
        let mut admitted = HashMap::<Key, u64>::new();
        let collect = || debts.collect(0, 2, |key| !outbox.holds(key));
        for (what, key, cost, fates) in steps {
            match what {
                0 | 1 => {
                    let charge = BucketCharge { key: keys[key].clone(), quota: bucket(), cost, largest_cost: 60, local_us: u64::MAX };
                    debts.incur(&charge, 1, 0, Timestamp::default());
                    *admitted.entry(keys[key].clone()).or_default() += bucket().charge(cost);
                }
                2 => {
                    let sent = outbox.send(collect());
                    let results = store.adjust(&sent.batch, fates);
                    sent.answered(&results);
                }
                _ => {
                    if let Some(sent) = outbox.send_again(|_| true) {
                        let results = store.adjust(&sent.batch, fates);
                        sent.answered(&results);
                    }
                }
            }
        }
        while let Some(sent) = outbox.send_again(|_| true).or_else(|| Some(collect()).filter(|owed| !owed.is_empty()).map(|owed| outbox.send(owed))) {
            let results = store.adjust(&sent.batch, 0);
            sent.answered(&results);
        }
        prop_assert_eq!((&store.charged, debts.len(), outbox.len()), (&admitted, 0, 0));
    }
}
