//! `/console/sign-in/provider` and `/console/sign-in/return`: signing in at a provider of OpenID
//! Connect.
//!
//! Guarantees that only the browser that began a sign-in ends it. The session's cookie is for this
//! site alone, so it is not sent with the redirect from the provider: a page that goes on from here
//! comes between.

use std::net::SocketAddr;

use askama::Template;
use axum::extract::{ConnectInfo, Query, State};
use axum::http::header::{HOST, SET_COOKIE};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{AppendHeaders, IntoResponse, Redirect, Response};
use percent_encoding::percent_decode_str;

use super::sign_in::NextPage;
use crate::forms::page_of_console;
use crate::pages::encode;
use crate::shell::{Shell, Visitor, page};
use crate::state::ConsoleState;
use tollgate_admin::problem_details::ProblemDetails;
use tollgate_identity::openid::pending::PendingSignIn;
use tollgate_identity::openid::provider::ProviderAnswer;
use tollgate_limiter::clock;
use tollgate_team::accounts::problems;

/// Where a browser comes back to.
const RETURN: &str = "/console/sign-in/return";

/// Where a sign-in is begun by hand.
const SIGN_IN: &str = "/console/sign-in";

/// Letters of the page to go on with, in a cookie.
const MAX_NEXT: usize = 2_048;

#[derive(Template)]
#[template(path = "signed_in.html")]
struct SignedInPage {
    shell: Shell,
    /// Where to go on.
    next: String,
}

/// `GET /console/sign-in/provider`: a link of the page for signing in. Not a form, since browsers
/// keep forms from leading to the provider (`form-action`).
pub async fn begin(
    State(console): State<ConsoleState>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    visitor: Visitor,
    headers: HeaderMap,
    Query(next): Query<NextPage>,
) -> Response {
    let proves = next.proves();
    let next = page_of_console(next.page());
    // Another site's page would use up what its visitor's network may begin, or sign them in
    // unasked.
    if !is_at_home(&console, &headers) || console.admin.origins.check_site(&headers).is_err() {
        return Redirect::to(&format!(
            "{}{SIGN_IN}?page={}",
            home(&console),
            encode(&next)
        ))
        .into_response();
    }
    match begun(&console, peer, &next, proves).await {
        Ok((cookie, place)) => ([(SET_COOKIE, cookie)], Redirect::to(&place)).into_response(),
        Err(problem) => console.refuse(&visitor, &problem),
    }
}

/// The cookie of a sign-in, and where it goes on.
async fn begun(
    console: &ConsoleState,
    peer: SocketAddr,
    next: &str,
    proves: bool,
) -> Result<(HeaderValue, String), ProblemDetails> {
    let accounts = console.accounts()?;
    let provider = &accounts.provider()?.provider;
    accounts.start_at_provider(peer.ip()).await?;
    let mut next = encode(next);
    if next.len() > MAX_NEXT {
        next.clear();
    }
    let Ok(pending) = PendingSignIn::begin(now(), next, proves) else {
        return Err(ProblemDetails::provider_away(
            "the system has no random numbers",
        ));
    };
    let place = match provider.sign_in_url(&pending, &return_to(console)).await {
        Ok(place) => place,
        Err(fault) => {
            return Err(problems::provider_for_strangers(provider.issuer(), &fault));
        }
    };
    let key = accounts.sign_in_key().await?;
    match accounts.cookies.begin_sign_in(&pending.text(&key)) {
        Some(cookie) => Ok((cookie, place)),
        None => Err(ProblemDetails::bad_request(
            "the page to go on with is too odd",
        )),
    }
}

/// `GET /console/sign-in/return`
pub async fn finish(
    State(console): State<ConsoleState>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    visitor: Visitor,
    headers: HeaderMap,
    Query(answer): Query<ProviderAnswer>,
) -> Response {
    // The query that the provider has sent along stands on no page.
    let visitor = visitor.at(SIGN_IN);
    let mut response = match finished(&console, &headers, &answer, peer).await {
        Ok((cookie, next)) => {
            let shown = page(&SignedInPage {
                shell: visitor.shell(&console, "", "Signed in"),
                next,
            });
            (AppendHeaders([(SET_COOKIE, cookie)]), shown).into_response()
        }
        Err(problem) => console.refuse(&visitor, &problem),
    };
    // The cookie of a sign-in is good for one answer.
    if let Ok(accounts) = console.accounts()
        && let Some(cookie) = accounts.cookies.end_sign_in()
    {
        response.headers_mut().append(SET_COOKIE, cookie);
    }
    response
}

/// The cookie of the new session, and the page to go on with.
async fn finished(
    console: &ConsoleState,
    headers: &HeaderMap,
    answer: &ProviderAnswer,
    peer: SocketAddr,
) -> Result<(HeaderValue, String), ProblemDetails> {
    let accounts = console.accounts()?;
    accounts.provider()?;
    accounts.start_at_provider(peer.ip()).await?;
    let key = accounts.sign_in_key().await?;
    let kept = accounts.cookies.sign_in(headers);
    let pending = kept
        .and_then(|kept| PendingSignIn::read(kept, &key, now()))
        .ok_or_else(|| {
            ProblemDetails::unauthenticated(
                "this browser has begun no sign-in, or more than ten minutes ago",
            )
            .hint("begin anew from the page for signing in, with cookies allowed")
        })?;
    let next = page_of_console(&percent_decode_str(&pending.next).decode_utf8_lossy());
    let cookie = accounts
        .sign_in_by_provider(answer, &return_to(console), &pending, peer.ip())
        .await?;
    Ok((cookie, next))
}

fn now() -> u64 {
    clock::unix_micros() / 1_000_000
}

/// The address at which browsers find the console: the name that the file has, or else the address
/// of the port. Never the name in a request, which its sender chooses.
fn home(console: &ConsoleState) -> String {
    let origins = &console.admin.origins;
    match &origins.public_url {
        Some(url) => url.to_string(),
        None => format!(
            "{}://{}",
            if origins.has_tls { "https" } else { "http" },
            console.address
        ),
    }
}

fn return_to(console: &ConsoleState) -> String {
    format!("{}{RETURN}", home(console))
}

/// Whether the browser is where it comes back to, and so has the cookie then. A proxy in front may
/// name another host.
fn is_at_home(console: &ConsoleState, headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    console.admin.origins.public_url.is_some() || host == Some(&console.address.to_string())
}
