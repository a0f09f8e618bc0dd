//! Rust source as the invariants see it: code only, without comments, literals and tests.
//!
//! Not a parser. Blanked text keeps every byte's place, so that a finding has a line; paths are read off it token by token,
//! braces of `use` included. Macros that build paths from pieces would escape it, and there are none.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// One file of `src/`.
pub struct Source {
    /// From the repository's root: `src/route/mod.rs`.
    pub path: String,
    /// As written.
    pub text: String,
    /// The same length: comments, the insides of literals, and items under `#[cfg(test)]` are blank.
    pub code: String,
}

impl Source {
    pub fn new(path: &str, text: &str) -> Self {
        let code = without_tests(without_comments_and_literals(text));
        Self { path: path.to_owned(), text: text.to_owned(), code }
    }

    /// `path:line` of a byte's offset.
    pub fn at(&self, offset: usize) -> String {
        let line = self.code[..offset].matches('\n').count() + 1;
        format!("{}:{line}", self.path)
    }

    /// Whether this is `place` itself or, when that ends in `/`, below it.
    pub fn is_in(&self, place: &str) -> bool {
        if place.ends_with('/') { self.path.starts_with(place) } else { self.path == place }
    }

    /// Where `word` stands in the code, not as a part of a longer name. The word may hold `::` or punctuation.
    pub fn find(&self, word: &str) -> Vec<usize> {
        let begins = |at: usize| !self.code[..at].ends_with(is_name) || !word.starts_with(is_name);
        let ends = |at: usize| !self.code[at..].starts_with(is_name) || !word.ends_with(is_name);
        self.code.match_indices(word).map(|(at, _)| at).filter(|&at| begins(at) && ends(at + word.len())).collect()
    }

    /// Every path that begins with `head::`, in full and without generics, with its offset.
    pub fn paths(&self, head: &str) -> Vec<(usize, Vec<String>)> {
        let mut found = Vec::new();
        for at in self.find(head) {
            let within_another = self.code[..at].trim_end().ends_with("::");
            if !within_another {
                expand(&self.code[at + head.len()..], at, &[head.to_owned()], &mut found);
            }
        }
        found.retain(|(_, path)| path.len() > 1);
        found
    }

    /// The modules of ours that this file names, as paths from the crate's root, `super` and `self` resolved.
    pub fn modules(&self) -> Vec<(usize, Vec<String>)> {
        let own = module_of(&self.path);
        let mut found: Vec<_> = self.paths("crate").into_iter().map(|(at, path)| (at, path[1..].to_vec())).collect();
        for (head, up) in [("self", 0), ("super", 1)] {
            for (at, path) in self.paths(head) {
                let more = path[1..].iter().take_while(|name| *name == "super").count();
                let base = own.len().saturating_sub(up + more);
                let path = own[..base].iter().chain(&path[1 + more..]).cloned().collect();
                found.push((at, path));
            }
        }
        found
    }
}

/// Every file under `src/`, except what only tests compile.
pub fn sources() -> Vec<Source> {
    let mut found = Vec::new();
    collect(Path::new("src"), &mut found);
    let tests: BTreeSet<String> = found.iter().flat_map(test_modules).collect();
    found.retain(|source| !tests.iter().any(|module| source.is_in(module)));
    assert!(found.len() > 10, "src/ has almost nothing in it: is this the repository's root?");
    found.sort_by(|one, other| one.path.cmp(&other.path));
    found
}

fn collect(directory: &Path, found: &mut Vec<Source>) {
    for entry in fs::read_dir(directory).expect("src/ is readable") {
        let path = entry.expect("src/ is readable").path();
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("sources are UTF-8");
            found.push(Source::new(&path.display().to_string().replace('\\', "/"), &text));
        }
    }
}

/// The files that a `#[cfg(test)] mod name;` of this one stands for.
fn test_modules(source: &Source) -> Vec<String> {
    let plain = without_comments_and_literals(&source.text);
    let folder = module_of(&source.path).into_iter().fold("src".to_owned(), |folder, name| folder + "/" + &name);
    let declared = plain.split("#[cfg(test)]").skip(1).filter_map(|rest| rest.trim_start().strip_prefix("mod "));
    let names = declared.filter_map(|rest| {
        let (name, rest) = rest.split_at(rest.find(|c| !is_name(c))?);
        rest.starts_with(';').then_some(name)
    });
    names.flat_map(|name| [format!("{folder}/{name}.rs"), format!("{folder}/{name}/")]).collect()
}

/// `src/store/redis/mod.rs` is `[store, redis]`, `src/lib.rs` is `[]`.
fn module_of(path: &str) -> Vec<String> {
    let path = path.trim_start_matches("src/").trim_end_matches(".rs");
    let path = path.strip_suffix("/mod").unwrap_or(path);
    path.split('/').filter(|name| !["lib", "main", "mod"].contains(name)).map(str::to_owned).collect()
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Reads `::name::{a, b::c}` from the start of `rest` and adds a path for each leaf.
fn expand(rest: &str, at: usize, path: &[String], found: &mut Vec<(usize, Vec<String>)>) {
    let rest = rest.trim_start();
    let Some(rest) = rest.strip_prefix("::").map(str::trim_start) else {
        return found.push((at, path.to_vec()));
    };
    if rest.starts_with('{') {
        let group = block(rest);
        split_group(&group[1..group.len() - 1]).into_iter().for_each(|item| step(item, at, path, found));
    } else {
        step(rest, at, path, found);
    }
}

/// Takes one more name. `self`, `*` and a turbofish add none.
fn step(rest: &str, at: usize, path: &[String], found: &mut Vec<(usize, Vec<String>)>) {
    let (name, rest) = rest.split_at(rest.find(|c| !is_name(c)).unwrap_or(rest.len()));
    let named = (!name.is_empty() && name != "self").then(|| name.to_owned());
    let longer: Vec<String> = path.iter().cloned().chain(named).collect();
    expand(rest, at, &longer, found);
}

/// What stands between the commas of a group, not those of groups within.
fn split_group(text: &str) -> Vec<&str> {
    let mut depth = 0;
    let comma = |c: char| {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    };
    text.split(comma).map(str::trim).filter(|item| !item.is_empty()).collect()
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
    code.extend(text.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }));
}

fn comment(rest: &str) -> Option<usize> {
    if rest.starts_with("//") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    rest.starts_with("/*").then(|| rest.find("*/").map_or(rest.len(), |end| end + 2))
}

fn raw_string(rest: &str) -> Option<usize> {
    let opening = rest.strip_prefix('b').or(rest.strip_prefix('c')).unwrap_or(rest).strip_prefix('r')?;
    let hashes = opening.len() - opening.trim_start_matches('#').len();
    let inside = opening[hashes..].strip_prefix('"')?;
    let closing = format!("\"{}", "#".repeat(hashes));
    let end = inside.find(&closing).map_or(inside.len(), |end| end + closing.len());
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
        let item = &code[begin..];
        let length = match (item.find(';'), item.find('{')) {
            (Some(semicolon), brace) if brace.is_none_or(|brace| semicolon < brace) => semicolon + 1,
            (_, Some(brace)) => brace + block(&item[brace..]).len(),
            _ => item.len(),
        };
        let mut blanked = String::new();
        blank(&item[..length], &mut blanked);
        code.replace_range(begin..begin + length, &blanked);
    }
    code
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
