//! Paths as a file writes them: each leaf of a `use` tree, and each `a::b::c` in an expression or a
//! type.
//!
//! Reads tokens. A path that a macro builds from pieces would escape it, and there are none.

use crate::source::{Source, Token, block};

/// A path, as the file writes it.
pub struct WrittenPath {
    pub at: usize,
    /// Without generics. A glob's last segment is `*`; the first of a path that begins with `::` is
    /// empty.
    pub segments: Vec<String>,
    /// Of a `use`: the name it binds, which is `*` for a glob.
    pub binds: Option<Binding>,
}

#[derive(Clone)]
pub struct Binding {
    pub name: String,
    /// Re-exported, to whomever.
    pub public: bool,
}

/// Every path in the code of a file.
pub fn paths(source: &Source) -> Vec<WrittenPath> {
    let tokens = source.tokens();
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let before = at.checked_sub(1).map_or("", |before| tokens[before].text);
        let after = tokens.get(at + 1).map_or("", |after| after.text);
        if token.text == "use" && after != "<" {
            let public = ["pub", ")"].contains(&before);
            at = use_tree(&tokens, at + 1, &[], public, &mut found);
        } else if token.is_name() && after == "::" && before != "in" {
            // `::http::Method` is of another crate, `<T as Trait>::name` and `T::<U>::name` are
            // tails.
            let foreign = (before == "::").then(String::new);
            let begin = at;
            at += 1;
            while tokens.get(at).is_some_and(|token| token.text == "::")
                && tokens.get(at + 1).is_some_and(Token::is_name)
            {
                at += 2;
            }
            let segments = tokens[begin..at].iter().filter(|token| token.text != "::");
            let segments = foreign
                .into_iter()
                .chain(segments.map(|token| token.text.to_owned()))
                .collect();
            found.push(WrittenPath {
                at: token.at,
                segments,
                binds: None,
            });
        } else {
            at += 1;
        }
    }
    found
}

/// Reads one tree and gives the index of the token behind it. A path that begins with `::` is of
/// another crate.
fn use_tree(
    tokens: &[Token],
    mut at: usize,
    prefix: &[String],
    public: bool,
    found: &mut Vec<WrittenPath>,
) -> usize {
    let mut segments = prefix.to_vec();
    let begin = at;
    while let Some(token) = tokens.get(at) {
        let after = tokens.get(at + 1).map_or("", |after| after.text);
        match token.text {
            "::" if at == begin => segments.push(String::new()),
            "{" => {
                at += 1;
                while tokens.get(at).is_some_and(|token| token.text != "}") {
                    at = match tokens[at].text {
                        "," => at + 1,
                        _ => use_tree(tokens, at, &segments, public, found),
                    };
                }
                return at + 1;
            }
            "::" => {}
            "*" => {
                segments.push("*".to_owned());
                let binds = Some(Binding {
                    name: "*".to_owned(),
                    public,
                });
                found.push(WrittenPath {
                    at: token.at,
                    segments,
                    binds,
                });
                return at + 1;
            }
            name if token.is_name() => {
                if name != "self" || segments.is_empty() {
                    segments.push(name.to_owned());
                }
                if after == "::" {
                    at += 1;
                    continue;
                }
                let (bound, end) = match tokens.get(at + 2) {
                    Some(alias) if after == "as" => (alias.text, at + 3),
                    _ => (segments.last().map_or("", String::as_str), at + 1),
                };
                let binds = Some(Binding {
                    name: bound.to_owned(),
                    public,
                });
                found.push(WrittenPath {
                    at: token.at,
                    segments,
                    binds,
                });
                return end;
            }
            _ => return at + 1,
        }
        at += 1;
    }
    at
}

/// Modules written out within a file: name, and range of the block. Those inside another come after
/// it.
pub fn inline_modules(source: &Source) -> Vec<(String, std::ops::Range<usize>)> {
    let tokens = source.tokens();
    let inline = tokens
        .windows(3)
        .filter(|three| three[0].text == "mod" && three[1].is_name() && three[2].text == "{");
    let range = |open: usize| open..open + block(&source.code[open..]).len();
    inline
        .map(|three| (three[1].text.to_owned(), range(three[2].at)))
        .collect()
}

/// Types that a macro of ours defines: `record! { Name { … } }`.
pub fn types_of_macros<'a>(tokens: &[Token<'a>]) -> Vec<Token<'a>> {
    let called = tokens.windows(4).filter(|four| {
        let named = four[2].text.starts_with(|c: char| c.is_ascii_uppercase());
        four[0].text == "!"
            && four[1].text == "{"
            && named
            && (four[3].text == "{" || four[3].is_name())
    });
    called.map(|four| four[2]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(code: &str) -> Vec<String> {
        paths(&Source::new("src/a.rs", code))
            .into_iter()
            .map(|path| path.segments.join("::"))
            .collect()
    }

    #[test]
    fn each_leaf_of_a_nested_use_is_a_path() {
        let code = "pub(crate) use crate::{a::{self, b::*, c as d}, e}; use super::super::f; use ::http::Method;";
        assert_eq!(
            written(code),
            [
                "crate::a",
                "crate::a::b::*",
                "crate::a::c",
                "crate::e",
                "super::super::f",
                "::http::Method"
            ]
        );
        let bound = paths(&Source::new("src/a.rs", code));
        let names = bound
            .iter()
            .filter_map(|path| path.binds.as_ref())
            .map(|binding| (&*binding.name, binding.public));
        let expected = [
            ("a", true),
            ("*", true),
            ("d", true),
            ("e", true),
            ("f", false),
            ("Method", false),
        ];
        assert_eq!(names.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn paths_in_code_are_read_without_their_generics() {
        let code = "fn f<'a>(x: &'a crate::a::B<super::c::D>) -> impl Iterator + use<'a> { ::http::x(); crate::e::<u8>() }";
        assert_eq!(
            written(code),
            ["crate::a::B", "super::c::D", "::http::x", "crate::e"]
        );
    }
}
