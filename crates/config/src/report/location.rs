//! The place of a value: file, line, column and YAML path.

use std::sync::Arc;

use super::quote::quote;

/// The place of a value. A file of many limits has one for each of its values: it is small.
#[derive(Clone)]
pub struct Location {
    /// From 1. 0: there is no text, only a tree.
    line: u32,
    /// In characters, from 1.
    column: u32,
    trail: Arc<Trail>,
}

/// The way down from the root. Shared, so that a deep file costs no more than a flat one.
enum Trail {
    /// With the name that messages call the file by.
    Root(Arc<str>),
    Step(Arc<Self>, PathStep),
}

enum PathStep {
    Key(Box<str>),
    Index(usize),
}

impl Location {
    pub fn root(file: &Arc<str>, at: (usize, usize)) -> Self {
        Self::on(Trail::Root(Arc::clone(file)).into(), at)
    }

    /// The value of `key` below this location.
    pub fn key(&self, key: &str, at: (usize, usize)) -> Self {
        self.below(PathStep::Key(key.into()), at)
    }

    /// The item at `index` below this location.
    pub fn index(&self, index: usize, at: (usize, usize)) -> Self {
        self.below(PathStep::Index(index), at)
    }

    /// This path, at another position.
    pub fn moved(&self, at: (usize, usize)) -> Self {
        Self::on(Arc::clone(&self.trail), at)
    }

    /// The name that messages call the file by.
    pub fn file(&self) -> &Arc<str> {
        let mut trail = &self.trail;
        loop {
            match &**trail {
                Trail::Root(file) => return file,
                Trail::Step(parent, _) => trail = parent,
            }
        }
    }

    /// From 1; 0 where there is no text.
    pub fn line(&self) -> usize {
        self.line as usize
    }

    /// Line and column; zeros where there is no text.
    pub fn position(&self) -> (usize, usize) {
        (self.line as usize, self.column as usize)
    }

    /// The line, for a message about `other`: with the file, unless that is the same.
    pub fn line_beside(&self, other: &Self) -> String {
        let line = self.line;
        let file = self.file();
        if line == 0 {
            return format!("{} of {file}", self.path());
        }
        if file == other.file() {
            format!("line {line}")
        } else {
            format!("line {line} of {file}")
        }
    }

    fn below(&self, step: PathStep, at: (usize, usize)) -> Self {
        Self::on(Trail::Step(Arc::clone(&self.trail), step).into(), at)
    }

    fn on(trail: Arc<Trail>, at: (usize, usize)) -> Self {
        Self {
            line: u32::try_from(at.0).unwrap_or(u32::MAX),
            column: u32::try_from(at.1).unwrap_or(u32::MAX),
            trail,
        }
    }

    /// Such as `routes[0].match.path`; empty for the root.
    pub fn path(&self) -> String {
        let mut steps = Vec::new();
        let mut trail = &self.trail;
        while let Trail::Step(parent, step) = &**trail {
            steps.push(step);
            trail = parent;
        }
        steps
            .iter()
            .rev()
            .fold(String::new(), |path, step| match step {
                PathStep::Index(index) => format!("{path}[{index}]"),
                PathStep::Key(key) if path.is_empty() => show_key(key),
                PathStep::Key(key) => format!("{path}.{}", show_key(key)),
            })
    }
}

/// A key that could be mistaken for more than one step is quoted.
fn show_key(key: &str) -> String {
    let is_plain = key
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
    if is_plain && (1..=64).contains(&key.len()) {
        key.to_owned()
    } else {
        quote(key)
    }
}
