//! `access_log`: a word, or the format, the sample and the destination of its lines, which
//! `destination` reads.

pub mod destination;

use serde_json::{Value as Json, json};
use tollgate_limiter::limit::rollout::Rollout;

use crate::config::report::Report;
use crate::config::yaml::decode::{Decode, Located, SchemaDefinitions, mismatch};
use crate::config::yaml::node::{YamlNode, YamlValue};
use crate::config::yaml::record::record;
use crate::config::yaml::words::{unknown, words};
use crate::observe::access_log::spec::{AccessLogFormat, AccessLogSpec, LogDestination};

/// A line for each request, if at all.
pub enum RawAccessLog {
    Off,
    On(AccessLogSpec),
}

record! {
    /// How and where lines are written.
    RawAccessLogOptions {
        /// The form of a line: json, combined or extended.
        default("json") format: Located<AccessLogFormat>,
        /// Where lines go: stdout, stderr, a file, a syslog at unix:/dev/log or udp://HOST:PORT, or
        /// bare lines over tcp://HOST:PORT.
        default("stdout") to: Located<LogDestination>,
        /// The share of successful requests that has lines. All others always have.
        default("100%") sample: Located<Rollout>,
    }
}

const WORDS: [&str; 4] = ["off", "json", "combined", "extended"];

const FORMS: &str = "write off, json, combined, extended or {format: …, to: …, sample: …}";

impl Decode for RawAccessLog {
    fn decode(node: &YamlNode, report: &mut Report) -> Option<Self> {
        match &node.value {
            YamlValue::Scalar { text, .. } if !node.value.is_null() => match text.as_str() {
                "off" => Some(Self::Off),
                "json" => Some(Self::to_stdout(AccessLogFormat::Json)),
                "combined" => Some(Self::to_stdout(AccessLogFormat::Combined)),
                "extended" => Some(Self::to_stdout(AccessLogFormat::Extended)),
                _ => {
                    report.mistake(&node.location, unknown(text, &WORDS));
                    None
                }
            },
            YamlValue::Map(_) => {
                let raw = RawAccessLogOptions::decode(node, report)?;
                let (format, to, sample) = (raw.format.value(), raw.to.value(), raw.sample.value());
                Some(Self::On(AccessLogSpec {
                    format: format?,
                    to: to?,
                    sample: sample?,
                }))
            }
            _ => {
                mismatch(node, "an access log", Some(FORMS), report);
                None
            }
        }
    }

    fn schema(definitions: &mut SchemaDefinitions) -> Json {
        json!({ "anyOf": [{ "enum": WORDS }, RawAccessLogOptions::schema(definitions)] })
    }
}

impl RawAccessLog {
    fn to_stdout(format: AccessLogFormat) -> Self {
        Self::On(AccessLogSpec {
            format,
            to: LogDestination::Stdout,
            sample: Rollout::ALL,
        })
    }

    /// `None`: off.
    pub fn spec(&self) -> Option<AccessLogSpec> {
        match self {
            Self::Off => None,
            Self::On(spec) => Some(spec.clone()),
        }
    }
}

words! {
    AccessLogFormat: "json, combined or extended" { "json" => Json, "combined" => Combined, "extended" => Extended }
}
