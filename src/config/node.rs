//! A file as a tree, each node with its place. Plain data: no YAML, no rules.

use std::sync::Arc;

use super::mistake::quote;

/// Where something stands in the file.
#[derive(Clone)]
pub(super) struct Place {
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    trail: Trail,
}

/// The way down from the root. Shared, so that a deep file costs no more than a flat one.
#[derive(Clone, Default)]
struct Trail(Option<Arc<Link>>);

struct Link {
    parent: Trail,
    step: Step,
}

enum Step {
    Key(Box<str>),
    Index(usize),
}

/// One value and its place. Not printable: it may hold credentials.
pub(super) struct Node {
    pub place: Place,
    pub value: Value,
}

pub(super) enum Value {
    /// The text as written; `plain` when without quotes.
    Scalar {
        text: String,
        plain: bool,
    },
    List(Vec<Node>),
    Map(Vec<Entry>),
    /// Its mistake is reported already.
    Unusable,
}

/// One key of a mapping. Keys are unique.
pub(super) struct Entry {
    pub key: String,
    /// The key's position, the value's path.
    pub key_place: Place,
    pub value: Node,
}

impl Place {
    pub fn root(line: usize, column: usize) -> Self {
        Self { line, column, trail: Trail::default() }
    }

    /// The value of `key` below this place.
    pub fn key(&self, key: &str, (line, column): (usize, usize)) -> Self {
        self.below(Step::Key(key.into()), line, column)
    }

    /// The item at `index` below this place.
    pub fn index(&self, index: usize, (line, column): (usize, usize)) -> Self {
        self.below(Step::Index(index), line, column)
    }

    /// The same path, at another position.
    pub fn moved(&self, (line, column): (usize, usize)) -> Self {
        Self { line, column, trail: self.trail.clone() }
    }

    fn below(&self, step: Step, line: usize, column: usize) -> Self {
        let link = Link { parent: self.trail.clone(), step };
        Self { line, column, trail: Trail(Some(Arc::new(link))) }
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
            Step::Index(index) => format!("{path}[{index}]"),
            Step::Key(key) if path.is_empty() => show_key(key),
            Step::Key(key) => format!("{path}.{}", show_key(key)),
        })
    }
}

/// A key that could be mistaken for more than one step is quoted.
fn show_key(key: &str) -> String {
    let simple = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if !key.is_empty() && key.len() <= 64 && key.bytes().all(simple) { key.to_owned() } else { quote(key) }
}

impl Value {
    /// Nothing was written, or YAML's word for nothing.
    pub fn is_null(&self) -> bool {
        match self {
            Self::Scalar { text, plain: true } => matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"),
            _ => false,
        }
    }

    /// What it is, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            _ if self.is_null() => "nothing",
            Self::Scalar { .. } => "a single value",
            Self::List(_) => "a list",
            Self::Map(_) => "a mapping",
            Self::Unusable => "nothing usable",
        }
    }
}
