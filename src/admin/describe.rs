//! What the query of a request to the admin port says: which bucket, or which request.
//!
//! Guarantees that a word that is not understood is refused and not left out: a bucket of a half-understood description
//! would be somebody else's.

use std::net::IpAddr;

use axum::http::header::COOKIE;
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderName, HeaderValue, Method, Uri};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tollgate_limiter::limit::host;
use tollgate_limiter::request::catalog::{self, Listed};
use tollgate_limiter::request::explanation::{self, AppliedLimit};

use super::problem::Problem;
use crate::config::nearest;
use crate::gateway::explain;

/// The pairs of a query, decoded.
pub type Pairs = Vec<(String, String)>;

/// Which bucket, and what to do with it.
#[derive(Debug, Default)]
pub struct BucketQuery {
    key: Option<String>,
    described: catalog::Described,
    /// What is described, in the words of the query.
    words: Vec<String>,
    pub tokens: Option<String>,
    pub dry_run: bool,
    /// What this node holds, whatever the store says.
    pub local: bool,
}

const WORDS: [&str; 14] = [
    "key",
    "client_ip",
    "method",
    "host",
    "route",
    "header.",
    "cookie.",
    "query.",
    "path.",
    "tokens",
    "dry_run",
    "local",
    "url",
    "listener",
];

/// What a request's client is taken for when nobody says.
const NOBODY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

impl BucketQuery {
    /// Reads a query.
    ///
    /// # Errors
    /// When it has a word that is not understood, or a value that is none.
    pub fn read(pairs: &Pairs) -> Result<Self, Problem> {
        let mut this = Self::default();
        let mut reader = Reader::default();
        for (name, value) in pairs {
            match name.as_str() {
                "key" => this.key = Some(value.clone()),
                "tokens" => this.tokens = Some(value.clone()),
                "local" => this.local = yes(name, value)?,
                "dry_run" => this.dry_run = yes(name, value)?,
                _ => reader.read(name, value)?,
            }
        }
        this.words = std::mem::take(&mut reader.words);
        this.described = reader.finish()?;
        Ok(this)
    }

    /// The bucket of `listed` that is meant, and what a usual request that takes from it is held to.
    ///
    /// # Errors
    /// When the key is not one of this limit, or parts of it are not described.
    pub fn meet(&self, listed: &Listed) -> Result<(explanation::BucketUse, AppliedLimit), Problem> {
        let name = &listed.limit().name;
        let key = match &self.key {
            // Beside the key, only the plan may be told: the key need not have it.
            Some(_) if self.words.iter().any(|word| listed.plans_by().as_ref() != Some(word)) => {
                return Err(Problem::bad_request("both a key and parts of one")
                    .hint("give the key as `explain` shows it, or describe the request, not both"));
            }
            Some(key) => listed.raw_key(key).ok_or_else(|| {
                Problem::bad_request(format!("this is no key of the limit \"{name}\""))
                    .hint(format!("a key looks as `explain` shows it: {name}:…"))
            })?,
            None => listed.key_of(&self.described).map_err(|lacking| {
                Problem::bad_request(format!("the limit \"{name}\" also counts by {}", lacking.join(", ")))
                    .hint(format!("add {}, or give the whole key: key={name}:…", parameters(&lacking)))
            })?,
        };
        Ok(listed.meet(key, &self.described))
    }

    /// What tells the client's plan, where nothing does.
    pub fn lacks_plan(&self, listed: &Listed) -> Option<String> {
        listed.plans_by().filter(|by| !self.words.contains(by))
    }
}

fn parameters(names: &[String]) -> String {
    names.iter().map(|name| format!("{name}=…")).collect::<Vec<_>>().join("&")
}

/// Reads the query of `/explain`.
///
/// # Errors
/// As for a bucket; and when there is no URL.
pub fn request(pairs: &Pairs) -> Result<explain::Described, Problem> {
    let (mut url, mut listener) = (None, 0);
    let mut reader = Reader::default();
    for (name, value) in pairs {
        match name.as_str() {
            "url" => url = Some(value.parse::<Uri>().map_err(|_| Problem::bad_request("the url is none"))?),
            "listener" => listener = value.parse().map_err(|_| number("listener"))?,
            "method" | "client_ip" => reader.read(name, value)?,
            _ if name.starts_with("header.") => reader.read(name, value)?,
            _ => return Err(unknown(name)),
        }
    }
    let uri = url.ok_or_else(|| {
        Problem::bad_request("which request?").hint("add url=http://host/path, and method, client_ip, header.NAME")
    })?;
    let described = reader.finish()?;
    Ok(explain::Described {
        method: described.method.unwrap_or(Method::GET),
        uri,
        headers: described.headers,
        peer: described.client_ip.unwrap_or(NOBODY),
        listener,
    })
}

/// Collects the parts of a request.
#[derive(Default)]
struct Reader {
    described: catalog::Described,
    query: Vec<String>,
    cookies: Vec<String>,
    words: Vec<String>,
}

impl Reader {
    fn read(&mut self, name: &str, value: &str) -> Result<(), Problem> {
        self.words.push(name.to_ascii_lowercase());
        match name.split_once('.').unwrap_or((name, "")) {
            ("client_ip", "") => {
                let address = value.parse();
                self.described.client_ip =
                    Some(address.map_err(|_| Problem::bad_request("client_ip is no IP address"))?);
            }
            ("method", "") => {
                let method = Method::from_bytes(value.as_bytes());
                self.described.method = Some(method.map_err(|_| Problem::bad_request("method is none"))?);
            }
            ("host", "") => self.described.host = Some(host::normal(value).into_owned()),
            ("route", "") => self.described.route = Some(value.to_owned()),
            ("header", header) if !header.is_empty() => self.header(header, value)?,
            ("cookie", cookie) if !cookie.is_empty() => {
                if value.contains(';') {
                    return Err(Problem::bad_request("a cookie's value holds no semicolon"));
                }
                self.cookies.push(format!("{cookie}={value}"));
            }
            ("query", key) if !key.is_empty() => {
                let encode = |text| utf8_percent_encode(text, NON_ALPHANUMERIC);
                self.query.push(format!("{}={}", encode(key), encode(value)));
            }
            ("path", param) if !param.is_empty() => self.described.params.push((param.to_owned(), value.to_owned())),
            _ => return Err(unknown(name)),
        }
        Ok(())
    }

    fn header(&mut self, name: &str, value: &str) -> Result<(), Problem> {
        let field = HeaderName::try_from(name).ok().zip(HeaderValue::from_str(value).ok());
        let (name, value) = field.ok_or_else(|| Problem::bad_request("a header is no header field"))?;
        self.described.headers.append(name, value);
        Ok(())
    }

    fn finish(mut self) -> Result<catalog::Described, Problem> {
        if !self.cookies.is_empty() {
            let value = HeaderValue::from_str(&self.cookies.join("; "));
            let value = value.map_err(|_| Problem::bad_request("a cookie is none"))?;
            self.described.headers.append(COOKIE, value);
        }
        if !self.query.is_empty() {
            let target = PathAndQuery::try_from(format!("/?{}", self.query.join("&")));
            self.described.uri = target.map_err(|_| Problem::bad_request("the query is too long"))?.into();
        }
        Ok(self.described)
    }
}

fn unknown(name: &str) -> Problem {
    let problem = Problem::bad_request(format!("\"{}\" is not understood here", name.escape_debug()));
    match nearest(name, WORDS.into_iter()) {
        Some(word) => problem.hint(format!("did you mean \"{word}\"?")),
        None => problem.hint("GET / lists what there is"),
    }
}

fn yes(name: &str, value: &str) -> Result<bool, Problem> {
    match value {
        "" | "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(Problem::bad_request(format!("{name} is true or false"))),
    }
}

fn number(name: &str) -> Problem {
    Problem::bad_request(format!("{name} is a number"))
}

/// Only for the tests of what is read.
#[cfg(test)]
fn pairs(texts: &[(&str, &str)]) -> Pairs {
    texts.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
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
            assert!(BucketQuery::read(&pairs(&[(name, value)])).is_err(), "{name}={value}");
        }
        let hint = BucketQuery::read(&pairs(&[("clientip", "1.1.1.1")])).unwrap_err().hint;
        assert_eq!(hint.as_deref(), Some("did you mean \"client_ip\"?"));
    }

    #[test]
    fn a_request_to_explain_needs_its_url() {
        assert!(request(&pairs(&[("method", "GET")])).is_err());
        assert!(request(&pairs(&[("url", "http://a/"), ("route", "x")])).is_err());
        let read = request(&pairs(&[("url", "http://a/b?c"), ("header.x", "1")])).unwrap();
        assert_eq!((read.uri.path(), read.peer, read.headers.len()), ("/b", NOBODY, 1));
    }
}
