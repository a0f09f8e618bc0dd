//! Texts of clients in a line: bounded, and escaped so that they end neither their field nor the
//! line, nor speak to the terminal of whoever reads it. Everything that is written is printable
//! ASCII.

/// The most bytes of a path, as it is written. A line of JSON has a path and four other texts that
/// clients make up, and stays within 8 KiB, where rsyslog cuts: a line that was cut is no JSON any
/// more.
pub const LONGEST_PATH: usize = 2048;

/// The most bytes of any other text, as it is written.
pub const LONGEST_TEXT: usize = 1024;

/// The mark of a text that was cut.
const CUT: &[u8] = b"...";

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Writes what of `value` fits between the quotes of a JSON string. Bytes that are no UTF-8 stand
/// for the characters that ISO 8859-1 gives them.
pub fn push_json(text: &mut Vec<u8>, value: &[u8], longest: usize) {
    if is_plain(value) && value.len() <= longest {
        return text.extend_from_slice(value);
    }
    let (value, is_cut) = cut(value, longest);
    let fits = match str::from_utf8(value) {
        Ok(value) => push_while_it_fits(text, longest, value.chars(), push_json_character),
        Err(_) => push_while_it_fits(
            text,
            longest,
            value.iter().map(|byte| char::from(*byte)),
            push_json_character,
        ),
    };
    if is_cut || !fits {
        text.extend_from_slice(CUT);
    }
}

/// Writes what of `value` fits, as `ap_escape_logitem` of Apache does: `\"`, `\\`, `\n` and the
/// like, `\xhh` for other bytes that are not printable ASCII.
pub fn push_combined(text: &mut Vec<u8>, value: &[u8], longest: usize) {
    if is_plain(value) && value.len() <= longest {
        return text.extend_from_slice(value);
    }
    push_bytes(text, value, longest, push_combined_byte);
}

/// Like [`push_combined`], for a text that stands without quotes: no space may end it.
pub fn push_combined_word(text: &mut Vec<u8>, value: &[u8]) {
    push_bytes(text, value, LONGEST_TEXT, |text, byte| match byte {
        b' ' => text.extend_from_slice(b"\\x20"),
        _ => push_combined_byte(text, byte),
    });
}

/// Whether no byte of `value` is written as another, as nearly always. Looks at all of them, which
/// is quicker than to stop.
fn is_plain(value: &[u8]) -> bool {
    value.iter().fold(true, |is_plain, byte| {
        is_plain & (b' '..=b'~').contains(byte) & (*byte != b'"') & (*byte != b'\\')
    })
}

fn push_bytes(text: &mut Vec<u8>, value: &[u8], longest: usize, push: impl Fn(&mut Vec<u8>, u8)) {
    let (value, is_cut) = cut(value, longest);
    if !push_while_it_fits(text, longest, value.iter().copied(), push) || is_cut {
        text.extend_from_slice(CUT);
    }
}

/// Writes values until another one would make them longer than this. Returns whether that is all of
/// them.
fn push_while_it_fits<T>(
    text: &mut Vec<u8>,
    longest: usize,
    mut values: impl Iterator<Item = T>,
    push: impl Fn(&mut Vec<u8>, T),
) -> bool {
    let begin = text.len();
    values.all(|value| {
        let before = text.len();
        push(text, value);
        let fits = text.len() - begin <= longest;
        if !fits {
            text.truncate(before);
        }
        fits
    })
}

fn push_combined_byte(text: &mut Vec<u8>, byte: u8) {
    match byte {
        b'"' | b'\\' => text.extend_from_slice(&[b'\\', byte]),
        b'\n' => text.extend_from_slice(b"\\n"),
        b'\r' => text.extend_from_slice(b"\\r"),
        b'\t' => text.extend_from_slice(b"\\t"),
        0x08 => text.extend_from_slice(b"\\b"),
        0x0b => text.extend_from_slice(b"\\v"),
        0x0c => text.extend_from_slice(b"\\f"),
        b' '..=b'~' => text.push(byte),
        _ => text.extend_from_slice(&[b'\\', b'x', hex(byte >> 4), hex(byte & 15)]),
    }
}

/// The beginning of `value`, to the end of a character, and whether that is not all.
fn cut(value: &[u8], longest: usize) -> (&[u8], bool) {
    if value.len() <= longest {
        return (value, false);
    }
    // A character of UTF-8 has four bytes at most.
    for end in (longest - 3..=longest).rev() {
        let is_continued = value[end] & 0b1100_0000 == 0b1000_0000;
        if !is_continued {
            return (&value[..end], true);
        }
    }
    (&value[..longest], true)
}

fn push_json_character(text: &mut Vec<u8>, character: char) {
    match character {
        '"' | '\\' => text.extend_from_slice(&[b'\\', character as u8]),
        ' '..='~' => text.push(character as u8),
        _ => {
            for unit in character.encode_utf16(&mut [0; 2]) {
                let [high, low] = unit.to_be_bytes();
                text.extend_from_slice(b"\\u");
                text.extend_from_slice(&[
                    hex(high >> 4),
                    hex(high & 15),
                    hex(low >> 4),
                    hex(low & 15),
                ]);
            }
        }
    }
}

fn hex(nibble: u8) -> u8 {
    HEX[usize::from(nibble & 15)]
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &[u8] = b"a\"b\\c\nd\re\tf\x08\x0b\x0c\x00\x1b[31m\x7f\x9b\xe9 z";

    fn pushed(push: fn(&mut Vec<u8>, &[u8], usize), value: &[u8], longest: usize) -> String {
        let mut text = b"before".to_vec();
        push(&mut text, value, longest);
        assert!(
            text.iter().all(|byte| (b' '..=b'~').contains(byte)),
            "{text:?}"
        );
        assert!(text.len() <= 6 + longest + CUT.len(), "{text:?}");
        String::from_utf8(text.split_off(6)).unwrap()
    }

    fn push_word(text: &mut Vec<u8>, value: &[u8], _: usize) {
        push_combined_word(text, value);
    }

    fn parsed(value: &[u8], longest: usize) -> String {
        serde_json::from_str(&format!("\"{}\"", pushed(push_json, value, longest))).unwrap()
    }

    #[test]
    fn nothing_ends_a_field_or_a_line_of_the_combined_format() {
        assert_eq!(
            pushed(push_combined, HOSTILE, 256),
            r#"a\"b\\c\nd\re\tf\b\v\f\x00\x1b[31m\x7f\x9b\xe9 z"#
        );
        assert_eq!(pushed(push_word, b"Ada \"L\"", 256), r#"Ada\x20\"L\""#);
    }

    #[test]
    fn a_json_string_has_what_was_sent() {
        let latin: String = HOSTILE.iter().map(|byte| char::from(*byte)).collect();
        assert_eq!(parsed(HOSTILE, 256), latin);
        for text in ["", "Zoë 😀 \u{2028}\u{202e}", "plain"] {
            assert_eq!(parsed(text.as_bytes(), 256), text);
        }
    }

    #[test]
    fn a_long_text_is_cut_between_two_characters() {
        assert_eq!(
            pushed(push_combined, &[b'a'; 65], 64),
            "a".repeat(64) + "..."
        );
        assert_eq!(pushed(push_combined, &[b'a'; 64], 64), "a".repeat(64));
        assert_eq!(
            parsed("a€".repeat(40).as_bytes(), 64),
            "a€".repeat(9) + "a..."
        );
        assert_eq!(
            parsed(("a".to_owned() + &"€".repeat(40)).as_bytes(), 64),
            "a".to_owned() + &"€".repeat(10) + "..."
        );
    }

    #[test]
    fn a_text_is_as_long_as_it_is_written() {
        // Bytes of no character at all.
        assert_eq!(parsed(&[0x80; 11], 64), "\u{80}".repeat(10) + "...");
        assert_eq!(parsed(&[0x80; 10], 64), "\u{80}".repeat(10));
        assert_eq!(
            pushed(push_combined, &[0xff; 17], 64),
            r"\xff".repeat(16) + "..."
        );
        assert_eq!(pushed(push_combined, &[0xff; 16], 64), r"\xff".repeat(16));
    }
}
