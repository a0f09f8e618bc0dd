//! The limit of a strategy, or of its candidate, as it is written.

use crate::report::Report;
use crate::section::limit::definition::RawLimit;
use crate::yaml::decode::{Decode, SchemaDefinitions, mismatch};
use crate::yaml::node::{YamlNode, YamlValue};

/// A limit as it is written: it becomes one of the file's limits, and is read as these are.
pub struct RawStrategyLimit(pub YamlNode);

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
