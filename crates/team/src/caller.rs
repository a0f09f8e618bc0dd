//! The caller of the admin port in a gateway with people: a signed-in person or a program with a
//! token, and their rights.
//!
//! Without accounts, everybody who reaches the port may do everything.

use crate::database_problem::database_problem;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use axum::extract::{FromRequestParts, Request};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method};
use futures_util::future::BoxFuture;
use tollgate_policies::model::ObjectKind;
use tollgate_policies::people::{
    ApplicationRole, AuditOutcome, AuditRecord, AuthorProof, ChangeAuthor, FleetRole, Operation,
    PeopleError, Rights, SESSION_BEGINNING, may,
};

use super::Team;
use super::accounts::problems;
use super::accounts::role_words::{application_word, fleet_word};
use tollgate_admin::caller::{
    AdminCaller, AdminOperation, AdminRecord, Authorizer, Callers, named_operator, peer,
};
use tollgate_admin::problem_details::ProblemDetails;

/// The person or program that asks. An argument of a page: without a caller the page is not
/// reached.
#[derive(Clone)]
pub struct Caller {
    /// The account. Without accounts, what the request says of its operator.
    pub name: String,
    pub rights: Rights,
    pub by: CallerProof,
    address: String,
    team: Team,
    /// The session that forms are bound to.
    session: Arc<str>,
    /// The secret of a program; empty for others.
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
    pub fn local(team: Team, parts: CallerParts<'_>) -> Self {
        let name = named_operator(parts.headers).to_owned();
        Self::with_rights(team, parts, name, Rights::admin())
    }

    fn with_rights(team: Team, parts: CallerParts<'_>, name: String, rights: Rights) -> Self {
        Self {
            name,
            rights,
            by: CallerProof::Local,
            address: parts.address(),
            team,
            session: "".into(),
            token: "".into(),
        }
    }

    /// This caller as of now: while a body was on its way, somebody may have taken rights away, or
    /// the account.
    ///
    /// # Errors
    /// When what they came in by does not hold any more, and when the database cannot be asked.
    pub async fn anew(&self) -> Result<Self, ProblemDetails> {
        let Some(service) = &self.team.accounts else {
            return Ok(self.clone());
        };
        let people = &service.people;
        let account = if self.by == CallerProof::Token {
            people
                .token(&self.token)
                .await
                .map_err(database_problem)?
                .map(|found| found.0)
        } else {
            people
                .session(&self.session)
                .await
                .map_err(database_problem)?
                .map(|found| found.0)
        };
        match account {
            Some(account) => Ok(self.with(&account.rights)),
            None => Err(problems::people(&PeopleError::SignedOut)),
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

    /// Whether this caller may do `in_fleet` with every limit, or `in_application` with a limit of
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
        if self.rights.fleet.is_some() || !self.rights.applications.is_empty() {
            return Ok(());
        }
        Err(ProblemDetails::missing_role(
            &self.name,
            "viewer of some application",
        ))
    }

    /// Whether this caller may change policies of `application`, or of some.
    ///
    /// # Errors
    /// When not.
    pub fn may_change_policies(&self, application: Option<&str>) -> Result<(), ProblemDetails> {
        if let Some(application) = application {
            return self.may(Operation::Change(ObjectKind::Strategy), application);
        }
        let mut roles = self.rights.applications.values();
        if self.rights.is_admin() || roles.any(|role| *role >= ApplicationRole::Editor) {
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
        let Some(accounts) = &self.team.accounts else {
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

    /// This caller as the author of changes. `None`: there are no accounts.
    pub fn author(&self) -> Option<ChangeAuthor<'_>> {
        let proof = match self.by {
            CallerProof::Local => return None,
            CallerProof::Session => AuthorProof::Session(&self.session),
            CallerProof::Token => AuthorProof::Token(&self.token),
        };
        Some(ChangeAuthor {
            account: &self.name,
            address: &self.address,
            proof,
        })
    }

    /// This caller with other rights: those of a moment.
    pub fn with(&self, rights: &Rights) -> Self {
        Self {
            rights: rights.clone(),
            ..self.clone()
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
    /// The session does not count where a form's token is not asked for.
    Ignored,
    /// The session counts, and stays as idle as it was: a script asks by itself.
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

impl Team {
    /// The caller that a request says it is from. `None`: the request does not say so, or what it
    /// says does not hold any more.
    ///
    /// # Errors
    /// When the database cannot be asked.
    pub async fn caller(&self, parts: CallerParts<'_>) -> Result<Option<Caller>, ProblemDetails> {
        let Some(service) = &self.accounts else {
            return Ok(Some(Caller::local(self.clone(), parts)));
        };
        if let Some(token) = bearer(parts.headers) {
            let Some(account) = service.check_token(token, parts.ip()).await? else {
                return Ok(None);
            };
            let team = self.clone();
            return Ok(Some(Caller {
                by: CallerProof::Token,
                token: token.into(),
                ..Caller::with_rights(team, parts, account.name, account.rights)
            }));
        }
        let Some(secret) = service.cookies.session(parts.headers) else {
            return Ok(None);
        };
        let is_used = match parts.session {
            SessionUse::Ignored => return Ok(None),
            SessionUse::Idle => false,
            SessionUse::Used => true,
        };
        let found = service.check_session(secret, parts.ip(), is_used).await?;
        let Some(account) = found else {
            return Ok(None);
        };
        Ok(Some(Caller {
            by: CallerProof::Session,
            session: secret.into(),
            ..Caller::with_rights(self.clone(), parts, account.name, account.rights)
        }))
    }

    /// Why somebody unknown is refused.
    pub async fn unknown_caller(&self) -> ProblemDetails {
        match &self.accounts {
            Some(accounts) => accounts.unknown_caller().await,
            None => ProblemDetails::unauthenticated("this needs an account"),
        }
    }
}

impl Callers for Team {
    fn identify<'a>(
        &'a self,
        request: &'a mut Request,
    ) -> BoxFuture<'a, Result<AdminCaller, ProblemDetails>> {
        Box::pin(async move {
            let reads = [Method::GET, Method::HEAD].contains(request.method());
            let parts = CallerParts {
                headers: request.headers(),
                peer: peer(request),
                session: if reads {
                    SessionUse::Used
                } else {
                    SessionUse::Ignored
                },
            };
            let Some(caller) = self.caller(parts).await? else {
                return Err(self.unknown_caller().await);
            };
            request.extensions_mut().insert(caller.clone());
            Ok(AdminCaller::new(Arc::new(caller)))
        })
    }
}

impl Authorizer for Caller {
    fn authorize(&self, operation: AdminOperation<'_>) -> Result<(), ProblemDetails> {
        match operation {
            AdminOperation::View => self.may_look(),
            AdminOperation::Explain => self.may(Operation::ViewFleet, ""),
            AdminOperation::ViewBuckets(limit) => {
                let application = self.team.application_of(limit);
                self.may_with_limit(application, Operation::ViewFleet, Operation::View)
            }
            AdminOperation::ChangeBuckets(limit) => {
                let application = self.team.application_of(limit);
                let change = Operation::Change(ObjectKind::Strategy);
                self.may_with_limit(application, Operation::ActOnFleet, change)
            }
        }
    }

    fn account(&self) -> Option<&str> {
        match self.by {
            CallerProof::Local => None,
            CallerProof::Session | CallerProof::Token => Some(&self.name),
        }
    }

    fn record_change<'a>(&'a self, entry: AdminRecord<'a>) -> BoxFuture<'a, ()> {
        let AdminRecord {
            action,
            object,
            detail,
        } = entry;
        Box::pin(self.record(action, object, AuditOutcome::Done, detail))
    }

    /// Goes on though the client goes away meanwhile.
    fn record_refusal(&self, method: Method, path: String) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            match &self.team.accounts {
                Some(accounts) if accounts.records_refusal(&self.name) => {}
                Some(_) | None => return,
            }
            let caller = self.clone();
            let recording = tokio::spawn(async move {
                let object = format!("{method} {path}");
                caller
                    .record("refused", &object, AuditOutcome::Refused, "")
                    .await;
            });
            if let Err(broken) = recording.await {
                tracing::error!(%broken, "a refusal is not in the audit log: this is a defect of the gateway");
            }
        })
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = ProblemDetails;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ProblemDetails> {
        let caller = parts.extensions.get::<Self>().cloned();
        caller.ok_or_else(|| ProblemDetails::unauthenticated("this needs an account"))
    }
}

/// The token that a program sends. Never a session's secret: requests of a session are checked for
/// the site that they come from.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    if scheme.eq_ignore_ascii_case("bearer") && !token.starts_with(SESSION_BEGINNING) {
        Some(token)
    } else {
        None
    }
}

/// The least role that is enough, in words.
fn least_role(operation: Operation, application: &str) -> String {
    if !application.is_empty() {
        for role in [
            ApplicationRole::Viewer,
            ApplicationRole::Editor,
            ApplicationRole::Owner,
        ] {
            if may(&Rights::new(application, role), operation, application) {
                let role = application_word(role);
                return format!("{role} of the application {application}");
            }
        }
    }
    for role in [FleetRole::Viewer, FleetRole::Operator, FleetRole::Admin] {
        let rights = Rights {
            fleet: Some(role),
            ..Rights::default()
        };
        if may(&rights, operation, application) {
            return match role {
                FleetRole::Viewer => "viewer of the fleet".to_owned(),
                FleetRole::Operator | FleetRole::Admin => fleet_word(role).to_owned(),
            };
        }
    }
    "admin".to_owned()
}

#[cfg(test)]
mod tests;
