//! The shape of the tree: folders and files that read in one sitting, plain signatures, closures
//! and comments, lints switched on.

use std::collections::BTreeMap;

use crate::imports::Workspace;
use crate::source::{Source, Token, block};

const MOST_FILES: usize = 12;

/// Lines of a file, comments and tests included.
const MOST_LINES: usize = 550;

/// Files longer than [`MOST_LINES`], how long they may be, and why they stay whole.
const LONG_FILES: [(&str, usize, &str); 0] = [];

/// The last column that a comment may reach.
const COMMENT_WIDTH: usize = 100;

/// Words that point at something which the reader has not seen yet, or that continue a sentence.
const NO_SUBJECT: [&str; 14] = [
    "It", "Its", "That", "Those", "They", "These", "Of", "One", "So", "As", "What", "Who",
    "Whoever", "The same",
];

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

/// A folder holds at most [`MOST_FILES`] files, those of tests aside.
pub fn folders_are_small(workspace: &Workspace) -> Vec<String> {
    let mut folders: BTreeMap<&str, usize> = BTreeMap::new();
    for source in &workspace.sources {
        if let Some((folder, _)) = source.path.rsplit_once('/') {
            *folders.entry(folder).or_default() += 1;
        }
    }
    folders.retain(|_, files| *files > MOST_FILES);
    let crowded = folders.iter();
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
    let mut found = Vec::new();
    for source in &workspace.sources {
        let path = &source.path;
        let lines = source.text.lines().count();
        let exception = LONG_FILES.iter().find(|(long, _, _)| long == path);
        let most = exception.map_or(MOST_LINES, |(_, most, _)| *most);
        if lines > most {
            found.push(format!(
                "{path}: has {lines} lines, and {most} is the bound"
            ));
        }
    }
    found
}

/// Rows of [`LONG_FILES`] that nothing needs.
pub fn rows_without_need(workspace: &Workspace) -> Vec<String> {
    let mut found = Vec::new();
    for (path, most, _) in LONG_FILES {
        let source = workspace.sources.iter().find(|source| source.path == path);
        let lines = source.map_or(0, |source| source.text.lines().count());
        if lines <= MOST_LINES || lines + 50 < most {
            found.push(format!("LONG_FILES: {path}: drop the row"));
        }
    }
    found
}

/// Each parameter has a name: a tuple that the signature takes apart wants to be a struct.
pub fn tuple_parameters(workspace: &Workspace) -> Vec<String> {
    let mut found = Vec::new();
    for source in &workspace.sources {
        for function in functions(source) {
            let tuples = function.parameters.iter().filter(|text| is_tuple(text));
            found.extend(tuples.map(|text| {
                let name = function.name;
                format!("{}: `{}` takes `{text}`", source.at(name.at), name.text)
            }));
        }
    }
    found
}

/// Whether a parameter's pattern is a tuple, maybe behind a reference.
fn is_tuple(parameter: &str) -> bool {
    let pattern = parameter.trim_start_matches("mut ");
    let pattern = pattern.trim_start_matches('&');
    pattern.starts_with('(') && !pattern.starts_with("()")
}

struct Function<'a> {
    name: Token<'a>,
    parameters: Vec<&'a str>,
}

fn functions(source: &Source) -> Vec<Function<'_>> {
    let tokens = source.tokens();
    let mut found = Vec::new();
    for pair in tokens.windows(2) {
        let [keyword, name] = pair else { continue };
        if keyword.text != "fn" || !name.is_name() {
            continue;
        }
        if let Some(open) = parameters_begin(&source.code, name.at + name.text.len()) {
            let list = block(&source.code[open..]);
            found.push(Function {
                name: *name,
                parameters: split_parameters(&list[1..list.len() - 1]),
            });
        }
    }
    found
}

/// A closure of several lines that has a name wants to be a function, a method or a type.
pub fn long_closures(workspace: &Workspace) -> Vec<String> {
    let mut found = Vec::new();
    for source in &workspace.sources {
        for at in source.find("let") {
            let Some((name, body)) = named_closure(&source.code[at..]) else {
                continue;
            };
            if body.contains('\n') {
                found.push(format!(
                    "{}: the closure `{name}` has several lines",
                    source.at(at)
                ));
            }
        }
    }
    found
}

/// The name that a `let` binds a closure to, and the closure's body.
fn named_closure(statement: &str) -> Option<(&str, &str)> {
    let (pattern, value) = statement.strip_prefix("let ")?.split_once('=')?;
    let name = pattern.trim_start().trim_start_matches("mut ");
    let name = name.split(':').next()?.trim();
    let closure = value.trim_start();
    let closure = closure.strip_prefix("async ").unwrap_or(closure);
    let closure = closure.strip_prefix("move ").unwrap_or(closure);
    let (_, rest) = closure.strip_prefix('|')?.split_once('|')?;
    let body = rest[..statement_length(rest)].trim();
    name.chars()
        .all(|c| c.is_alphanumeric() || c == '_')
        .then_some((name, body))
}

/// The bytes up to the semicolon that is in no bracket.
fn statement_length(code: &str) -> usize {
    let mut depth = 0;
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            ';' if depth == 0 => return at,
            _ => {}
        }
    }
    code.len()
}

/// A comment begins with what it is about.
pub fn comments_without_subject(workspace: &Workspace) -> Vec<String> {
    let mut found = Vec::new();
    for comment in comments(workspace) {
        let mut known = NO_SUBJECT.iter();
        if let Some(words) = known.find(|words| begins_with(comment.text, words)) {
            found.push(format!("{}: begins with `{words}`", comment.place()));
        }
    }
    found
}

fn begins_with(text: &str, words: &str) -> bool {
    match text.strip_prefix(words) {
        Some(rest) => !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'),
        None => false,
    }
}

/// Comments end at [`COMMENT_WIDTH`], where rustfmt ends code.
pub fn wide_comments(workspace: &Workspace) -> Vec<String> {
    comments(workspace)
        .into_iter()
        .filter(|comment| comment.width > COMMENT_WIDTH && comment.can_wrap)
        .map(|comment| format!("{}: has {} columns", comment.place(), comment.width))
        .collect()
}

/// A line that is a comment and nothing else.
struct CommentLine<'a> {
    path: &'a str,
    line: usize,
    width: usize,
    /// The text behind the slashes and a space.
    text: &'a str,
    /// Prose without an address. Code and tables have the lines that they need.
    can_wrap: bool,
}

impl CommentLine<'_> {
    fn place(&self) -> String {
        format!("{}:{}", self.path, self.line)
    }
}

fn comments(workspace: &Workspace) -> Vec<CommentLine<'_>> {
    let mut found = Vec::new();
    for source in &workspace.sources {
        let mut in_code = false;
        for (index, line) in source.text.lines().enumerate() {
            let Some(text) = line.trim_start().strip_prefix("//") else {
                in_code = false;
                continue;
            };
            let text = text.strip_prefix(['/', '!']).unwrap_or(text);
            let is_fence = text.trim_start().starts_with("```");
            in_code ^= is_fence;
            let is_table = text.trim_start().starts_with('|');
            found.push(CommentLine {
                can_wrap: !in_code && !is_table && !text.contains("://"),
                path: &source.path,
                line: index + 1,
                width: line.chars().count(),
                text: text.strip_prefix(' ').unwrap_or(text),
            });
        }
    }
    found
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
    let mut depth = 0;
    let mut before = ' ';
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
    fn each_exception_is_needed() {
        assert_none(&rows_without_need(workspace()));
        let nothing = tree(&[("src/a.rs", "")]);
        assert_eq!(rows_without_need(&nothing).len(), LONG_FILES.len());
    }

    #[test]
    fn each_parameter_has_a_name() {
        assert_none(&tuple_parameters(workspace()));
        for tuple in [
            "fn f((a, b): (u8, u8)) {}",
            "fn f<T: Fn(u8) -> u8>(&self, a: T, &(b, _): &(u8, u8)) {}",
            "fn f(\n    a: u8,\n    (b, c): (u8, u8),\n) {}",
        ] {
            assert_found(tuple_parameters, "src/a.rs", tuple);
        }
        for plain in [
            "fn f(a: (u8, u8), [b, c]: [u8; 2], State(d): State<D>) {}",
            "fn f() { a.map(|(b, c)| b + c); }",
        ] {
            assert_passes(tuple_parameters, "src/a.rs", plain);
        }
    }

    #[test]
    fn a_closure_of_several_lines_has_no_name() {
        assert_none(&long_closures(workspace()));
        for long in [
            "let f = |a: u8| {\n    a\n};",
            "let mut f: Box<dyn Fn()> = move || {\n    a;\n};",
            "let f = async |a| {\n    a\n};",
        ] {
            assert_found(long_closures, "src/a.rs", long);
        }
        for short in [
            "let f =\n    |a: u8| a + 1;",
            "let a = b.map(|c| {\n    c\n});",
            "let a = b\n    || c;",
        ] {
            assert_passes(long_closures, "src/a.rs", short);
        }
    }

    #[test]
    fn comments_have_a_subject() {
        let found = comments_without_subject(workspace());
        assert_none(&found);
        for orphan in [
            "/// Of one client.\nstruct A;",
            "fn f() {\n    // The same, later.\n}",
            "//! Counts.\n//!\n//! It never sleeps.",
        ] {
            assert_found(comments_without_subject, "src/a.rs", orphan);
        }
        for plain in [
            "/// Items in order.\nstruct A;",
            "/// Often asked.\nstruct A;",
            "/// The sameness of two.\nstruct A;",
        ] {
            assert_passes(comments_without_subject, "src/a.rs", plain);
        }
    }

    #[test]
    fn comments_end_where_code_does() {
        assert_none(&wide_comments(workspace()));
        let widest = format!("/// {}", "a".repeat(COMMENT_WIDTH - 4));
        assert_passes(wide_comments, "src/a.rs", &format!("{widest}\nstruct A;"));
        assert_found(wide_comments, "src/a.rs", &format!("{widest}a\nstruct A;"));
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
