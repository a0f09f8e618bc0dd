//! Numbers as people read them, with their units.

/// `12.3/s`; of few a digit more.
pub fn rate(per_second: f64) -> String {
    match per_second {
        none if none <= 0.0 => "0/s".to_owned(),
        few if few < 10.0 => format!("{few:.1}/s"),
        many => format!("{}/s", count(many.round() as u64)),
    }
}

/// `4.2 %`
pub fn share(part: f64, whole: f64) -> String {
    if whole <= 0.0 {
        return "–".to_owned();
    }
    match 100.0 * part / whole {
        none if none <= 0.0 => "0 %".to_owned(),
        little if little < 0.1 => "< 0.1 %".to_owned(),
        some if some < 10.0 => format!("{some:.1} %"),
        much => format!("{much:.0} %"),
    }
}

/// `3.2 ms`
pub fn latency(seconds: f32) -> String {
    match seconds {
        none if none.is_nan() => "–".to_owned(),
        micros if micros < 0.001 => format!("{:.2} ms", micros * 1e3),
        short if short < 0.01 => format!("{:.1} ms", short * 1e3),
        middle if middle < 1.0 => format!("{:.0} ms", middle * 1e3),
        long => format!("{long:.1} s"),
    }
}

/// `12 345`, with narrow spaces that do not break.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3 * 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// `3 h 12 min`
pub fn span(seconds: u64) -> String {
    let minutes = seconds / 60;
    let hours = seconds / 3_600;
    let days = seconds / 86_400;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{minutes} min {} s", seconds % 60),
        3_600..86_400 => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

/// `Sun, 22 Nov 2026 23:31:05 GMT`, of seconds since 1970.
pub fn date(unix_secs: u64) -> String {
    httpdate::fmt_http_date(std::time::UNIX_EPOCH + std::time::Duration::from_secs(unix_secs))
}

/// `2026-11-23 03:00 UTC`, of RFC 3339.
pub fn short_time(at: &str) -> String {
    match (at.get(..10), at.get(11..16)) {
        (Some(date), Some(time)) => format!("{date} {time} UTC"),
        _ => at.to_owned(),
    }
}

/// `2026-11-23 03:00:12 UTC`, of RFC 3339.
pub fn exact_time(at: &str) -> String {
    match (at.get(..10), at.get(11..19)) {
        (Some(date), Some(time)) => format!("{date} {time} UTC"),
        _ => at.to_owned(),
    }
}

/// `one endpoint`, `3 endpoints`.
pub fn plural(number: usize, one: &str, many: &str) -> String {
    if number == 1 {
        format!("one {one}")
    } else {
        format!("{} {many}", count(number as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_their_units_and_few_digits() {
        assert_eq!(
            [rate(0.0), rate(0.25), rate(12.34), rate(12_345.6)],
            ["0/s", "0.2/s", "12/s", "12\u{202f}346/s"]
        );
        assert_eq!(
            [
                share(1.0, 0.0),
                share(0.0, 9.0),
                share(1.0, 9_999.0),
                share(1.0, 40.0),
                share(1.0, 2.0)
            ],
            ["–", "0 %", "< 0.1 %", "2.5 %", "50 %"]
        );
        assert_eq!(
            [
                latency(f32::NAN),
                latency(0.000_25),
                latency(0.0032),
                latency(0.25),
                latency(2.5)
            ],
            ["–", "0.25 ms", "3.2 ms", "250 ms", "2.5 s"]
        );
        assert_eq!(
            [count(7), count(1_000), count(1_234_567)],
            ["7", "1\u{202f}000", "1\u{202f}234\u{202f}567"]
        );
        assert_eq!(
            [span(59), span(61), span(7_260), span(90_000)],
            ["59 s", "1 min 1 s", "2 h 1 min", "1 d 1 h"]
        );
        assert_eq!(date(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        let at = "2026-11-23T03:00:12.345Z";
        assert_eq!(
            [short_time(at), exact_time(at)],
            ["2026-11-23 03:00 UTC", "2026-11-23 03:00:12 UTC"]
        );
        assert_eq!(
            [plural(1, "node", "nodes"), plural(2, "node", "nodes")],
            ["one node", "2 nodes"]
        );
    }
}
