//! The rules for every page of the console: who may ask for it, and what a browser may do with it.
//!
//! A page shows the clients that limits deny. Requests for it must have an address as their host,
//! unlike those for other pages of the admin port: an attacker's name server could point a name
//! here, and pages of that name would then read it as their own.

use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::http::header::{
    ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName,
    REFERRER_POLICY, SET_COOKIE, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderValue, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};

use super::pages::encode;
use super::shell::Visitor;
use super::state::ConsoleState;
use tollgate_admin::caller::{Authorizer as _, is_refused, peer};
use tollgate_admin::problem_details::ProblemDetails;
use tollgate_team::caller::{CallerParts, CallerProof, SessionUse};

/// Nothing but what this process serves: no inline script, no inline style, no frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// Where pages get live data.
const DATA: &str = "/console/data";

/// Fields of every answer. With `no-referrer`, browsers would send forms with `Origin: null`
/// (Fetch, "append a request `Origin` header").
const FIELDS: [(HeaderName, &str); 5] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "same-origin"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
];

/// Lets requests by an address pass that somebody known has made, and adds the fields to each
/// answer.
pub async fn guard(State(console): State<ConsoleState>, request: Request, next: Next) -> Response {
    let origins = &console.admin.origins;
    // The page for signing in is no exception: a visitor who sees it types a password.
    let mut response = if let Err(problem) = origins.check_host(request.headers()) {
        console.refuse(&visitor(&request), &problem)
    } else if let Err(problem) = origins.check_way(request.extensions()) {
        console.refuse(&visitor(&request), &problem)
    } else {
        answer(&console, request, next).await
    };
    let headers = response.headers_mut();
    for (name, value) in FIELDS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers
        .entry(CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    response
}

/// The answer to a request: the page, if its caller is known or the page is open to everybody.
async fn answer(console: &ConsoleState, mut request: Request, next: Next) -> Response {
    // The script of an open page asks for that by itself, though nobody may be in front of it.
    let session = if request.uri().path() == DATA {
        SessionUse::Idle
    } else {
        SessionUse::Used
    };
    let parts = CallerParts {
        headers: request.headers(),
        peer: peer(&request),
        session,
    };
    let caller = match console.team.caller(parts).await {
        // A token is for programs. Forms without a session would be open to everybody with a token.
        Ok(caller) => caller.filter(|caller| caller.by != CallerProof::Token),
        Err(_) if is_open(request.uri().path()) => None,
        Err(problem) => return console.refuse(&visitor(&request), &problem),
    };
    let Some(caller) = caller else {
        if is_open(request.uri().path()) {
            return next.run(request).await;
        }
        let page = request
            .uri()
            .path_and_query()
            .map_or("/console", |page| page.as_str())
            .to_owned();
        let reads = request.method() == Method::GET && request.uri().path() != DATA;
        let mut response = stranger(console, &visitor(&request), reads.then_some(page)).await;
        // A session that has ended would count as an attempt each time that the browser
        // sends it. Beside a token, it was not looked for.
        if let Some(accounts) = &console.team.accounts
            && !request.headers().contains_key(AUTHORIZATION)
            && accounts.cookies.session(request.headers()).is_some()
            && let Some(end) = accounts.cookies.end()
        {
            response.headers_mut().append(SET_COOKIE, end);
        }
        return response;
    };
    request.extensions_mut().insert(caller.clone());
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let visitor = visitor(&request);
    let response = match caller.may_look() {
        Err(problem) if !is_own(&path) && !is_open(&path) => console.refuse(&visitor, &problem),
        _ => next.run(request).await,
    };
    let response = if path == DATA {
        response
    } else {
        refuse_by_page(console, &visitor, response).await
    };
    if is_refused(&response) {
        caller.record_refusal(method, path).await;
    }
    response
}

/// The longest refusal that is no page.
const MOST_REFUSAL: usize = 64 << 10;

/// Refusals of what a page could not read, a path for one, are no pages yet.
async fn refuse_by_page(console: &ConsoleState, visitor: &Visitor, response: Response) -> Response {
    let kind = response
        .headers()
        .get(CONTENT_TYPE)
        .map_or(&b""[..], HeaderValue::as_bytes);
    if !response.status().is_client_error() || kind.is_empty() || kind.starts_with(b"text/html") {
        return response;
    }
    let (head, body) = response.into_parts();
    let text = to_bytes(body, MOST_REFUSAL).await.unwrap_or_default();
    let problem = serde_json::from_slice(&text)
        .unwrap_or_else(|_| ProblemDetails::of_text(head.status, &text));
    let mut page = console.refuse(visitor, &problem);
    // With the methods that the path does take (RFC 9110 §15.5.6).
    if let Some(methods) = head.headers.get(ALLOW) {
        page.headers_mut().insert(ALLOW, methods.clone());
    }
    page
}

/// The answer to a visitor who has to sign in first, and comes back to the `page` then.
async fn stranger(console: &ConsoleState, visitor: &Visitor, page: Option<String>) -> Response {
    let problem = console.team.unknown_caller().await;
    match page {
        Some(page) if problem.is_of_strangers() => {
            Redirect::to(&format!("/console/sign-in?page={}", encode(&page))).into_response()
        }
        _ => console.refuse(visitor, &problem),
    }
}

/// Whether a path says nothing of the gateway.
fn is_open(path: &str) -> bool {
    path.starts_with("/console/assets/")
        || path == "/console/theme"
        || path == "/console/sign-in"
        || path.starts_with("/console/sign-in/")
}

/// Whether a path is about the visitor's own account: it takes no role.
fn is_own(path: &str) -> bool {
    path.starts_with("/console/account") || path == "/console/sign-out"
}

fn visitor(request: &Request) -> Visitor {
    Visitor::new(request.headers(), request.uri(), request.extensions())
}
