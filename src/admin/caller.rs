//! The caller of the admin port: who asks for something, and what they may do.
//!
//! Guarantees that with accounts nothing is answered without one but what is open to everybody: a
//! path that [`OPEN`] does not list wants a caller. Without accounts whoever reaches the port may
//! do everything.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use axum::extract::{ConnectInfo, FromRequestParts, Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tollgate_policies::model::ObjectKind;
use tollgate_policies::people::{
    ApplicationRole, AuditOutcome, AuditRecord, FleetRole, Operation, Rights, SESSION_BEGINNING,
    may,
};

use super::accounts::AccountService;
pub use super::accounts::role_words::{application_word, fleet_word};
use super::browser_guard::{OPEN, OPERATOR};
use super::problem_details::ProblemDetails;
use super::state::AdminState;

/// The person or program that asks. An argument of a page: without a caller the page is not
/// reached.
#[derive(Clone)]
pub struct Caller {
    /// The account. Without accounts, what the request says of its operator.
    pub name: String,
    pub rights: Rights,
    pub by: CallerProof,
    address: String,
    /// Of a gateway with accounts.
    accounts: Option<Arc<AccountService>>,
    /// The session that forms are bound to.
    session: Arc<str>,
    /// Of a program.
    token: Arc<str>,
}

/// How a caller is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallerProof {
    /// There are no accounts.
    Local,
    /// Signed in, in the console.
    Session,
    /// A program.
    Token,
}

impl Caller {
    /// The caller of a gateway without accounts.
    pub fn local(headers: &HeaderMap, address: String) -> Self {
        let name = headers
            .get(OPERATOR)
            .and_then(|name| name.to_str().ok())
            .unwrap_or_default();
        Self {
            name: name.trim().to_owned(),
            rights: Rights::admin(),
            by: CallerProof::Local,
            address,
            accounts: None,
            session: "".into(),
            token: "".into(),
        }
    }

    /// The caller that a request says it is from. `None`: it does not say so, or what it says does
    /// not hold any more.
    ///
    /// # Errors
    /// When the database cannot be asked.
    pub async fn of(
        accounts: Option<&Arc<AccountService>>,
        parts: CallerParts<'_>,
    ) -> Result<Option<Self>, ProblemDetails> {
        let Some(service) = accounts else {
            return Ok(Some(Self::local(parts.headers, parts.address())));
        };
        let known = |name: String, rights, by, session: &str| Self {
            name,
            rights,
            by,
            address: parts.address(),
            accounts: Some(service.clone()),
            session: session.into(),
            token: "".into(),
        };
        if let Some(token) = bearer(parts.headers) {
            let found = service.check_token(token, parts.ip()).await?;
            let known =
                found.map(|account| known(account.name, account.rights, CallerProof::Token, ""));
            return Ok(known.map(|known| Self {
                token: token.into(),
                ..known
            }));
        }
        let Some(secret) = service.cookies.session(parts.headers) else {
            return Ok(None);
        };
        let used = match parts.session {
            SessionUse::Ignored => return Ok(None),
            SessionUse::Idle => false,
            SessionUse::Used => true,
        };
        let found = service.check_session(secret, parts.ip(), used).await?;
        Ok(found.map(|account| known(account.name, account.rights, CallerProof::Session, secret)))
    }

    /// This caller as of now: while a body was on its way, somebody may have taken rights away, or
    /// the account.
    ///
    /// # Errors
    /// When what they came in by does not hold any more, and when the database cannot be asked.
    pub async fn anew(&self) -> Result<Self, ProblemDetails> {
        let Some(service) = &self.accounts else {
            return Ok(self.clone());
        };
        let found = match self.by {
            CallerProof::Token => service
                .people
                .token(&self.token)
                .await
                .map(|found| found.map(|(account, _)| account)),
            _ => service
                .people
                .session(&self.session)
                .await
                .map(|found| found.map(|(account, _)| account)),
        };
        let found = found.map_err(|error| ProblemDetails::database(&error))?;
        let gone = || ProblemDetails::unauthenticated("meanwhile this sign-in or token has ended");
        found
            .map(|account| Self {
                rights: account.rights,
                ..self.clone()
            })
            .ok_or_else(gone)
    }

    /// The account; without accounts what somebody is `called`.
    pub fn account_or(&self, called: String) -> String {
        if self.by == CallerProof::Local {
            called
        } else {
            self.name.clone()
        }
    }

    /// Whether this caller may do `operation` in `application`, which is empty for what is the
    /// fleet's.
    ///
    /// # Errors
    /// When not: names the role that is missing.
    pub fn may(&self, operation: Operation, application: &str) -> Result<(), ProblemDetails> {
        if may(&self.rights, operation, application) {
            return Ok(());
        }
        Err(ProblemDetails::missing_role(
            &self.name,
            &least_role(operation, application),
        ))
    }

    /// Whether this caller may do `in_fleet` with every limit, or `in_application` with those of
    /// `application`.
    ///
    /// # Errors
    /// When neither.
    pub fn may_with_limit(
        &self,
        application: Option<&str>,
        in_fleet: Operation,
        in_application: Operation,
    ) -> Result<(), ProblemDetails> {
        match application {
            Some(application) if may(&self.rights, in_application, application) => Ok(()),
            _ => self.may(in_fleet, ""),
        }
    }

    /// Whether this caller may look at what is no application's: nodes, routes and the numbers of
    /// limits.
    ///
    /// # Errors
    /// When the account has no role at all.
    pub fn may_look(&self) -> Result<(), ProblemDetails> {
        match self.rights.fleet.is_some() || !self.rights.applications.is_empty() {
            true => Ok(()),
            false => Err(ProblemDetails::missing_role(
                &self.name,
                "viewer of some application",
            )),
        }
    }

    /// Whether this caller may change policies of `application`, or of some.
    ///
    /// # Errors
    /// When not.
    pub fn may_change_policies(&self, application: Option<&str>) -> Result<(), ProblemDetails> {
        if let Some(application) = application {
            return self.may(Operation::Change(ObjectKind::Strategy), application);
        }
        let edits = self
            .rights
            .applications
            .values()
            .any(|role| *role >= ApplicationRole::Editor);
        if edits || self.rights.is_admin() {
            return Ok(());
        }
        Err(ProblemDetails::missing_role(
            &self.name,
            "editor of some application",
        ))
    }

    /// The session that forms of this caller's pages are bound to. A secret.
    pub fn session(&self) -> &str {
        &self.session
    }

    /// This caller, in another session.
    pub fn in_session(&self, secret: &str) -> Self {
        Self {
            session: secret.into(),
            ..self.clone()
        }
    }

    /// Where this caller is.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Keeps in the audit log what this caller did. Without accounts there is none.
    pub async fn record(&self, action: &str, object: &str, outcome: AuditOutcome, detail: &str) {
        let Some(accounts) = &self.accounts else {
            return;
        };
        let record = AuditRecord {
            account: self.name.clone(),
            action: action.to_owned(),
            object: object.to_owned(),
            address: self.address.clone(),
            outcome,
            detail: detail.to_owned(),
        };
        accounts.record(&record).await;
    }

    /// Takes the roles in an application that this caller has removed from whoever has one.
    pub async fn forget_application(&self, application: &str) {
        let Some(accounts) = &self.accounts else {
            return;
        };
        match accounts.people.forget_application(application).await {
            Ok(names) => {
                let detail = format!("had a role in {application}, which was removed");
                for name in names {
                    self.record(
                        "account_change",
                        &format!("account {name}"),
                        AuditOutcome::Done,
                        &detail,
                    )
                    .await;
                }
            }
            Err(error) => tracing::error!(
                %error, application,
                "the application was removed, and the roles in it were not: take them by hand before another one is called so"
            ),
        }
    }

    /// Keeps in the audit log that this caller was refused something, though they go away
    /// meanwhile.
    pub async fn record_refusal(&self, method: Method, path: String, status: StatusCode) {
        let is_recorded = || {
            self.accounts
                .as_ref()
                .is_some_and(|accounts| accounts.records_refusal(&self.name))
        };
        if status != StatusCode::FORBIDDEN || !is_recorded() {
            return;
        }
        let caller = self.clone();
        let recording = tokio::spawn(async move {
            caller
                .record(
                    "refused",
                    &format!("{method} {path}"),
                    AuditOutcome::Refused,
                    "",
                )
                .await;
        });
        if let Err(broken) = recording.await {
            tracing::error!(%broken, "a refusal is not in the audit log: this is a defect of the gateway");
        }
    }
}

/// The parts of a request that say who it is from.
#[derive(Clone, Copy)]
pub struct CallerParts<'a> {
    pub headers: &'a HeaderMap,
    pub peer: Option<SocketAddr>,
    pub session: SessionUse,
}

/// The part of a session in a request that has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionUse {
    /// It does not count where a form's token is not asked for.
    Ignored,
    /// It counts, and stays as idle as it was: a script asks by itself.
    Idle,
    /// Somebody uses it.
    Used,
}

impl CallerParts<'_> {
    fn ip(&self) -> IpAddr {
        self.peer
            .map_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED), |peer| peer.ip())
    }

    fn address(&self) -> String {
        self.peer
            .map_or_else(String::new, |peer| peer.ip().to_canonical().to_string())
    }
}

/// The address that a request came from.
pub fn peer(request: &Request) -> Option<SocketAddr> {
    request
        .extensions()
        .get::<ConnectInfo<SocketAddr>>()
        .map(|ConnectInfo(peer)| *peer)
}

/// Lets callers pass, and whoever asks for what is open to everybody.
pub async fn require_caller(
    State(state): State<AdminState>,
    mut request: Request,
    next: Next,
) -> Response {
    if OPEN.contains(&request.uri().path()) {
        return next.run(request).await;
    }
    let reads = [Method::GET, Method::HEAD].contains(request.method());
    let session = if reads {
        SessionUse::Used
    } else {
        SessionUse::Ignored
    };
    let parts = CallerParts {
        headers: request.headers(),
        peer: peer(&request),
        session,
    };
    let caller = match Caller::of(state.accounts.as_ref(), parts).await {
        Ok(Some(caller)) => caller,
        Ok(None) => {
            return unknown_caller(state.accounts.as_deref())
                .await
                .into_response();
        }
        Err(problem) => return problem.into_response(),
    };
    request.extensions_mut().insert(caller.clone());
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let response = match caller.may_look() {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    };
    caller.record_refusal(method, path, response.status()).await;
    response
}

/// Why somebody unknown is refused.
pub async fn unknown_caller(accounts: Option<&AccountService>) -> ProblemDetails {
    match accounts {
        Some(accounts) => match accounts.has_accounts().await {
            Ok(true) => ProblemDetails::unauthenticated("this needs an account").hint(
                "send Authorization: Bearer tgt_…, with a token of tollgate token create; or sign in at /console",
            ),
            Ok(false) => ProblemDetails::unauthenticated("there is no account yet")
                .hint("make the first: tollgate account create NAME --admin --config FILE"),
            Err(error) => ProblemDetails::database_for_strangers(&error),
        },
        None => ProblemDetails::unauthenticated("this needs an account"),
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = ProblemDetails;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ProblemDetails> {
        let caller = parts.extensions.get::<Self>().cloned();
        caller.ok_or_else(|| ProblemDetails::unauthenticated("this needs an account"))
    }
}

/// The token that a program sends. Never a session's secret: that is for browsers, which are told
/// apart from other sites.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.starts_with(SESSION_BEGINNING))
        .then_some(token)
}

/// The least role that is enough, in words.
fn least_role(operation: Operation, application: &str) -> String {
    let roles = [
        ApplicationRole::Viewer,
        ApplicationRole::Editor,
        ApplicationRole::Owner,
    ];
    let role = roles
        .into_iter()
        .find(|role| may(&Rights::of(application, *role), operation, application));
    if let Some(role) = role.filter(|_| !application.is_empty()) {
        return format!(
            "{} of the application {application}",
            application_word(role)
        );
    }
    let fleet = [FleetRole::Viewer, FleetRole::Operator, FleetRole::Admin];
    let enough = |role: &FleetRole| {
        may(
            &Rights {
                fleet: Some(*role),
                ..Rights::default()
            },
            operation,
            application,
        )
    };
    match fleet.into_iter().find(enough) {
        Some(FleetRole::Viewer) => "viewer of the fleet".to_owned(),
        found => found.map_or("admin", fleet_word).to_owned(),
    }
}

#[cfg(test)]
mod tests;
