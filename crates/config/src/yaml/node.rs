//! A file as a tree, each node with its location. Plain data: no YAML syntax, no rules.

use crate::report::Location;

/// About how many bytes a value takes besides its text: itself, its location, and the step that
/// leads to it.
const VALUE_BYTES: usize = 256;

/// A value and its location. Not printable, since it may have credentials.
#[derive(Clone)]
pub struct YamlNode {
    pub location: Location,
    pub value: YamlValue,
}

#[derive(Clone)]
pub enum YamlValue {
    /// The text as written; `plain` when without quotes.
    Scalar {
        text: String,
        plain: bool,
    },
    List(Vec<YamlNode>),
    Map(Vec<NodeEntry>),
    /// A value with a mistake that was reported.
    Unusable,
}

/// A key of a mapping with its value. Keys are unique.
#[derive(Clone)]
pub struct NodeEntry {
    pub key: String,
    /// The key's position, the value's path.
    pub key_location: Location,
    pub value: YamlNode,
}

impl YamlNode {
    /// The value at `location`. What is in it keeps its lines, and is found by the new path.
    pub fn moved_to(self, location: Location) -> Self {
        let value = match self.value {
            YamlValue::List(items) => {
                let mut moved = Vec::with_capacity(items.len());
                for (index, item) in items.into_iter().enumerate() {
                    let at = location.index(index, item.location.position());
                    moved.push(item.moved_to(at));
                }
                YamlValue::List(moved)
            }
            YamlValue::Map(entries) => YamlValue::Map(
                entries
                    .into_iter()
                    .map(|entry| entry.moved_below(&location))
                    .collect(),
            ),
            value => value,
        };
        Self { location, value }
    }

    /// About how many bytes of memory a copy of it takes.
    pub fn size(&self) -> usize {
        VALUE_BYTES
            + match &self.value {
                YamlValue::Scalar { text, .. } => text.len(),
                YamlValue::List(items) => items.iter().map(Self::size).sum(),
                YamlValue::Map(entries) => entries.iter().map(NodeEntry::size).sum(),
                YamlValue::Unusable => 0,
            }
    }

    /// How many levels of mappings and lists it has.
    pub fn depth(&self) -> usize {
        let below = match &self.value {
            YamlValue::List(items) => items.iter().map(Self::depth).max(),
            YamlValue::Map(entries) => entries.iter().map(|entry| entry.value.depth()).max(),
            YamlValue::Scalar { .. } | YamlValue::Unusable => return 0,
        };
        1 + below.unwrap_or(0)
    }
}

impl NodeEntry {
    /// Like the [`size`](YamlNode::size) of its value, with the key: two locations have it, too.
    pub fn size(&self) -> usize {
        3 * self.key.len() + self.value.size()
    }

    /// The entry in the mapping at `parent`. It keeps its lines.
    pub fn moved_below(self, parent: &Location) -> Self {
        let Self {
            key,
            key_location,
            value,
        } = self;
        let at = parent.key(&key, value.location.position());
        Self {
            key_location: parent.key(&key, key_location.position()),
            value: value.moved_to(at),
            key,
        }
    }
}

impl YamlValue {
    /// Nothing was written, or YAML's word for nothing.
    pub fn is_null(&self) -> bool {
        match self {
            Self::Scalar { text, plain: true } => {
                matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL")
            }
            _ => false,
        }
    }

    /// The kind of value, for messages.
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
