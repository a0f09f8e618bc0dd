//! `on_outage`: how a limit is enforced while the store is away.

use std::time::Duration;

use serde_json::{Value as Json, json};
use tollgate_limiter::limit::definition::{AfterLocal, OnOutage};
use tollgate_limiter::limit::units::show_duration;

use crate::report::{Report, ValueProblem};
use crate::scalar::number::BoundedDuration;
use crate::yaml::decode::{Decode, Located, Scalar, SchemaDefinitions, mismatch};
use crate::yaml::node::{YamlNode, YamlValue};
use crate::yaml::record::record;
use crate::yaml::words::{Words, words};

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

impl Decode for RawOnOutage {
    fn decode(node: &YamlNode, report: &mut Report) -> Option<Self> {
        match &node.value {
            YamlValue::Scalar { text, .. } if !node.value.is_null() => OnOutage::read(text)
                .map(Self::Always)
                .map_err(|problem| report.mistake(&node.location, problem))
                .ok(),
            YamlValue::Map(_) => RawLocalFor::decode(node, report).map(Self::LocalFor),
            _ => {
                let words = OnOutage::WORDS.join(", ");
                let hint = format!("write {words} or {{local: 10s, then: deny}}");
                mismatch(node, OnOutage::WHAT, Some(&hint), report);
                None
            }
        }
    }

    fn schema(definitions: &mut SchemaDefinitions) -> Json {
        json!({ "anyOf": [{ "enum": OnOutage::WORDS }, RawLocalFor::schema(definitions)] })
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
        let local = raw.local.valid()?;
        let time = local.value.0;
        let then = raw.then.value()?;
        if let Some(autonomy) = autonomy
            && time > autonomy
        {
            let shown = show_duration(time);
            let most = show_duration(autonomy);
            let problem = ValueProblem::new(format!(
                "{shown} is longer than store.autonomy ({most}): the other nodes take this node's share back before"
            ));
            report.mistake(
                &local.location,
                problem.hint(format!("write {most} or less, or raise store.autonomy")),
            );
            return None;
        }
        Some(OnOutage::LocalFor { time, then })
    }
}

words! {
    OnOutage: "how a limit is enforced while the store is away" {
        "local" => Local,
        "allow" => Allow,
        "deny" => Deny,
    }
    AfterLocal: "deny or allow" { "deny" => Deny, "allow" => Allow }
}
