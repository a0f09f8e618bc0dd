//! Authenticators, and the routes that use them. `basic` checks what is written of passwords, `keys` a
//! file of API keys, `users` a file of users.

mod basic;
pub mod keys;
pub mod users;

use std::sync::Arc;

use tollgate_limiter::limit::definition::Limit;
use tollgate_limiter::limit::key::KeyPart;

use super::limit::usage::CheckedUse;
use super::named::NamedSection;
use crate::config::file::identity::{RawApiKeys, RawAuthenticator};
use crate::config::file::scalar::text::DefinedName;
use crate::config::report::{Report, ValueProblem, quote};
use crate::config::yaml::collection::NonEmptyList;
use crate::config::yaml::decode::{Located, Setting, only_one};
use crate::identity::credential::CredentialPlace;
use crate::identity::spec::{ApiKeySpec, AuthenticationMethod, AuthenticatorSpec};
use crate::route::template::Template;

/// An authenticator. `None`: a mistake was reported.
pub fn build(name: &DefinedName, raw: &RawAuthenticator, report: &mut Report) -> Option<AuthenticatorSpec> {
    let methods = [
        raw.api_key.build(|raw| api_key(raw, report)).map(|method| method.map(AuthenticationMethod::ApiKey)),
        raw.basic.build(|raw| basic::basic(raw, report)).map(|method| method.map(AuthenticationMethod::Basic)),
        raw.client_certificate.build(|part| Some(AuthenticationMethod::ClientCertificate(part.value))),
    ];
    let method = only_one(methods).unwrap_or_else(|_| {
        let problem =
            ValueProblem::new("an authenticator has exactly one method: api_key, basic or client_certificate");
        report.mistake(
            &raw.location,
            problem.hint("give each method an authenticator of its own, and list several at routes"),
        );
        None
    });
    let forward_credential = raw.forward_credential.value();
    Some(AuthenticatorSpec { name: name.0.clone(), method: method?, forward_credential: forward_credential? })
}

fn api_key(raw: &RawApiKeys, report: &mut Report) -> Option<ApiKeySpec> {
    let places = [
        raw.header.build(|name| Some(CredentialPlace::Header(name.value.clone()))),
        raw.query.build(|name| Some(CredentialPlace::Query(name.value.0.clone()))),
        raw.cookie.build(|name| Some(CredentialPlace::Cookie(name.value.0.clone()))),
    ];
    let place = only_one(places).unwrap_or_else(|_| {
        let problem = ValueProblem::new("a key is in exactly one of header, query and cookie");
        report.mistake(&raw.location, problem.hint("write {header: x-api-key, keys: /etc/tollgate/keys.yaml}"));
        None
    });
    let keys = raw.keys.value();
    Some(ApiKeySpec { place: place?, keys: keys?.0 })
}

/// The names of the authenticators that a route lists. `None`: a mistake was reported.
pub fn listed(
    setting: &Setting<NonEmptyList<Located<DefinedName>>>,
    authenticators: &NamedSection<AuthenticatorSpec>,
    report: &mut Report,
) -> Option<Vec<Arc<str>>> {
    let listed = setting.build(|names| {
        let mut found: Vec<Arc<str>> = Vec::new();
        let mut sound = true;
        for name in &names.0 {
            if found.contains(&name.value.0) {
                let problem = ValueProblem::new(format!("{} is listed twice", quote(&name.value.0)));
                report.mistake(&name.location, problem.hint("list each authenticator once"));
            }
            sound &= authenticators.find(name, report).is_some();
            found.push(name.value.0.clone());
        }
        sound.then_some(found)
    });
    listed.map(Option::unwrap_or_default)
}

/// Reports a limit that counts by an identity, where nobody has one: all requests would share a bucket.
pub fn check_limit(used: &CheckedUse, place: &str, report: &mut Report) {
    let limit: &Limit = &used.limit_use.limit;
    let parts = limit.key.parts.iter().chain(limit.plans.iter().map(|plans| &plans.by));
    let part = parts.into_iter().find_map(|part| match part {
        KeyPart::Identity(part) => Some(part.name()),
        _ => None,
    });
    if let Some(part) = part {
        let problem = ValueProblem::new(format!(
            "limit {} counts by {part}, and {place} authenticates nobody",
            quote(&limit.name)
        ));
        report.mistake(&used.location, problem.hint("add \"authenticate\" to the route, and list the limit there"));
    }
}

/// Reports a text with a variable of an identity, where nobody has one.
pub fn check_template(at: &Located<Template>, report: &mut Report) {
    if let Some(variable) = at.value.variables().find(|variable| variable.is_of_identity()) {
        let problem = ValueProblem::new(format!("{{{variable}}} is always empty: the route authenticates nobody"));
        report.mistake(&at.location, problem.hint("add \"authenticate\" to the route"));
    }
}
