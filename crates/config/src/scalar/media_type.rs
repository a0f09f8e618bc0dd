//! Types of content: `token/token` and parameters (RFC 9110 §8.3.1).

use mime::{Mime, STAR};

/// The type of content that a field names. `None`: it names none, or a range.
pub fn media_type(text: &str) -> Option<Mime> {
    let read: Mime = text.to_ascii_lowercase().parse().ok()?;
    for part in [read.type_(), read.subtype()] {
        // The crate takes an empty one.
        if part == STAR || part == "" {
            return None;
        }
    }
    Some(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_of_content_is_two_tokens_and_parameters() {
        for text in [
            "text/plain",
            "TEXT/html; charset=utf-8",
            "application/problem+json",
            "text/plain;a=\"b c\"",
        ] {
            assert!(media_type(text).is_some(), "{text}");
        }
        for text in [
            "",
            "+json",
            "text",
            "text/",
            "/json",
            "text/html +json",
            "text/html(+json",
            "text/html,a/b+json",
            "text/html;+json",
            "text/\u{e4}+json",
            "text/*",
            "*/*",
        ] {
            assert!(media_type(text).is_none(), "{text}");
        }
    }
}
