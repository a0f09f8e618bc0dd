//! What a run came to: the figures, the verdict, and how both are shown.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use crate::judge::{self, Concession, Judgement, Window};
use crate::plan::{Limit, Scenario};
use crate::tally::{Answer, Tally};

/// Admitted of what was due, at least.
pub const OWED_PERCENT: f64 = 97.0;

/// One scenario's figures and verdict.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    pub scenario: String,
    pub requests: u64,
    /// Tokens.
    pub admitted: u64,
    /// Tokens that burst + rate · t allows in the time between the first question and the last answer, times the keys in
    /// use.
    pub bound: u64,
    /// Tokens over the bound in the worst window of any key; 0 where the promise was kept.
    pub over: u64,
    pub worst: Option<Window>,
    /// The same if every admission had happened when its answer came: may be too much.
    pub over_as_answered: u64,
    /// Tokens over the bound and what the terms of this scenario concede. The verdict.
    pub over_terms: u64,
    /// Tokens that an undelayed token bucket would have admitted, asked the same.
    pub due: u64,
    /// Admitted less than due, in per cent of it; negative: more.
    pub under_percent: f64,
    /// Whether too little is a broken promise here.
    pub owes: bool,
    pub store_calls: Option<u64>,
    pub store_calls_failed: Option<u64>,
    pub p50_us: u64,
    pub p99_us: u64,
    pub max_us: u64,
    /// By who decided, or by status.
    pub answers: BTreeMap<String, u64>,
}

impl Outcome {
    /// Judges `tally` by `limit`.
    pub(super) fn of(scenario: &str, limit: &Limit, tally: &Tally, concessions: &[Concession], owes: bool) -> Self {
        let strict = judge::judge(&tally.admissions, limit, &[]);
        let terms =
            if concessions.is_empty() { strict.clone() } else { judge::judge(&tally.admissions, limit, concessions) };
        let as_answered = judge::judge(&judge::as_answered(&tally.admissions), limit, &[]);
        let Judgement { admitted, over, worst } = strict;
        let short = tally.due as f64 - admitted as f64;
        Self {
            scenario: scenario.to_owned(),
            requests: tally.asked,
            admitted,
            bound: bound(tally, limit),
            over,
            worst: terms.worst.or(worst),
            over_as_answered: as_answered.over,
            over_terms: terms.over,
            due: tally.due,
            under_percent: if tally.due == 0 { 0.0 } else { short * 100.0 / tally.due as f64 },
            owes,
            store_calls: None,
            store_calls_failed: None,
            p50_us: tally.latencies.percentile(50),
            p99_us: tally.latencies.percentile(99),
            max_us: tally.latencies.max(),
            answers: tally.answers.iter().map(|(answer, count)| (answer.to_string(), *count)).collect(),
        }
    }

    /// With the calls to the store: all of them, and those that failed.
    pub(super) fn with_calls(self, (all, failed): (u64, u64)) -> Self {
        Self { store_calls: Some(all), store_calls_failed: Some(failed), ..self }
    }

    /// Whether a promise was broken.
    pub fn is_broken(&self) -> bool {
        self.over_terms > 0 || self.is_short()
    }

    fn is_short(&self) -> bool {
        self.owes && self.under_percent > 100.0 - OWED_PERCENT
    }

    /// `kept`, or what was not.
    pub fn verdict(&self) -> &'static str {
        match (self.over_terms > 0, self.is_short()) {
            (true, true) => "OVER AND SHORT",
            (true, false) => "OVER",
            (false, true) => "SHORT",
            (false, false) => "kept",
        }
    }
}

/// Of all keys in use, each over all of the time.
fn bound(tally: &Tally, limit: &Limit) -> u64 {
    let first = tally.admissions.iter().map(|one| one.asked_us).min().unwrap_or(0);
    let last = tally.admissions.iter().map(|one| one.answered_us).max().unwrap_or(0);
    let mut keys: Vec<u32> = tally.admissions.iter().map(|one| one.key).collect();
    keys.sort_unstable();
    keys.dedup();
    limit.bound(last - first).saturating_mul(keys.len() as u64)
}

/// The columns: what each is called, and what it shows.
type Column = (&'static str, fn(&Outcome) -> String);

const COLUMNS: [Column; 12] = [
    ("scenario", |outcome| outcome.scenario.clone()),
    ("requests", |outcome| grouped(outcome.requests)),
    ("admitted", |outcome| grouped(outcome.admitted)),
    ("bound", |outcome| grouped(outcome.bound)),
    ("over", |outcome| grouped(outcome.over)),
    ("as answered", |outcome| grouped(outcome.over_as_answered)),
    ("under", |outcome| format!("{:.1} %", outcome.under_percent)),
    ("calls/request", |outcome| match outcome.store_calls {
        Some(calls) if outcome.requests > 0 => format!("{:.3}", calls as f64 / outcome.requests as f64),
        _ => "-".to_owned(),
    }),
    ("p50", |outcome| millis(outcome.p50_us)),
    ("p99", |outcome| millis(outcome.p99_us)),
    ("max", |outcome| millis(outcome.max_us)),
    ("verdict", |outcome| outcome.verdict().to_owned()),
];

/// A table below what its rows have in common, and below it what it has no room for.
pub fn table(heading: &str, outcomes: &[Outcome]) -> String {
    let mut rows = vec![COLUMNS.map(|(name, _)| name.to_owned())];
    rows.extend(outcomes.iter().map(|outcome| COLUMNS.map(|(_, show)| show(outcome))));
    let widths: Vec<usize> =
        (0..COLUMNS.len()).map(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0)).collect();
    let mut text = format!("{heading}\n\n");
    for row in &rows {
        let cells: Vec<String> =
            row.iter().zip(&widths).enumerate().map(|(place, (cell, width))| align(place, cell, *width)).collect();
        let _ = writeln!(text, "{}", cells.join("  ").trim_end());
    }
    text.push('\n');
    for outcome in outcomes {
        let _ = writeln!(text, "{}", details(outcome));
    }
    text
}

/// Words to the left, numbers to the right.
fn align(place: usize, cell: &str, width: usize) -> String {
    if place == 0 || place + 1 == COLUMNS.len() { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
}

fn details(outcome: &Outcome) -> String {
    let answers = outcome
        .answers
        .iter()
        .map(|(answer, count)| format!("{answer} {:.1} %", *count as f64 * 100.0 / outcome.requests.max(1) as f64));
    let mut text = format!("{}: {}", outcome.scenario, answers.collect::<Vec<_>>().join(", "));
    if let Some(failed) = outcome.store_calls_failed.filter(|failed| *failed > 0) {
        let _ = write!(text, "; {failed} store calls failed");
        if outcome.scenario != Scenario::Flap.name() {
            text.push_str(", which was not intended: an outage has terms of its own, so try a longer --store-timeout");
        }
    }
    if outcome.over > outcome.over_terms {
        let _ = write!(text, "; {} over the terms of this scenario", outcome.over_terms);
    }
    if let Some(worst) = &outcome.worst {
        let seconds = (worst.to_us - worst.from_us) as f64 / 1e6;
        let _ = write!(
            text,
            "; worst window: key {} had {} tokens within {seconds:.3} s, {} are allowed",
            worst.key, worst.admitted, worst.allowed
        );
    }
    text
}

/// Digits in threes.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let begins_group = |place: usize| place > 0 && (digits.len() - place).is_multiple_of(3);
    digits
        .chars()
        .enumerate()
        .flat_map(|(place, digit)| begins_group(place).then_some(' ').into_iter().chain([digit]))
        .collect()
}

fn millis(us: u64) -> String {
    format!("{:.3} ms", us as f64 / 1e3)
}

impl Answer {
    /// Whether a gateway's answer with this status lets through; `None`: neither that nor a denial.
    pub(super) fn admits(status: u16) -> Option<bool> {
        match status {
            200..=299 => Some(true),
            429 | 503 => Some(false),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::Seen;

    fn tally(admitted: u64, due: u64) -> Tally {
        let mut tally = Tally { due, ..Tally::default() };
        let seen = |at| Seen { key: 0, asked_us: at, now_us: at, answer: Answer::Redis, admitted: Some(1), due: 0 };
        (0..admitted).for_each(|n| tally.record(seen(n * 1_000)));
        tally
    }

    fn outcome(admitted: u64, due: u64, owes: bool) -> Outcome {
        Outcome::of("steady", &Limit::per_second(1_001, 2), &tally(admitted, due), &[], owes)
    }

    #[test]
    fn too_much_and_too_little_are_both_broken_promises() {
        assert_eq!(outcome(100, 100, true).verdict(), "kept");
        assert_eq!(outcome(100, 103, true).verdict(), "kept");
        assert_eq!(outcome(96, 100, true).verdict(), "SHORT");
        assert!(!outcome(96, 100, false).is_broken());
        let slower = Limit::per_second(500, 2);
        let over = Outcome::of("steady", &slower, &tally(100, 50), &[], true);
        assert!(over.is_broken() && over.over > 40, "{over:?}");
        let conceded = [Concession { from_us: 0, to_us: 1_000_000, tokens: 100 }];
        let excused = Outcome::of("flap", &slower, &tally(100, 50), &conceded, false);
        assert_eq!((excused.verdict(), excused.over, excused.over_terms), ("kept", over.over, 0));
    }

    #[test]
    fn an_outage_that_nobody_intended_is_said_to_be_one() {
        let said = |scenario: &str, failed| {
            let outcome = Outcome::of(scenario, &Limit::per_second(1_001, 2), &tally(5, 5), &[], true);
            details(&outcome.with_calls((5, failed))).contains("--store-timeout")
        };
        assert!(said("steady", 1) && !said("steady", 0) && !said("flap", 1));
    }

    #[test]
    fn digits_stand_in_threes() {
        for (number, shown) in [(0, "0"), (999, "999"), (1_000, "1 000"), (12_345_678, "12 345 678")] {
            assert_eq!(grouped(number), shown);
        }
    }

    #[test]
    fn the_table_names_the_worst_window() {
        let over = Outcome::of("steady", &Limit::per_second(500, 2), &tally(100, 50), &[], true);
        let text = table("500/s", &[over]);
        assert!(text.starts_with("500/s\n\nscenario "), "{text}");
        assert!(text.contains("OVER") && text.contains("worst window: key 0 had 100 tokens within 0.099 s"), "{text}");
    }
}
