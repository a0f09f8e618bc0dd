//! The documentation names what is there: each path in backticks is a file or a folder of this
//! repository.

use std::fs;
use std::path::Path;

/// Folders that a path in the documentation may begin in.
const BASES: [&str; 16] = [
    "",
    "src/",
    "crates/",
    "crates/limiter/src/",
    "crates/wire/src/",
    "crates/spec/src/",
    "crates/server/src/",
    "crates/proxy/src/",
    "crates/identity/src/",
    "crates/gateway/src/",
    "crates/config/src/",
    "crates/admin/src/",
    "crates/policies/src/",
    "crates/team/src/",
    "crates/console/src/",
    "crates/judge/src/",
];

/// Endings of files that are kept here.
const ENDINGS: [&str; 9] = [
    ".rs", ".lua", ".md", ".toml", ".py", ".sh", ".yaml", ".json", ".yml",
];

/// Beginnings of words that look like a path of ours and are none, and what they are.
const NO_PATHS: [(&str, &str); 2] = [("application/", "a media type"), ("text/", "a media type")];

/// Paths of a page that lead nowhere, for a page at this path.
pub fn dead_paths(page: &str, text: &str, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    let mut in_block = false;
    for (line, text) in text.lines().enumerate() {
        in_block ^= text.trim_start().starts_with("```");
        if in_block {
            continue;
        }
        for word in text
            .split('`')
            .skip(1)
            .step_by(2)
            .filter(|word| looks_like_a_path(word))
        {
            let known = NO_PATHS.iter().any(|(known, _)| word.starts_with(known));
            if !known && !BASES.iter().any(|base| exists(&format!("{base}{word}"))) {
                found.push(format!(
                    "{page}:{}: `{word}` is no file or folder here",
                    line + 1
                ));
            }
        }
    }
    found
}

/// Relative, of plain names, and either with a slash between them, at the end, or with one of our
/// [`ENDINGS`].
fn looks_like_a_path(word: &str) -> bool {
    let plain = word
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c));
    let shape = ENDINGS
        .iter()
        .any(|ending| word.len() > ending.len() && word.ends_with(ending))
        || word.contains('/');
    let names = word
        .trim_end_matches('/')
        .split('/')
        .all(|name| name.starts_with(|c: char| c.is_ascii_lowercase()));
    plain && shape && names
}

/// The path itself, a module named without its ending, or a folder.
fn is_here(path: &str) -> bool {
    Path::new(path).exists() || Path::new(&format!("{}.rs", path.trim_end_matches('/'))).exists()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{assert_finds, assert_none};

    #[test]
    fn the_pages_for_contributors_name_what_is_there() {
        let mut pages = ["CONTRIBUTING.md", "ARCHITECTURE.md", "README.md"]
            .map(str::to_owned)
            .to_vec();
        if let Ok(internals) = fs::read_dir("docs/internals") {
            let internals = internals.map(|page| {
                page.expect("docs/ is readable")
                    .path()
                    .display()
                    .to_string()
            });
            pages.extend(internals.filter(|page| page.ends_with(".md")));
        }
        let found = pages.iter().flat_map(|page| {
            let text = fs::read_to_string(page).expect("the page is there");
            dead_paths(page, &text, is_here)
        });
        assert_none(&found.collect::<Vec<_>>());
    }

    #[test]
    fn a_path_that_leads_nowhere_is_found() {
        let exists = |path: &str| {
            ["src/error.rs", "crates/limiter/src/store/", "lua/take.lua"].contains(&path)
        };
        let page = "`src/error.rs` and `store/`, `error.rs`, `lua/take.lua`, `/etc/x.yaml`, `10/s`, `text/plain`, `Store`";
        assert_none(&dead_paths("A.md", page, exists));
        assert_none(&dead_paths("A.md", "```\n`src/gone.rs`\n```", exists));
        for gone in [
            "src/gone.rs",
            "rate_limit/",
            "proxy/forward",
            "lua/gone.lua",
            "gone.md",
        ] {
            assert_finds(
                &dead_paths("A.md", &format!("\nSee `{gone}`."), exists),
                &format!("A.md:2: `{gone}`"),
            );
        }
    }
}
