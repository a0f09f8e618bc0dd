//! Header fields as conditions, of routes and of exemptions, and mappings of header fields.

use std::collections::HashMap;

use http::{HeaderName, HeaderValue};
use serde_json::{Value as Json, json};

use super::scalar::text::OnlyTrue;
use crate::config::report::{Report, ValueProblem, quote};
use crate::config::yaml::collection::{Mapping, MappingEntry};
use crate::config::yaml::decode::{Decode, Located, Scalar, SchemaDefinitions, mismatch};
use crate::config::yaml::node::{YamlNode, YamlValue};
use crate::config::yaml::record::record;

record! {
    /// A header field with any value.
    RawPresent {
        /// The field must be there.
        required present: Located<OnlyTrue>,
    }
}

/// The value that a header field must have. `None`: any.
pub struct RawHeaderCondition(pub Option<HeaderValue>);

impl Decode for RawHeaderCondition {
    fn decode(node: &YamlNode, report: &mut Report) -> Option<Self> {
        match &node.value {
            YamlValue::Map(_) => RawPresent::decode(node, report)?
                .present
                .valid()
                .map(|_| Self(None)),
            YamlValue::Scalar { .. } if !node.value.is_null() => {
                Located::decode(node, report).map(|at: Located<HeaderValue>| Self(Some(at.value)))
            }
            _ => {
                mismatch(
                    node,
                    "a value",
                    Some("write the value, or {present: true} for any"),
                    report,
                );
                None
            }
        }
    }

    fn schema(definitions: &mut SchemaDefinitions) -> Json {
        json!({ "anyOf": [HeaderValue::schema(), RawPresent::schema(definitions)] })
    }
}

/// Reports names of fields that differ by case alone.
pub fn check_names<V>(headers: &Mapping<HeaderName, V>, report: &mut Report) {
    let mut lines = HashMap::new();
    for MappingEntry {
        text,
        location,
        key,
        ..
    } in &headers.0
    {
        let Some(name) = key else { continue };
        if let Some(line) = lines.insert(name, location.line_beside(location)) {
            let problem =
                ValueProblem::new(format!("{} is here twice, first on {line}", quote(text)));
            report.mistake(
                location,
                problem.hint("upper and lower case are the same in names of header fields"),
            );
        }
    }
}
