//! `jwt` of an authenticator: what a token must say, and where its issuer's keys are.

use http::HeaderName;
use jsonwebtoken::Algorithm;
use serde_json::{Value as Json, json};

use super::FilePath;
use crate::config::file::limit::CookieName;
use crate::config::file::scalar::number::{BoundedDuration, ByteSize, DAY, WholeNumber};
use crate::config::file::scalar::text::PlainText;
use crate::config::file::store::PemPath;
use crate::config::report::{ValueProblem, quote};
use crate::config::yaml::collection::{NonEmptyList, OneOrMore};
use crate::config::yaml::decode::{Located, Scalar};
use crate::config::yaml::record::record;
use crate::identity::jwt::algorithm::ALGORITHMS;

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
        let problem = || {
            ValueProblem::new("this is not a URL that keys can be fetched from")
                .hint("write https://id.example.com/jwks.json, without user and password")
        };
        let uri: http::Uri = text.parse().map_err(|_| problem())?;
        let is_web = matches!(uri.scheme_str(), Some("https" | "http"));
        if uri
            .authority()
            .is_some_and(|authority| !has_sound_port(authority))
        {
            return Err(ValueProblem::new("the URL has an invalid port")
                .hint("write 1 to 65535, or no port at all"));
        }
        match uri.authority() {
            Some(authority)
                if is_web
                    && !authority.as_str().contains('@')
                    && !uri.host().unwrap_or_default().is_empty() =>
            {
                Ok(Self::Url(uri))
            }
            _ => Err(problem()),
        }
    }

    fn schema() -> Json {
        json!({ "type": "string" })
    }
}

/// Whether it has no port, or one that there is. The parser passes over a number that is too large.
fn has_sound_port(authority: &http::uri::Authority) -> bool {
    let port = authority
        .as_str()
        .rsplit_once('@')
        .map_or(authority.as_str(), |(_, host)| host);
    match port
        .strip_prefix(authority.host())
        .unwrap_or_default()
        .strip_prefix(':')
    {
        Some(port) => port.parse().is_ok_and(|port: u16| port > 0),
        None => true,
    }
}

impl Scalar for Algorithm {
    const WHAT: &'static str = "an algorithm";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        let known = ALGORITHMS.iter().find(|(name, _)| *name == text);
        known.map(|(_, algorithm)| *algorithm).ok_or_else(|| {
            let names = ALGORITHMS.map(|(name, _)| name).join(", ");
            ValueProblem::new(format!("{} is not an algorithm that is taken", quote(text)))
                .hint(format!("one of {names}"))
        })
    }

    fn schema() -> Json {
        json!({ "enum": ALGORITHMS.map(|(name, _)| name) })
    }
}
