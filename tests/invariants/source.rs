//! Rust source as the invariants see it: code only, without comments, literals and tests.
//!
//! Not a parser. Blanked text keeps every byte's place, so that a finding has a line.

use std::fs;
use std::path::Path;

/// A file of a crate.
pub struct Source {
    /// From the repository's root: `crates/gateway/src/pipeline.rs`.
    pub path: String,
    /// The whole file.
    pub text: String,
    /// The text with blanks for comments, the insides of literals, and items under `#[cfg(test)]`.
    pub code: String,
}

/// A word, `::` or a sign, and its offset.
#[derive(Clone, Copy)]
pub struct Token<'a> {
    pub at: usize,
    pub text: &'a str,
}

impl Token<'_> {
    pub fn is_name(&self) -> bool {
        self.text.starts_with(is_name)
    }
}

impl Source {
    pub fn new(path: &str, text: &str) -> Self {
        let code = without_tests(without_comments_and_literals(text));
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
            code,
        }
    }

    /// `path:line` of a byte's offset.
    pub fn at(&self, offset: usize) -> String {
        let line = self.code[..offset].matches('\n').count() + 1;
        format!("{}:{line}", self.path)
    }

    /// Whether this is the file or folder `place`, or below it. `src/app` is `src/app.rs` and all
    /// of `src/app/`.
    pub fn is_in(&self, place: &str) -> bool {
        let rest = self.path.strip_prefix(place.trim_end_matches('/'));
        rest.is_some_and(|rest| rest.is_empty() || rest == ".rs" || rest.starts_with('/'))
    }

    /// Where `word` stands in the code, not as a part of a longer name. The word may hold `::` or
    /// punctuation.
    pub fn find(&self, word: &str) -> Vec<usize> {
        let begins = |at: usize| !self.code[..at].ends_with(is_name) || !word.starts_with(is_name);
        let ends = |at: usize| !self.code[at..].starts_with(is_name) || !word.ends_with(is_name);
        self.code
            .match_indices(word)
            .map(|(at, _)| at)
            .filter(|&at| begins(at) && ends(at + word.len()))
            .collect()
    }

    pub fn tokens(&self) -> Vec<Token<'_>> {
        let mut found = Vec::new();
        let mut at = 0;
        while let Some(first) = self.code[at..].chars().next() {
            let rest = &self.code[at..];
            let length = match first {
                _ if is_name(first) => rest.find(|c| !is_name(c)).unwrap_or(rest.len()),
                _ if rest.starts_with("::") => 2,
                _ => first.len_utf8(),
            };
            if !first.is_whitespace() {
                found.push(Token {
                    at,
                    text: &rest[..length],
                });
            }
            at += length;
        }
        found
    }

    /// The first sentence of the head, without line breaks. Empty when there is none.
    pub fn first_sentence(&self) -> String {
        let head = self
            .text
            .lines()
            .map_while(|line| line.strip_prefix("//!"))
            .map(str::trim);
        let paragraph = head
            .take_while(|line| !line.is_empty())
            .collect::<Vec<_>>()
            .join(" ");
        match paragraph.find(". ") {
            Some(end) => paragraph[..=end].to_owned(),
            None => paragraph,
        }
    }
}

/// Every file of every crate, except what only tests compile.
pub fn workspace_sources() -> Vec<Source> {
    let mut found = Vec::new();
    collect(Path::new("src"), &mut found);
    for package in fs::read_dir("crates").expect("crates/ is readable") {
        collect(
            &package.expect("crates/ is readable").path().join("src"),
            &mut found,
        );
    }
    let tests: Vec<String> = found.iter().flat_map(test_modules).collect();
    found.retain(|source| {
        !source.path.ends_with("/tests.rs") && !tests.iter().any(|module| source.is_in(module))
    });
    found.sort_by(|one, other| one.path.cmp(&other.path));
    found
}

fn collect(directory: &Path, found: &mut Vec<Source>) {
    for entry in fs::read_dir(directory).expect("a folder of sources is readable") {
        let path = entry.expect("a folder of sources is readable").path();
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("sources are UTF-8");
            found.push(Source::new(
                &path.display().to_string().replace('\\', "/"),
                &text,
            ));
        }
    }
}

/// The places that a `#[cfg(test)] mod name;` of this file stands for.
fn test_modules(source: &Source) -> Vec<String> {
    let plain = without_comments_and_literals(&source.text);
    let folder = source.path.trim_end_matches(".rs");
    let folder = ["/mod", "/lib", "/main"]
        .iter()
        .find_map(|own| folder.strip_suffix(own))
        .unwrap_or(folder);
    let declared = plain
        .split("#[cfg(test)]")
        .skip(1)
        .filter_map(|rest| rest.trim_start().strip_prefix("mod "));
    let names = declared.filter_map(|rest| {
        let (name, rest) = rest.split_at(rest.find(|c| !is_name(c))?);
        rest.starts_with(';').then_some(name)
    });
    names.map(|name| format!("{folder}/{name}")).collect()
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Blanks comments and the insides of string, byte and char literals. Line breaks stay.
fn without_comments_and_literals(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let boundary = !code.ends_with(is_name);
        let length = comment(rest)
            .or_else(|| boundary.then(|| raw_string(rest)).flatten())
            .or_else(|| quoted(rest))
            .or_else(|| char_literal(rest));
        let (taken, after) = rest.split_at(length.unwrap_or(first.len_utf8()));
        match length {
            Some(_) => blank(taken, &mut code),
            None => code.push(first),
        }
        rest = after;
    }
    code
}

fn blank(text: &str, code: &mut String) {
    code.extend(
        text.bytes()
            .map(|byte| if byte == b'\n' { '\n' } else { ' ' }),
    );
}

fn comment(rest: &str) -> Option<usize> {
    if rest.starts_with("//") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    rest.starts_with("/*")
        .then(|| rest.find("*/").map_or(rest.len(), |end| end + 2))
}

fn raw_string(rest: &str) -> Option<usize> {
    let opening = rest
        .strip_prefix('b')
        .or(rest.strip_prefix('c'))
        .unwrap_or(rest)
        .strip_prefix('r')?;
    let hashes = opening.len() - opening.trim_start_matches('#').len();
    let inside = opening[hashes..].strip_prefix('"')?;
    let closing = format!("\"{}", "#".repeat(hashes));
    let end = inside
        .find(&closing)
        .map_or(inside.len(), |end| end + closing.len());
    Some(rest.len() - inside.len() + end)
}

fn quoted(rest: &str) -> Option<usize> {
    let inside = rest.strip_prefix('"')?;
    let mut escaped = false;
    for (at, c) in inside.char_indices() {
        match c {
            '"' if !escaped => return Some(at + 2),
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    Some(rest.len())
}

/// `'a'`, `'\n'`, `'\u{1f}'`; not the `'a` of a lifetime.
fn char_literal(rest: &str) -> Option<usize> {
    let inside = rest.strip_prefix('\'')?;
    let first = inside.chars().next()?;
    let from = if first == '\\' { 2 } else { first.len_utf8() };
    let end = inside.get(from..)?.find('\'')?;
    (first == '\\' && end < 10 || end == 0).then_some(from + end + 2)
}

/// Blanks each item under `#[cfg(test)]`: up to its semicolon, or to the brace that closes it.
fn without_tests(mut code: String) -> String {
    while let Some(begin) = code.find("#[cfg(test)]") {
        let length = item_length(&code[begin..]);
        let mut blanked = String::new();
        blank(&code[begin..begin + length], &mut blanked);
        code.replace_range(begin..begin + length, &blanked);
    }
    code
}

/// Words an item begins with; a comma ends what begins with another, which is a field or a match
/// arm.
const ITEMS: &str =
    "pub fn impl mod use struct enum trait type const static async unsafe macro_rules let";

/// How far an item or a field goes, with its attributes.
fn item_length(item: &str) -> usize {
    let mut at = 0;
    while let Some(attribute) = item[at..].trim_start().strip_prefix('#') {
        at = item.len() - attribute.len() + block(attribute).len();
    }
    let first_word = item[at..]
        .trim_start()
        .split(|c| !is_name(c))
        .next()
        .unwrap_or_default();
    let is_item = ITEMS.split(' ').any(|keyword| keyword == first_word);
    while let Some(next) = item[at..].chars().next() {
        match next {
            '{' => return at + block(&item[at..]).len(),
            '(' | '[' => at += block(&item[at..]).len(),
            ';' => return at + 1,
            ',' if !is_item => return at + 1,
            '}' | ')' | ']' => return at,
            _ => at += next.len_utf8(),
        }
    }
    item.len()
}

/// From the bracket that `text` begins with, to the one that closes it.
pub fn block(text: &str) -> &str {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '{' | '(' | '[' => depth += 1,
            '}' | ')' | ']' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &text[..=at];
        }
    }
    text
}
