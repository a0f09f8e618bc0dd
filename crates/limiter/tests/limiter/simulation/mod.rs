//! Random schedules of fleets, demand, faults and clocks, run on paused time and judged by what was
//! promised.
//!
//! `TOLLGATE_SIMULATION_SEEDS=from..to`, or one seed, says which schedules to run.
//! `TOLLGATE_SIMULATION_WITHOUT=f0,d1,c2` leaves parts of them out: the first fault, the second
//! demand, the change of the third limit. `TOLLGATE_SIMULATION_TRACE=1` prints each decision. A
//! seed repeats its run, except that the machine's own hash seeds order the upkeep of permits.

mod draw;
mod fleet;
mod judge;
mod run;
mod schedule;
mod server;
mod terms;
mod wire;

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use self::judge::{Trial, broken_promises};
use self::schedule::Schedule;

/// Schedules that a test runs, unless it is told which.
const SEEDS: Range<u64> = 0..300;

/// Threads that run schedules.
const THREADS: u64 = 2;

/// Failures that are shown.
const SHOWN: usize = 5;

/// The schedule of a seed, and the promises that its run broke.
fn trial(seed: u64) -> (Schedule, Vec<String>) {
    let schedule = Schedule::draw(seed)
        .without(&std::env::var("TOLLGATE_SIMULATION_WITHOUT").unwrap_or_default());
    let broken = catch_unwind(AssertUnwindSafe(|| {
        let observed = run::run(&schedule);
        let trial = Trial {
            schedule: &schedule,
            observed: &observed,
        };
        if std::env::var_os("TOLLGATE_SIMULATION_TRACE").is_some() {
            observed
                .decisions
                .iter()
                .for_each(|made| println!("{made}"));
        }
        broken_promises(&trial)
    }));
    let broken = broken.unwrap_or_else(|_| vec!["the run panicked".to_owned()]);
    (schedule, broken)
}

fn failures(seeds: Range<u64>) -> Vec<String> {
    let next = AtomicU64::new(seeds.start);
    let mut failed: Vec<(u64, String)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    let mut failed = Vec::new();
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= seeds.end {
                            return failed;
                        }
                        let (schedule, broken) = trial(seed);
                        if !broken.is_empty() {
                            failed.push((seed, format!("{}\n{schedule:?}", broken.join("\n"))));
                        }
                    }
                })
            })
            .collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap())
            .collect()
    });
    failed.sort();
    failed.into_iter().map(|(_, text)| text).collect()
}

/// `from..to`, or one seed.
fn seeds(text: &str) -> Range<u64> {
    let number = |text: &str| text.trim().parse().expect("a seed is a number");
    match text.split_once("..") {
        Some((from, to)) => number(from)..number(to),
        None => number(text)..number(text) + 1,
    }
}

#[test]
fn a_seed_repeats_its_run() {
    let seeds = (0..).filter(|seed| {
        Schedule::draw(*seed)
            .demands
            .iter()
            .all(|demand| demand.permits.is_none())
    });
    for seed in seeds.take(10) {
        let schedule = Schedule::draw(seed);
        let [first, second] = [run::run(&schedule), run::run(&schedule)];
        let lines = |observed: &run::Observed| {
            observed
                .decisions
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        };
        assert_eq!(lines(&first), lines(&second), "{schedule:?}");
    }
}

#[test]
fn random_schedules_keep_what_is_promised() {
    let seeds = std::env::var("TOLLGATE_SIMULATION_SEEDS").map_or(SEEDS, |text| seeds(&text));
    let failed = failures(seeds.clone());
    for text in failed.iter().take(SHOWN) {
        println!("{text}");
    }
    assert!(
        failed.is_empty(),
        "{} of {} seeds failed",
        failed.len(),
        seeds.end - seeds.start
    );
}
