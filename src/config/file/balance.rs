//! `endpoints` and `balance` of an upstream: its servers, and which of them is next.

use serde_json::{Value as Json, json};
use tollgate_limiter::limit::key::KeyPart;

use super::limit::key::{CookieName, RawKey};
use super::scalar::number::{BoundedDuration, WholeNumber};
use crate::config::report::{Report, ValueProblem};
use crate::config::yaml::decode::{Decode, Located, Scalar, SchemaDefinitions, mismatch, only_one};
use crate::config::yaml::node::{YamlNode, YamlValue};
use crate::config::yaml::record::record;
use crate::config::yaml::words::unknown;
use crate::upstream::Balance;
use crate::upstream::url::EndpointUrl;

/// An endpoint: its URL alone, or with more.
pub struct RawEndpoint {
    pub url: Located<EndpointUrl>,
    pub weight: u64,
    pub backup: bool,
}

record! {
    /// An endpoint with its part among the others.
    RawEndpointOptions {
        /// Where it is.
        required url: Located<EndpointUrl>,
        /// Its share of the requests beside those of others.
        default(1) weight: Located<WholeNumber<1, 1000>>,
        /// It gets requests only while no other endpoint is in service.
        default(false) backup: Located<bool>,
    }
}

/// How the next endpoint is chosen.
pub enum RawBalance {
    /// A way without settings.
    Word(Balance),
    Hash(RawKey),
    Cookie(Box<RawStickyCookie>),
}

record! {
    /// How requests that belong together go to one endpoint. Exactly one of these keys.
    RawAffinity at location {
        /// By parts of the request, as in the key of a limit.
        optional hash: RawKey,
        /// By a cookie of the gateway's.
        optional cookie: RawStickyCookie,
    }
}

record! {
    /// The cookie by which clients stay with an endpoint.
    RawStickyCookie {
        /// The cookie's name.
        required name: Located<CookieName>,
        /// Signs it. All gateways of an upstream need one secret.
        required secret: Located<StickySecret>,
        /// How long clients keep it. Default: until they are closed.
        optional ttl: Located<BoundedDuration<31_536_000_000, 1000>>,
        /// Clients send it over TLS only.
        default(false) secure: Located<bool>,
    }
}

/// A secret of 16 characters or more.
#[derive(Clone)]
pub struct StickySecret(pub std::sync::Arc<str>);

impl Decode for RawEndpoint {
    fn decode(node: &YamlNode, report: &mut Report) -> Option<Self> {
        if !matches!(node.value, YamlValue::Map(_)) {
            return Located::decode(node, report).map(|url| Self {
                url,
                weight: 1,
                backup: false,
            });
        }
        let options = RawEndpointOptions::decode(node, report)?;
        let (weight, backup) = (options.weight.value(), options.backup.value());
        let url = options.url.take(Some)??;
        Some(Self {
            url,
            weight: weight?.0,
            backup: backup?,
        })
    }

    fn schema(definitions: &mut SchemaDefinitions) -> Json {
        json!({ "anyOf": [Located::<EndpointUrl>::schema(definitions), RawEndpointOptions::schema(definitions)] })
    }
}

impl Decode for RawBalance {
    fn decode(node: &YamlNode, report: &mut Report) -> Option<Self> {
        match &node.value {
            YamlValue::Scalar { text, .. } if !node.value.is_null() => {
                let known = Balance::WORDS.iter().find(|(word, _)| word == text);
                let Some((_, balance)) = known else {
                    report.mistake(&node.location, unknown(text, &words()));
                    return None;
                };
                Some(Self::Word(balance.clone()))
            }
            YamlValue::Map(_) => RawAffinity::decode(node, report)?.choose(report),
            _ => {
                mismatch(node, "a way of balancing", Some(&forms()), report);
                None
            }
        }
    }

    fn schema(definitions: &mut SchemaDefinitions) -> Json {
        json!({ "anyOf": [{ "enum": words() }, RawAffinity::schema(definitions)] })
    }
}

/// The words of ways without settings.
fn words() -> Vec<&'static str> {
    Balance::WORDS.iter().map(|(word, _)| *word).collect()
}

/// The forms of a way, as a hint.
fn forms() -> String {
    format!("write {}, {{hash: …}} or {{cookie: …}}", words().join(", "))
}

impl RawAffinity {
    fn choose(self, report: &mut Report) -> Option<RawBalance> {
        let parts = self.hash.valid().and_then(RawKey::parts);
        if parts
            .iter()
            .flatten()
            .any(|part| matches!(part, KeyPart::Body(_)))
        {
            let problem = ValueProblem::new("only the keys of limits read the body");
            report.mistake(
                &self.location,
                problem.hint("hash a part of the request's head, such as {header: x-tenant}"),
            );
            return None;
        }
        let options = [
            self.hash.take(|key| Some(RawBalance::Hash(key))),
            self.cookie
                .take(|cookie| Some(RawBalance::Cookie(Box::new(cookie)))),
        ];
        only_one(options).unwrap_or_else(|_| {
            let problem =
                ValueProblem::new("requests go to an endpoint by exactly one of hash and cookie");
            report.mistake(&self.location, problem.hint(forms()));
            None
        })
    }
}

impl Scalar for StickySecret {
    const WHAT: &'static str = "a secret";

    /// Not quoted in the mistake.
    fn read(text: &str) -> Result<Self, ValueProblem> {
        if text.len() < 16 {
            let problem = ValueProblem::new("the secret is too short");
            return Err(problem.hint("take 16 characters or more: openssl rand -hex 16"));
        }
        Ok(Self(text.into()))
    }

    fn schema() -> Json {
        json!({ "type": "string", "minLength": 4 })
    }
}
