use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::limit::cost::json_path::{MAX_NAMES, PathError};

fn scan(path: &str, pieces: &[&[u8]]) -> ScanResult {
    let mut scanner = Scanner::new(JsonPath::parse(path).unwrap());
    pieces.iter().for_each(|piece| scanner.feed(piece));
    scanner.scanned()
}

fn of(path: &str, text: &str) -> ScanResult {
    scan(path, &[text.as_bytes()])
}

#[test]
fn finds_a_field_by_its_path_and_nowhere_else() {
    let text = r#"{"total_tokens":1,"choices":[{"usage":{"total_tokens":2}}],"other":{"usage":{"total_tokens":3}},
        "usage":{"prompt":4,"total_tokens":57,"total_tokens_details":{"total_tokens":5}},"text":"\"usage\": {"}"#;
    assert_eq!(of("usage.total_tokens", text), ScanResult::Number(57));
    assert_eq!(of("total_tokens", text), ScanResult::Number(1));
    assert_eq!(of("other.usage.total_tokens", text), ScanResult::Number(3));
    assert_eq!(of("choices.usage.total_tokens", text), ScanResult::Nothing);
    assert_eq!(of("usage", text), ScanResult::Invalid);
    assert_eq!(of("usage.total", text), ScanResult::Nothing);
}

#[test]
fn a_number_is_rounded_up_and_nothing_else_is_one() {
    for (value, scanned) in [
        ("0", ScanResult::Number(0)),
        ("7", ScanResult::Number(7)),
        ("7.0", ScanResult::Number(7)),
        ("7.01", ScanResult::Number(8)),
        ("1.5e3", ScanResult::Number(1_500)),
        ("1E-2", ScanResult::Number(1)),
        ("18446744073709551616", ScanResult::Number(u64::MAX)),
        ("1e300", ScanResult::Number(u64::MAX)),
        ("-0", ScanResult::Number(0)),
        ("-0.5", ScanResult::Invalid),
        ("-7", ScanResult::Invalid),
        ("1-", ScanResult::Invalid),
        (
            "0.00000000000000000000000000000000000000001",
            ScanResult::Invalid,
        ),
        ("\"7\"", ScanResult::Invalid),
        ("true", ScanResult::Invalid),
        ("[7]", ScanResult::Invalid),
        ("null", ScanResult::Nothing),
    ] {
        assert_eq!(of("a", &format!("{{\"a\":{value}}}")), scanned, "{value}");
    }
}

#[test]
fn the_last_number_counts_and_null_takes_nothing_back() {
    assert_eq!(
        of("a", "{\"a\":1}\n{\"a\":2}\n{\"b\":3}{\"a\":null}\n"),
        ScanResult::Number(2)
    );
    assert_eq!(of("a", r#"{"a":1,"a":2}"#), ScanResult::Number(2));
    let mut scanner = Scanner::new(JsonPath::parse("a").unwrap());
    scanner.feed(b"[DONE]");
    scanner.restart();
    scanner.feed(b"{\"a\":5}");
    assert_eq!(
        scanner.scanned(),
        ScanResult::Number(5),
        "what is not JSON is left behind"
    );
}

#[test]
fn a_number_that_may_go_on_does_not_count() {
    assert_eq!(of("a", "{\"a\":12"), ScanResult::Nothing);
    assert_eq!(of("a", "{\"a\":12 "), ScanResult::Number(12));
}

#[test]
fn names_are_compared_as_they_are_meant() {
    let text = r#"{"\u0061\uD83D\uDE00\"\\\/\n":{"b.c":3},"\ud83d":{"b.c":4},"\ude00":{"b.c":5}}"#;
    assert_eq!(of("a\u{1f600}\"\\\\/\n.b\\.c", text), ScanResult::Number(3));
    assert_eq!(of("\u{1f600}.b\\.c", text), ScanResult::Nothing);
}

#[test]
fn nesting_is_followed_to_its_bound_and_left_beyond() {
    let nested = |levels| {
        format!(
            "{{\"d\":{}{},\"a\":1}}",
            "[".repeat(levels),
            "]".repeat(levels)
        )
    };
    assert_eq!(of("a", &nested(127)), ScanResult::Number(1));
    assert_eq!(of("a", &nested(128)), ScanResult::Nothing);
    assert!(
        std::mem::size_of::<Scanner>() <= 160,
        "{}",
        std::mem::size_of::<Scanner>()
    );
}

#[test]
fn a_path_is_written_with_dots_and_shown_as_it_is_written() {
    for path in [
        "usage.total_tokens",
        "a",
        r"a\.b.c\\d",
        "\u{e4}\\ \"x\".y",
        r"\$.\*.\[0\]",
        r"c\+\+.$ref.$",
    ] {
        assert_eq!(JsonPath::parse(path).unwrap().to_string(), path);
    }
    for (path, error) in [
        ("", PathError::EmptyName),
        ("a..b", PathError::EmptyName),
        (".a", PathError::EmptyName),
        ("a.", PathError::EmptyName),
        (r"a\", PathError::Escape),
        (r"a\n", PathError::Escape),
        (&"a.".repeat(17), PathError::EmptyName),
        (&vec!["a"; 17].join("."), PathError::TooDeep),
        ("$", PathError::Root),
        ("$.usage", PathError::Root),
        ("usage.*", PathError::Wildcard),
        ("choices[0].tokens", PathError::Array),
        ("$[0]", PathError::Array),
        ("a.b + c.d", PathError::Sum),
        ("a.b+c.d", PathError::Sum),
        ("a.b c", PathError::Sum),
    ] {
        assert_eq!(JsonPath::parse(path), Err(error), "{path}");
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let name = "[a-c]{1,2}|[\"\\\\.\u{e4}\u{1f600}\n]{1,2}";
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<u32>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1e6..1e6).prop_map(Value::from),
        "\\PC{0,6}|[\"\\\\{}\\[\\],:]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 60, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(name, inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// The paths of every field, as names.
fn fields(value: &Value, above: &[String], all: &mut Vec<(Vec<String>, Value)>) {
    let Value::Object(map) = value else { return };
    for (name, value) in map {
        let path: Vec<String> = above.iter().cloned().chain([name.clone()]).collect();
        fields(value, &path, all);
        all.push((path, value.clone()));
    }
}

fn expected(value: &Value) -> ScanResult {
    match value {
        Value::Null => ScanResult::Nothing,
        Value::Number(number) => match (number.as_u64(), number.as_f64()) {
            (Some(whole), _) => ScanResult::Number(whole),
            (None, Some(float)) if float >= 0.0 => ScanResult::Number(float.ceil() as u64),
            _ => ScanResult::Invalid,
        },
        _ => ScanResult::Invalid,
    }
}

fn cut<'t>(text: &'t [u8], lengths: &[usize]) -> Vec<&'t [u8]> {
    let mut rest = text;
    let mut pieces = Vec::new();
    for length in lengths.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, after) = rest.split_at((*length).min(rest.len()));
        pieces.push(piece);
        rest = after;
    }
    pieces
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn finds_what_a_parser_finds_however_the_text_is_cut(
        value in any_json(), pretty: bool, lengths in prop::collection::vec(1_usize..9, 1..5),
    ) {
        let value = serde_json::json!({"x": value, "ab": {"c": 1}});
        let text = if pretty { serde_json::to_vec_pretty(&value) } else { serde_json::to_vec(&value) }.unwrap();
        let pieces = cut(&text, &lengths);
        let mut all = Vec::new();
        fields(&value, &[], &mut all);
        for (path, found) in all {
            let written: Vec<String> =
                path.iter().map(|name| name.replace('\\', "\\\\").replace('.', "\\.")).collect();
            prop_assume!(path.len() <= MAX_NAMES);
            prop_assert_eq!(scan(&written.join("."), &pieces), expected(&found), "{:?}", path);
        }
        for absent in ["y", "x.zz", "ab.c.d"] {
            prop_assert_eq!(scan(absent, &pieces), ScanResult::Nothing);
        }
    }

    #[test]
    fn any_bytes_are_survived_and_read_the_same_in_any_pieces(
        text in prop::collection::vec(prop_oneof![
            prop::sample::select(b"{}[]:,\"\\ua0-1.eEtrufalsn \n".to_vec()), any::<u8>(),
        ], 0..200),
        lengths in prop::collection::vec(1_usize..9, 1..5),
    ) {
        let begun = [b"{\"a\":".as_slice(), &text].concat();
        prop_assert_eq!(scan("a", &cut(&begun, &lengths)), scan("a", &[&begun]));
    }
}
