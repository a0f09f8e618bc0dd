//! Texts of others: shown on pages, in logs and on terminals, they say what they seem to say.

/// Whether `c` shows nothing itself, or changes how the text beside it shows: control characters,
/// characters that turn the direction of a line or break it (Unicode's `Bidi_Control`, U+2028 and
/// U+2029), and characters that are passed over in showing (`Default_Ignorable_Code_Point`), but
/// for the joiners and selectors that scripts and emoji need.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180e}'
            | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}'
            | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Whether a text of one line shows all that it has.
pub fn is_plain_line(text: &str) -> bool {
    !text.contains(is_hidden)
}

/// Whether each line of a text shows all that it has. Line breaks and tabs are no part of a line.
pub fn is_plain_text(text: &str) -> bool {
    !text
        .replace("\r\n", "\n")
        .contains(|c| is_hidden(c) && c != '\n' && c != '\t')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_how_a_text_shows_is_hidden() {
        assert!(is_plain_line(
            "Ada Lovelace, née Byron ✓ עברית ❤\u{fe0f} می\u{200c}خواهم"
        ));
        assert!(is_plain_text("first\r\n\tsecond\nthird"));
        for hidden in [
            "a\rb",
            "\u{1b}[31m",
            "\u{202e}gnp",
            "a\u{2028}b",
            "\u{2066}",
            "\u{feff}",
            "\0",
            "\u{9b}2J",
            "Ada\u{200b}",
            "\u{3164}",
            "\u{e0041}",
            "a\u{ad}",
        ] {
            assert!(
                !is_plain_line(hidden) && !is_plain_text(hidden),
                "{hidden:?}"
            );
        }
        assert!(!is_plain_line("a\nb") && !is_plain_line("a\tb"));
    }
}
