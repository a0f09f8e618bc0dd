//! Keeps web pages from changing anything through the browser of somebody who can reach the admin
//! port.
//!
//! Without accounts everybody who reaches the port may use it. But a browser reaches the port on
//! behalf of any page that is open in it, from inside the operator's network. A change must
//! therefore be a request that a page of another origin cannot send without a preflight, and no
//! preflight is answered. A change must not name another origin. Its host must be an IP address,
//! localhost or the name that the file has: an attacker's name server could point any other name
//! here, and a page of that name would be of the same origin. Reading needs such a host too, save
//! for probes and metrics.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, COOKIE, HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{Extensions, HeaderMap, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::problem_details::ProblemDetails;
use tollgate_config::PublicUrl;

/// Probes and scrapers ask for these.
pub const PROBES: [&str; 2] = ["/livez", "/readyz"];

/// Probes and scrapers have no account.
pub const OPEN: [&str; 3] = ["/livez", "/readyz", "/metrics"];

/// The header with the name of the operator who asks for a change.
pub const OPERATOR: &str = "x-tollgate-operator";
/// The header with the reason for a change.
pub const REASON: &str = "x-tollgate-reason";

/// The names of the cookie of a session, over HTTPS and in the clear.
pub const SESSION_COOKIES: [&str; 2] = ["__Host-tollgate", "tollgate"];

/// Whether nobody has read a request on its way, as far as this port knows: it came over TLS, from
/// this machine, or by a proxy that the file trusts.
#[derive(Clone, Copy, Debug)]
pub struct PrivateWay(pub bool);

/// The names that browsers call the admin port by.
#[derive(Clone, Debug, Default)]
pub struct OwnOrigins {
    /// Whether the port itself speaks TLS.
    pub has_tls: bool,
    /// The URL of the port, where a name leads to it.
    pub public_url: Option<PublicUrl>,
}

/// Lets reading pass, and changes that no web page can have asked for.
pub async fn guard(
    State(origins): State<Arc<OwnOrigins>>,
    request: Request,
    next: Next,
) -> Response {
    let checked = match *request.method() {
        Method::GET | Method::HEAD => check_reading(&origins, &request),
        _ => check_change(&origins, &request),
    };
    match checked {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// Lets probes and scrapers read under any name of the port, and others under its own names. A
/// token does not help under another name: a page of that name could send wrong tokens until
/// everybody in its visitor's network is refused.
fn check_reading(origins: &OwnOrigins, request: &Request) -> Result<(), ProblemDetails> {
    if OPEN.contains(&request.uri().path()) {
        return Ok(());
    }
    origins.check_host(request.headers())?;
    let mut cookies = SESSION_COOKIES.into_iter();
    let has_session = cookies.any(|name| cookie(request.headers(), name).is_some());
    if has_session || request.headers().contains_key(AUTHORIZATION) {
        origins.check_way(request.extensions())
    } else {
        Ok(())
    }
}

fn check_change(origins: &OwnOrigins, request: &Request) -> Result<(), ProblemDetails> {
    check_sender(origins, request.headers())?;
    origins.check_way(request.extensions())
}

/// Checks that no page of another origin can have sent a change.
fn check_sender(origins: &OwnOrigins, headers: &HeaderMap) -> Result<(), ProblemDetails> {
    // None of these is among what a page may send across origins unasked (Fetch §2.2.2,
    // CORS-safelisted request-headers).
    let content_type = text(headers, CONTENT_TYPE.as_str());
    let is_json = content_type.split(';').next() == Some("application/json");
    let has_name = !text(headers, OPERATOR).trim().is_empty();
    if !has_name && !is_json && !headers.contains_key(AUTHORIZATION) {
        return Err(
            ProblemDetails::cross_site("a change must say who asks for it").hint(
                "send the header X-Tollgate-Operator: your-name, or Content-Type: application/json",
            ),
        );
    }
    origins.check_host(headers)?;
    origins.check_site(headers)
}

/// The first field called `name`, or nothing where it is no text.
fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    match headers.get(name) {
        Some(value) => value.to_str().unwrap_or_default(),
        None => "",
    }
}

impl OwnOrigins {
    /// Checks that a request is addressed to an IP address or to the name that the file has, not to
    /// a name that somebody's name server answers for.
    ///
    /// # Errors
    /// When the request is addressed to another name.
    pub fn check_host(&self, headers: &HeaderMap) -> Result<(), ProblemDetails> {
        let host = text(headers, HOST.as_str());
        if is_numeric_or_local(host) || self.is_public(host) {
            Ok(())
        } else {
            Err(self.other_host())
        }
    }

    /// Checks that nobody has read a request on its way. Where browsers come by HTTPS and the port
    /// itself speaks none, a proxy does: a request that comes past the proxy brings a password or a
    /// token in the clear.
    ///
    /// # Errors
    /// When the request could have been read.
    pub fn check_way(&self, extensions: &Extensions) -> Result<(), ProblemDetails> {
        let is_private = matches!(extensions.get(), Some(PrivateWay(true)));
        match &self.public_url {
            Some(url) if url.is_secure && !self.has_tls && !is_private => Err(ProblemDetails::in_the_clear(
                "this came in the clear, and not by a proxy that the file trusts: passwords and tokens could be read",
            )
            .hint(format!("use {url}; its proxy is one of trusted_proxies in the file"))),
            _ => Ok(()),
        }
    }

    fn other_host(&self) -> ProblemDetails {
        match &self.public_url {
            Some(url) => {
                ProblemDetails::cross_site("the admin port is asked by its public_url, an IP address or localhost")
                    .hint(format!("use {url}"))
            }
            None => ProblemDetails::cross_site("the admin port is asked by an IP address or localhost, not by a name")
                .hint(
                    "use the address of the admin port, such as http://127.0.0.1:9901, or name it in admin.public_url",
                ),
        }
    }

    /// Checks that no page of another origin has made a request, as far as its browser says.
    ///
    /// # Errors
    /// When one has.
    pub fn check_site(&self, headers: &HeaderMap) -> Result<(), ProblemDetails> {
        // Each of several fields is looked at: a proxy may add one of its own.
        for site in headers.get_all("sec-fetch-site") {
            if site != "same-origin" && site != "none" {
                return Err(ProblemDetails::cross_site(
                    "a page of another site asked for this change",
                ));
            }
        }
        let host = text(headers, HOST.as_str());
        for origin in headers.get_all(ORIGIN) {
            if !self.is_own(origin.to_str().unwrap_or_default(), host) {
                return Err(ProblemDetails::cross_site(
                    "a page of another origin asked for this change",
                ));
            }
        }
        Ok(())
    }

    /// Whether a page of `origin` came from here. A proxy in front may call the port by another
    /// name than browsers do.
    fn is_own(&self, origin: &str, host: &str) -> bool {
        if let Some(url) = &self.public_url
            && (origin.eq_ignore_ascii_case(&url.to_string()) || self.is_public(host))
        {
            return origin.eq_ignore_ascii_case(&url.to_string());
        }
        let scheme = if self.has_tls { "https://" } else { "http://" };
        match origin.strip_prefix(scheme) {
            Some(authority) => authority.eq_ignore_ascii_case(host),
            None => false,
        }
    }

    fn is_public(&self, host: &str) -> bool {
        match (&self.public_url, host.parse::<Authority>()) {
            (Some(url), Ok(authority)) => {
                let own = url.authority.host();
                own.eq_ignore_ascii_case(authority.host())
            }
            (None, _) | (_, Err(_)) => false,
        }
    }
}

/// A name that no name server answers for.
fn is_numeric_or_local(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else {
        return false;
    };
    let name = authority.host();
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name.parse::<IpAddr>().is_ok() || name.eq_ignore_ascii_case("localhost")
}

/// The value of the cookie with this name. The first of several: browsers send the cookie with the
/// longest path first.
pub fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    for value in headers.get_all(COOKIE) {
        for pair in value.as_bytes().split(|byte| *byte == b';') {
            // A cookie of another application on this host may have bytes that are no text.
            let Ok(text) = str::from_utf8(pair) else {
                continue;
            };
            match text.trim().split_once('=') {
                Some((found, value)) if found == name => return Some(value),
                _ => {}
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use tower::ServiceExt as _;

    use super::*;

    fn passes(fields: &[(&'static str, &str)]) -> bool {
        passes_at(&OwnOrigins::default(), fields)
    }

    fn passes_at(origins: &OwnOrigins, fields: &[(&'static str, &str)]) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, "127.0.0.1:9901".parse().unwrap());
        for (name, value) in fields {
            headers.insert(*name, value.parse().unwrap());
        }
        check_sender(origins, &headers).is_ok()
    }

    #[test]
    fn a_tool_that_names_its_operator_passes() {
        assert!(passes(&[(OPERATOR, "ada")]));
        assert!(passes(&[(
            "content-type",
            "application/json; charset=utf-8"
        )]));
        assert!(passes(&[("authorization", "Bearer tgt_a")]));
        assert!(passes(&[(OPERATOR, "ada"), ("host", "localhost:9901")]));
        assert!(passes(&[(OPERATOR, "ada"), ("host", "[::1]:9901")]));
        assert!(passes(&[
            (OPERATOR, "ada"),
            ("origin", "http://127.0.0.1:9901"),
            ("sec-fetch-site", "same-origin")
        ]));
    }

    #[test]
    fn a_change_that_a_page_can_send_is_refused() {
        assert!(!passes(&[]));
        assert!(!passes(&[(OPERATOR, " ")]));
        for simple in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data",
        ] {
            assert!(!passes(&[("content-type", simple)]), "{simple}");
        }
    }

    #[test]
    fn a_change_from_another_origin_or_by_a_name_is_refused() {
        for origin in [
            "http://evil.example",
            "null",
            "https://127.0.0.1:9901",
            "http://127.0.0.1:8080",
        ] {
            assert!(
                !passes(&[(OPERATOR, "ada"), ("origin", origin)]),
                "{origin}"
            );
        }
        assert!(!passes(&[
            (OPERATOR, "ada"),
            ("sec-fetch-site", "cross-site")
        ]));
        assert!(!passes(&[
            (OPERATOR, "ada"),
            ("sec-fetch-site", "same-site")
        ]));
        for host in ["evil.example:9901", "", "127.0.0.1.evil.example", "a b"] {
            assert!(!passes(&[(OPERATOR, "ada"), ("host", host)]), "{host}");
        }
    }

    #[test]
    fn the_name_that_the_file_has_is_the_ports_own() {
        let authority = "gate.example".parse().unwrap();
        let origins = OwnOrigins {
            public_url: Some(PublicUrl {
                is_secure: true,
                authority,
            }),
            ..OwnOrigins::default()
        };
        for (host, origin, passes) in [
            ("gate.example", "https://gate.example", true),
            ("Gate.Example:443", "https://gate.example", true),
            // A proxy that sends its own name of the port.
            ("10.0.0.7:9901", "https://gate.example", true),
            ("127.0.0.1:9901", "http://127.0.0.1:9901", true),
            ("gate.example", "https://evil.example", false),
            // Anybody on the way can make such a page.
            ("gate.example", "http://gate.example", false),
            ("evil.example", "https://gate.example", false),
            ("evil.gate.example", "https://evil.gate.example", false),
        ] {
            let fields = [(OPERATOR, "ada"), ("host", host), ("origin", origin)];
            assert_eq!(passes_at(&origins, &fields), passes, "{host} {origin}");
        }
    }

    #[test]
    fn behind_a_proxy_with_tls_nothing_secret_is_taken_that_came_past_it() {
        for (has_tls, public_is_secure, is_private, passes) in [
            (false, Some(true), Some(true), true),
            (false, Some(true), Some(false), false),
            (false, Some(true), None, false),
            (true, Some(true), Some(false), true),
            (false, Some(false), Some(false), true),
            // Without a name the file keeps the port on this machine.
            (false, None, Some(false), true),
        ] {
            let origins = OwnOrigins {
                has_tls,
                public_url: public_is_secure.map(|is_secure| PublicUrl {
                    is_secure,
                    authority: "gate.example".parse().unwrap(),
                }),
            };
            let mut extensions = Extensions::new();
            if let Some(is_private) = is_private {
                extensions.insert(PrivateWay(is_private));
            }
            assert_eq!(
                origins.check_way(&extensions).is_ok(),
                passes,
                "{has_tls} {public_is_secure:?} {is_private:?}"
            );
        }
    }

    #[tokio::test]
    async fn a_token_a_session_and_a_change_are_refused_that_came_in_the_clear() {
        let authority = "gate.example".parse().unwrap();
        let origins = OwnOrigins {
            public_url: Some(PublicUrl {
                is_secure: true,
                authority,
            }),
            has_tls: false,
        };
        let pages = axum::Router::new().route("/", axum::routing::any(async || "done"));
        let pages = pages.layer(axum::middleware::from_fn_with_state(
            Arc::new(origins),
            guard,
        ));
        let token = (AUTHORIZATION, "Bearer tgt_a");
        for (method, (name, value), is_private, status) in [
            (Method::GET, token.clone(), true, 200),
            (Method::GET, token.clone(), false, 403),
            (
                Method::GET,
                (COOKIE, "a=b; __Host-tollgate=tgs_a"),
                false,
                403,
            ),
            (Method::GET, (COOKIE, "tollgate=tgs_a"), false, 403),
            (Method::GET, (COOKIE, "tollgate=tgs_a"), true, 200),
            (Method::GET, (COOKIE, "others=b"), false, 200),
            (Method::DELETE, token.clone(), true, 200),
            (Method::DELETE, token, false, 403),
        ] {
            let request = Request::builder()
                .method(&method)
                .header(HOST, "gate.example")
                .header(name, value);
            let request = request
                .extension(PrivateWay(is_private))
                .body(axum::body::Body::empty())
                .unwrap();
            let answer = pages.clone().oneshot(request).await.unwrap();
            assert_eq!(
                answer.status().as_u16(),
                status,
                "{method} {value} {is_private}"
            );
        }
    }

    #[test]
    fn a_port_with_tls_has_pages_of_https() {
        let origins = OwnOrigins {
            has_tls: true,
            ..OwnOrigins::default()
        };
        assert!(passes_at(
            &origins,
            &[(OPERATOR, "ada"), ("origin", "https://127.0.0.1:9901")]
        ));
        assert!(!passes_at(
            &origins,
            &[(OPERATOR, "ada"), ("origin", "http://127.0.0.1:9901")]
        ));
    }
}
