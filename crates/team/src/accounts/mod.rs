//! The accounts of a gateway with a database of policies: `cookie` has the cookies of sessions,
//! `problems` why something cannot be done, `presence` the sessions whose owners were asked lately,
//! `provider` the place where people may sign in, `openid` the people who do, and `role_words`
//! roles in words.

pub mod cookie;
pub mod openid;
mod presence;
pub mod problems;
pub mod provider;
pub mod role_words;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::http::HeaderValue;
use tollgate_limiter::algorithm::token_bucket::TokenBucket;
use tollgate_limiter::limit::algorithm::QuotaError;
use tollgate_policies::database::DatabaseError;
use tollgate_policies::people::{
    AuditEntry, AuditOutcome, AuditRecord, AuditVerdict, AuthorProof, ChangeAuthor, Deed, People,
    PeopleChange, PeopleError, Secret, SessionTerms, UserAccount,
};

use self::cookie::SessionCookies;
use self::presence::ProvenSessions;
use self::provider::ProviderSignIn;
use crate::audit::bounded_records::BoundedRecords;
use crate::audit::verification::AuditVerification;
use tollgate_admin::problem_details::ProblemDetails;
use tollgate_identity::attempts::{Attempt, FailedAttempts};
use tollgate_identity::refusal::AuthenticationRefusal;
use tollgate_limiter::clock;

/// Without a request for so long, a session ends.
const IDLE: Duration = Duration::from_secs(30 * 60);

/// No session is longer: a working day.
const ABSOLUTE: Duration = Duration::from_secs(12 * 3_600);

/// How long a login may wait for others of its network.
const PATIENCE: Duration = Duration::from_secs(5);

/// Logins from one network that may fail at once; then one each [`FAILURE_EVERY_US`].
const FAILURES: u64 = 10;
const FAILURE_EVERY_US: u64 = 30_000_000;

/// Unknown tokens from one network, and unknown sessions, at once; then one each
/// [`TOKEN_FAILURE_EVERY_US`]. They cannot be guessed, so this bounds what the database is asked.
const TOKEN_FAILURES: u64 = 60;
const TOKEN_FAILURE_EVERY_US: u64 = 1_000_000;

/// Steps of sign-ins at the provider from one network at once; then one each [`START_EVERY_US`]. A
/// sign-in has two.
const STARTS: u64 = 60;
const START_EVERY_US: u64 = 2_000_000;

/// Refusals of one account that are recorded at once, and as many of its sessions; then one of each
/// kind each [`RECORD_EVERY_US`].
const RECORDS: u64 = 60;
const RECORD_EVERY_US: u64 = 60_000_000;

/// The people who may use the admin port.
pub struct AccountService {
    pub people: People,
    pub cookies: SessionCookies,
    attempts: Arc<FailedAttempts>,
    token_attempts: Arc<FailedAttempts>,
    /// Lookups of sessions, apart from lookups of tokens: a flood of the one keeps nobody from the
    /// other.
    session_attempts: Arc<FailedAttempts>,
    /// Sign-ins at the provider that have begun or come back.
    starts: Arc<FailedAttempts>,
    /// Sign-ins at the provider that were refused.
    refused_starts: Arc<FailedAttempts>,
    refusals: BoundedRecords,
    /// Sessions that have begun or ended: somebody with a password, or with a provider that asks
    /// nothing, could fill the log with them.
    sessions: BoundedRecords,
    /// Sessions whose owners the provider has asked lately.
    proven: ProvenSessions,
    /// The provider that people may sign in at.
    openid: Option<ProviderSignIn>,
    verification: AuditVerification,
    /// Whether an account was seen. The last admin cannot be taken away.
    has_some: AtomicBool,
}

impl AccountService {
    /// # Errors
    /// Never: the bound on logins is within the limiter's bounds.
    pub fn new(
        people: People,
        cookies: SessionCookies,
        openid: Option<ProviderSignIn>,
    ) -> Result<Self, QuotaError> {
        let attempts = FailedAttempts::new(bound(FAILURE_EVERY_US, FAILURES)?);
        let unknown_secrets = bound(TOKEN_FAILURE_EVERY_US, TOKEN_FAILURES)?;
        let starts = FailedAttempts::new(bound(START_EVERY_US, STARTS)?);
        let refused_starts = FailedAttempts::new(bound(FAILURE_EVERY_US, FAILURES)?);
        Ok(Self {
            people,
            cookies,
            starts: Arc::new(starts),
            refused_starts: Arc::new(refused_starts),
            attempts: Arc::new(attempts),
            token_attempts: Arc::new(FailedAttempts::new(unknown_secrets)),
            session_attempts: Arc::new(FailedAttempts::new(unknown_secrets)),
            refusals: BoundedRecords::new(bound(RECORD_EVERY_US, RECORDS)?),
            sessions: BoundedRecords::new(bound(RECORD_EVERY_US, RECORDS)?),
            proven: ProvenSessions::default(),
            openid,
            verification: AuditVerification::default(),
            has_some: AtomicBool::new(false),
        })
    }

    /// Whether there is an account at all.
    ///
    /// # Errors
    /// When the database cannot be asked.
    pub async fn has_accounts(&self) -> Result<bool, DatabaseError> {
        if !self.has_some.load(Ordering::Relaxed) {
            self.has_some
                .store(!self.people.accounts().await?.is_empty(), Ordering::Relaxed);
        }
        Ok(self.has_some.load(Ordering::Relaxed))
    }

    /// Why somebody unknown is refused.
    pub async fn unknown_caller(&self) -> ProblemDetails {
        match self.has_accounts().await {
            Ok(true) => ProblemDetails::unauthenticated("this needs an account").hint(
                "send Authorization: Bearer tgt_…, with a token of tollgate token create; or sign in at /console",
            ),
            Ok(false) => ProblemDetails::unauthenticated("there is no account yet")
                .hint("make the first: tollgate account create NAME --admin --config FILE"),
            Err(error) => problems::database_for_strangers(&error),
        }
    }

    /// The account with this name and password. Says the same, and takes as long, of a wrong name,
    /// a wrong password and an account that is disabled.
    ///
    /// # Errors
    /// When there is none, when too many logins of the name or from the address have failed, or the
    /// database is away.
    pub async fn check_password(
        &self,
        name: &str,
        password: &str,
        ip: IpAddr,
    ) -> Result<UserAccount, ProblemDetails> {
        // Not recorded without a place: those that failed before are, and strangers could fill a
        // log that nobody may clear.
        let attempt = attempt(
            &self.attempts,
            ip,
            Some(name),
            ProblemDetails::too_many_sign_ins,
        )
        .await?;
        match self.people.log_in(name, password).await {
            Ok(Some(account)) => {
                attempt.succeeded();
                Ok(account)
            }
            Ok(None) => {
                attempt.failed();
                let object = self.claimed_account(name).await;
                self.record_refused_sign_in(&object, ip, "wrong name or password, or disabled")
                    .await;
                Err(ProblemDetails::unauthenticated("the name or the password is wrong")
                    .hint("an administrator sets a new one: tollgate account password NAME --config FILE"))
            }
            Err(error) => Err(problems::database_for_strangers(&error)),
        }
    }

    /// A new session of an account whose proof has been checked, while it is as it was then: never
    /// one that the browser brought along.
    ///
    /// # Errors
    /// When the account is disabled, or the database is away.
    pub async fn begin_session(
        &self,
        account: &UserAccount,
        ip: IpAddr,
        how: &str,
    ) -> Result<Secret, ProblemDetails> {
        let address = ip.to_canonical().to_string();
        let author = ChangeAuthor {
            account: &account.name,
            address: &address,
            proof: AuthorProof::Trusted,
        };
        let begun = self.session_by(&author, account, how).await;
        begun.map_err(|error| problems::people_for_strangers(&error))
    }

    async fn session_by(
        &self,
        author: &ChangeAuthor<'_>,
        account: &UserAccount,
        how: &str,
    ) -> Result<Secret, PeopleError> {
        let terms = SessionTerms {
            idle: IDLE,
            absolute: ABSOLUTE,
        };
        let mut change = self.people.begin(author).await?;
        let (secret, _) = change.begin_session(account, terms).await?;
        let deed = Deed {
            action: "sign_in",
            object: &format!("account {}", account.name),
            detail: how,
        };
        self.commit_session(change, &account.name, &deed).await?;
        Ok(secret)
    }

    /// Ends a change with its entry in the audit log.
    ///
    /// # Errors
    /// When neither is known to stand.
    pub async fn commit(
        &self,
        change: PeopleChange<'_>,
        deed: &Deed<'_>,
    ) -> Result<(), PeopleError> {
        show_entry(&change.commit(deed).await?);
        Ok(())
    }

    /// Like [`commit`](Self::commit), of a session of `account` that begins or ends: recorded as
    /// far as its bound goes.
    ///
    /// # Errors
    /// When neither is known to stand.
    pub async fn commit_session(
        &self,
        change: PeopleChange<'_>,
        account: &str,
        deed: &Deed<'_>,
    ) -> Result<(), PeopleError> {
        if self.sessions.take(account) {
            self.commit(change, deed).await
        } else {
            Ok(change.commit_unrecorded().await?)
        }
    }

    /// Begins a session, as the cookie of it.
    ///
    /// # Errors
    /// Like [`begin_session`](Self::begin_session).
    pub async fn new_session(
        &self,
        account: &UserAccount,
        ip: IpAddr,
        how: &str,
    ) -> Result<HeaderValue, ProblemDetails> {
        let secret = self.begin_session(account, ip, how).await?;
        self.cookies
            .begin(&secret)
            .ok_or_else(|| ProblemDetails::bad_request("the session cannot be sent"))
    }

    /// The account that has this token, as far as the token goes.
    ///
    /// # Errors
    /// When too many tokens from the address were unknown, or the database is away.
    pub async fn check_token(
        &self,
        token: &str,
        ip: IpAddr,
    ) -> Result<Option<UserAccount>, ProblemDetails> {
        let attempt = attempt(
            &self.token_attempts,
            ip,
            None,
            ProblemDetails::too_many_tokens,
        )
        .await?;
        let people = self.people.clone();
        let token = token.to_owned();
        let found = look_up(attempt, async move { people.token(&token).await }).await?;
        Ok(found.map(|(account, _)| account))
    }

    /// The account whose session has this secret, which is in use or only looked at: then it may
    /// become idle.
    ///
    /// # Errors
    /// When too many sessions from the address were unknown, or the database is away.
    pub async fn check_session(
        &self,
        secret: &str,
        ip: IpAddr,
        is_used: bool,
    ) -> Result<Option<UserAccount>, ProblemDetails> {
        let attempt = attempt(
            &self.session_attempts,
            ip,
            None,
            ProblemDetails::too_many_sessions,
        )
        .await?;
        let people = self.people.clone();
        let secret = secret.to_owned();
        let found = look_up(attempt, async move {
            if is_used {
                people.session(&secret).await
            } else {
                people.idle_session(&secret).await
            }
        })
        .await?;
        Ok(found.map(|(account, _)| account))
    }

    /// Looks whether the audit log is as it was written.
    ///
    /// # Errors
    /// When another looks, or the database is away.
    pub async fn verify_audit(&self) -> Result<AuditVerdict, ProblemDetails> {
        self.verification.run(&self.people).await
    }

    /// The account that somebody says to have, for the audit log. A name that is no account's may
    /// be a password, and would stand there for ever.
    async fn claimed_account(&self, name: &str) -> String {
        match self.people.account(name).await {
            Ok(Some(account)) => format!("account {}", account.name),
            Ok(None) | Err(_) => "an unknown name".to_owned(),
        }
    }

    async fn record_refused_sign_in(&self, object: &str, ip: IpAddr, why: &str) {
        self.record(&AuditRecord {
            account: String::new(),
            action: "sign_in".to_owned(),
            object: object.to_owned(),
            address: ip.to_canonical().to_string(),
            outcome: AuditOutcome::Refused,
            detail: why.to_owned(),
        })
        .await;
    }

    /// Whether another refusal of this account is to be recorded.
    pub fn records_refusal(&self, account: &str) -> bool {
        self.refusals.take(account)
    }

    /// Keeps a record in the audit log. The log of the process has it when the database cannot take
    /// it.
    pub async fn record(&self, record: &AuditRecord) {
        match self.people.record(record).await {
            Ok(entry) => show_entry(&entry),
            Err(error) => tracing::error!(
                %error, account = record.account, action = record.action, object = record.object,
                address = record.address, outcome = ?record.outcome, detail = record.detail,
                "the audit log could not be written"
            ),
        }
    }
}

/// Shows in the gateway's log that there is an entry in the audit log. Who rewrites the whole of
/// that in the database, cannot rewrite this line.
pub fn show_entry(entry: &AuditEntry) {
    tracing::info!(
        number = entry.number,
        hash = entry.hash,
        "audit log written"
    );
}

/// Looks a secret up, whose attempt has failed if nothing is found. Goes on without its client: a
/// connection that is left in the middle of an answer is closed, and only then it is known whether
/// the attempt has failed.
async fn look_up<T: Send + 'static>(
    attempt: Attempt,
    lookup: impl Future<Output = Result<Option<T>, DatabaseError>> + Send + 'static,
) -> Result<Option<T>, ProblemDetails> {
    let looked_up = tokio::spawn(async move {
        let found = lookup.await;
        if matches!(found, Ok(None)) {
            attempt.failed();
        }
        found
    });
    let found = looked_up
        .await
        .map_err(|_| ProblemDetails::policies_away("the lookup broke off"))?;
    found.map_err(|error| problems::database_for_strangers(&error))
}

/// Waits for a place among those that may fail.
async fn attempt(
    attempts: &Arc<FailedAttempts>,
    ip: IpAddr,
    name: Option<&str>,
    too_many: fn(u64) -> ProblemDetails,
) -> Result<Attempt, ProblemDetails> {
    let refusal = match attempts.place(ip, name.map(str::as_bytes)) {
        Ok(pending) => match pending.placed(clock::now() + PATIENCE).await {
            Ok(attempt) => return Ok(attempt),
            Err(refusal) => refusal,
        },
        Err(refusal) => refusal,
    };
    Err(match refusal {
        AuthenticationRefusal::TooManyAttempts(seconds) => too_many(seconds),
        _ => too_many(1),
    })
}

/// A bucket of `at_once` tokens, and one more each `every_us` microseconds.
fn bound(every_us: u64, at_once: u64) -> Result<TokenBucket, QuotaError> {
    let every_us = NonZeroU64::new(every_us).unwrap_or(NonZeroU64::MIN);
    let at_once = NonZeroU64::new(at_once).unwrap_or(NonZeroU64::MIN);
    Ok(TokenBucket::new(NonZeroU64::MIN, every_us, at_once)?)
}
