//! `on_outage`: how a limit is enforced while the store is away.

use std::time::Duration;

use serde_json::{Value as Json, json};
use tollgate_limiter::limit::definition::{AfterLocal, OnOutage};
use tollgate_limiter::limit::units::show_duration;

use crate::config::report::{Report, ValueProblem};
use crate::config::scalar::number::BoundedDuration;
use crate::config::yaml::decode::{Decode, Located, SchemaDefinitions, mismatch};
use crate::config::yaml::node::{YamlNode, YamlValue};
use crate::config::yaml::record::record;
use crate::config::yaml::words::{unknown, words};

record! {
    /// This node's share for a time.
    RawLocalFor {
        /// How long this node enforces its share: 1s to 1h, and at most store.autonomy.
        required local: Located<BoundedDuration<3_600_000, 1_000>>,
        /// After that: deny all, or let all pass.
        default("deny") then: Located<AfterLocal>,
    }
}

/// The enforcement of a limit while the store is away.
pub enum RawOnOutage {
    Always(OnOutage),
    LocalFor(RawLocalFor),
}

const SIMPLE: [&str; 3] = ["local", "allow", "deny"];

impl Decode for RawOnOutage {
    fn decode(node: &YamlNode, report: &mut Report) -> Option<Self> {
        match &node.value {
            YamlValue::Scalar { text, .. } if !node.value.is_null() => match text.as_str() {
                "local" => Some(Self::Always(OnOutage::Local)),
                "allow" => Some(Self::Always(OnOutage::Allow)),
                "deny" => Some(Self::Always(OnOutage::Deny)),
                _ => {
                    report.mistake(&node.location, unknown(text, &SIMPLE));
                    None
                }
            },
            YamlValue::Map(_) => RawLocalFor::decode(node, report).map(Self::LocalFor),
            _ => {
                let hint = "write local, allow, deny or {local: 10s, then: deny}";
                mismatch(
                    node,
                    "how a limit is enforced while the store is away",
                    Some(hint),
                    report,
                );
                None
            }
        }
    }

    fn schema(definitions: &mut SchemaDefinitions) -> Json {
        json!({ "anyOf": [{ "enum": SIMPLE }, RawLocalFor::schema(definitions)] })
    }
}

impl RawOnOutage {
    /// The enforcement, where nodes of the fleet hold back a silent one's share for `autonomy`.
    /// `None`: a mistake was reported.
    pub fn build(&self, autonomy: Option<Duration>, report: &mut Report) -> Option<OnOutage> {
        let raw = match self {
            Self::Always(on_outage) => return Some(*on_outage),
            Self::LocalFor(raw) => raw,
        };
        let (
            Located {
                location,
                value: BoundedDuration(time),
            },
            then,
        ) = (raw.local.valid()?, raw.then.value()?);
        if let Some(autonomy) = autonomy.filter(|autonomy| time > autonomy) {
            let (shown, most) = (show_duration(*time), show_duration(autonomy));
            let problem = ValueProblem::new(format!(
                "{shown} is longer than store.autonomy ({most}): the other nodes take this node's share back before"
            ));
            report.mistake(
                location,
                problem.hint(format!("write {most} or less, or raise store.autonomy")),
            );
            return None;
        }
        Some(OnOutage::LocalFor { time: *time, then })
    }
}

words! {
    AfterLocal: "deny or allow" { "deny" => Deny, "allow" => Allow }
}
