//! `authenticators`: ways in which clients say who they are.

use std::sync::Arc;

use tollgate_limiter::limit::key::CertificatePart;

use crate::report::{Report, ValueProblem, quote};
use crate::scalar::text::DefinedName;
use crate::section::authenticator::api_key::{KeySources, RawApiKeys, api_key};
use crate::section::authenticator::basic::{RawBasic, basic};
use crate::section::authenticator::forward::{RawForwardAuth, forward};
use crate::section::authenticator::jwt::{RawJwt, jwt};
use crate::section::common::named::NamedSection;
use crate::yaml::decode::{Located, only_one};
use crate::yaml::record::record;
use tollgate_identity::spec::{AuthenticationMethod, AuthenticatorSpec};
use tollgate_proxy::upstream::UpstreamSpec;

record! {
    /// A way in which clients say who they are. Exactly one of its methods.
    RawAuthenticator at location {
        /// By an API key, whose hash a file has.
        optional api_key: RawApiKeys,
        /// By a user name and a password.
        optional basic: RawBasic,
        /// By a service that is asked about each request.
        optional forward: RawForwardAuth,
        /// By a token of an issuer.
        optional jwt: RawJwt,
        /// By a part of its certificate: subject, san or fingerprint.
        optional client_certificate: Located<CertificatePart>,
        /// Whether the upstream gets the credential too.
        default(false) forward_credential: Located<bool>,
    }
}

/// The parts of the file that an authenticator may use.
#[derive(Clone, Copy)]
pub struct AuthenticatorContext<'a> {
    pub upstreams: &'a NamedSection<UpstreamSpec>,
    pub sources: KeySources,
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
            .build(|raw| api_key(raw, context.sources, report).map(AuthenticationMethod::ApiKey)),
        raw.basic
            .build(|raw| basic(raw, report).map(AuthenticationMethod::Basic)),
        raw.forward.build(|raw| {
            let spec = forward(raw, context.upstreams, report)?;
            Some(AuthenticationMethod::Forward(Arc::new(spec)))
        }),
        raw.jwt.build(|raw| {
            let spec = jwt(raw, report)?;
            Some(AuthenticationMethod::Jwt(Box::new(spec)))
        }),
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
        if let Some(spec) = named
            && matches!(spec.method, AuthenticationMethod::Forward(_))
            && decides.is_none()
        {
            decides = Some(name.value.0.clone());
        }
        found.push(name.value.0.clone());
    }
    if sound { Some(found) } else { None }
}
