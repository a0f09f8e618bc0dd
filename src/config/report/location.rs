//! Where something stands: file, line, column and YAML path.

use std::sync::Arc;

use super::quote::quote;

/// Where something stands.
#[derive(Clone)]
pub struct Location {
    /// The name that messages call it by.
    pub file: Arc<str>,
    /// From 1. 0: there is no text, only a tree.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    trail: Trail,
}

/// The way down from the root. Shared, so that a deep file costs no more than a flat one.
#[derive(Clone, Default)]
struct Trail(Option<Arc<TrailLink>>);

struct TrailLink {
    parent: Trail,
    step: PathStep,
}

enum PathStep {
    Key(Box<str>),
    Index(usize),
}

impl Location {
    pub fn root(file: &Arc<str>, (line, column): (usize, usize)) -> Self {
        Self { file: Arc::clone(file), line, column, trail: Trail::default() }
    }

    /// The value of `key` below this location.
    pub fn key(&self, key: &str, (line, column): (usize, usize)) -> Self {
        self.below(PathStep::Key(key.into()), line, column)
    }

    /// The item at `index` below this location.
    pub fn index(&self, index: usize, (line, column): (usize, usize)) -> Self {
        self.below(PathStep::Index(index), line, column)
    }

    /// This path, at another position.
    pub fn moved(&self, (line, column): (usize, usize)) -> Self {
        Self { file: Arc::clone(&self.file), line, column, trail: self.trail.clone() }
    }

    /// Line and column; zeros where there is no text.
    pub fn position(&self) -> (usize, usize) {
        (self.line, self.column)
    }

    /// Its line, for a message about `other`: with the file, unless that is the same.
    pub fn line_beside(&self, other: &Self) -> String {
        let line = self.line;
        if line == 0 {
            return format!("{} of {}", self.path(), self.file);
        }
        if self.file == other.file { format!("line {line}") } else { format!("line {line} of {}", self.file) }
    }

    fn below(&self, step: PathStep, line: usize, column: usize) -> Self {
        let link = TrailLink { parent: self.trail.clone(), step };
        Self { file: Arc::clone(&self.file), line, column, trail: Trail(Some(Arc::new(link))) }
    }

    /// Such as `routes[0].match.path`; empty for the root.
    pub fn path(&self) -> String {
        let mut steps = Vec::new();
        let mut next = &self.trail;
        while let Some(link) = &next.0 {
            steps.push(&link.step);
            next = &link.parent;
        }
        steps.iter().rev().fold(String::new(), |path, step| match step {
            PathStep::Index(index) => format!("{path}[{index}]"),
            PathStep::Key(key) if path.is_empty() => show_key(key),
            PathStep::Key(key) => format!("{path}.{}", show_key(key)),
        })
    }
}

/// A key that could be mistaken for more than one step is quoted.
fn show_key(key: &str) -> String {
    let simple = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if !key.is_empty() && key.len() <= 64 && key.bytes().all(simple) { key.to_owned() } else { quote(key) }
}
