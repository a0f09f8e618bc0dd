//! `limits` of a listener or a route: a limit by its name, with a cost of its own if need be.

use serde_json::{Value as Json, json};

use super::cost::RawCost;
use crate::config::file::scalar::text::DefinedName;
use crate::config::report::Report;
use crate::config::yaml::decode::{Decode, Located, SchemaDefinitions, Setting, mismatch};
use crate::config::yaml::node::{YamlNode, YamlValue};
use crate::config::yaml::record::record;

record! {
    /// A limit with a cost of its own.
    RawCostedUse {
        /// The limit's name.
        required limit: Located<DefinedName>,
        /// Tokens one request takes here. Default: the limit's cost.
        optional cost: RawCost,
    }
}

/// A limit as a listener or a route names it.
pub struct RawLimitUse {
    pub limit: Setting<Located<DefinedName>>,
    pub cost: Setting<RawCost>,
}

impl Decode for RawLimitUse {
    fn decode(node: &YamlNode, report: &mut Report) -> Option<Self> {
        match &node.value {
            YamlValue::Map(_) => RawCostedUse::decode(node, report)
                .map(|RawCostedUse { limit, cost, .. }| Self { limit, cost }),
            YamlValue::Scalar { .. } if !node.value.is_null() => {
                Located::decode(node, report).map(|name| Self {
                    limit: Setting::Valid(name),
                    cost: Setting::Absent,
                })
            }
            _ => {
                mismatch(
                    node,
                    "the name of a limit",
                    Some("write its name, or {limit: name, cost: 5}"),
                    report,
                );
                None
            }
        }
    }

    fn schema(definitions: &mut SchemaDefinitions) -> Json {
        json!({ "anyOf": [Located::<DefinedName>::schema(definitions), RawCostedUse::schema(definitions)] })
    }
}
