//! A full table of buckets in this process: one limit's keys that fill it cost no other limit a
//! token, and no key ever gets more than its limit.

use std::collections::HashMap;

use proptest::prelude::{any, prop_assert, proptest};
use tollgate_limiter::algorithm::share::Share;
use tollgate_limiter::algorithm::window::Window;
use tollgate_limiter::limit::key::Key;
use tollgate_limiter::store::memory::MemoryStore;
use tollgate_testing::{HOUR, SECOND, charge, shape};

#[test]
fn a_table_full_of_one_limits_keys_denies_no_newcomer_of_another() {
    let memory = MemoryStore::new(4_000);
    let flood = shape(5, 24 * HOUR, 5);
    let login = shape(10, SECOND, 10);
    let daily = Window::sliding(5, 24 * HOUR).unwrap();
    let attack = |from: u32, now: u64| {
        for n in from..from + 5_000 {
            memory.take_at(
                &[charge(&format!("flood:{n}"), flood, 1)],
                5,
                now,
                Share::WHOLE,
            );
            memory.take_at(
                &[charge(&format!("flood-day:{n}"), daily, 1)],
                5,
                now,
                Share::WHOLE,
            );
        }
    };
    attack(0, 0);
    let user = |n: u32, units, now| {
        let charges = [
            charge(&format!("login:{n}"), login, 1),
            charge(&format!("login-day:{n}"), daily, 1),
        ];
        memory.take_at(&charges, units, now, Share::WHOLE).units
    };
    let passed: u32 = (0..100).map(|n| user(n, 5, SECOND)).sum();
    assert_eq!(
        passed, 500,
        "all that 100 users of other limits may have at once"
    );
    attack(5_000, 2 * SECOND);
    let again: u32 = (0..100).map(|n| user(n, 5, 2 * SECOND)).sum();
    assert_eq!(again, 0, "the flood costs them no bucket of theirs");
    assert_eq!((100..200).map(|n| user(n, 5, 2 * SECOND)).sum::<u32>(), 500);
    assert!(memory.len() <= 4_000);
}

proptest! {
    #[test]
    fn limits_that_share_a_tiny_table_are_exact_for_every_key(room in 1_usize..60, seed in any::<u64>()) {
        let memory = MemoryStore::new(room);
        let mut random = fastrand::Rng::with_seed(seed);
        let mut admitted: HashMap<Key, Vec<(u64, u64)>> = HashMap::new();
        let mut now = 0;
        for _ in 0..1_000 {
            now += random.u64(0..20_000);
            let key = random.u32(0..30);
            let units = random.u32(1..6);
            let bucket = if random.bool() {
                charge(&format!("a:{key}"), shape(10, SECOND, 5), 1)
            } else {
                charge(&format!("b:{key}"), shape(2, SECOND, 20), 1)
            };
            let asked = [bucket, charge(&format!("w:{key}"), Window::sliding(7, SECOND).unwrap(), 1)];
            let asked = [&asked[..1], &asked[1..], &asked[..]][random.usize(0..3)];
            let granted = memory.take_at(asked, units, now, Share::WHOLE).units;
            for charge in asked {
                admitted.entry(charge.key.clone()).or_default().push((now, granted.into()));
            }
            prop_assert!(memory.len() <= room);
        }
        for (key, admitted) in &admitted {
            for (first, (from, _)) in admitted.iter().enumerate() {
                let mut sum = 0;
                for (at, tokens) in &admitted[first..] {
                    sum += tokens;
                    let most = match key.as_bytes()[0] {
                        b'a' => 5 * SECOND + 10 * (at - from),
                        b'b' => 20 * SECOND + 2 * (at - from),
                        _ if at - from < SECOND => 7 * SECOND,
                        _ => u64::MAX,
                    };
                    prop_assert!(sum * SECOND <= most, "{} in {} us", sum, at - from);
                }
            }
        }
    }
}
