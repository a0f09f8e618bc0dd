//! The links of the documentation: each leads to a file of the repository, and to a heading that is
//! there.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use crate::shipped::{pages, read};

/// The pages that are neither among [`pages`] nor below `docs/`.
const MORE: [&str; 2] = ["CHANGELOG.md", "crates/limiter/README.md"];

#[test]
fn every_link_of_the_documentation_leads_somewhere() {
    let mut dead = Vec::new();
    for page in pages().into_iter().chain(MORE.map(PathBuf::from)) {
        for link in links(&read(&page)) {
            if !leads_somewhere(&page, &link) {
                dead.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(dead.is_empty(), "{dead:#?}");
}

#[test]
fn every_page_of_the_documentation_is_in_an_index() {
    for folder in ["docs", "docs/internals", "docs/configuration"] {
        let index = links(&read(format!("{folder}/README.md")));
        for page in crate::shipped::files(folder, "md") {
            let name = page.strip_prefix(folder).expect("the folder has it");
            let name = name.display().to_string();
            let elsewhere = folder == "docs" && name.contains('/');
            assert!(
                elsewhere || name == "README.md" || index.contains(&name),
                "{folder}/README.md does not lead to {name}"
            );
        }
    }
}

fn leads_somewhere(page: &Path, link: &str) -> bool {
    let (path, heading) = link.split_once('#').unwrap_or((link, ""));
    let target = if path.is_empty() {
        page.to_owned()
    } else {
        resolved(&page.parent().expect("a page is in a folder").join(path))
    };
    if heading.is_empty() {
        return target.exists();
    }
    target.is_file() && anchors(&read(target)).contains(heading)
}

/// The path without `..`.
fn resolved(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        if component == Component::ParentDir {
            plain.pop();
        } else {
            plain.push(component);
        }
    }
    plain
}

/// Targets of the links in a page's text, without those to other hosts.
fn links(markdown: &str) -> Vec<String> {
    prose(markdown)
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
        .filter(|link| !link.contains("://"))
        .map(str::to_owned)
        .collect()
}

/// The lines outside of code blocks.
fn prose(markdown: &str) -> String {
    let mut in_code = false;
    let mut lines = String::new();
    for line in markdown.lines() {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        if !in_code && !is_fence {
            lines.push_str(line);
            lines.push('\n');
        }
    }
    lines
}

/// Anchors of the headings, spelt as GitHub spells them.
fn anchors(markdown: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for line in prose(markdown).lines() {
        let title = line.trim_start_matches('#');
        if title.len() < line.len() && title.starts_with(' ') {
            let kept = |c: &char| c.is_alphanumeric() || " -_".contains(*c);
            let plain: String = title.trim().chars().filter(kept).collect();
            anchors.insert(plain.to_lowercase().replace(' ', "-"));
        }
    }
    anchors
}
