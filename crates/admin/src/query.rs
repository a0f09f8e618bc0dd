//! Queries of the admin port's pages: which bucket is meant, or which request.
//!
//! Refuses a word that is not understood, and does not ignore it: a bucket by half of its
//! description would be another client's.

use std::collections::HashSet;
use std::net::IpAddr;

use axum::http::header::COOKIE;
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderName, HeaderValue, Method, Uri};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tollgate_limiter::limit::key::{BodyValues, host};
use tollgate_limiter::request::catalog::{self, CatalogEntry};
use tollgate_limiter::request::explanation::{AppliedLimit, BucketUse};

use super::problem_details::ProblemDetails;
use tollgate_gateway::explain;
use tollgate_spec::spelling::nearest;

/// The pairs of a query, decoded.
pub type Pairs = Vec<(String, String)>;

/// A bucket as a query describes it, and what to do with it.
#[derive(Debug, Default)]
pub struct BucketQuery {
    key: Option<String>,
    described: catalog::RequestDescription,
    /// The parts that are described, in the words of the query.
    words: Vec<String>,
    pub tokens: Option<String>,
    pub dry_run: bool,
    /// The level on this node alone is asked for.
    pub local: bool,
}

const WORDS: [&str; 20] = [
    "key",
    "client_ip",
    "client_certificate.",
    "identity.id",
    "identity.plan",
    "identity.label.",
    "claim.",
    "method",
    "host",
    "route",
    "header.",
    "cookie.",
    "query.",
    "path.",
    "body.",
    "tokens",
    "dry_run",
    "local",
    "url",
    "listener",
];

/// The kinds of words that describe a request to explain, besides its URL.
const OF_EXPLAIN: [&str; 5] = [
    "header.",
    "client_certificate.",
    "identity.",
    "claim.",
    "body.",
];

/// The kinds of words that a request may have several of.
const REPEATED: [&str; 3] = ["header.", "query.", "cookie."];

/// More than a request has that any limit counts by.
const MOST_WORDS: usize = 1_000;

/// The client of a request when the query names none.
const DEFAULT_CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

impl BucketQuery {
    /// Reads a query.
    ///
    /// # Errors
    /// When it has a word that is not understood, or a value that is none.
    pub fn read(pairs: &Pairs) -> Result<Self, ProblemDetails> {
        let mut this = Self::default();
        let mut reader = RequestParts::default();
        check_words(pairs)?;
        for (name, value) in pairs {
            match name.as_str() {
                "key" => this.key = Some(value.clone()),
                "tokens" => this.tokens = Some(value.clone()),
                "local" => this.local = is_true(name, value)?,
                "dry_run" => this.dry_run = is_true(name, value)?,
                _ => reader.read(name, value)?,
            }
        }
        this.words = std::mem::take(&mut reader.words);
        this.described = reader.finish()?;
        Ok(this)
    }

    /// The bucket of `listed` that is meant, and the limit as it applies to a request of the usual
    /// cost.
    ///
    /// # Errors
    /// When the key is not one of this limit, or parts of it are not described.
    pub fn resolve(
        &self,
        listed: &CatalogEntry,
    ) -> Result<(BucketUse, AppliedLimit), ProblemDetails> {
        let name = &listed.limit().name;
        let key = match &self.key {
            Some(key) => {
                // Beside the key, only the plan may be described: the key need not have it.
                let plan = listed.plans_by();
                if self.words.iter().any(|word| plan.as_ref() != Some(word)) {
                    return Err(ProblemDetails::bad_request(
                        "the bucket is named by a key and by parts of a key",
                    )
                    .hint(
                        "give the key as `explain` shows it, or describe the request, not both",
                    ));
                }
                listed.raw_key(key).ok_or_else(|| wrong_key(name))?
            }
            None => {
                let key = listed.key_of(&self.described);
                key.map_err(|lacking| lacks_parts(name, &lacking))?
            }
        };
        Ok(listed.meet(key, &self.described))
    }

    /// The part of the request that tells the client's plan, where the query lacks it.
    pub fn lacks_plan(&self, listed: &CatalogEntry) -> Option<String> {
        listed.plans_by().filter(|by| !self.words.contains(by))
    }
}

fn wrong_key(limit: &str) -> ProblemDetails {
    ProblemDetails::bad_request(format!("the key is not one of the limit \"{limit}\""))
        .hint(format!("a key looks as `explain` shows it: {limit}:…"))
}

fn lacks_parts(limit: &str, lacking: &[String]) -> ProblemDetails {
    let names = lacking.join(", ");
    let parameters = parameters(lacking);
    ProblemDetails::bad_request(format!("the limit \"{limit}\" also counts by {names}")).hint(
        format!("add {parameters}, or give the whole key: key={limit}:…"),
    )
}

/// Refuses a description of too many words, and one that has a word twice which a request has once.
fn check_words(pairs: &Pairs) -> Result<(), ProblemDetails> {
    if pairs.len() > MOST_WORDS {
        return Err(ProblemDetails::bad_request(format!(
            "the request is described by more than {MOST_WORDS} words"
        ))
        .hint("describe what its limits count by"));
    }
    let mut seen = HashSet::new();
    for (name, _) in pairs {
        let may_repeat = REPEATED.iter().any(|kind| name.starts_with(kind));
        if !may_repeat && !seen.insert(name) {
            return Err(ProblemDetails::bad_request(format!(
                "{name} is there twice"
            )));
        }
    }
    Ok(())
}

/// `client_ip=…&route=…`, for a hint.
fn parameters(names: &[String]) -> String {
    names.join("=…&") + "=…"
}

/// Reads the query of `/explain`.
///
/// # Errors
/// When a name or value is invalid, as for a bucket, or when there is no URL.
pub fn request(pairs: &Pairs) -> Result<explain::DescribedRequest, ProblemDetails> {
    let mut url = None;
    let mut listener = 0;
    let mut reader = RequestParts::default();
    check_words(pairs)?;
    for (name, value) in pairs {
        match name.as_str() {
            "url" => {
                let parsed = value.parse::<Uri>();
                url = Some(
                    parsed.map_err(|_| ProblemDetails::bad_request("url is not a valid URL"))?,
                );
            }
            "listener" => listener = value.parse().map_err(|_| number("listener"))?,
            "method" | "client_ip" => reader.read(name, value)?,
            _ if OF_EXPLAIN.iter().any(|kind| name.starts_with(kind)) => {
                reader.read(name, value)?
            }
            _ => return Err(unknown(name)),
        }
    }
    let uri = url.ok_or_else(|| {
        ProblemDetails::bad_request("url is missing")
            .hint("add url=http://host/path, and method, client_ip, header.NAME")
    })?;
    let described = reader.finish()?;
    Ok(explain::DescribedRequest {
        method: described.method.unwrap_or(Method::GET),
        uri,
        headers: described.headers,
        peer: described.client_ip.unwrap_or(DEFAULT_CLIENT),
        client_certificate: described.client_certificate,
        client_identity: described.client_identity,
        extensions: described.extensions,
        listener,
    })
}

/// Checks that the request comes through a listener of the file.
///
/// # Errors
/// When the file has fewer listeners.
pub fn check_listener(
    listeners: usize,
    described: &explain::DescribedRequest,
) -> Result<(), ProblemDetails> {
    if described.listener < listeners {
        return Ok(());
    }
    let last = listeners.saturating_sub(1);
    Err(
        ProblemDetails::bad_request(format!("there is no listener {}", described.listener)).hint(
            format!("they count from 0 to {last}, in the order of the file"),
        ),
    )
}

/// Collects the parts of a request.
#[derive(Default)]
struct RequestParts {
    described: catalog::RequestDescription,
    query: Vec<String>,
    cookies: Vec<String>,
    words: Vec<String>,
    body: BodyValues,
}

impl RequestParts {
    fn read(&mut self, name: &str, value: &str) -> Result<(), ProblemDetails> {
        self.words.push(name.to_ascii_lowercase());
        match name.split_once('.').unwrap_or((name, "")) {
            ("client_ip", "") => {
                let address = value.parse();
                self.described.client_ip =
                    Some(address.map_err(|_| {
                        ProblemDetails::bad_request("client_ip is not an IP address")
                    })?);
            }
            ("client_certificate", part) => {
                let certificate = &mut self.described.client_certificate;
                *match part {
                    "subject" => &mut certificate.subject,
                    "san" => &mut certificate.alternative_names,
                    "fingerprint" => &mut certificate.fingerprint,
                    _ => return Err(unknown(name)),
                } = value.to_owned();
            }
            ("identity", part) => self.identity(name, part, value)?,
            ("claim", claim) if !claim.is_empty() => {
                drop(
                    self.described
                        .client_identity
                        .claims
                        .insert(claim.to_owned(), value.to_owned()),
                );
            }
            ("method", "") => {
                let method = Method::from_bytes(value.as_bytes());
                self.described.method =
                    Some(method.map_err(|_| {
                        ProblemDetails::bad_request("method is not a valid method")
                    })?);
            }
            ("host", "") => self.described.host = Some(host::normal(value).into_owned()),
            ("route", "") => self.described.route = Some(value.to_owned()),
            ("header", header) if !header.is_empty() => self.header(header, value)?,
            ("cookie", cookie) if !cookie.is_empty() => {
                if value.contains(';') {
                    return Err(ProblemDetails::bad_request(
                        "a cookie's value holds no semicolon",
                    ));
                }
                self.cookies.push(format!("{cookie}={value}"));
            }
            ("query", key) if !key.is_empty() => {
                let key = utf8_percent_encode(key, NON_ALPHANUMERIC);
                let value = utf8_percent_encode(value, NON_ALPHANUMERIC);
                self.query.push(format!("{key}={value}"));
            }
            ("path", param) if !param.is_empty() => self
                .described
                .params
                .push((param.to_owned(), value.to_owned())),
            ("body", member) if !member.is_empty() => self.body.describe(member, value),
            _ => return Err(unknown(name)),
        }
        Ok(())
    }

    fn identity(&mut self, name: &str, part: &str, value: &str) -> Result<(), ProblemDetails> {
        let identity = &mut self.described.client_identity;
        match part.split_once('.').unwrap_or((part, "")) {
            ("id", "") => identity.name_as(value),
            ("plan", "") => identity.plan = Some(value.to_owned()),
            ("label", label) if !label.is_empty() => {
                drop(identity.labels.insert(label.to_owned(), value.to_owned()))
            }
            _ => return Err(unknown(name)),
        }
        Ok(())
    }

    fn header(&mut self, name: &str, value: &str) -> Result<(), ProblemDetails> {
        match (HeaderName::try_from(name), HeaderValue::from_str(value)) {
            (Ok(name), Ok(value)) => {
                self.described.headers.append(name, value);
                Ok(())
            }
            (Err(_), _) | (_, Err(_)) => Err(ProblemDetails::bad_request(format!(
                "header.{name} is not a valid header field"
            ))),
        }
    }

    fn finish(mut self) -> Result<catalog::RequestDescription, ProblemDetails> {
        if !self.cookies.is_empty() {
            let value = HeaderValue::from_str(&self.cookies.join("; "));
            let value = value.map_err(|_| {
                ProblemDetails::bad_request("a cookie has a character that cannot be sent")
            })?;
            self.described.headers.append(COOKIE, value);
        }
        if !self.query.is_empty() {
            let target = PathAndQuery::try_from(format!("/?{}", self.query.join("&")));
            self.described.uri = target
                .map_err(|_| ProblemDetails::bad_request("the query is too long"))?
                .into();
        }
        self.described.extensions.insert(self.body);
        Ok(self.described)
    }
}

fn unknown(name: &str) -> ProblemDetails {
    let problem = ProblemDetails::bad_request(format!(
        "\"{}\" is not understood here",
        name.escape_debug()
    ));
    match nearest(name, WORDS.into_iter()) {
        Some(word) => problem.hint(format!("did you mean \"{word}\"?")),
        None => problem.hint("GET / lists what there is"),
    }
}

fn is_true(name: &str, value: &str) -> Result<bool, ProblemDetails> {
    match value {
        "" | "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(ProblemDetails::bad_request(format!(
            "{name} is true or false"
        ))),
    }
}

fn number(name: &str) -> ProblemDetails {
    ProblemDetails::bad_request(format!("{name} is a number"))
}

#[cfg(test)]
fn pairs(texts: &[(&str, &str)]) -> Pairs {
    texts
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_becomes_a_request() {
        let query = BucketQuery::read(&pairs(&[
            ("client_ip", "203.0.113.9"),
            ("header.x-tenant", "a"),
            ("cookie.sid", "s"),
            ("cookie.lang", "de"),
            ("query.q", "a&b"),
            ("path.id", "7"),
            ("host", "API.example:8080"),
            ("dry_run", "true"),
        ]));
        let query = query.unwrap();
        let described = query.described;
        assert_eq!(described.headers[COOKIE], "sid=s; lang=de");
        assert_eq!(described.uri, "/?q=a%26b");
        assert_eq!(described.host.as_deref(), Some("api.example"));
        assert_eq!(described.params, [("id".to_owned(), "7".to_owned())]);
        assert!(query.dry_run);
    }

    #[test]
    fn a_word_that_is_not_understood_is_refused() {
        for (name, value) in [
            ("clientip", "1.1.1.1"),
            ("client_ip", "x"),
            ("header.", "x"),
            ("header", "x"),
            ("header.a b", "x"),
            ("cookie.a", "1; b=2"),
            ("dry_run", "maybe"),
            ("method", "G T"),
        ] {
            assert!(
                BucketQuery::read(&pairs(&[(name, value)])).is_err(),
                "{name}={value}"
            );
        }
        let many: Vec<_> = (0..1_001)
            .map(|number| (format!("header.x-{number}"), "1".to_owned()))
            .collect();
        assert!(
            BucketQuery::read(&many[..1_000].to_vec()).is_ok() && BucketQuery::read(&many).is_err()
        );
        assert!(request(&pairs(&[("url", "/a"), ("url", "/b")])).is_err());
        assert!(BucketQuery::read(&pairs(&[("header.a", "1"), ("header.a", "2")])).is_ok());
        for once in [
            "key",
            "tokens",
            "local",
            "dry_run",
            "client_ip",
            "host",
            "identity.id",
            "path.a",
            "body.a",
        ] {
            let refused = BucketQuery::read(&pairs(&[(once, "::1"), (once, "::1")]))
                .map(drop)
                .unwrap_err();
            assert_eq!(*refused.detail, *format!("{once} is there twice"));
        }
        let hint = BucketQuery::read(&pairs(&[("clientip", "1.1.1.1")]))
            .unwrap_err()
            .hint;
        assert_eq!(hint.as_deref(), Some("did you mean \"client_ip\"?"));
    }

    #[test]
    fn a_request_to_explain_needs_its_url() {
        assert!(request(&pairs(&[("method", "GET")])).is_err());
        assert!(request(&pairs(&[("url", "http://a/"), ("route", "x")])).is_err());
        let read = request(&pairs(&[("url", "http://a/b?c"), ("header.x", "1")])).unwrap();
        assert_eq!(
            (read.uri.path(), read.peer, read.headers.len()),
            ("/b", DEFAULT_CLIENT, 1)
        );
    }
}
