//! The structure of the workspace, read off the sources.
//!
//! Each rule is a function from the workspace to findings, and has a test that shows it a misuse in
//! a small tree of its own: a rule that finds nothing holds, and does not look past it. When a rule
//! is in the way, change its table and ARCHITECTURE.md together and say why in the commit.
//!
//! | file | rules |
//! |---|---|
//! | `imports` | each path of ours leads to a definition, so that no rule looks past one |
//! | `circles` | no circle of imports, between files or folders |
//! | `chains` | imports follow the chains of ARCHITECTURE.md |
//! | `homes` | a crate, the clock, I/O and status codes are named only where they belong |
//! | `metrics` | handles are resolved once, labels are few |
//! | `shape` | bounds for folders and files; plain signatures, closures and comments; lints |
//! | `docs` | each path that the documentation names is there |
//!
//! `cargo test --test invariants print_the_tree -- --nocapture` prints each folder with its purpose
//! and its imports.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod chains;
mod circles;
mod docs;
mod homes;
mod imports;
mod metrics;
mod paths;
mod shape;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use imports::{Workspace, module_of};
use source::Source;

/// The sources of this repository, read once.
fn workspace() -> &'static Workspace {
    static WORKSPACE: LazyLock<Workspace> = LazyLock::new(Workspace::read);
    &WORKSPACE
}

/// A workspace of these files, given as path and text. Folders get an empty `mod.rs` where they
/// have none.
fn tree(files: &[(&str, &str)]) -> Workspace {
    let mut texts: BTreeMap<String, &str> = BTreeMap::new();
    let mut known: BTreeSet<String> = BTreeSet::new();
    for (path, text) in files {
        texts.insert((*path).to_owned(), text);
        known.insert(module_of(path));
    }
    let parents = |path: &str| {
        let folders = path
            .match_indices('/')
            .map(|(at, _)| path[..at].to_owned())
            .collect::<Vec<_>>();
        folders
            .into_iter()
            .filter(|folder| folder.starts_with("src") || folder.contains("/src"))
    };
    for folder in files.iter().flat_map(|(path, _)| parents(path)) {
        let own = if folder.ends_with("src") {
            "lib.rs"
        } else {
            "mod.rs"
        };
        let path = format!("{folder}/{own}");
        if known.insert(module_of(&path)) {
            texts.insert(path, "");
        }
    }
    Workspace::new(
        texts
            .iter()
            .map(|(path, text)| Source::new(path, text))
            .collect(),
    )
}

#[track_caller]
fn assert_none(findings: &[String]) {
    assert!(
        findings.is_empty(),
        "{} found\n  {}\n",
        findings.len(),
        findings.join("\n  ")
    );
}

/// Some finding begins like this.
#[track_caller]
fn assert_finds(findings: &[String], beginning: &str) {
    assert!(
        findings
            .iter()
            .any(|finding| finding.starts_with(beginning)),
        "no {beginning:?} in {findings:#?}"
    );
}

/// The rule finds something in this text, were it at this path.
#[track_caller]
fn assert_found(rule: impl Fn(&Workspace) -> Vec<String>, path: &str, text: &str) {
    let findings = rule(&tree(&[(path, text)]));
    assert!(
        findings.iter().any(|finding| finding.starts_with(path)),
        "{path} passes with: {text}\n{findings:?}"
    );
}

#[track_caller]
fn assert_passes(rule: impl Fn(&Workspace) -> Vec<String>, path: &str, text: &str) {
    assert_none(&rule(&tree(&[(path, text)])));
}

/// Each folder with the first sentence of its head and the modules it imports, as seen from where
/// it stands.
fn picture(workspace: &Workspace) -> String {
    let folders = workspace
        .modules
        .keys()
        .filter(|module| workspace.has_children(module));
    let lines = folders.map(|module| {
        let is_inside = |other: &str| other == module || other.starts_with(&format!("{module}::"));
        let outward = workspace
            .imports
            .iter()
            .filter(|import| is_inside(&import.from) && !is_inside(&import.to));
        let imported: BTreeSet<String> = outward
            .map(|import| seen_from(module, &import.to))
            .collect();
        let imported = imported.into_iter().collect::<Vec<_>>().join(" ");
        let indent = "    ".repeat(module.matches("::").count());
        let sentence = workspace.source(module).first_sentence();
        format!(
            "{indent}{}  {sentence}\n{indent}  imports {imported}\n",
            workspace.room(module)
        )
    });
    lines.collect()
}

/// The module that stands beside `module`, or beside a folder around it, and has `other` in it.
fn seen_from(module: &str, other: &str) -> String {
    let (from, to): (Vec<_>, Vec<_>) = (module.split("::").collect(), other.split("::").collect());
    let common = from
        .iter()
        .zip(&to)
        .take_while(|(one, other)| one == other)
        .count();
    let seen = &to[usize::from(common > 0)..to.len().min(common.max(1) + 1)];
    if seen.is_empty() {
        "lib".to_owned()
    } else {
        seen.join("::")
    }
}

#[test]
#[expect(
    clippy::print_stdout,
    reason = "a picture for the developer who asks for it"
)]
fn print_the_tree() {
    let picture = picture(workspace());
    println!("{picture}");
    assert!(
        picture.contains("crates/limiter/src/store/"),
        "the tree has a limiter, and that a store"
    );
}

#[test]
fn the_picture_says_what_a_folder_is_for_and_imports() {
    let workspace = tree(&[
        (
            "src/a/mod.rs",
            "//! Does a thing.\n//! And more. Not this.\nmod b;",
        ),
        ("src/a/b.rs", "use crate::c::d::D; use crate::e;"),
        ("src/c/d.rs", "pub struct D;"),
        ("src/e.rs", ""),
    ]);
    let drawn = picture(&workspace);
    assert!(
        drawn.contains("    src/a/  Does a thing.\n      imports c e\n"),
        "{drawn}"
    );
}

#[test]
fn code_is_told_from_comments_literals_and_tests() {
    let text = "let a = '\"'; /* fred */ let b = r#\"fred\"#; let c = b\"fred\\\"\"; fn f<'a>(x: &'a str) {} fred::x();";
    let source = Source::new("src/a.rs", text);
    assert_eq!(
        source.find("fred"),
        [text.rfind("fred").expect("it is there")]
    );
    assert_eq!(source.code.len(), text.len());
    for test in [
        "fn f(a: [u8; 4]) { fred() }",
        "mod tests { fred }",
        "use fred::X;",
        "#[test] fn f<A, B>() { fred }",
    ] {
        let source = Source::new("src/a.rs", &format!("#[cfg(test)]\n{test} fn rest() {{}}"));
        assert!(
            source.find("fred").is_empty() && source.find("rest").len() == 1,
            "{test}: {}",
            source.code
        );
    }
    let field = Source::new("src/a.rs", "struct A { #[cfg(test)] fred: u8, rest: u8 }");
    assert!(
        field.find("fred").is_empty() && field.find("rest").len() == 1,
        "{}",
        field.code
    );
}
