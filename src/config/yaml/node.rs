//! A file as a tree, each node with its location. Plain data: no YAML syntax, no rules.

use crate::config::report::Location;

/// A value and its location. Not printable: it may hold credentials.
pub struct YamlNode {
    pub location: Location,
    pub value: YamlValue,
}

pub enum YamlValue {
    /// The text as written; `plain` when without quotes.
    Scalar {
        text: String,
        plain: bool,
    },
    List(Vec<YamlNode>),
    Map(Vec<NodeEntry>),
    /// Its mistake is reported already.
    Unusable,
}

/// A key of a mapping with its value. Keys are unique.
pub struct NodeEntry {
    pub key: String,
    /// The key's position, the value's path.
    pub key_location: Location,
    pub value: YamlNode,
}

impl YamlValue {
    /// Nothing was written, or YAML's word for nothing.
    pub fn is_null(&self) -> bool {
        match self {
            Self::Scalar { text, plain: true } => matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"),
            _ => false,
        }
    }

    /// Its kind, for messages.
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
