//! What holds for every page of the console: who may ask for it, and what a browser may do with it.
//!
//! A page shows whom limits deny, so unlike the other pages of the admin port it is not even read by a name: an attacker's
//! name server could point a name here, and pages of that name would then read it as their own.

use axum::extract::{Request, State};
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use axum::middleware::Next;
use axum::response::Response;

use super::shell::Visitor;
use super::state::ConsoleState;
use crate::admin::browser_guard::check_host;

/// Nothing but what this process serves: no inline script, no inline style, no frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// Fields of every answer. With `no-referrer`, browsers would send forms with `Origin: null` (Fetch, "append a request
/// `Origin` header").
const FIELDS: [(HeaderName, &str); 5] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Lets requests by an address pass, and adds the fields to each answer.
pub async fn guard(State(console): State<ConsoleState>, request: Request, next: Next) -> Response {
    let mut response = match check_host(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(problem) => console.refuse(&Visitor::of(request.headers(), request.uri()), &problem),
    };
    let headers = response.headers_mut();
    for (name, value) in FIELDS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}
