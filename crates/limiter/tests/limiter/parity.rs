//! The shipped script and the Rust arithmetic, the same decisions on the same random traces.

use std::cell::Cell;

use proptest::prelude::*;
use tollgate_limiter::algorithm::calendar::{CalendarUnit, Period};
use tollgate_limiter::algorithm::concurrency::{
    DEMAND_US, GrantedPermits, LEASE_US, PermitRequest, ROTATION_US,
};
use tollgate_limiter::algorithm::level::Level;
use tollgate_limiter::algorithm::quota::Quota;
use tollgate_limiter::algorithm::share::Share;
use tollgate_limiter::algorithm::token_bucket::{MAX_TICKS, TokenBucket};
use tollgate_limiter::algorithm::window::Window;
use tollgate_limiter::limit::key::Key;
use tollgate_limiter::store::adjustment::{Adjustment, AdjustmentBatch, BatchId, Change};
use tollgate_limiter::store::inspect::TokenGrant;
use tollgate_limiter::store::memory::MemoryStore;
use tollgate_limiter::store::redis::ShippedScript;
use tollgate_limiter::store::{BucketCharge, Grant, PermitClaim};
use tollgate_testing::{HOUR, SECOND, charge, shape};

use crate::scripts::{LuaScripts, ScriptCharge, bucket, bucket_numbers};

/// The algorithm's letter in ARGV.
fn letter(quota: Quota) -> &'static str {
    quota.script().letter()
}

/// The algorithm's four numbers in ARGV.
fn numbers(quota: Quota, now_us: u64) -> [String; 4] {
    script_numbers(quota, now_us).map(|number| number.to_string())
}

fn script_numbers(quota: Quota, now_us: u64) -> [u64; 4] {
    quota.script_numbers(now_us.saturating_sub(40_000))
}

fn script_charge(charge: &BucketCharge, now_us: u64) -> ScriptCharge {
    ScriptCharge {
        key: String::from_utf8_lossy(charge.key.as_bytes()).into_owned(),
        letter: letter(charge.quota),
        numbers: script_numbers(charge.quota, now_us),
        charge: charge.quota.charge(charge.cost),
    }
}

/// The scripts, run like the store runs them.
struct ScriptRunner {
    scripts: LuaScripts,
    /// Of the fleet that sends debts.
    nodes: Cell<u64>,
}

impl ScriptRunner {
    fn new(expires: bool) -> Self {
        let scripts = LuaScripts::load();
        scripts.redis.expires.set(expires);
        Self {
            scripts,
            nodes: Cell::new(1),
        }
    }

    fn set_now(&self, now_us: u64) {
        self.scripts.redis.now_us.set(now_us);
    }

    fn reply(&self, charges: &[BucketCharge], units: u32, deadline: u64) -> mlua::Result<Vec<i64>> {
        let now_us = self.scripts.redis.now_us.get();
        let charges = charges.iter().map(|charge| script_charge(charge, now_us));
        self.scripts
            .take(ShippedScript::TakeAny, deadline, units, charges.collect())
    }

    /// Sends a batch at `now_us`, which is the same on the node's clock. Its marker is "marker",
    /// and may forget `answered`.
    fn adjust(
        &self,
        batch: &AdjustmentBatch,
        now_us: u64,
        deadline: u64,
        answered: &[u64],
    ) -> Vec<i64> {
        self.set_now(now_us);
        let number = batch.id.map_or(0, |id| id.number);
        let head = [
            deadline,
            number,
            3_600_000,
            self.nodes.get(),
            2_000,
            batch.len() as u64,
        ];
        let mut args = head.map(|number| number.to_string()).to_vec();
        for placed in batch.placed() {
            let Adjustment { quota, change, .. } = &placed.adjustment;
            let change = match *change {
                Change::Charge { charge, since_us } => {
                    [charge.min(MAX_TICKS), now_us.saturating_sub(since_us), 0, 0]
                }
                Change::Refund {
                    charge,
                    taken_at_us,
                } => [0, 0, charge, taken_at_us],
            };
            args.extend([placed.place.to_string(), letter(*quota).to_owned()]);
            args.extend(change.map(|number| number.to_string()));
            args.extend(numbers(*quota, now_us));
        }
        args.extend(answered.iter().map(u64::to_string));
        let keys = batch
            .iter()
            .map(|one| String::from_utf8_lossy(one.key.as_bytes()).into_owned());
        let marker = batch.id.map(|_| "marker".to_owned());
        let notes = batch
            .iter()
            .map(|one| format!("full {}", String::from_utf8_lossy(one.key.as_bytes())));
        let notes = notes.filter(|_| batch.id.is_some() && self.nodes.get() > 1);
        self.scripts
            .run(ShippedScript::Adjust, keys.chain(marker).chain(notes), args)
            .unwrap()
    }

    fn adjust_once(&self, adjustment: &Adjustment, now_us: u64, deadline: u64) -> Vec<i64> {
        self.adjust(
            &AdjustmentBatch::once(vec![adjustment.clone()]),
            now_us,
            deadline,
            &[],
        )
    }

    /// The reply's numbers before and after `tokens` are given back.
    fn give(&self, charge: &BucketCharge, tokens: i64, now_us: u64) -> [Vec<i64>; 2] {
        self.set_now(now_us);
        let mut args = vec![
            u64::MAX.to_string(),
            tokens.to_string(),
            letter(charge.quota).to_owned(),
        ];
        args.extend(numbers(charge.quota, now_us));
        let key = String::from_utf8_lossy(charge.key.as_bytes()).into_owned();
        let reply = self
            .scripts
            .run(ShippedScript::Grant, [key].into_iter(), args)
            .unwrap();
        let middle = 3 + usize::try_from(reply[2]).unwrap();
        [reply[3..middle].to_vec(), reply[middle + 1..].to_vec()]
    }

    /// The error of a look at a key.
    fn give_error(&self, charge: &BucketCharge) -> String {
        let mut args = vec![
            u64::MAX.to_string(),
            "0".to_owned(),
            letter(charge.quota).to_owned(),
        ];
        args.extend(numbers(charge.quota, self.scripts.redis.now_us.get()));
        let key = String::from_utf8_lossy(charge.key.as_bytes()).into_owned();
        self.scripts
            .run(ShippedScript::Grant, [key].into_iter(), args)
            .unwrap_err()
            .to_string()
    }

    /// The permits that the claims' node holds afterwards; all claims are of one node.
    fn claim(&self, claims: &[PermitClaim], now_us: u64) -> Vec<GrantedPermits> {
        self.set_now(now_us);
        let mut args = vec![u64::MAX.to_string(), claims[0].node.to_string()];
        args.extend([LEASE_US, DEMAND_US, ROTATION_US, 0].map(|number| number.to_string()));
        for PermitClaim { most, claim, .. } in claims {
            let PermitRequest {
                wanted,
                demand,
                kept,
                needed,
                largest_cost,
                turn,
            } = *claim;
            let numbers = [*most, wanted, demand, kept, needed, largest_cost, turn];
            args.extend(numbers.map(|number| number.to_string()));
        }
        let keys = claims
            .iter()
            .map(|said| String::from_utf8_lossy(said.key.as_bytes()).into_owned());
        let reply = self
            .scripts
            .run(ShippedScript::Concurrency, keys, args)
            .unwrap();
        let number = |n: i64| u64::try_from(n).unwrap();
        reply[2..]
            .chunks(3)
            .map(|of_claim: &[i64]| {
                let [own, others, share] = [0, 1, 2].map(|at| number(of_claim[at]));
                GrantedPermits { own, others, share }
            })
            .collect()
    }

    fn take(&self, charges: &[BucketCharge], units: u32, now_us: u64) -> Grant {
        self.set_now(now_us);
        let reply = self.reply(charges, units, u64::MAX).unwrap();
        let number = |at: usize| u64::try_from(reply[at]).unwrap();
        assert_eq!(number(1), now_us);
        let levels = (0..charges.len()).map(|i| Level {
            remaining: number(2 + 3 * i),
            retry_after_us: number(3 + 3 * i),
            reset_after_us: number(4 + 3 * i),
        });
        Grant {
            units: u32::try_from(reply[0]).unwrap(),
            levels: levels.collect(),
            at_us: now_us,
            ..Grant::default()
        }
    }

    /// A bucket's numbers, with colons between them, or the text of any other value.
    fn value(&self, key: &str) -> Option<String> {
        let value = self.scripts.redis.value(key)?;
        Some(match bucket_numbers(&value) {
            Some(numbers) => numbers.map(|number| number.to_string()).join(":"),
            None => String::from_utf8_lossy(&value).into_owned(),
        })
    }
}

/// A step of a trace: how far time moves, in microseconds, and what is asked.
#[derive(Clone, Debug)]
struct Step {
    wait: u64,
    charges: Vec<BucketCharge>,
    units: u32,
    /// Then, of the first bucket asked, this much is owed or given back: tokens, and for how long
    /// they were held.
    owed: u64,
    back: Option<(u64, i64)>,
    /// Then an operator gives it so many tokens back, or all.
    gift: Option<TokenGrant>,
}

fn any_shape() -> impl Strategy<Value = TokenBucket> {
    prop_oneof![
        Just(shape(3, HOUR, 3)),
        Just(shape(7, SECOND, 20)),
        Just(shape(7, SECOND, 5)),
        Just(shape(50_000, SECOND, 100)),
        Just(shape(1, 24 * HOUR, 1)),
        Just(shape(999_983, SECOND, 1_000)),
        Just(shape(1_000_000, HOUR, 1_000_000_000)),
        Just(shape(1_000, SECOND, 200).leased(1)),
        Just(shape(1_000, SECOND, 200)),
        Just(shape(997, SECOND, 500).leased(7)),
        (1_u64..3_000, 1_u64..10 * SECOND, 1_u64..200)
            .prop_filter("in bounds", |(tokens, period, _)| tokens <= &(10 * period))
            .prop_map(|(tokens, period, burst)| shape(tokens, period, burst)),
    ]
}

fn any_quota() -> impl Strategy<Value = Quota> {
    let period = prop_oneof![
        Just(Period::every(SECOND)),
        Just(Period::every(90 * SECOND)),
        Just(Period::calendar(CalendarUnit::Minute, "Asia/Kolkata").unwrap()),
        Just(Period::calendar(CalendarUnit::Day, "Europe/Berlin").unwrap()),
        Just(Period::calendar(CalendarUnit::Month, "UTC").unwrap()),
    ];
    prop_oneof![
        2 => any_shape().prop_map(Quota::from),
        1 => (1_u64..200, period).prop_map(|(quota, period)| Window::fixed(quota, period).unwrap().into()),
        1 => (1_u64..200, prop_oneof![1_u64..1_000_000, 1_u64..7_200_000_000])
            .prop_map(|(quota, width)| Window::sliding(quota, width).unwrap().into()),
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    let wait = prop_oneof![
        4 => 0_u64..200_000,
        2 => 0_u64..5,
        1 => 0_u64..7_200_000_000,
    ];
    let asked = prop::collection::btree_map(
        prop::sample::select(vec!["a", "b", "c"]),
        (any_quota(), 1_u64..8),
        1..4,
    );
    let owed = prop_oneof![3 => Just(0), 1 => 1_u64..30];
    let back = prop_oneof![2 => Just(None), 1 => (1_u64..12, -100_i64..300_000).prop_map(Some)];
    let gift = prop_oneof![6 => Just(None), 1 => (1_u64..10).prop_map(|n| Some(TokenGrant::Tokens(n))), 1 => Just(Some(TokenGrant::All))];
    (wait, asked, 0_u32..12, owed, back, gift).prop_map(|(wait, asked, units, owed, back, gift)| {
        let charges = asked
            .into_iter()
            .map(|(key, (quota, cost))| charge(key, quota, cost.min(quota.burst())));
        Step {
            wait,
            charges: charges.collect(),
            units,
            owed,
            back,
            gift,
        }
    })
}

fn same_decisions(steps: &[Step]) -> Result<(), TestCaseError> {
    let script = ScriptRunner::new(true);
    let memory = MemoryStore::new(1_000);
    memory.set_epoch(0);
    let mut now_us: u64 = 1_763_000_000_000_000;
    for step in steps {
        now_us += step.wait;
        let scripted = script.take(&step.charges, step.units, now_us);
        let native = memory.take_at(&step.charges, step.units, now_us, Share::WHOLE);
        prop_assert_eq!(scripted, native, "at {}", now_us);
        let BucketCharge { key, quota, .. } = step.charges[0].clone();
        let capped = |tokens: u64| quota.charge(tokens.min(quota.burst()));
        let back = step.back.map(|(tokens, held_us)| Change::Refund {
            charge: capped(tokens),
            taken_at_us: now_us.saturating_add_signed(-held_us),
        });
        // Some is owed since the step before, some more than fits.
        let debt = |tokens: u64, since_us| Change::Charge {
            charge: quota.charge(tokens),
            since_us,
        };
        let debts = [
            debt(step.owed.min(quota.burst()), now_us),
            debt(step.owed / 2, now_us - step.wait),
        ];
        for change in debts.into_iter().chain(back) {
            let adjustment = Adjustment {
                key: key.clone(),
                quota,
                change,
            };
            let reply = script.adjust_once(&adjustment, now_us, u64::MAX);
            let [1, at_us, 1 | 2] = reply[..] else {
                return Err(TestCaseError::fail(format!("{reply:?}")));
            };
            prop_assert_eq!(at_us, now_us as i64);
            memory.adjust_at([&adjustment], now_us);
        }
        if let Some(gift) = step.gift {
            let tokens = if let TokenGrant::Tokens(tokens) = gift {
                i64::try_from(tokens).unwrap()
            } else {
                -1
            };
            let [_, after] = script.give(&step.charges[0], tokens, now_us);
            let changed = memory.grant_at(&step.charges[0], gift, now_us);
            prop_assert_eq!(
                after.is_empty(),
                changed.after.full_in_us() == 0,
                "{:?} {:?}",
                after,
                changed.after
            );
        }
    }
    Ok(())
}

/// The key "k", by one of three versions of its limit at a time.
fn any_turns() -> impl Strategy<Value = Vec<Step>> {
    let turn = (
        0_u64..400,
        0_usize..3,
        0_u32..40,
        0_u64..4,
        prop::option::of((1_u64..6, -10_i64..60_000)),
    );
    (
        prop::collection::vec(any_shape(), 3),
        prop::collection::vec(turn, 1..80),
    )
        .prop_map(|(versions, turns)| {
            turns
                .into_iter()
                .map(
                    |(wait, version, units, owed, back): (u64, usize, u32, u64, _)| {
                        let shape: TokenBucket = versions[version];
                        // Refills about as much as is taken.
                        let wait = wait * shape.micros(shape.emission()) / 40;
                        Step {
                            wait,
                            charges: vec![charge("k", shape, 1)],
                            units,
                            owed: owed.saturating_sub(2),
                            back,
                            gift: None,
                        }
                    },
                )
                .collect()
        })
}

/// Asserts that the script admits, when versions of a limit take turns, in every window at most the
/// largest burst and the largest rate's refill.
fn largest_burst_and_rate(steps: &[Step]) -> Result<(), TestCaseError> {
    let script = ScriptRunner::new(true);
    let mut now_us = 1_763_000_000_000_000_u64;
    let mut passed = Vec::new();
    for step in steps {
        now_us += step.wait;
        passed.push((
            now_us,
            u128::from(script.take(&step.charges, step.units, now_us).units),
        ));
    }
    let shapes = || {
        steps
            .iter()
            .filter_map(|step| step.charges[0].quota.token_bucket())
    };
    let burst = shapes().map(TokenBucket::burst).max().unwrap_or_default();
    for (first, (from, _)) in passed.iter().enumerate() {
        let mut sum = 0;
        for (at, amount) in &passed[first..] {
            sum += amount;
            let ticks =
                |shape: TokenBucket| u128::from(at - from) * u128::from(shape.ticks_per_us());
            // Exceeds what refills at every rate: at the largest, too.
            prop_assert!(
                !shapes().all(|shape: TokenBucket| {
                    (sum.saturating_sub(burst.into())) * u128::from(shape.emission()) > ticks(shape)
                }),
                "{} in {} us, burst {}",
                sum,
                at - from,
                burst
            );
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn versions_of_a_limit_in_turns_decide_the_same(steps in any_turns()) {
        same_decisions(&steps)?;
    }

    #[test]
    fn versions_of_a_limit_in_turns_admit_no_more_than_the_largest_burst_and_rate(steps in any_turns()) {
        largest_burst_and_rate(&steps)?;
    }

    #[test]
    fn groups_in_one_call_are_decided_one_after_the_other(
        steps in prop::collection::vec(
            (
                0_u64..400_000,
                prop::collection::vec((prop::collection::hash_set(0_usize..5, 1..3), 0_u32..6), 1..6),
            ), 1..40,
        ),
    ) {
        let keys = [
            charge("a", shape(7, SECOND, 20), 1),
            charge("b", shape(1_000, SECOND, 4), 2),
            charge("c", Window::sliding(5, SECOND).unwrap(), 1),
            charge("d", Window::fixed(9, Period::every(SECOND)).unwrap(), 1),
            charge("foreign", shape(7, SECOND, 20), 1),
        ];
        let (together, alone) = (ScriptRunner::new(true), ScriptRunner::new(true));
        for script in [&together, &alone] {
            script.scripts.redis.write("foreign", b"hello");
        }
        let mut now_us = 1_763_000_000_000_000_u64;
        for (wait, groups) in steps {
            now_us += wait;
            let mut replies = vec![1, i64::try_from(now_us).unwrap()];
            let mut asked = Vec::new();
            alone.set_now(now_us);
            together.set_now(now_us);
            for (places, units) in groups {
                let charges: Vec<BucketCharge> = places.iter().map(|place| keys[*place].clone()).collect();
                let reply = alone.reply(&charges, units, u64::MAX).unwrap();
                replies.push(reply[0]);
                replies.extend(&reply[2..]);
                asked.push((units, charges.iter().map(|charge| script_charge(charge, now_us)).collect()));
            }
            let reply = together.scripts.take_groups(ShippedScript::TakeAny, u64::MAX, asked).unwrap();
            prop_assert_eq!(reply, replies, "at {}", now_us);
            for key in ["a", "b", "c", "d"] {
                prop_assert_eq!(together.value(key), alone.value(key));
            }
        }
    }

    #[test]
    fn claims_of_permits_are_answered_the_same(
        steps in prop::collection::vec(
            (
                prop_oneof![1 => -30_000_000_i64..0, 6 => 0_i64..1_500_000, 15 => 0_i64..60_000],
                prop::sample::select(vec![1_u64, 9, 10, u64::MAX]),
                1_u64..12, 0_u64..14, 0_u64..9, 0_u64..30,
                (-3_i64..3, 1_u64..15, 0_u64..5),
            ), 1..120,
        ),
    ) {
        let script = ScriptRunner::new(true);
        let memory = MemoryStore::new(10);
        let mut now_us: u64 = 1_763_000_000_000_000;
        for (turn, (wait, node, most, wanted, needed, denied, (off, largest_cost, spare))) in (10_u64..).zip(steps) {
            now_us = now_us.saturating_add_signed(wait);
            let wanted = wanted.max(needed);
            let turn = turn.saturating_add_signed(off);
            let demand = wanted + denied;
            let kept = wanted.min(needed + spare);
            let claim = PermitRequest { wanted, demand, kept, needed, largest_cost, turn };
            let claims = ["a", "b"].map(|key| PermitClaim { key: Key::from(key), most, node, claim });
            prop_assert_eq!(script.claim(&claims, now_us), memory.claim_at(&claims, now_us), "at {}", now_us);
        }
    }

    /// Time that passed before the step passes again: to a bucket that is a wait, never a refill.
    #[test]
    fn a_clock_that_steps_back_neither_refills_nor_locks_out(
        limit in any_shape(), steps in prop::collection::vec((0_u64..100, 0_u32..30, 0_u64..20), 1..80),
    ) {
        let script = ScriptRunner::new(false);
        let token_us = limit.micros(limit.emission());
        let mut real_us = 0;
        let mut behind_us = 0;
        let mut passed = Vec::new();
        for (wait, units, back) in steps {
            real_us += wait * token_us / 20;
            behind_us += if back < 3 { back * limit.micros(limit.capacity()) } else { 0 };
            let grant = script.take(&[charge("k", limit, 1)], units, 1_763_000_000_000_000 + real_us - behind_us.min(1 << 50));
            passed.push((real_us, u128::from(grant.units)));
            prop_assert!(grant.levels[0].retry_after_us <= token_us);
            prop_assert!(grant.levels[0].reset_after_us <= limit.micros(limit.capacity()));
        }
        for (first, (from, _)) in passed.iter().enumerate() {
            let mut sum = 0;
            for (at, amount) in &passed[first..] {
                sum += amount;
                let refilled = u128::from(at - from) * u128::from(limit.ticks_per_us());
                prop_assert!(sum * u128::from(limit.emission()) <= u128::from(limit.capacity()) + refilled);
            }
        }
    }

    #[test]
    fn random_traces_with_changing_limits_decide_the_same(steps in prop::collection::vec(any_step(), 1..60)) {
        same_decisions(&steps)?;
    }
}

#[test]
fn a_fixed_window_whose_bounds_are_stale_charges_nothing() {
    let script = ScriptRunner::new(true);
    let window = Window::fixed(
        5,
        Period::calendar(CalendarUnit::Day, "Europe/Berlin").unwrap(),
    )
    .unwrap();
    let charges = [
        charge("b", shape(10, SECOND, 10), 1),
        charge("w", window, 1),
    ];
    let day = 86_400 * SECOND;
    let told_for = 1_763_000_000_000_000;
    script.set_now(told_for);
    let charges = charges.map(|charge| script_charge(&charge, told_for));
    for (now_us, granted) in [
        (told_for - day, -1),
        (told_for + 2 * day, -1),
        (told_for, 1),
        (told_for + day, 1),
    ] {
        script.set_now(now_us);
        let reply = script
            .scripts
            .take(ShippedScript::TakeAny, u64::MAX, 1, charges.to_vec())
            .unwrap();
        assert_eq!(
            (reply[0], reply.get(1)),
            (granted, Some(&i64::try_from(now_us).unwrap()))
        );
        assert_eq!(script.value("b").is_some(), granted > 0);
        script.scripts.redis.flush();
    }
}

#[test]
fn a_key_expires_no_earlier_than_its_bucket_is_full() {
    for now_us in [1_000_000_000, 1_000_000_999, 1_000_000_500] {
        let script = ScriptRunner::new(true);
        script.take(&[charge("k", shape(1_000, SECOND, 4), 1)], 3, now_us);
        let until_ms = script.scripts.redis.kept_until_ms("k").unwrap();
        assert!((until_ms + 1) * 1_000 >= now_us + 3_000);
    }
}

#[test]
fn a_denial_writes_nothing() {
    let script = ScriptRunner::new(true);
    let charges = [charge("k", shape(2, HOUR, 2), 2)];
    assert_eq!(script.take(&charges, 1, 1_000_000).units, 1);
    let before = script.value("k");
    assert_eq!(script.take(&charges, 1, 2_000_000).units, 0);
    assert_eq!(script.value("k"), before);
    assert_eq!(
        script
            .take(&[charge("other", shape(2, HOUR, 2), 3)], 1, 2_000_000)
            .units,
        0
    );
    assert_eq!(script.value("other"), None);
}

#[test]
fn another_algorithm_begins_anew_and_drops_debts_of_the_old_one() {
    let bucket = charge("k", shape(10, HOUR, 10), 1);
    let window = charge("k", Window::sliding(10, HOUR).unwrap(), 1);
    for (old, new) in [(&bucket, &window), (&window, &bucket)] {
        let script = ScriptRunner::new(true);
        assert_eq!(script.take(std::slice::from_ref(old), 10, HOUR).units, 10);
        let stored = script.value("k");
        let denied = [charge("k", new.quota, 11)];
        assert_eq!(script.take(&denied, 1, HOUR).units, 0);
        assert_eq!(script.value("k"), stored, "a denial writes nothing");
        assert_eq!(script.take(std::slice::from_ref(new), 3, HOUR).units, 3);
        let begun = script.value("k");
        assert_ne!(begun, stored);
        let late = Change::Charge {
            charge: old.quota.charge(5),
            since_us: HOUR,
        };
        let refund = Change::Refund {
            charge: old.quota.charge(5),
            taken_at_us: HOUR,
        };
        for change in [late, refund] {
            let adjustment = Adjustment {
                key: Key::from("k"),
                quota: old.quota,
                change,
            };
            let reply = script.adjust_once(&adjustment, HOUR, u64::MAX);
            assert_eq!(reply, [1, HOUR as i64, 2], "it says so");
            assert_eq!(script.value("k"), begun);
        }
    }
}

#[test]
fn a_denial_by_a_slower_limit_writes_nothing_and_one_by_a_faster_limit_once() {
    let script = ScriptRunner::new(true);
    let limit = shape(2, HOUR, 20);
    let slower = shape(1, HOUR, 10);
    let faster = shape(4, HOUR, 10);
    assert_eq!(script.take(&[charge("k", limit, 1)], 20, HOUR).units, 20);
    let before = script.value("k");
    assert_eq!(script.take(&[charge("k", slower, 1)], 1, HOUR).units, 0);
    assert_eq!(script.value("k"), before);
    assert_eq!(
        script.take(&[charge("k", faster, 1)], 1, HOUR).levels[0].retry_after_us,
        11 * HOUR / 4
    );
    let moved = script.value("k");
    assert_eq!(
        moved.as_deref(),
        Some("21600000000:0:900000000:1:18000000000"),
        "all of the 20 tokens, at four per hour"
    );
    for _ in 0..2 {
        assert_eq!(script.take(&[charge("k", faster, 1)], 1, 2 * HOUR).units, 0);
        assert_eq!(
            script.take(&[charge("k", limit, 1)], 0, 2 * HOUR).levels[0].remaining,
            4
        );
        assert_eq!(script.value("k"), moved);
    }
}

#[test]
fn a_clock_that_stepped_back_is_no_reason_to_forget_what_a_larger_version_consumed() {
    let script = ScriptRunner::new(true);
    let large = [charge("k", shape(10, SECOND, 100), 1)];
    let small = [charge("k", shape(10, SECOND, 10), 1)];
    assert_eq!(script.take(&large, 100, 9 * HOUR).units, 100);
    let denied = script.take(&small, 1, 5 * HOUR).levels[0];
    assert_eq!(
        (denied.retry_after_us, denied.reset_after_us),
        (9 * SECOND + 100_000, 10 * SECOND)
    );
    assert_eq!(
        script.take(&large, 1, 5 * HOUR).levels[0].retry_after_us,
        100_000
    );
}

#[test]
fn a_clock_that_stepped_back_locks_nobody_out() {
    let script = ScriptRunner::new(true);
    let charges = [charge("k", shape(10, SECOND, 10), 1)];
    assert_eq!(script.take(&charges, 10, 9 * HOUR).units, 10);
    let denied = script.take(&charges, 1, 5 * HOUR);
    assert_eq!(
        (denied.units, denied.levels[0].retry_after_us),
        (0, 100_000)
    );
    assert_eq!(script.take(&charges, 1, 5 * HOUR + 100_000).units, 1);
}

/// The units of a fixed window that pass when the clock comes to its end, passes it, steps back by
/// `step_us`, and passes it again; by the script, and in this process. Five are asked for each
/// time.
fn admitted_around_a_step(window: Window, end_us: u64, step_us: u64) -> [Vec<u32>; 2] {
    let charges = [charge("k", window, 1)];
    let script = ScriptRunner::new(true);
    let memory = MemoryStore::new(1_000);
    let epoch_us = end_us - SECOND;
    let mut monotonic_us = SECOND / 2;
    memory.set_epoch(epoch_us);
    let mut admitted = [Vec::new(), Vec::new()];
    // Microseconds that pass, and that the clock is behind then.
    let next_us = window.span().expires_at(end_us, 0) - end_us;
    for (wait, behind) in [
        (0, 0),
        (SECOND / 2, 0),
        (1_000, step_us),
        (step_us, step_us),
        (next_us, step_us),
    ] {
        monotonic_us += wait;
        memory.set_epoch(epoch_us - behind);
        admitted[0].push(
            script
                .take(&charges, 5, epoch_us - behind + monotonic_us)
                .units,
        );
        admitted[1].push(
            memory
                .take_at(&charges, 5, monotonic_us, Share::WHOLE)
                .units,
        );
        memory.sweep(monotonic_us);
    }
    admitted
}

#[test]
fn a_clock_that_steps_back_over_the_end_of_a_fixed_window_opens_no_window_twice() {
    let minutes = Period::calendar(CalendarUnit::Minute, "UTC").unwrap();
    let days = Period::calendar(CalendarUnit::Day, "UTC").unwrap();
    for period in [
        Period::every(60 * SECOND),
        Period::every(2 * SECOND),
        minutes,
        days,
    ] {
        let window = Window::fixed(5, period).unwrap();
        let end_us = period.window_at(1_763_000_000_000_000).end_us;
        for step_us in [71_000, 9 * SECOND]
            .into_iter()
            .filter(|step| *step < period.longest_us())
        {
            assert_eq!(
                admitted_around_a_step(window, end_us, step_us),
                [[5, 5, 0, 0, 5], [5, 5, 0, 0, 5]]
            );
        }
    }
}

#[test]
fn a_window_that_ended_before_the_clock_stepped_back_is_not_forgotten() {
    let window = Window::fixed(5, Period::every(60 * SECOND)).unwrap();
    let charges = [charge("k", window, 1)];
    let script = ScriptRunner::new(true);
    let memory = MemoryStore::new(1_000);
    let end_us = 6_000 * SECOND;
    memory.set_epoch(71_000);
    assert_eq!(
        memory
            .take_at(&charges, 5, end_us - SECOND - 71_000, Share::WHOLE)
            .units,
        5
    );
    memory.sweep(end_us - 71_000 + 50_000);
    memory.set_epoch(0);
    assert_eq!(
        memory
            .take_at(&charges, 5, end_us - 71_000 + 60_000, Share::WHOLE)
            .units,
        0
    );
    assert_eq!(script.take(&charges, 5, end_us - SECOND).units, 5);
    // The millisecond in which Redis would have dropped it is over, and the clock is back before
    // the end.
    let kept_until_ms = script.scripts.redis.kept_until_ms("k").unwrap();
    assert!(kept_until_ms * 1_000 >= end_us + 10 * SECOND);
    assert_eq!(script.take(&charges, 5, end_us - 71_000).units, 0);
}

#[test]
fn a_clock_that_steps_back_by_hours_denies_for_no_longer_than_a_window() {
    let window = Window::fixed(5, Period::every(60 * SECOND)).unwrap();
    let charges = [charge("k", window, 1)];
    for back_us in [11 * SECOND, HOUR, HOUR + 5 * SECOND] {
        let script = ScriptRunner::new(true);
        script.take(&charges, 5, 9 * HOUR);
        let denied = script.take(&charges, 1, 9 * HOUR - back_us);
        assert!(
            denied.units == 0 && denied.levels[0].retry_after_us <= 60 * SECOND,
            "{denied:?}"
        );
        let again = script.take(
            &charges,
            5,
            9 * HOUR - back_us + denied.levels[0].retry_after_us,
        );
        assert_eq!(again.units, 5);
    }
}

#[test]
fn a_call_past_its_deadline_charges_nothing() {
    let script = ScriptRunner::new(true);
    let charges = [charge("k", shape(10, SECOND, 10), 1)];
    script.set_now(5_000_001);
    assert_eq!(
        script.reply(&charges, 1, 5_000_000).unwrap(),
        [-1, 5_000_001]
    );
    assert_eq!(script.value("k"), None);
    assert_eq!(script.reply(&charges, 1, 5_000_001).unwrap()[0], 1);
}

#[test]
fn an_adjustment_past_its_deadline_changes_nothing() {
    let script = ScriptRunner::new(true);
    let change = Change::Charge {
        charge: 100_000,
        since_us: 5_000_001,
    };
    let owed = Adjustment {
        key: Key::from("k"),
        quota: shape(10, SECOND, 10).into(),
        change,
    };
    assert_eq!(
        script.adjust_once(&owed, 5_000_001, 5_000_000),
        [-1, 5_000_001]
    );
    assert_eq!(script.value("k"), None);
    assert_eq!(
        script.adjust_once(&owed, 5_000_001, 5_000_001),
        [1, 5_000_001, 1]
    );
    assert_eq!(
        script.value("k").as_deref(),
        Some("5100001:0:100000:1:100000")
    );
}

/// A batch of debts of one token to each of these keys.
fn batch_of(number: u64, keys: &[&str]) -> AdjustmentBatch {
    let change = Change::Charge {
        charge: 100_000,
        since_us: SECOND,
    };
    AdjustmentBatch::new(
        BatchId { node: 1, number },
        keys.iter()
            .map(|key: &&str| Adjustment {
                key: Key::from(*key),
                quota: shape(10, SECOND, 10).into(),
                change,
            })
            .collect(),
    )
}

#[test]
fn a_batch_that_is_sent_again_in_whole_or_in_part_changes_nothing_twice() {
    let script = ScriptRunner::new(true);
    let whole = batch_of(7, &["a", "b", "c"]);
    let part = |places: &[u32]| {
        let mut part = whole.clone();
        part.retain_places(places);
        part
    };
    let left = |key: &str| {
        script
            .take(&[charge(key, shape(10, SECOND, 10), 1)], 0, SECOND)
            .levels[0]
            .remaining
    };
    assert_eq!(
        script.adjust(&part(&[2]), SECOND, u64::MAX, &[]),
        [1, 1_000_000, 1]
    );
    assert_eq!(["a", "b", "c"].map(left), [10, 9, 10]);
    for _ in 0..3 {
        assert_eq!(
            script.adjust(&whole, SECOND, u64::MAX, &[]),
            [1, 1_000_000, 1, 1, 1]
        );
        assert_eq!(
            script.adjust(&part(&[1, 3]), SECOND, u64::MAX, &[]),
            [1, 1_000_000, 1, 1]
        );
        assert_eq!(["a", "b", "c"].map(left), [9, 9, 9]);
    }
    assert_eq!(
        script.adjust(&batch_of(8, &["a"]), SECOND, u64::MAX, &[7]),
        [1, 1_000_000, 1]
    );
    assert_eq!(left("a"), 8);
    assert_eq!(
        script.scripts.redis.hash("marker"),
        [("8".to_owned(), "1".to_owned())]
    );
    assert_eq!(
        script.adjust(&whole, 2 * SECOND, SECOND, &[8])[0],
        -1,
        "late, and nothing is forgotten"
    );
    assert_eq!(script.scripts.redis.hash("marker").len(), 1);
}

#[test]
fn debts_of_a_bucket_that_nobody_used_are_paid_by_what_flowed_in_until_the_first_of_them_came() {
    let script = ScriptRunner::new(true);
    script.nodes.set(4);
    let ten = |number, key: &str, since_us| {
        let change = Change::Charge {
            charge: 1_000_000,
            since_us,
        };
        let owed = Adjustment {
            key: Key::from(key),
            quota: shape(10, SECOND, 10).into(),
            change,
        };
        AdjustmentBatch::new(BatchId { node: 1, number }, vec![owed])
    };
    let missing_us = |key, now_us| {
        script
            .take(&[charge(key, shape(10, SECOND, 10), 1)], 0, now_us)
            .levels[0]
            .reset_after_us
    };
    script.adjust(&ten(1, "k", 0), SECOND, u64::MAX, &[]);
    assert_eq!(
        missing_us("k", SECOND),
        750_000,
        "a fourth of the rate is this node's"
    );
    script.adjust(&ten(2, "k", 0), SECOND + 400_000, u64::MAX, &[]);
    assert_eq!(
        missing_us("k", SECOND + 400_000),
        350_000 + 750_000,
        "not by what flowed in after the first"
    );
    script.adjust(
        &ten(3, "k", 2 * SECOND),
        2 * SECOND + 100_000,
        u64::MAX,
        &[],
    );
    assert_eq!(
        missing_us("k", 2 * SECOND + 100_000),
        400_000 + SECOND,
        "all of it flowed in after the first"
    );
    // A bucket in use.
    script.take(&[charge("used", shape(10, SECOND, 10), 1)], 1, SECOND);
    script.adjust(&ten(4, "used", 0), SECOND, u64::MAX, &[]);
    assert_eq!(missing_us("used", SECOND), 100_000 + SECOND);
    // The note is forgotten.
    script.adjust(&ten(5, "k", 0), 5 * SECOND - 1, u64::MAX, &[]);
    script.take(&[charge("k", shape(10, SECOND, 10), 1)], 1, 9 * SECOND);
    script.adjust(&ten(6, "k", 0), 9 * SECOND, u64::MAX, &[]);
    assert_eq!(missing_us("k", 9 * SECOND), 100_000 + SECOND);
}

#[test]
fn a_foreign_value_keeps_no_other_key_from_its_correction() {
    let script = ScriptRunner::new(true);
    script.scripts.redis.write("b", b"hello");
    for _ in 0..2 {
        let reply = script.adjust(&batch_of(1, &["a", "b", "c"]), SECOND, u64::MAX, &[]);
        assert_eq!(reply, [1, 1_000_000, 1, 0, 1]);
    }
    let token = Some("1100000:0:100000:1:100000");
    assert_eq!(
        ["a", "b", "c"]
            .map(|key| script.value(key))
            .each_ref()
            .map(Option::as_deref),
        [token, Some("hello"), token]
    );
}

#[test]
fn a_bucket_that_is_full_again_is_deleted() {
    let script = ScriptRunner::new(true);
    let charges = [charge("k", shape(10, SECOND, 10), 1)];
    script.take(&charges, 3, SECOND);
    let change = Change::Refund {
        charge: 300_000,
        taken_at_us: SECOND,
    };
    script.adjust_once(
        &Adjustment {
            key: Key::from("k"),
            quota: charges[0].quota,
            change,
        },
        SECOND,
        u64::MAX,
    );
    assert_eq!(script.value("k"), None);
}

#[test]
fn a_foreign_value_is_marked_and_the_other_keys_decide() {
    let one = bucket([1.0, 0.0, 5.0, 1.0, 1.0]);
    let capital = [b"B", &one[1..]].concat();
    let longer = [&one[..], b"b"].concat();
    let others = [
        &b"hello"[..],
        b"1:0:5:1:1",
        b"",
        &one[..40],
        &longer,
        &capital,
    ];
    let numbers = [
        [-1.0, 0.0, 5.0, 1.0, 1.0],
        [1.0, 0.0, 0.0, 1.0, 1.0],
        [1.0, 0.0, 5.0, 0.0, 1.0],
        [1.0, 7.0, 5.0, 7.0, 1.0],
        [1.0, -1.0, 5.0, 7.0, 1.0],
        [1.5, 0.0, 5.0, 1.0, 1.0],
        [1.0, 0.0, 5.0, 1.0, 9_007_199_254_740_992.0],
        [1.0, 0.0, 9_007_199_254_740_992.0, 1.0, 1.0],
        [1.0, 0.0, 5.0, f64::INFINITY, 1.0],
    ];
    let numbers = numbers.into_iter().chain((0..5).map(|place| {
        let mut numbers = [1.0, 0.0, 5.0, 1.0, 1.0];
        numbers[place] = f64::NAN;
        numbers
    }));
    let numbers: Vec<Vec<u8>> = numbers.map(bucket).collect();
    for foreign in others.into_iter().chain(numbers.iter().map(Vec::as_slice)) {
        let script = ScriptRunner::new(true);
        script.scripts.redis.write("foreign", foreign);
        let limit = shape(10, SECOND, 10);
        script.set_now(SECOND);
        let reply = script
            .reply(
                &[charge("a", limit, 1), charge("foreign", limit, 1)],
                12,
                u64::MAX,
            )
            .unwrap();
        assert_eq!(
            reply,
            [10, 1_000_000, 0, 100_000, 1_000_000, -1, 0, 0],
            "{foreign:?}"
        );
        assert_eq!(
            script.scripts.redis.value("foreign").as_deref(),
            Some(foreign)
        );
        assert_eq!(
            script
                .give_error(&charge("foreign", limit, 1))
                .matches("not Tollgate's")
                .count(),
            1
        );
    }
}
