//! `jwt` of an authenticator: what a token must say, and where its issuer's keys are.

use crate::section::authenticator::credential_field::field;
use http::{HeaderName, Uri};
use jsonwebtoken::Algorithm;
use serde_json::{Value as Json, json};

use crate::report::{Report, ValueProblem, quote};
use crate::scalar::number::{BoundedDuration, ByteSize, DAY, WholeNumber};
use crate::scalar::path::FilePath;
use crate::scalar::pem::{PemPath, pem};
use crate::scalar::text::PlainText;
use crate::section::limit::key::CookieName;
use crate::yaml::collection::{NonEmptyList, OneOrMore};
use crate::yaml::decode::{Located, Scalar, Setting};
use crate::yaml::record::record;
use tollgate_identity::credential::CredentialPlace;
use tollgate_identity::jwt::algorithm::{ALGORITHMS, is_symmetric};
use tollgate_identity::jwt::spec::{JwtSpec, KeySetSource, KeySetUrl};
use tollgate_wire::transport::tls::client::{ClientTls, ClientTlsSpec, PeerName};

/// Milliseconds of the longest time without the issuer.
const MONTH: u64 = 30 * DAY;

record! {
    /// JSON Web Tokens of one issuer.
    RawJwt {
        /// The issuer, as its tokens say it in iss.
        required issuer: Located<PlainText>,
        /// Whom tokens must be for, as they say it in aud: any of these. Without it, tokens that
        /// are for somebody are refused.
        optional audience: OneOrMore<Located<PlainText>>,
        /// The keys of the issuer: a URL, or the path of a file. Both have a JSON Web Key Set.
        required jwks: Located<KeySetPlace>,
        /// Algorithms that tokens may be signed by. Default: all with public keys.
        optional algorithms: NonEmptyList<Located<Algorithm>>,
        /// How far the issuer's clock may be off.
        default("30s") leeway: Located<BoundedDuration<3_600_000, 0>>,
        /// The header field that has the token. Default: Authorization, with the scheme Bearer.
        optional header: Located<HeaderName>,
        /// The cookie that has the token.
        optional cookie: Located<CookieName>,
        /// The claim that is the client's id.
        default("sub") id: Located<PlainText>,
        /// The claim that is the client's plan.
        optional plan: Located<PlainText>,
        /// Scopes that a token needs; without one of them 403.
        optional scopes: NonEmptyList<Located<PlainText>>,
        /// A PEM file of the authorities that the URL's certificate may be of. Default: the
        /// system's.
        optional ca: Located<PemPath>,
        /// How often the keys are fetched again.
        default("10m") refresh: Located<BoundedDuration<DAY, 10_000>>,
        /// How long the keys are used while the issuer cannot be asked.
        default("24h") stale: Located<BoundedDuration<MONTH>>,
        /// For fetching the keys, and the longest that a request waits for them.
        default("5s") timeout: Located<BoundedDuration<60_000>>,
        /// Bytes of a token at most.
        default("8KiB") max_token: Located<ByteSize<128, 1_048_576>>,
        /// Verified tokens that are remembered until they expire.
        default(10_000) cached_tokens: Located<WholeNumber<16, 1_000_000>>,
    }
}

/// Where a set of keys is.
#[derive(Clone)]
pub enum KeySetPlace {
    Url(http::Uri),
    File(FilePath),
}

impl Scalar for KeySetPlace {
    const WHAT: &'static str = "a URL or the path of a file";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        if !text.contains("://") {
            return FilePath::read(text).map(Self::File);
        }
        let problem = ValueProblem::new("this is not a URL that keys can be fetched from")
            .hint("write https://id.example.com/jwks.json, without user and password");
        let Ok(uri) = text.parse::<http::Uri>() else {
            return Err(problem);
        };
        let Some(authority) = uri.authority() else {
            return Err(problem);
        };
        if !has_sound_port(authority) {
            return Err(ValueProblem::new("the URL has an invalid port")
                .hint("write 1 to 65535, or no port at all"));
        }
        let is_web = matches!(uri.scheme_str(), Some("https" | "http"));
        let has_user = authority.as_str().contains('@');
        if !is_web || has_user || authority.host().is_empty() {
            return Err(problem);
        }
        Ok(Self::Url(uri))
    }

    fn schema() -> Json {
        json!({ "type": "string" })
    }
}

/// Whether the authority has no port, or one that there is. The parser passes over a number that is
/// too large.
fn has_sound_port(authority: &http::uri::Authority) -> bool {
    let host_and_port = match authority.as_str().rsplit_once('@') {
        Some((_, behind)) => behind,
        None => authority.as_str(),
    };
    let behind_host = host_and_port.strip_prefix(authority.host());
    match behind_host.unwrap_or_default().strip_prefix(':') {
        Some(port) => port.parse().is_ok_and(|port: u16| port > 0),
        None => true,
    }
}

impl Scalar for Algorithm {
    const WHAT: &'static str = "an algorithm";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        for (name, algorithm) in ALGORITHMS {
            if name == text {
                return Ok(algorithm);
            }
        }
        let names = ALGORITHMS.map(|(name, _)| name).join(", ");
        let problem =
            ValueProblem::new(format!("{} is not an algorithm that is taken", quote(text)));
        Err(problem.hint(format!("one of {names}")))
    }

    fn schema() -> Json {
        json!({ "enum": ALGORITHMS.map(|(name, _)| name) })
    }
}

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

/// The algorithms that tokens may be signed by. An HMAC must be listed, and its secret must not be
/// at a URL, which anyone could read. `None`: a mistake was reported.
fn algorithms(raw: &RawJwt, report: &mut Report) -> Option<Vec<Algorithm>> {
    let named = raw.algorithms.build(|named| {
        let is_url = matches!(raw.jwks.value(), Some(KeySetPlace::Url(_)));
        let symmetric = named.0.iter().find(|at| is_symmetric(at.value));
        if let Some(at) = symmetric
            && is_url
        {
            let problem = ValueProblem::new("anyone who can read the URL could sign such tokens");
            report.mistake(
                &at.location,
                problem.hint("put the secret into a file, and give its path under jwks"),
            );
            return None;
        }
        Some(named.0.iter().map(|at| at.value).collect())
    });
    Some(named?.unwrap_or_else(asymmetric_algorithms))
}

/// The algorithms with public keys.
fn asymmetric_algorithms() -> Vec<Algorithm> {
    let mut public = Vec::new();
    for (_, algorithm) in ALGORITHMS {
        if !is_symmetric(algorithm) {
            public.push(algorithm);
        }
    }
    public
}

fn keys(raw: &RawJwt, report: &mut Report) -> Option<KeySetSource> {
    let at = raw.jwks.valid()?;
    match &at.value {
        KeySetPlace::File(path) => {
            check_unused(raw, report);
            Some(KeySetSource::File(path.0.clone()))
        }
        KeySetPlace::Url(uri) => {
            let url = url(raw, at, uri, report)?;
            Some(KeySetSource::Url(Box::new(url)))
        }
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
    let stale = raw.stale.valid()?;
    let refresh = raw.refresh.valid()?;
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
    let Some(name) = PeerName::parse(host) else {
        let problem = ValueProblem::new("its certificate has no name that could be verified");
        report.mistake(
            &at.location,
            problem.hint("write a host name or an IP address"),
        );
        return None;
    };
    let location = raw.ca.location_or(&at.location);
    let spec = ClientTlsSpec {
        ca: ca.map(Into::into),
        ..ClientTlsSpec::default()
    };
    match ClientTls::new(spec) {
        Ok(tls) => Some((tls, name)),
        Err(error) => {
            let problem = ValueProblem::new(format!("no certificate can be verified: {error}"));
            report.mistake(
                location,
                problem.hint("give a PEM file of certificate authorities under ca"),
            );
            None
        }
    }
}
