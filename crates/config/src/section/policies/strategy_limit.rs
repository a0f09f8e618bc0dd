//! The limit of a strategy, or of its candidate, as it is written.

use crate::report::Report;
use crate::section::defaults::LimitDefaults;
use crate::section::limit::definition::RawLimit;
use crate::yaml::decode::{Decode, SchemaDefinitions, mismatch};
use crate::yaml::node::{NodeEntry, YamlNode, YamlValue};

/// A limit as it is written: it is read as one of the file that it is added to, with the defaults
/// of that.
pub struct RawStrategyLimit(YamlNode);

impl RawStrategyLimit {
    /// The entry of `key`, if the limit has it itself.
    pub fn written(&self, key: &str) -> Option<&NodeEntry> {
        let YamlValue::Map(entries) = &self.0.value else {
            return None;
        };
        let mut entries = entries.iter();
        entries.find(|entry| entry.key == key && !entry.value.value.is_null())
    }

    /// The limit with the defaults of a file. `None`: a mistake was reported.
    pub fn read(&self, defaults: &LimitDefaults, report: &mut Report) -> Option<RawLimit> {
        let mut limit = self.0.clone();
        defaults.complete(&mut limit);
        RawLimit::decode(&limit, report)
    }
}

impl Decode for RawStrategyLimit {
    fn decode(node: &YamlNode, report: &mut Report) -> Option<Self> {
        if let YamlValue::Map(_) = node.value {
            return Some(Self(node.clone()));
        }
        mismatch(
            node,
            "a mapping",
            Some("write {key: client_ip, rate: 10/s}"),
            report,
        );
        None
    }

    fn schema(definitions: &mut SchemaDefinitions) -> serde_json::Value {
        RawLimit::schema(definitions)
    }
}
