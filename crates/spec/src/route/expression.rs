//! Regular expressions in paths.
//!
//! Guarantees that neither an expression nor a path makes a look-up slow or large: the engine does
//! not backtrack, and expressions are bounded when they are read.

use std::sync::Arc;

use regex::{Regex, RegexBuilder};
use regex_syntax::hir::Look;

/// Bytes of an expression.
pub const MOST_BYTES: usize = 4_096;

/// Bytes of an expression once it is compiled, and of the memory that a search may keep for later
/// ones.
pub const MOST_COMPILED: usize = 256 * 1024;

/// A regular expression that takes normalized paths. Its named groups are path parameters.
#[derive(Clone, Debug)]
pub struct PathExpression {
    text: Arc<str>,
    regex: Regex,
    is_anchored: bool,
}

/// Why a text is no expression for paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InvalidExpression {
    /// The text has this many bytes.
    TooLong(usize),
    TooLarge,
    Syntax(String),
}

impl PathExpression {
    /// Compiles `text`.
    ///
    /// # Errors
    /// When it is no expression, or beyond the bounds.
    pub fn compile(text: &str) -> Result<Self, InvalidExpression> {
        if text.len() > MOST_BYTES {
            return Err(InvalidExpression::TooLong(text.len()));
        }
        let compiled = RegexBuilder::new(text)
            .size_limit(MOST_COMPILED)
            .dfa_size_limit(MOST_COMPILED)
            .build();
        let regex = compiled.map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => InvalidExpression::TooLarge,
            other => InvalidExpression::Syntax(reason(&other.to_string())),
        })?;
        let syntax = regex_syntax::parse(text)
            .map_err(|error| InvalidExpression::Syntax(reason(&error.to_string())))?;
        let is_anchored = syntax.properties().look_set_prefix().contains(Look::Start);
        Ok(Self {
            text: text.into(),
            regex,
            is_anchored,
        })
    }

    /// Whether `text` takes at most so many bytes when it is compiled: some expressions cost a time
    /// that grows with these.
    pub fn is_within(text: &str, most: usize) -> bool {
        RegexBuilder::new(text).size_limit(most).build().is_ok()
    }

    /// The text as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it takes a normalized path.
    pub fn takes(&self, path: &str) -> bool {
        self.regex.is_match(path)
    }

    /// Whether all that it takes begins where the path does.
    pub fn is_anchored(&self) -> bool {
        self.is_anchored
    }

    /// Whether it takes every path, by the ways in which people write that.
    pub fn takes_everything(&self) -> bool {
        matches!(
            self.text.trim_start_matches('^').trim_end_matches('$'),
            "" | "/" | ".*" | "/.*" | "(.*)" | "/(.*)"
        ) && (!self.text.ends_with('$') || self.text.contains('*'))
    }

    /// The names of its groups.
    pub fn params(&self) -> impl Iterator<Item = &str> {
        self.regex.capture_names().flatten()
    }

    /// The part of a path that the group called `name` has taken.
    pub fn param<'p>(&self, name: &str, path: &'p str) -> Option<&'p str> {
        Some(self.regex.captures(path)?.name(name)?.as_str())
    }
}

impl PartialEq for PathExpression {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for PathExpression {}

/// The reason at the end of the engine's message, which repeats the expression over several lines.
fn reason(message: &str) -> String {
    let last = message.lines().next_back().unwrap_or_default();
    last.strip_prefix("error: ").unwrap_or(last).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_have_bounds() {
        fn why(text: &str) -> InvalidExpression {
            PathExpression::compile(text).map(|_| ()).unwrap_err()
        }
        assert_eq!(why(&"a".repeat(65_536)), InvalidExpression::TooLong(65_536));
        assert_eq!(
            why("^/(([a-z]{100}){100}){100}$"),
            InvalidExpression::TooLarge
        );
        assert_eq!(
            why("^/(a"),
            InvalidExpression::Syntax("unclosed group".to_owned())
        );
        assert!(matches!(
            why(&"(".repeat(4_000)),
            InvalidExpression::Syntax(_)
        ));
        assert!(PathExpression::compile(&"a".repeat(MOST_BYTES)).is_ok());
    }

    #[test]
    fn an_expression_is_anchored_when_all_that_it_takes_begins_where_the_path_does() {
        fn is_anchored(text: &str) -> bool {
            PathExpression::compile(text).unwrap().is_anchored()
        }
        for text in [
            "^/a",
            "(?i)^/a",
            "^/a|^/b",
            "^(/a|/b)",
            "(?:^/a)",
            r"\A/a",
            "^",
            "(^/a|^/b)+",
        ] {
            assert!(is_anchored(text), "{text}");
        }
        for text in ["/a", "^/admin|/public", "(^/a)?/b", r"\^/a", "", "/a^"] {
            assert!(!is_anchored(text), "{text}");
        }
    }

    #[test]
    fn what_takes_everything_is_known_by_its_spelling() {
        for text in ["", "^", "/", "^/", ".*", "^.*$", "^/.*", "^/.*$", "/(.*)"] {
            let expression = PathExpression::compile(text).unwrap();
            assert!(expression.takes_everything(), "{text}");
            assert!(expression.takes("/any/path"), "{text}");
        }
        for text in ["^/$", "^$", "/a", "^/a.*$"] {
            let expression = PathExpression::compile(text).unwrap();
            assert!(!expression.takes_everything(), "{text}");
        }
    }
}
