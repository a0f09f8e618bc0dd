//! Reports as a table for people, with a line of details for each.

use std::fmt::Write as _;

use crate::report::run_report::RunReport;

/// A column: its name, and what it shows of a report.
type Column = (&'static str, fn(&RunReport) -> String);

const COLUMNS: [Column; 12] = [
    ("scenario", |report| report.scenario.clone()),
    ("requests", |report| grouped(report.requests)),
    ("admitted", |report| grouped(report.admitted)),
    ("bound", |report| grouped(report.bound)),
    ("over", |report| grouped(report.over)),
    ("as answered", |report| grouped(report.over_as_answered)),
    ("under", |report| format!("{:.1} %", report.under_percent)),
    ("calls/request", |report| match report.store_calls {
        Some(calls) if report.requests > 0 => {
            format!("{:.3}", calls as f64 / report.requests as f64)
        }
        _ => "-".to_owned(),
    }),
    ("p50", |report| millis(report.p50_us)),
    ("p99", |report| millis(report.p99_us)),
    ("max", |report| millis(report.max_us)),
    ("verdict", |report| report.verdict().to_owned()),
];

/// A heading, a table with a row for each report, and below it a line of details for each.
pub fn table(heading: &str, reports: &[RunReport]) -> String {
    let mut rows = vec![COLUMNS.map(|(name, _)| name.to_owned())];
    rows.extend(
        reports
            .iter()
            .map(|report| COLUMNS.map(|(_, show)| show(report))),
    );
    let widths: Vec<usize> = (0..COLUMNS.len())
        .map(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0))
        .collect();
    let mut text = format!("{heading}\n\n");
    for row in &rows {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(place, (cell, width))| align(place, cell, *width))
            .collect();
        let _ = writeln!(text, "{}", cells.join("  ").trim_end());
    }
    text.push('\n');
    for report in reports {
        let _ = writeln!(text, "{}", details(report));
    }
    text
}

/// Words are aligned to the left, numbers to the right.
fn align(place: usize, cell: &str, width: usize) -> String {
    if place == 0 || place + 1 == COLUMNS.len() {
        format!("{cell:<width$}")
    } else {
        format!("{cell:>width$}")
    }
}

fn details(report: &RunReport) -> String {
    let answers = report.answers.iter().map(|(answer, count)| {
        format!(
            "{answer} {:.1} %",
            *count as f64 * 100.0 / report.requests.max(1) as f64
        )
    });
    let answers = answers.collect::<Vec<_>>().join(", ");
    let mut text = format!(
        "{}: {}. Decided: {answers}",
        report.scenario, report.promise
    );
    if let Some(failed) = report.store_calls_failed.filter(|failed| *failed > 0) {
        let _ = write!(text, "; {failed} store calls failed");
        if !report.fails_calls {
            text.push_str(", which was not intended: an outage has terms of its own, so try a longer --store-timeout");
        }
    }
    if report.clock_gained_us > 0 {
        let millis = report.clock_gained_us as f64 / 1e3;
        let _ = write!(
            text,
            "; Redis's clock was set or slewed by {millis:.1} ms, whose tokens are allowed"
        );
    }
    if report.over > report.over_terms {
        let _ = write!(
            text,
            "; {} over the terms of this scenario",
            report.over_terms
        );
    }
    for requirement in &report.requirements {
        let verdict = if requirement.is_met() {
            ""
        } else {
            ", which is NOT ENOUGH OR TOO MUCH"
        };
        let _ = write!(
            text,
            "; {}: {:.2}{verdict}",
            requirement.name, requirement.found
        );
    }
    if let Some(worst) = &report.worst {
        let seconds = (worst.to_us - worst.from_us) as f64 / 1e6;
        let _ = write!(
            text,
            "; worst window: key {} had {} tokens within {seconds:.3} s, {} are allowed",
            worst.key, worst.admitted, worst.allowed
        );
    }
    text
}

/// A number with its digits in groups of three.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

fn millis(us: u64) -> String {
    format!("{:.3} ms", us as f64 / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::TestedLimit;
    use crate::report::RunTerms;
    use crate::report::observations::{AnswerKind, Observation, Observations};

    fn report(scenario: &str, admitted: u64, per_second: u64) -> RunReport {
        let mut observed = Observations {
            expected: admitted,
            ..Observations::default()
        };
        for at_us in (0..admitted).map(|n| n * 1_000) {
            observed.record(Observation {
                key: 0,
                sent_us: at_us,
                now_us: at_us,
                answer: AnswerKind::Redis,
                admitted: Some(1),
                expected: 0,
            });
        }
        let terms = RunTerms {
            scenario: scenario.to_owned(),
            promise: "the limit".to_owned(),
            bound: TestedLimit::per_second(per_second, 2).into(),
            concessions: Vec::new(),
            least_percent: Some(97.0),
            fails_calls: scenario == "flap",
            clock_gained_us: 0,
            spared: Vec::new(),
            requirements: Vec::new(),
        };
        RunReport::new(&terms, &observed)
    }

    #[test]
    fn an_unintended_outage_is_pointed_out() {
        fn hints(scenario: &str, failed: u64) -> bool {
            let report = report(scenario, 5, 1_001).with_calls(5, failed);
            details(&report).contains("--store-timeout")
        }
        assert!(hints("steady", 1) && !hints("steady", 0) && !hints("flap", 1));
    }

    #[test]
    fn digits_are_grouped_in_threes() {
        for (number, shown) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1 000"),
            (12_345_678, "12 345 678"),
        ] {
            assert_eq!(grouped(number), shown);
        }
    }

    #[test]
    fn the_table_names_the_worst_window() {
        let text = table("500/s", &[report("steady", 100, 500)]);
        assert!(text.starts_with("500/s\n\nscenario "), "{text}");
        assert!(
            text.contains("OVER")
                && text.contains("worst window: key 0 had 100 tokens within 0.099 s"),
            "{text}"
        );
    }
}
