//! `jwt` of an authenticator: a set of keys that can be fetched, and algorithms that fit its
//! origin.

use http::Uri;
use jsonwebtoken::Algorithm;

use crate::config::check::identity::header_place::field;
use crate::config::check::store::pem;
use crate::config::file::identity::jwt::{KeySetPlace, RawJwt};
use crate::config::file::scalar::text::PlainText;
use crate::config::report::{Report, ValueProblem};
use crate::config::yaml::collection::NonEmptyList;
use crate::config::yaml::decode::{Located, Setting};
use crate::identity::credential::CredentialPlace;
use crate::identity::jwt::algorithm::{ALGORITHMS, is_symmetric};
use crate::identity::jwt::spec::{JwtSpec, KeySetSource, KeySetUrl};
use crate::transport::tls::client::{ClientTls, ClientTlsSpec, PeerName};

/// Builds the rules that tokens are checked by. `None`: a mistake was reported.
pub fn jwt(raw: &RawJwt, report: &mut Report) -> Option<JwtSpec> {
    let keys = keys(raw, report);
    let algorithms = algorithms(raw, report);
    let place = place(raw, report);
    let issuer = raw.issuer.valid().and_then(|at| {
        not_empty(
            at,
            "the issuer is empty",
            "write what its tokens say in iss, such as https://id.example.com",
            report,
        )
    });
    let audience = raw.audience.build(|audience| {
        let hint = "write what tokens say in aud, or remove the key if they say nothing";
        (audience.0.iter())
            .map(|at| not_empty(at, "an audience is empty", hint, report))
            .collect::<Option<Vec<_>>>()
    });
    let scopes = raw
        .scopes
        .build(|scopes: &NonEmptyList<_>| Some(texts(&scopes.0)));
    let plan = raw.plan.build(|claim| Some(claim.value.0.to_string()));
    Some(JwtSpec {
        place: place?,
        issuer: issuer?,
        audience: audience?.unwrap_or_default(),
        algorithms: algorithms?,
        leeway: raw.leeway.value()?.0,
        id: raw.id.value()?.0.to_string(),
        plan: plan?,
        scopes: scopes?.unwrap_or_default(),
        max_token: usize::try_from(raw.max_token.value()?.0).unwrap_or(usize::MAX),
        cached_tokens: raw.cached_tokens.value()?.count().get(),
        keys: keys?,
    })
}

/// A text that tokens must have. `None`: a mistake was reported.
fn not_empty(
    at: &Located<PlainText>,
    problem: &str,
    hint: &str,
    report: &mut Report,
) -> Option<String> {
    if at.value.0.is_empty() {
        report.mistake(&at.location, ValueProblem::new(problem).hint(hint));
        return None;
    }
    Some(at.value.0.to_string())
}

fn texts(list: &[Located<PlainText>]) -> Vec<String> {
    list.iter().map(|at| at.value.0.to_string()).collect()
}

fn place(raw: &RawJwt, report: &mut Report) -> Option<CredentialPlace> {
    if let (Setting::Valid(_), Setting::Valid(cookie)) = (&raw.header, &raw.cookie) {
        let problem = ValueProblem::new("a token is in a header field or in a cookie");
        report.mistake(
            &cookie.location,
            problem.hint("keep one of header and cookie"),
        );
        return None;
    }
    let header = raw
        .header
        .build(|name| field(name, report).map(CredentialPlace::Header));
    let cookie = raw
        .cookie
        .build(|name| Some(CredentialPlace::Cookie(name.value.0.clone())));
    Some(
        header?
            .or(cookie?)
            .unwrap_or(CredentialPlace::Scheme("Bearer")),
    )
}

/// An HMAC is taken only where it is asked for, and never by what a URL says: anyone could read
/// that.
fn algorithms(raw: &RawJwt, report: &mut Report) -> Option<Vec<Algorithm>> {
    let named = raw.algorithms.build(|named| {
        let is_url = matches!(raw.jwks.value(), Some(KeySetPlace::Url(_)));
        let symmetric = named.0.iter().find(|at| is_symmetric(at.value));
        if let Some(at) = symmetric.filter(|_| is_url) {
            let problem = ValueProblem::new("anyone who can read the URL could sign such tokens");
            report.mistake(
                &at.location,
                problem.hint("put the secret into a file, and give its path under jwks"),
            );
            return None;
        }
        Some(named.0.iter().map(|at| at.value).collect())
    });
    let public = || {
        ALGORITHMS
            .iter()
            .map(|(_, one)| *one)
            .filter(|one| !is_symmetric(*one))
            .collect()
    };
    named.map(|named| named.unwrap_or_else(public))
}

fn keys(raw: &RawJwt, report: &mut Report) -> Option<KeySetSource> {
    let at = raw.jwks.valid()?;
    match &at.value {
        KeySetPlace::File(path) => {
            check_unused(raw, report);
            Some(KeySetSource::File(path.0.clone()))
        }
        KeySetPlace::Url(uri) => url(raw, at, uri, report)
            .map(Box::new)
            .map(KeySetSource::Url),
    }
}

/// Reports authorities that verify nothing: the keys would come in the clear by mistake.
fn check_unused(raw: &RawJwt, report: &mut Report) {
    if let Some(ca) = raw.ca.valid() {
        let problem = ValueProblem::new("only an https:// URL has a certificate to verify");
        report.mistake(
            &ca.location,
            problem.hint("write jwks: https://…, or remove ca"),
        );
    }
}

fn url(
    raw: &RawJwt,
    at: &Located<KeySetPlace>,
    uri: &Uri,
    report: &mut Report,
) -> Option<KeySetUrl> {
    let host = uri
        .host()?
        .trim_start_matches('[')
        .trim_end_matches(']')
        .to_owned();
    let is_secure = uri.scheme_str() == Some("https");
    let tls = if is_secure {
        Some(tls(raw, at, &host, report)?)
    } else {
        let problem = ValueProblem::new(
            "the keys are fetched in the clear: anybody on the way can make tokens",
        );
        report.warning(&at.location, problem.hint("write https://"));
        check_unused(raw, report);
        None
    };
    check_times(raw, report)?;
    Some(KeySetUrl {
        port: uri.port_u16().unwrap_or(if is_secure { 443 } else { 80 }),
        host,
        target: uri
            .path_and_query()
            .map_or("/", |target| target.as_str())
            .to_owned(),
        authority: uri.authority()?.to_string(),
        tls,
        refresh: raw.refresh.value()?.0,
        stale: raw.stale.value()?.0,
        timeout: raw.timeout.value()?.0,
    })
}

/// Keys that are too old before they are fetched again verify nothing. `None`: a mistake was
/// reported.
fn check_times(raw: &RawJwt, report: &mut Report) -> Option<()> {
    let (stale, refresh) = (raw.stale.valid()?, raw.refresh.valid()?);
    if stale.value.0 >= refresh.value.0 {
        return Some(());
    }
    let problem = ValueProblem::new(
        "the keys would be too old before they are fetched again: \"stale\" is shorter than \"refresh\"",
    );
    report.mistake(
        &stale.location,
        problem.hint("make it several times as long as \"refresh\", such as stale: 24h"),
    );
    None
}

fn tls(
    raw: &RawJwt,
    at: &Located<KeySetPlace>,
    host: &str,
    report: &mut Report,
) -> Option<(ClientTls, PeerName)> {
    let ca = raw.ca.build(|path| pem(path, report))?;
    let Some(name) = PeerName::of(host) else {
        let problem = ValueProblem::new("its certificate has no name that could be verified");
        report.mistake(
            &at.location,
            problem.hint("write a host name or an IP address"),
        );
        return None;
    };
    let location = raw.ca.valid().map_or(&at.location, |ca| &ca.location);
    let tls = ClientTls::new(ClientTlsSpec {
        ca: ca.map(Into::into),
        ..ClientTlsSpec::default()
    });
    let tls = tls.map_err(|error| {
        let problem = ValueProblem::new(format!("no certificate can be verified: {error}"));
        report.mistake(
            location,
            problem.hint("give a PEM file of certificate authorities under ca"),
        );
    });
    Some((tls.ok()?, name))
}
