//! Accounts of people who sign in at a provider of OpenID Connect.
//!
//! People are known by their subject at the provider, which stays for ever, and never by a name:
//! a name that is free at the provider may be another person's account here.

use std::net::IpAddr;

use axum::http::HeaderValue;
use tollgate_policies::people::{
    AccountChange, AuthorProof, ChangeAuthor, Deed, NewAccount, OidcSubject, PeopleChange,
    PeopleError, Rights, UserAccount, check_display_name,
};

use super::AccountService;
use super::problems;
use super::provider::ProviderSignIn;
use super::role_words::show_rights;
use tollgate_admin::problem_details::ProblemDetails;
use tollgate_identity::openid::directory::printable;
use tollgate_identity::openid::fault::OpenIdFault;
use tollgate_identity::openid::pending::{PendingSignIn, SignInKey};
use tollgate_identity::openid::provider::{OpenIdPerson, ProviderAnswer, recent_age};

/// The account that a refusal is about, in the audit log.
const OF_PROVIDER: &str = "account of the provider";

impl AccountService {
    /// # Errors
    /// When people sign in by password alone.
    pub fn provider(&self) -> Result<&ProviderSignIn, ProblemDetails> {
        self.openid.as_ref().ok_or_else(|| {
            ProblemDetails::not_found("provider to sign in at")
                .hint("the file may name one: admin.openid_connect")
        })
    }

    /// Lets a sign-in begin, or one of its address that has come back go on: each asks the
    /// provider.
    ///
    /// # Errors
    /// When there were too many from the address.
    pub async fn start_at_provider(&self, ip: IpAddr) -> Result<(), ProblemDetails> {
        super::attempt(&self.starts, ip, None, ProblemDetails::too_many_sign_ins)
            .await?
            .begin();
        Ok(())
    }

    /// The key that sign-ins at the provider are signed with, on each node of the fleet.
    ///
    /// # Errors
    /// When the database is away.
    pub async fn sign_in_key(&self) -> Result<SignInKey, ProblemDetails> {
        let key = self.people.sign_in_key().await;
        let key = key.map_err(|error| problems::people_for_strangers(&error))?;
        Ok(SignInKey::new(&key))
    }

    /// The cookie of a new session of somebody who has come back from the provider. Their sign-in
    /// has [gone on](Self::start_at_provider).
    ///
    /// # Errors
    /// When it is nobody who may come in, or too many from the address were nobody.
    pub async fn sign_in_by_provider(
        &self,
        answer: &ProviderAnswer,
        return_to: &str,
        pending: &PendingSignIn,
        ip: IpAddr,
    ) -> Result<HeaderValue, ProblemDetails> {
        let openid = self.provider()?;
        // Each that is refused is recorded, in a log that nobody may clear.
        let attempt = super::attempt(
            &self.refused_starts,
            ip,
            None,
            ProblemDetails::too_many_sign_ins,
        )
        .await?;
        let person = match openid.provider.person(answer, pending, return_to).await {
            Ok(person) => person,
            Err(fault @ OpenIdFault::Unavailable(_)) => {
                return Err(problems::provider_for_strangers(
                    openid.provider.issuer(),
                    &fault,
                ));
            }
            Err(OpenIdFault::Refused(why)) => {
                attempt.failed();
                self.record_refused_sign_in(OF_PROVIDER, ip, &why).await;
                return Err(ProblemDetails::unauthenticated(why)
                    .hint("begin anew from the page for signing in"));
            }
        };
        let subject = OidcSubject {
            issuer: openid.provider.issuer().to_owned(),
            subject: person.subject.clone(),
        };
        let session = match self
            .account_at_provider(openid, &person, &subject, ip)
            .await
        {
            Ok(account) => self.begin_session(&account, ip, "by OpenID Connect").await,
            Err(problem) => Err(problem),
        };
        let secret = match session {
            Ok(secret) => secret,
            Err(problem) => {
                self.record_known_subject(&subject, ip, &problem).await;
                return Err(problem);
            }
        };
        if let Some(asked_at) = person.asked_at
            && let Some(age) = recent_age(asked_at)
        {
            self.proven.add(secret.expose(), age);
        }
        match self.cookies.begin(&secret) {
            Some(cookie) => Ok(cookie),
            None => Err(ProblemDetails::bad_request("the session cannot be sent")),
        }
    }

    /// Whether the provider has asked the owner of this session lately who they are.
    pub fn was_asked_lately(&self, session: &str) -> bool {
        self.proven.has(session)
    }

    /// Records that somebody whom the provider knows does not come in. Nobody else is kept out by
    /// that, so the records have bounds of their own.
    async fn record_known_subject(
        &self,
        subject: &OidcSubject,
        ip: IpAddr,
        problem: &ProblemDetails,
    ) {
        let name = printable(&subject.subject);
        let issuer = &subject.issuer;
        let detail = format!("subject {name} at {issuer}: {}", problem.detail);
        // No account is called so.
        if self.records_refusal(&format!("subject {}", subject.subject)) {
            self.record_refused_sign_in(OF_PROVIDER, ip, &detail).await;
        }
    }

    async fn account_at_provider(
        &self,
        openid: &ProviderSignIn,
        person: &OpenIdPerson,
        subject: &OidcSubject,
        ip: IpAddr,
    ) -> Result<UserAccount, ProblemDetails> {
        let found = self
            .people
            .account_of(subject)
            .await
            .map_err(|error| problems::database_for_strangers(&error))?;
        let rights = openid.rights(person).map_err(|unknown| {
            ProblemDetails::not_permitted(&unknown.to_string())
                .hint("an administrator lets the provider put the claim into ID tokens, or names another one under admin.openid_connect.groups_claim")
        })?;
        let has_none = rights == Some(Rights::default());
        match (found, rights) {
            (Some(account), _) if account.disabled => {
                Err(ProblemDetails::not_permitted(&format!("the account {} is disabled", account.name)))
            }
            (Some(account), rights) if has_none => {
                self.set_rights(&account, subject, rights, ip).await?;
                Err(without_a_role())
            }
            (None, _) if has_none => Err(without_a_role()),
            (Some(account), Some(rights)) => self.set_rights(&account, subject, Some(rights), ip).await,
            (Some(account), None) if account.rights == Rights::default() => {
                Err(ProblemDetails::not_permitted(&format!("the account {} has no role", account.name))
                    .hint("an administrator gives it one: tollgate account change NAME --role APPLICATION=ROLE"))
            }
            (Some(account), None) => Ok(account),
            (None, Some(rights)) if openid.creates_accounts() => self.make_account(person, subject, rights, ip).await,
            (None, _) => Err(ProblemDetails::not_permitted("there is no account of yours here").hint(format!(
                "an administrator makes one: tollgate account create NAME --no-password {}",
                bind(subject)
            ))),
        }
    }

    /// Gives an account the rights of its groups. Without any, its sessions and tokens end.
    async fn set_rights(
        &self,
        account: &UserAccount,
        subject: &OidcSubject,
        rights: Option<Rights>,
        ip: IpAddr,
    ) -> Result<UserAccount, ProblemDetails> {
        let shuts_out = rights == Some(Rights::default());
        if rights.as_ref() == Some(&account.rights) && !shuts_out {
            return Ok(account.clone());
        }
        // By now the account may be somebody else's.
        let of_subject = Some(subject.clone());
        let change = AccountChange {
            rights,
            shuts_out,
            of_subject,
            ..AccountChange::default()
        };
        let address = ip.to_canonical().to_string();
        let author = by_groups(&account.name, &address);
        let changed = self.change_by_groups(&author, account, &change).await;
        changed.map_err(|error| problems::people_for_strangers(&error))
    }

    async fn change_by_groups(
        &self,
        author: &ChangeAuthor<'_>,
        account: &UserAccount,
        wanted: &AccountChange,
    ) -> Result<UserAccount, PeopleError> {
        let mut change = self.people.begin(author).await?;
        let changed = change.change(&account.name, wanted).await?;
        if changed.rights == account.rights {
            change.commit_unrecorded().await?;
        } else {
            self.commit_groups(change, "account_change", &changed)
                .await?;
        }
        Ok(changed)
    }

    async fn make_account(
        &self,
        person: &OpenIdPerson,
        subject: &OidcSubject,
        rights: Rights,
        ip: IpAddr,
    ) -> Result<UserAccount, ProblemDetails> {
        let name = person.name.clone().ok_or_else(|| {
            ProblemDetails::not_permitted(
                "the provider does not say what your account is to be called",
            )
            .hint(
                "an administrator names the claim that does under admin.openid_connect.name_claim",
            )
        })?;
        // A claim that cannot be shown keeps nobody out.
        let display_name = match &person.display_name {
            Some(shown) if check_display_name(shown).is_ok() => shown.clone(),
            Some(_) | None => name.clone(),
        };
        let new = NewAccount {
            name,
            display_name,
            password: None,
            subject: Some(subject.clone()),
            rights,
        };
        let address = ip.to_canonical().to_string();
        let author = by_groups(&new.name, &address);
        self.create_by_groups(&author, &new)
            .await
            .map_err(|error| match error {
                PeopleError::Exists(name) => {
                    let hint = format!(
                        "if it is yours, an administrator says so: tollgate account change {name} {}",
                        bind(subject)
                    );
                    ProblemDetails::not_permitted(&format!("there is an account {name} that is not known to be yours"))
                        .hint(hint)
                }
                error => problems::people_for_strangers(&error),
            })
    }

    async fn create_by_groups(
        &self,
        author: &ChangeAuthor<'_>,
        new: &NewAccount,
    ) -> Result<UserAccount, PeopleError> {
        let mut change = self.people.begin(author).await?;
        let made = change.create(new).await?;
        self.commit_groups(change, "account_create", &made).await?;
        Ok(made)
    }

    async fn commit_groups(
        &self,
        change: PeopleChange<'_>,
        action: &str,
        account: &UserAccount,
    ) -> Result<(), PeopleError> {
        let rights = show_rights(&account.rights);
        let deed = Deed {
            action,
            object: &format!("account {}", account.name),
            detail: &format!("by groups at the provider: {rights}"),
        };
        self.commit(change, &deed).await
    }
}

/// The author of what groups at the provider decide: the person, who is about to sign in.
fn by_groups<'a>(name: &'a str, address: &'a str) -> ChangeAuthor<'a> {
    ChangeAuthor {
        account: name,
        address,
        proof: AuthorProof::Trusted,
    }
}

fn without_a_role() -> ProblemDetails {
    ProblemDetails::not_permitted("none of your groups at the provider has a role here")
        .hint("an administrator gives one under admin.openid_connect.roles in the file")
}

/// The argument that binds an account, for a shell.
fn bind(subject: &OidcSubject) -> String {
    format!(
        "--subject {} {}",
        quoted(&subject.issuer),
        quoted(&subject.subject)
    )
}

/// A word, for a shell.
fn quoted(text: &str) -> String {
    if text.bytes().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~:/@|+".contains(&byte)
}
