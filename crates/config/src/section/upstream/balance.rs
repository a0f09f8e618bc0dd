//! `balance` of an upstream: which of its endpoints is next, and ways that are probably not meant.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Value as Json, json};
use tollgate_limiter::limit::key::KeyPart;

use crate::report::{Location, Report, ValueProblem, quote};
use crate::scalar::number::BoundedDuration;
use crate::section::limit::key::{CookieName, RawKey, part_of_identity};
use crate::section::listener::serving::{IdentifiedRequests, ServingListeners};
use crate::yaml::decode::{Decode, Located, Scalar, SchemaDefinitions, mismatch, only_one};
use crate::yaml::node::{YamlNode, YamlValue};
use crate::yaml::record::record;
use crate::yaml::words::unknown;
use tollgate_proxy::upstream::Balance;
use tollgate_proxy::upstream::affinity::StickyCookie;
use tollgate_spec::route::Route;

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

/// The words of ways without settings.
fn words() -> Vec<&'static str> {
    Balance::WORDS.iter().map(|(word, _)| *word).collect()
}

/// The forms of a way, as a hint.
fn all_forms() -> String {
    format!("write {}, {{hash: …}} or {{cookie: …}}", words().join(", "))
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
                mismatch(node, "a way of balancing", Some(&all_forms()), report);
                None
            }
        }
    }

    fn schema(definitions: &mut SchemaDefinitions) -> Json {
        json!({ "anyOf": [{ "enum": words() }, RawAffinity::schema(definitions)] })
    }
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
            report.mistake(&self.location, problem.hint(all_forms()));
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

/// How the next endpoint is chosen. `None`: a mistake was reported.
pub fn balance(raw: &RawBalance) -> Option<Balance> {
    Some(match raw {
        RawBalance::Word(balance) => balance.clone(),
        RawBalance::Hash(key) => Balance::Hash(key.parts()?.into()),
        RawBalance::Cookie(cookie) => Balance::Sticky(StickyCookie {
            name: cookie.name.value()?.0,
            ttl: cookie.ttl.build(|at| Some(at.value.0))?,
            secure: cookie.secure.value()?,
            secret: cookie.secret.value()?.0,
        }),
    })
}

/// The balancing of an upstream, with its name and its location.
pub struct BalancedUpstream<'a> {
    pub name: &'a str,
    pub location: &'a Location,
    pub balance: &'a RawBalance,
}

/// Warns of upstreams that share a cookie: an answer from one takes its client away from the
/// endpoint of the other.
pub fn warn_of_shared_cookies(upstreams: &[BalancedUpstream<'_>], report: &mut Report) {
    let mut known: HashMap<Arc<str>, (&str, &Location)> = HashMap::new();
    for BalancedUpstream { name, balance, .. } in upstreams {
        let RawBalance::Cookie(cookie) = balance else {
            continue;
        };
        let Some(at) = cookie.name.valid() else {
            continue;
        };
        match known.get(&at.value.0) {
            None => drop(known.insert(at.value.0.clone(), (name, &at.location))),
            Some((other, first)) => {
                let problem = ValueProblem::new(format!(
                    "upstream {} has a cookie called {} too, on {}: clients of both stay with neither",
                    quote(other),
                    quote(&at.value.0),
                    first.line_beside(&at.location)
                ));
                report.warning(
                    &at.location,
                    problem.hint("give the cookie of each upstream a name of its own"),
                );
            }
        }
    }
}

/// Warns of upstreams that balance by identity, on routes whose requests have none.
pub fn warn_of_unknown_clients(
    upstreams: &[BalancedUpstream<'_>],
    serving: &ServingListeners<'_>,
    routes: &[Arc<Route>],
    report: &mut Report,
) {
    for upstream in upstreams {
        let RawBalance::Hash(key) = upstream.balance else {
            continue;
        };
        let parts = key.parts().unwrap_or_default();
        let Some(part) = part_of_identity(&parts) else {
            continue;
        };
        let route = routes.iter().find(|route| {
            serving.identified_on(route) == IdentifiedRequests::None
                && route
                    .action
                    .upstreams()
                    .iter()
                    .any(|name| ***name == *upstream.name)
        });
        if let Some(route) = route {
            let problem = ValueProblem::new(format!(
                "the endpoint goes by {part}, and route {} authenticates nobody: its requests go to any",
                quote(&route.name)
            ));
            report.warning(
                upstream.location,
                problem.hint("add \"authenticate\" to the route, or balance by another part"),
            );
        }
    }
}
