//! Repeats a piece of the file in a message: short, on one line, and without the credentials of a
//! URL.

/// `text` in quotes: one line, at most 60 characters, credentials of a URL left out.
pub fn quote(text: &str) -> String {
    const MOST: usize = 60;
    let shown = without_credentials(text);
    match shown.char_indices().nth(MOST) {
        Some((end, _)) => format!("\"{}…\"", shown[..end].escape_debug()),
        None => format!("\"{}\"", shown.escape_debug()),
    }
}

/// Hides all between `://` and the last `@`: a password may hold anything, even another `@` or `/`.
fn without_credentials(text: &str) -> String {
    let Some(start) = text.find("://").map(|at| at + 3) else {
        return text.to_owned();
    };
    match text[start..].rfind('@') {
        Some(end) => format!("{}…{}", &text[..start], &text[start + end..]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_a_url_without_its_credentials() {
        assert_eq!(
            quote("redis://ada:p@ss/word@redis:6379"),
            "\"redis://…@redis:6379\""
        );
        assert_eq!(quote("ada@example.com"), "\"ada@example.com\"");
    }

    #[test]
    fn shows_one_short_line() {
        assert_eq!(quote("a\nb"), "\"a\\nb\"");
        assert_eq!(quote(&"x".repeat(61)), format!("\"{}…\"", "x".repeat(60)));
    }
}
