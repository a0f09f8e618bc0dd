//! `access_log`: a word, or the format, the sample and the destination of its lines.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::{Value as Json, json};
use tollgate_limiter::limit::rollout::Rollout;

use crate::report::{Report, ValueProblem, quote};
use crate::scalar::address::{is_dns_name, socket_path};
use crate::yaml::decode::{Decode, Located, Scalar, SchemaDefinitions, mismatch};
use crate::yaml::node::{YamlNode, YamlValue};
use crate::yaml::record::record;
use crate::yaml::words::{Words, unknown, words};
use tollgate_spec::access_log::{AccessLogFormat, AccessLogSpec, LineReceiver, LogDestination};

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

/// The word for no access log. Any other word is a format.
const OFF: &str = "off";

/// All words: that for no access log, and the formats.
fn all_words() -> Vec<&'static str> {
    let mut words = vec![OFF];
    words.extend(AccessLogFormat::WORDS);
    words
}

impl Decode for RawAccessLog {
    fn decode(node: &YamlNode, report: &mut Report) -> Option<Self> {
        match &node.value {
            YamlValue::Scalar { text, .. } if !node.value.is_null() => {
                if text == OFF {
                    return Some(Self::Off);
                }
                if let Ok(format) = AccessLogFormat::read(text) {
                    return Some(Self::to_stdout(format));
                }
                report.mistake(&node.location, unknown(text, &all_words()));
                None
            }
            YamlValue::Map(_) => {
                let raw = RawAccessLogOptions::decode(node, report)?;
                Some(Self::On(AccessLogSpec {
                    format: raw.format.value()?,
                    to: raw.to.value()?,
                    sample: raw.sample.value()?,
                }))
            }
            _ => {
                let words = all_words().join(", ");
                let hint = format!("write {words} or {{format: …, to: …, sample: …}}");
                mismatch(node, "an access log", Some(&hint), report);
                None
            }
        }
    }

    fn schema(definitions: &mut SchemaDefinitions) -> Json {
        json!({ "anyOf": [{ "enum": all_words() }, RawAccessLogOptions::schema(definitions)] })
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

const DESTINATION_FORMS: &str = "write stdout, stderr, /var/log/tollgate/access.log, unix:/dev/log, udp://syslog.example:514 or tcp://192.0.2.1:5170";

impl Scalar for LogDestination {
    const WHAT: &'static str = "a destination of lines";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        match text.split_once(':') {
            None if text == "stdout" => Ok(Self::Stdout),
            None if text == "stderr" => Ok(Self::Stderr),
            Some(("unix", path)) => {
                socket_path(path, "unix:/dev/log").map(|path| Self::SyslogUnix(path.to_owned()))
            }
            Some(("udp", rest)) => receiver(text, rest).map(Self::SyslogUdp),
            Some(("tcp", rest)) => receiver(text, rest).map(Self::Tcp),
            _ if text.starts_with('/') && !text.ends_with('/') => {
                Ok(Self::File(Path::new(text).to_owned()))
            }
            _ => Err(
                ValueProblem::new(format!("{} is not a destination of lines", quote(text)))
                    .hint(DESTINATION_FORMS),
            ),
        }
    }

    fn schema() -> Json {
        json!({ "type": "string", "minLength": 1 })
    }
}

/// The host and the port behind the scheme of `text`.
fn receiver(text: &str, rest: &str) -> Result<LineReceiver, ValueProblem> {
    let receiver = rest.strip_prefix("//").and_then(read_receiver);
    receiver.ok_or_else(|| {
        ValueProblem::new(format!("{} has no host and port", quote(text))).hint(
            "write udp://syslog.example:514, tcp://192.0.2.1:5170 or tcp://[2001:db8::1]:5170",
        )
    })
}

fn read_receiver(text: &str) -> Option<LineReceiver> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return if address.port() > 0 {
            Some(LineReceiver::Address(address))
        } else {
            None
        };
    }
    let (host, port) = text.rsplit_once(':')?;
    let port: u16 = port.parse().ok()?;
    // A name that ends in a number is an address with a mistake.
    let is_numeric = host
        .trim_end_matches('.')
        .rsplit('.')
        .next()?
        .bytes()
        .all(|byte| byte.is_ascii_digit());
    if port == 0 || is_numeric || !is_dns_name(host) {
        return None;
    }
    Some(LineReceiver::Name {
        host: host.into(),
        port,
    })
}
