//! The shape of the tree: one name for one type, folders and files that read in one sitting, lints
//! switched on.

use std::collections::BTreeMap;

use crate::imports::Workspace;
use crate::paths::types_of_macros;
use crate::source::{Source, Token, block};

/// Type names that stand in several files, and why that confuses nobody.
const DEFINED_AGAIN: [(&str, &str); 7] = [
    (
        "ConsoleControl",
        "a build without the console has a stand-in",
    ),
    ("FirstPolicies", "a build without people has a stand-in"),
    ("NodePolicies", "a build without people has a stand-in"),
    ("Policies", "a build without people has a stand-in"),
    ("PolicyNews", "a build without people has a stand-in"),
    ("ShownParts", "a build without the console has a stand-in"),
    ("TeamControl", "a build without people has a stand-in"),
];

const MOST_FILES: usize = 12;

/// Lines of a file, comments and tests included: what 400 of 120 columns are at the widths of rustfmt.
const MOST_LINES: usize = 550;

/// Files longer than [`MOST_LINES`], how long they may be, and why they stay whole.
const LONG_FILES: [(&str, usize, &str); 0] = [];

const MOST_PARAMETERS: usize = 5;

/// Functions with more parameters than [`MOST_PARAMETERS`]: file, function, why.
const WIDE_FUNCTIONS: [(&str, &str, &str); 0] = [];

/// Lints that stand for an invariant, and the weakest level each may have.
const LINTS: [(&str, &str, &[&str]); 5] = [
    ("[workspace.lints.rust]", "unsafe_code", &["forbid"]),
    (
        "[workspace.lints.clippy]",
        "await_holding_lock",
        &["warn", "deny", "forbid"],
    ),
    (
        "[workspace.lints.clippy]",
        "disallowed_methods",
        &["warn", "deny", "forbid"],
    ),
    (
        "[workspace.lints.clippy]",
        "unwrap_used",
        &["warn", "deny", "forbid"],
    ),
    (
        "[workspace.lints.clippy]",
        "allow_attributes",
        &["warn", "deny", "forbid"],
    ),
];

/// A type's name is defined once in the workspace. Associated types are no names of their own.
pub fn one_name_one_type(workspace: &Workspace) -> Vec<String> {
    let mut places: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for source in &workspace.sources {
        for name in types(source) {
            places
                .entry(name.text)
                .or_default()
                .push(source.at(name.at));
        }
    }
    places.retain(|name, places| {
        places.len() > 1 && !DEFINED_AGAIN.iter().any(|(known, _)| known == name)
    });
    places
        .iter()
        .map(|(name, places)| format!("{name}: {}", places.join(", ")))
        .collect()
}

fn types(source: &Source) -> Vec<Token<'_>> {
    let mut found = types_of_macros(&source.tokens());
    // Whether each open brace belongs to an `impl` or a `trait`; and whether the next one will.
    let mut blocks = Vec::new();
    let mut of_impl = false;
    let mut before = Token { at: 0, text: ";" };
    let mut tokens = source.tokens().into_iter().peekable();
    while let Some(token) = tokens.next() {
        let begins_item =
            ["{", "}", ";", "]", ")", "pub", "unsafe", "default"].contains(&before.text);
        match token.text {
            "{" => blocks.push(std::mem::take(&mut of_impl)),
            "}" => drop(blocks.pop()),
            ";" => of_impl = false,
            "impl" if begins_item => of_impl = true,
            "struct" | "enum" | "trait" | "type" if begins_item => {
                let associated = token.text == "type" && blocks.last() == Some(&true);
                found.extend(tokens.peek().filter(|name| !associated && name.is_name()));
                of_impl |= token.text == "trait";
            }
            _ => {}
        }
        before = token;
    }
    found
}

/// A folder holds at most [`MOST_FILES`] files, those of tests aside.
pub fn folders_are_small(workspace: &Workspace) -> Vec<String> {
    let mut folders: BTreeMap<&str, usize> = BTreeMap::new();
    for source in &workspace.sources {
        *folders
            .entry(
                source
                    .path
                    .rsplit_once('/')
                    .map_or("", |(folder, _)| folder),
            )
            .or_default() += 1;
    }
    let crowded = folders.iter().filter(|(_, files)| **files > MOST_FILES);
    crowded
        .map(|(folder, files)| {
            format!("{folder}/: holds {files} files, and {MOST_FILES} is the bound")
        })
        .collect()
}

/// Each file begins with a head of at least one sentence: that of a folder is what it is for.
pub fn files_have_heads(workspace: &Workspace) -> Vec<String> {
    let headless = workspace
        .sources
        .iter()
        .filter(|source| !source.first_sentence().ends_with(['.', ':']));
    headless
        .map(|source| {
            format!(
                "{}: begins with no sentence that says what it is for (`//!`)",
                source.path
            )
        })
        .collect()
}

/// Files read in one sitting.
pub fn files_are_short(workspace: &Workspace) -> Vec<String> {
    let bound = |path: &str| {
        LONG_FILES
            .iter()
            .find(|(long, _, _)| *long == path)
            .map_or(MOST_LINES, |(_, most, _)| *most)
    };
    let sized = workspace
        .sources
        .iter()
        .map(|source| (source, source.text.lines().count()));
    let long = sized.filter(|(source, lines)| *lines > bound(&source.path));
    long.map(|(source, lines)| {
        format!(
            "{}: has {lines} lines, and {} is the bound",
            source.path,
            bound(&source.path)
        )
    })
    .collect()
}

/// Exceptions from the rules above that nothing needs.
pub fn rows_without_need(workspace: &Workspace) -> Vec<String> {
    let times = |name: &str| {
        workspace
            .sources
            .iter()
            .flat_map(types)
            .filter(|known| known.text == name)
            .count()
    };
    let again = DEFINED_AGAIN
        .iter()
        .filter(|(name, _)| times(name) < 2)
        .map(|row| format!("DEFINED_AGAIN: {}", row.0));
    let lines = |path: &str| {
        let source = workspace.sources.iter().find(|source| source.path == path);
        source.map_or(0, |source| source.text.lines().count())
    };
    let long = LONG_FILES
        .iter()
        .filter(|(path, most, _)| lines(path) <= MOST_LINES || lines(path) + 50 < *most);
    let long = long.map(|row| format!("LONG_FILES: {}", row.0));
    let is_wide = |path: &str, name: &str| {
        let functions = workspace
            .sources
            .iter()
            .filter(|source| source.path == path)
            .flat_map(functions);
        functions
            .into_iter()
            .any(|(known, parameters)| known.text == name && parameters > MOST_PARAMETERS)
    };
    let wide = WIDE_FUNCTIONS
        .iter()
        .filter(|(path, name, _)| !is_wide(path, name));
    let wide = wide.map(|row| format!("WIDE_FUNCTIONS: {} in {}", row.1, row.0));
    again
        .chain(long)
        .chain(wide)
        .map(|row| format!("{row}: drop the row"))
        .collect()
}

/// A function asks for few things. `self` is not one of them.
pub fn functions_are_narrow(workspace: &Workspace) -> Vec<String> {
    let found = workspace.sources.iter().flat_map(|source| {
        let wide = functions(source).into_iter().filter(|(name, parameters)| {
            let excepted = WIDE_FUNCTIONS
                .iter()
                .any(|(path, known, _)| source.path == *path && name.text == *known);
            *parameters > MOST_PARAMETERS && !excepted
        });
        wide.map(|(name, parameters)| {
            format!(
                "{}: `{}` has {parameters} parameters",
                source.at(name.at),
                name.text
            )
        })
    });
    found.collect()
}

/// The name of each function and how many parameters it has besides `self`.
fn functions(source: &Source) -> Vec<(Token<'_>, usize)> {
    let tokens = source.tokens();
    let named = tokens
        .windows(2)
        .filter(|pair| pair[0].text == "fn" && pair[1].is_name());
    let counted = named.filter_map(|pair| {
        let open = parameters_begin(&source.code, pair[1].at + pair[1].text.len())?;
        let list = block(&source.code[open..]);
        let parameters = split_parameters(&list[1..list.len() - 1]);
        let is_self = |text: &str| {
            let name = text.split(':').next().unwrap_or_default();
            name.split(|c: char| !c.is_alphanumeric() && c != '_')
                .any(|word| word == "self")
        };
        Some((
            pair[1],
            parameters.iter().filter(|text| !is_self(text)).count(),
        ))
    });
    counted.collect()
}

/// The bracket behind a function's name and its generics.
fn parameters_begin(code: &str, mut at: usize) -> Option<usize> {
    let mut angles = 0;
    let mut before = ' ';
    for c in code[at..].chars() {
        match c {
            '<' => angles += 1,
            '>' if before != '-' => angles -= 1,
            '(' if angles == 0 => return Some(at),
            ';' | '{' if angles == 0 => return None,
            _ => {}
        }
        before = c;
        at += c.len_utf8();
    }
    None
}

fn split_parameters(list: &str) -> Vec<&str> {
    let (mut depth, mut before) = (0, ' ');
    let parameters = list.split(|c: char| {
        match c {
            '<' | '(' | '[' | '{' => depth += 1,
            '>' if before != '-' => depth -= 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        before = c;
        c == ',' && depth == 0
    });
    parameters
        .map(str::trim)
        .filter(|text| !text.is_empty())
        .collect()
}

/// The invariants that lints check are switched on.
pub fn missing_lints(manifest: &str) -> Vec<String> {
    let missing = LINTS.iter().filter(|(section, lint, levels)| {
        let section = manifest
            .split_once(section)
            .map_or("", |(_, rest)| rest.split("\n[").next().unwrap_or_default());
        let level = section
            .lines()
            .find_map(|line| line.strip_prefix(lint)?.trim_start().strip_prefix('='));
        !level.is_some_and(|level| {
            levels
                .iter()
                .any(|allowed| level.contains(&format!("\"{allowed}\"")))
        })
    });
    missing
        .map(|(section, lint, levels)| {
            format!("Cargo.toml: {section} {lint} must be one of {levels:?}")
        })
        .collect()
}

/// Each member of the workspace takes its lints from there.
pub fn lints_of_its_own(path: &str, manifest: &str) -> Vec<String> {
    let inherited = manifest
        .split_once("\n[lints]\n")
        .is_some_and(|(_, rest)| rest.trim_start().starts_with("workspace = true"));
    if inherited {
        Vec::new()
    } else {
        vec![format!("{path}: [lints] workspace = true is missing")]
    }
}

/// No lint is switched off silently, and holding a lock across an await is not excused at all.
pub fn no_lint_is_allowed(workspace: &Workspace) -> Vec<String> {
    const SILENT: [(&str, &str); 3] = [
        ("#[allow(", "is silent: expect the lint, with a reason"),
        ("#![allow(", "is silent: expect the lint, with a reason"),
        (
            "clippy::await_holding_lock",
            "waits with a lock held: let go of it first",
        ),
    ];
    let found = workspace.sources.iter().flat_map(|source| {
        let named = SILENT
            .iter()
            .flat_map(|(word, why)| source.find(word).into_iter().map(move |at| (at, word, why)));
        named.map(|(at, word, why)| format!("{}: `{word}` {why}", source.at(at)))
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{assert_finds, assert_found, assert_none, assert_passes, tree, workspace};

    #[test]
    fn a_type_is_defined_once() {
        assert_none(&one_name_one_type(workspace()));
    }

    #[test]
    fn a_name_of_two_types_is_found() {
        let first = (
            "src/a.rs",
            "pub struct Entry<T>(T); impl A for Entry { type Error = u8; } trait T { type Item; }",
        );
        let found = |code| one_name_one_type(&tree(&[first, ("crates/limiter/src/b.rs", code)]));
        for again in [
            "enum Entry {}",
            "fn f() { struct Entry; }",
            "pub(crate) type Entry = u8;",
            "#[x]\ntrait Entry {}",
            "record! { Entry { a: u8 } }",
        ] {
            assert_finds(&found(again), "Entry: crates/limiter/src/b.rs:");
        }
        assert_none(&found("impl B for C { type Error = u8; type Item = u8; }"));
        assert_none(&found(
            "/// A struct Entry.\n#[cfg(test)] struct Entry; fn f() -> impl Entry { entry }",
        ));
    }

    #[test]
    fn folders_hold_few_files() {
        assert_none(&folders_are_small(workspace()));
        let many: Vec<_> = (0..=MOST_FILES).map(|n| format!("src/a/f{n}.rs")).collect();
        let many: Vec<_> = many.iter().map(|path| (path.as_str(), "")).collect();
        assert_finds(&folders_are_small(&tree(&many)), "src/a/: holds 14 files");
        assert_none(&folders_are_small(&tree(&many[2..])));
    }

    #[test]
    fn files_say_what_they_are_for() {
        assert_none(&files_have_heads(workspace()));
        assert_found(files_have_heads, "src/a.rs", "/// Of an item.\nstruct A;");
        assert_found(files_have_heads, "src/a.rs", "//! unfinished\n\nstruct A;");
        assert_none(&files_have_heads(&Workspace::new(vec![Source::new(
            "src/a.rs",
            "//! Keeps\n//! things.\n",
        )])));
    }

    #[test]
    fn files_read_in_one_sitting() {
        assert_none(&files_are_short(workspace()));
        assert_found(files_are_short, "src/a.rs", &"\n".repeat(MOST_LINES + 1));
        assert_passes(files_are_short, "src/a.rs", &"\n".repeat(MOST_LINES));
    }

    #[test]
    fn functions_ask_for_little() {
        assert_none(&functions_are_narrow(workspace()));
        let six = "fn f<T: Fn(u8, u8) -> u8>(a: u8, b: [u8; 2], c: (u8, u8), d: A<u8, u8>, e: T, f: u8) {}";
        assert_found(functions_are_narrow, "src/a.rs", six);
        let five = "fn f<T: Fn(u8, u8) -> u8>(&mut self, a: u8, b: B<u8, u8>, c: impl Fn(A, B) -> C, d: u8, e: u8,) {}";
        assert_passes(functions_are_narrow, "src/a.rs", five);
    }

    #[test]
    fn each_exception_is_needed() {
        assert_none(&rows_without_need(workspace()));
        let exceptions = DEFINED_AGAIN.len() + LONG_FILES.len() + WIDE_FUNCTIONS.len();
        assert_eq!(
            rows_without_need(&tree(&[("src/a.rs", "")])).len(),
            exceptions
        );
    }

    #[test]
    fn the_compiler_and_clippy_check_the_rest() {
        let manifest = fs::read_to_string("Cargo.toml").expect("Cargo.toml is there");
        assert_none(&missing_lints(&manifest));
        let weak =
            "[workspace.lints.rust]\n[workspace.lints.clippy]\nawait_holding_lock = \"allow\"\n";
        assert_eq!(missing_lints(weak).len(), LINTS.len());
        let make = fs::read_to_string("Makefile").expect("Makefile is there");
        assert!(
            make.contains("--all-targets -- -D warnings"),
            "`make lint` must turn clippy's warnings into errors"
        );
    }

    #[test]
    fn every_member_inherits_the_lints() {
        let packages = fs::read_dir("crates").expect("crates/ is there");
        let packages = packages.map(|package| package.expect("crates/ is readable").path());
        for manifest in packages
            .map(|path| path.join("Cargo.toml"))
            .chain(["Cargo.toml".into()])
        {
            let text = fs::read_to_string(&manifest).expect("each crate has a manifest");
            assert_none(&lints_of_its_own(&manifest.display().to_string(), &text));
        }
        assert_finds(
            &lints_of_its_own("a/Cargo.toml", "[package]\n\n[lints.rust]\n"),
            "a/Cargo.toml: ",
        );
    }

    #[test]
    fn the_name_of_a_package_is_that_of_its_folder() {
        for package in fs::read_dir("crates").expect("crates/ is there") {
            let path = package.expect("crates/ is readable").path();
            let manifest =
                fs::read_to_string(path.join("Cargo.toml")).expect("each crate has a manifest");
            let folder = path
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default();
            let name = format!("name = \"tollgate-{folder}\"");
            assert!(
                manifest.contains(&name),
                "paths are resolved by that rule: {}",
                path.display()
            );
        }
    }

    #[test]
    fn lints_are_expected_with_a_reason_and_never_allowed() {
        assert_none(&no_lint_is_allowed(workspace()));
        assert_found(
            no_lint_is_allowed,
            "src/app.rs",
            "#[allow(clippy::await_holding_lock)] async fn f() {}",
        );
        assert_found(
            no_lint_is_allowed,
            "src/app.rs",
            "#[expect(clippy::await_holding_lock, reason = \"\")] fn f() {}",
        );
        assert_passes(
            no_lint_is_allowed,
            "src/app.rs",
            "#[expect(clippy::disallowed_methods, reason = \"\")] fn f() {}",
        );
    }
}
