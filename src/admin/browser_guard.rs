//! Keeps web pages from changing anything through the browser of somebody who can reach the admin port.
//!
//! Without accounts whoever reaches the port may use it. But a browser reaches it on behalf of any page
//! that is open in it, from inside the operator's network. A change must therefore be a request that a page of another
//! origin cannot send without a preflight, and no preflight is answered. It must not name another origin, and it must
//! be addressed to an IP address or localhost: an attacker's name server could point any other name here. Reading is
//! left to the same-origin policy.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::problem_details::ProblemDetails;

/// The header with the name of the operator who asks for a change.
pub const OPERATOR: &str = "x-tollgate-operator";
/// The header with the reason for a change.
pub const REASON: &str = "x-tollgate-reason";

/// Lets reading pass, and changes that no web page can have asked for.
pub async fn guard(request: Request, next: Next) -> Response {
    let reads = [Method::GET, Method::HEAD].contains(request.method());
    let checked = if reads { Ok(()) } else { check(request.headers()) };
    match checked {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

fn check(headers: &HeaderMap) -> Result<(), ProblemDetails> {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    // Neither is among what a page may send across origins unasked (Fetch §2.2.2, CORS-safelisted request-headers).
    let json = text(CONTENT_TYPE.as_str()).is_some_and(|kind| kind.split(';').next() == Some("application/json"));
    let named = text(OPERATOR).is_some_and(|name| !name.trim().is_empty());
    if !named && !json && !headers.contains_key(AUTHORIZATION) {
        return Err(ProblemDetails::cross_site("a change must say who asks for it")
            .hint("send the header X-Tollgate-Operator: your-name, or Content-Type: application/json"));
    }
    check_host(headers)?;
    check_site(headers)
}

/// A request by an address, not by a name that somebody's name server answers for.
///
/// # Errors
/// When it is addressed to a name.
pub fn check_host(headers: &HeaderMap) -> Result<(), ProblemDetails> {
    if is_numeric_or_local(host_of(headers)) {
        return Ok(());
    }
    Err(ProblemDetails::cross_site("the admin port is asked by an IP address or localhost, not by a name")
        .hint("use the address of the admin port, such as http://127.0.0.1:9901"))
}

/// A request that no page of another origin has made, as far as its browser says.
///
/// # Errors
/// When one has.
pub fn check_site(headers: &HeaderMap) -> Result<(), ProblemDetails> {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let host = host_of(headers);
    if text("sec-fetch-site").is_some_and(|site| !["same-origin", "none"].contains(&site)) {
        return Err(ProblemDetails::cross_site("a page of another site asked for this change"));
    }
    let own = |origin: &str| origin.strip_prefix("http://").is_some_and(|origin| origin.eq_ignore_ascii_case(host));
    if text(ORIGIN.as_str()).is_some_and(|origin| !own(origin)) {
        return Err(ProblemDetails::cross_site("a page of another origin asked for this change"));
    }
    Ok(())
}

fn host_of(headers: &HeaderMap) -> &str {
    headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default()
}

/// A name that no name server answers for.
fn is_numeric_or_local(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = authority.host().trim_start_matches('[').trim_end_matches(']');
    name.parse::<IpAddr>().is_ok() || name.eq_ignore_ascii_case("localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(fields: &[(&'static str, &str)]) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, "127.0.0.1:9901".parse().unwrap());
        for (name, value) in fields {
            headers.insert(*name, value.parse().unwrap());
        }
        check(&headers).is_ok()
    }

    #[test]
    fn a_tool_that_names_its_operator_passes() {
        assert!(passes(&[(OPERATOR, "ada")]));
        assert!(passes(&[("content-type", "application/json; charset=utf-8")]));
        assert!(passes(&[("authorization", "Bearer tgt_a")]));
        assert!(passes(&[(OPERATOR, "ada"), ("host", "localhost:9901")]));
        assert!(passes(&[(OPERATOR, "ada"), ("host", "[::1]:9901")]));
        assert!(passes(&[(OPERATOR, "ada"), ("origin", "http://127.0.0.1:9901"), ("sec-fetch-site", "same-origin")]));
    }

    #[test]
    fn a_change_that_a_page_can_send_is_refused() {
        assert!(!passes(&[]));
        assert!(!passes(&[(OPERATOR, " ")]));
        for simple in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"] {
            assert!(!passes(&[("content-type", simple)]), "{simple}");
        }
    }

    #[test]
    fn a_change_from_another_origin_or_by_a_name_is_refused() {
        for origin in ["http://evil.example", "null", "https://127.0.0.1:9901", "http://127.0.0.1:8080"] {
            assert!(!passes(&[(OPERATOR, "ada"), ("origin", origin)]), "{origin}");
        }
        assert!(!passes(&[(OPERATOR, "ada"), ("sec-fetch-site", "cross-site")]));
        assert!(!passes(&[(OPERATOR, "ada"), ("sec-fetch-site", "same-site")]));
        for host in ["evil.example:9901", "", "127.0.0.1.evil.example", "a b"] {
            assert!(!passes(&[(OPERATOR, "ada"), ("host", host)]), "{host}");
        }
    }
}
