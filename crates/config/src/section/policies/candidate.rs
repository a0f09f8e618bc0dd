//! `candidate`: a limit that is tried out before it holds, and what it must stay within.

use serde_json::{Value as Json, json};
use tollgate_limiter::limit::rollout::Rollout;

use crate::candidate::{NodePattern, Stage};
use crate::report::{Location, Report, ValueProblem, quote};
use crate::scalar::number::{BoundedDuration, DAY, WholeNumber};
use crate::section::policies::strategy_limit::RawStrategyLimit;
use crate::yaml::collection::NonEmptyList;
use crate::yaml::decode::{Decode, Located, Scalar, SchemaDefinitions, mismatch};
use crate::yaml::node::{YamlNode, YamlValue};
use crate::yaml::record::record;
use crate::yaml::schema::or_variable;

record! {
    /// A limit that is tried out.
    RawCandidate {
        /// The limit that is tried out, as under limits of the file.
        required limit: RawStrategyLimit,
        /// Where it acts: shadow, a share of the keys such as 10%, or {nodes: [edge-1]}.
        required on: RawStage,
        /// The bounds that it must stay within. Beyond, it is taken away.
        optional bounds: RawCandidateBounds,
        /// The time that the bounds are judged over. 1s to 10m.
        default("10s") over: Located<BoundedDuration<600_000, 1_000>>,
        /// Requests that a judgement wants: where there are fewer in that time, it goes as far back
        /// as it takes to have them.
        default(50) least: Located<WholeNumber<1, 10_000>>,
        /// The time within its bounds after which it becomes the limit. Default: never.
        optional promote_after: Located<BoundedDuration<{ 30 * DAY }, 1_000>>,
    }
}

record! {
    /// The bounds that a candidate must stay within.
    RawCandidateBounds at location {
        /// The share of requests that it denies, or would deny.
        optional denials: Located<Rollout>,
        /// The share of answers 5xx of its routes.
        optional errors: Located<Rollout>,
        /// The latency that 99 % of the requests of its routes stay within.
        optional latency: Located<BoundedDuration<60_000>>,
    }
}

record! {
    /// Nodes that try a candidate.
    RawCanary {
        /// Names of nodes, with * for any characters.
        required nodes: NonEmptyList<Located<NodePattern>>,
    }
}

/// Where a candidate acts.
pub struct RawStage {
    pub location: Location,
    pub stage: Stage,
}

impl Decode for RawStage {
    fn decode(node: &YamlNode, report: &mut Report) -> Option<Self> {
        let hint =
            "write shadow, a share of the keys such as 10%, or {nodes: [edge-1, \"canary-*\"]}";
        let location = node.location.clone();
        let stage = match &node.value {
            YamlValue::Scalar { text, .. } if text == "shadow" => Stage::Shadow,
            YamlValue::Scalar { text, .. } if Rollout::read(text).is_ok() => {
                Stage::Share(text.as_str().into())
            }
            YamlValue::Scalar { text, .. } => {
                let problem =
                    ValueProblem::new(format!("{} is not where a candidate can act", quote(text)));
                report.mistake(&location, problem.hint(hint));
                return None;
            }
            YamlValue::Map(_) => {
                let names = RawCanary::decode(node, report)?
                    .nodes
                    .take(|NonEmptyList(names)| Some(names))??;
                Stage::Nodes(names.into_iter().map(|name| name.value).collect())
            }
            YamlValue::List(_) | YamlValue::Unusable => {
                mismatch(node, "where the candidate acts", Some(hint), report);
                return None;
            }
        };
        Some(Self { location, stage })
    }

    fn schema(definitions: &mut SchemaDefinitions) -> Json {
        json!({ "anyOf": [{ "enum": ["shadow"] }, Rollout::schema(), RawCanary::schema(definitions)] })
    }
}

impl Scalar for NodePattern {
    const WHAT: &'static str = "the name of a node";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        let fine =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-' | b'*');
        if (1..=64).contains(&text.len()) && text.bytes().all(fine) {
            return Ok(Self::new(text));
        }
        let problem = ValueProblem::new(format!("{} is not the name of a node", quote(text)));
        Err(problem.hint(
            "1 to 64 letters, digits, dots, dashes and underscores, with * for any characters",
        ))
    }

    fn schema() -> Json {
        json!({ "type": "string", "pattern": or_variable("[A-Za-z0-9_.*-]{1,64}") })
    }
}
