//! The caller of the admin port: a trait says who asks and what they may do.
//!
//! Guarantees that no page is answered without a caller but those that [`OPEN`] lists. Without
//! people, everybody who reaches the port may do everything: [`LocalCallers`].

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{ConnectInfo, FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::future::BoxFuture;

use super::browser_guard::{OPEN, OPERATOR};
use super::problem_details::ProblemDetails;

/// The people and programs that may use the admin port.
pub trait Callers: Send + Sync {
    /// Finds out who a request is from. Pages besides those of the operator's port may find more of
    /// the caller in the request's extensions.
    ///
    /// # Errors
    /// When the request is from nobody known, or that cannot be found out.
    fn identify<'a>(
        &'a self,
        request: &'a mut Request,
    ) -> BoxFuture<'a, Result<AdminCaller, ProblemDetails>>;
}

/// The rights of a caller, and the record of what they did.
pub trait Authorizer: Send + Sync {
    /// Whether the caller may do `operation`.
    ///
    /// # Errors
    /// When not: says what they lack.
    fn authorize(&self, operation: AdminOperation<'_>) -> Result<(), ProblemDetails>;

    /// The name of the caller's account. `None`: there are no accounts, and a request says itself
    /// who asks.
    fn account(&self) -> Option<&str>;

    /// Keeps what the caller changed in the audit log, if there is one.
    fn record_change<'a>(&'a self, entry: AdminRecord<'a>) -> BoxFuture<'a, ()>;

    /// Keeps in the audit log that the caller was refused something.
    fn record_refusal(&self, method: Method, path: String) -> BoxFuture<'_, ()>;
}

/// An operation of the pages of the admin port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminOperation<'a> {
    /// Looks at what is no application's: nodes, routes and the numbers of limits.
    View,
    /// Asks what becomes of any request.
    Explain,
    /// Looks at buckets of this limit: their keys name clients.
    ViewBuckets(&'a str),
    /// Changes buckets of this limit.
    ChangeBuckets(&'a str),
}

/// A change that a caller made, for the audit log.
#[derive(Clone, Copy, Debug)]
pub struct AdminRecord<'a> {
    pub action: &'a str,
    pub object: &'a str,
    pub detail: &'a str,
}

/// The person or program that asks. An argument of a page: without a caller the page is not
/// reached.
#[derive(Clone)]
pub struct AdminCaller(Arc<dyn Authorizer>);

impl AdminCaller {
    pub fn new(authorizer: Arc<dyn Authorizer>) -> Self {
        Self(authorizer)
    }

    /// Whether the caller may do `operation`.
    ///
    /// # Errors
    /// When not: says what they lack.
    pub fn authorize(&self, operation: AdminOperation<'_>) -> Result<(), ProblemDetails> {
        self.0.authorize(operation)
    }

    /// The account; without accounts what somebody is `called`.
    pub fn account_or(&self, called: String) -> String {
        match self.0.account() {
            Some(account) => account.to_owned(),
            None => called,
        }
    }

    /// Keeps what the caller changed in the audit log, if there is one.
    pub async fn record_change(&self, entry: AdminRecord<'_>) {
        self.0.record_change(entry).await;
    }
}

/// Callers of a port without accounts: each may do everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalCallers;

impl Callers for LocalCallers {
    fn identify<'a>(
        &'a self,
        _: &'a mut Request,
    ) -> BoxFuture<'a, Result<AdminCaller, ProblemDetails>> {
        Box::pin(async { Ok(AdminCaller::new(Arc::new(Self))) })
    }
}

impl Authorizer for LocalCallers {
    fn authorize(&self, _: AdminOperation<'_>) -> Result<(), ProblemDetails> {
        Ok(())
    }

    fn account(&self) -> Option<&str> {
        None
    }

    fn record_change<'a>(&'a self, _: AdminRecord<'a>) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }

    fn record_refusal(&self, _: Method, _: String) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

/// The name that a request without an account gives its operator.
pub fn named_operator(headers: &HeaderMap) -> &str {
    match headers.get(OPERATOR) {
        Some(name) => name.to_str().unwrap_or_default().trim(),
        None => "",
    }
}

/// The address that a request came from.
pub fn peer(request: &Request) -> Option<SocketAddr> {
    let info = request.extensions().get::<ConnectInfo<SocketAddr>>()?;
    Some(info.0)
}

/// Lets callers pass, and requests for what is open to everybody.
pub async fn require_caller(
    State(callers): State<Arc<dyn Callers>>,
    mut request: Request,
    next: Next,
) -> Response {
    if OPEN.contains(&request.uri().path()) {
        return next.run(request).await;
    }
    let caller = match callers.identify(&mut request).await {
        Ok(caller) => caller,
        Err(problem) => return problem.into_response(),
    };
    request.extensions_mut().insert(caller.clone());
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let response = match caller.authorize(AdminOperation::View) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    };
    if is_refused(&response) {
        caller.0.record_refusal(method, path).await;
    }
    response
}

/// Whether a response says that its caller may not do something.
pub fn is_refused(response: &Response) -> bool {
    response.status() == StatusCode::FORBIDDEN
}

impl<S: Sync> FromRequestParts<S> for AdminCaller {
    type Rejection = ProblemDetails;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ProblemDetails> {
        let caller = parts.extensions.get::<Self>().cloned();
        caller.ok_or_else(|| ProblemDetails::unauthenticated("this needs an account"))
    }
}
