//! Authenticators, and the routes that use them. `basic` checks what is written of passwords,
//! `forward` of a service that is asked, `header_place` the fields that may have credentials, `jwt`
//! what tokens must say, `keys` a file of API keys, `users` a file of users; `usage` what goes by
//! an identity where nobody has one.

mod basic;
mod forward;
mod header_place;
mod jwt;
pub mod keys;
pub mod usage;
pub mod users;

use std::sync::Arc;

use self::header_place::field;
use super::named::NamedSection;
use crate::config::file::identity::{RawApiKeys, RawAuthenticator, RawStoredKeys};
use crate::config::file::scalar::text::{DefinedName, PlainText};
use crate::config::report::{Location, Report, ValueProblem, quote};
use crate::config::yaml::decode::{Located, only_one};
use crate::identity::api_key::spec::{ApiKeySource, ApiKeySpec, StoredKeySpec};
use crate::identity::credential::CredentialPlace;
use crate::identity::spec::{AuthenticationMethod, AuthenticatorSpec};
use crate::upstream::UpstreamSpec;

/// The parts of the file that an authenticator may use.
#[derive(Clone, Copy)]
pub struct AuthenticatorContext<'a> {
    pub upstreams: &'a NamedSection<UpstreamSpec>,
    /// Whether the file names a store.
    pub has_store: bool,
    /// Whether it names a database of policies.
    pub has_policies: bool,
}

/// An authenticator. `None`: a mistake was reported.
pub fn build(
    name: &DefinedName,
    raw: &RawAuthenticator,
    context: AuthenticatorContext<'_>,
    report: &mut Report,
) -> Option<AuthenticatorSpec> {
    let methods = [
        raw.api_key
            .build(|raw| api_key(raw, context, report))
            .map(|method| method.map(AuthenticationMethod::ApiKey)),
        raw.basic
            .build(|raw| basic::basic(raw, report))
            .map(|method| method.map(AuthenticationMethod::Basic)),
        raw.forward
            .build(|raw| forward::forward(raw, context.upstreams, report))
            .map(|method| method.map(Arc::new).map(AuthenticationMethod::Forward)),
        raw.jwt
            .build(|raw| jwt::jwt(raw, report))
            .map(|method| method.map(Box::new).map(AuthenticationMethod::Jwt)),
        raw.client_certificate
            .build(|part| Some(AuthenticationMethod::ClientCertificate(part.value))),
    ];
    let method = only_one(methods).unwrap_or_else(|_| {
        let problem = ValueProblem::new(
            "an authenticator has exactly one method: api_key, basic, forward, jwt or client_certificate",
        );
        report.mistake(
            &raw.location,
            problem.hint("give each method an authenticator of its own, and list several at routes"),
        );
        None
    });
    let forward_credential = raw.forward_credential.value();
    Some(AuthenticatorSpec {
        name: name.0.clone(),
        method: method?,
        forward_credential: forward_credential?,
    })
}

fn api_key(
    raw: &RawApiKeys,
    context: AuthenticatorContext<'_>,
    report: &mut Report,
) -> Option<ApiKeySpec> {
    let places = [
        raw.header
            .build(|name| field(name, report).map(CredentialPlace::Header)),
        raw.query
            .build(|name| parameter(name, report).map(CredentialPlace::Query)),
        raw.cookie
            .build(|name| Some(CredentialPlace::Cookie(name.value.0.clone()))),
    ];
    let place = only_one(places).unwrap_or_else(|_| {
        let problem = ValueProblem::new("a key is in exactly one of header, query and cookie");
        report.mistake(
            &raw.location,
            problem.hint("write {header: x-api-key, keys: /etc/tollgate/keys.yaml}"),
        );
        None
    });
    let sources = [
        raw.keys
            .build(|file| Some(ApiKeySource::File(file.value.0.clone()))),
        raw.redis
            .build(|raw| stored(raw, context, report))
            .map(|spec| spec.map(ApiKeySource::Redis)),
        raw.policies
            .build(|at| of_policies(&at.location, context, report)),
    ];
    let keys = only_one(sources).unwrap_or_else(|_| {
        let problem = ValueProblem::new(
            "keys are in exactly one of \"keys\", a file, \"redis\" and \"policies\"",
        );
        report.mistake(
            &raw.location,
            problem.hint("write {header: x-api-key, keys: /etc/tollgate/keys.yaml}"),
        );
        None
    });
    Some(ApiKeySpec {
        place: place?,
        keys: keys?,
    })
}

fn of_policies(
    at: &Location,
    context: AuthenticatorContext<'_>,
    report: &mut Report,
) -> Option<ApiKeySource> {
    if context.has_policies {
        return Some(ApiKeySource::Policies);
    }
    let problem =
        ValueProblem::new("the keys are in policies, but the file has no database of them");
    report.mistake(
        at,
        problem.hint("add policies: {database: \"sqlite:///…\"}, or write the keys into a file"),
    );
    None
}

fn stored(
    raw: &RawStoredKeys,
    context: AuthenticatorContext<'_>,
    report: &mut Report,
) -> Option<StoredKeySpec> {
    if !context.has_store {
        let problem = ValueProblem::new("the keys are in Redis, but the file has no store");
        report.mistake(
            &raw.location,
            problem.hint("add store: {redis: \"redis://…\"}, or write the keys into a file"),
        );
    }
    let failed_attempts = basic::failed_attempts(&raw.failed_attempts, report);
    let (hash, remember, grace) = (raw.hash.value(), raw.remember.value(), raw.grace.value());
    Some(StoredKeySpec {
        hash: hash?.0,
        remember: remember?.0,
        grace: grace?.0,
        failed_attempts: failed_attempts?,
    })
}

/// The query parameter of a key. `None`: a mistake was reported.
fn parameter(at: &Located<PlainText>, report: &mut Report) -> Option<Arc<str>> {
    if !at.value.0.is_empty() {
        return Some(at.value.0.clone());
    }
    let problem = ValueProblem::new("the name is empty");
    report.mistake(
        &at.location,
        problem.hint("write the name of a query parameter, such as api_key"),
    );
    None
}

/// The names of the authenticators in a list. `None`: a mistake was reported.
pub fn listed(
    names: &[Located<DefinedName>],
    authenticators: &NamedSection<AuthenticatorSpec>,
    report: &mut Report,
) -> Option<Vec<Arc<str>>> {
    let mut found: Vec<Arc<str>> = Vec::new();
    let mut sound = true;
    let mut decides: Option<Arc<str>> = None;
    for name in names {
        if found.contains(&name.value.0) {
            let problem = ValueProblem::new(format!("{} is listed twice", quote(&name.value.0)));
            report.mistake(&name.location, problem.hint("list each authenticator once"));
        }
        let named = authenticators.find(name, report);
        sound &= named.is_some();
        if let Some(before) = &decides {
            let problem = ValueProblem::new(format!(
                "{} is never asked: {} before it decides about every request",
                quote(&name.value.0),
                quote(before)
            ));
            report.warning(
                &name.location,
                problem.hint("list an authenticator with \"forward\" last"),
            );
        }
        if named.is_some_and(|spec| matches!(spec.method, AuthenticationMethod::Forward(_))) {
            decides = decides.or(Some(name.value.0.clone()));
        }
        found.push(name.value.0.clone());
    }
    sound.then_some(found)
}
