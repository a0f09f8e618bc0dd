//! Whatever the text: an answer, never a panic. And quantities that read back as they are shown.

use std::num::NonZeroU64;
use std::sync::LazyLock;
use std::time::Duration;

use proptest::prelude::*;
use tollgate_limiter::limit::units;

use super::{EVERY_KEY, check};

#[test]
fn shows_bounds_and_forms_of_quantities() {
    assert_eq!(
        units::parse_duration("1500ms"),
        Some(Duration::from_millis(1_500))
    );
    assert_eq!(units::show_duration(Duration::from_millis(1_500)), "1500ms");
    assert_eq!(units::show_duration(Duration::from_secs(120)), "2m");
    assert_eq!(units::show_size(64 << 10), "64KiB");
    assert_eq!(units::show_size(10_000_000), "10MB");
    for wrong in [
        "",
        "5",
        "s",
        "5 s",
        "-5s",
        "1.5s",
        "5S",
        "99999999999999999999s",
        "18446744073709551615d",
    ] {
        assert_eq!(units::parse_duration(wrong), None, "{wrong:?}");
    }
    for wrong in [
        "",
        "10",
        "10/",
        "/s",
        "10/x",
        "10/ms",
        "1.5/s",
        "0/s",
        "5/0s",
        "10/s/s",
        "1/99999999999999999d",
    ] {
        assert_eq!(units::parse_rate(wrong), None, "{wrong:?}");
    }
    for wrong in ["", "KiB", "10 MB", "10mb", "1.5MB", "-1", "99999999999GiB"] {
        assert_eq!(units::parse_size(wrong), None, "{wrong:?}");
    }
}

/// Pieces that the file is made of, so that random texts get past the first line.
fn piece() -> impl Strategy<Value = String> {
    let words = prop::sample::select(vec![
        "listeners",
        "routes",
        "limits",
        "upstreams",
        "store",
        "admin",
        "match",
        "path",
        "name",
        "key",
        "rate",
        "redis",
        "respond",
        "headers",
        "echo",
        "true",
        "off",
        "10/s",
        "/users/{id}",
        "http://a:1",
        "127.0.0.1:1",
        "${X}",
        "${",
        "client_ip",
        ": ",
        ":",
        "\n",
        "\n  ",
        "\n    ",
        "- ",
        "? ",
        "{",
        "}",
        "[",
        "]",
        ", ",
        "&a ",
        "*a",
        "!!int ",
        "|",
        ">",
        "'",
        "\"",
        "\\",
        "#",
        "---",
        "...",
        "%YAML 1.2",
        "\t",
        "~",
        "é",
        "\u{feff}",
        "\u{85}",
    ]);
    prop_oneof![4 => words.prop_map(str::to_owned), 1 => any::<char>().prop_map(String::from)]
}

/// The file with every key, whose upstreams are not verified. To read the system's authorities for
/// each of them, again and again, would be most of the work.
pub static UNVERIFIED: LazyLock<String> = LazyLock::new(|| {
    let replaced = [
        (
            "tls: {server_name: orders.internal}",
            "tls: {server_name: orders.internal, verify: false}",
        ),
        ("  found:\n", "  found:\n    tls: {verify: false}\n"),
        ("tls: {}", "tls: {verify: false}"),
    ];
    let text = replaced
        .iter()
        .fold(EVERY_KEY.to_owned(), |text, (from, to)| {
            assert_eq!(text.matches(from).count(), 1, "{from}");
            text.replace(from, to)
        });
    assert!(check(&text).is_ok());
    text
});

/// `text` with `with` in place of `length` of its characters from `at` on.
fn spliced(text: &str, at: usize, length: usize, with: &str) -> String {
    let (before, after) = (text.chars().take(at), text.chars().skip(at + length));
    before.chain(with.chars()).chain(after).collect()
}

// Each case reads the whole file.
proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_change_to_a_good_file_makes_it_panic(at in 0..UNVERIFIED.len(), length in 0..12usize, with in piece()) {
        if let Err(mistakes) = check(&spliced(&UNVERIFIED, at, length, &with)) {
            let told = mistakes.to_string();
            prop_assert!(told.ends_with(" in routes.yaml") && !told.contains("failed to say why"), "{told}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_it_panic(pieces in prop::collection::vec(piece(), 0..60)) {
        if let Err(mistakes) = check(&pieces.concat()) {
            prop_assert!(!mistakes.all().is_empty());
            prop_assert!(mistakes.all().iter().all(|mistake| mistake.at.is_some_and(|(line, column)| line > 0 && column > 0)));
        }
    }

    #[test]
    fn rates_read_back_as_shown(tokens in 1..u64::MAX, seconds in 1..u64::MAX / 1_000_000) {
        let rate = (NonZeroU64::new(tokens).unwrap(), NonZeroU64::new(seconds * 1_000_000).unwrap());
        prop_assert_eq!(units::parse_rate(&units::show_rate(rate.0, rate.1)), Some(rate));
    }

    #[test]
    fn durations_read_back_as_shown(millis in 0..u64::MAX / 1_000) {
        let duration = Duration::from_millis(millis);
        prop_assert_eq!(units::parse_duration(&units::show_duration(duration)), Some(duration));
    }

    #[test]
    fn sizes_read_back_as_shown(bytes in any::<u64>(), unit in 0..31u32) {
        let bytes = bytes >> unit << unit;
        prop_assert_eq!(units::parse_size(&units::show_size(bytes)), Some(bytes));
    }
}
