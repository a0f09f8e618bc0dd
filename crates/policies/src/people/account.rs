//! An account, and what can be wrong with one before a database is asked.

use serde::{Deserialize, Serialize};

use super::error::PeopleError;
use super::rights::{Rights, RoleChange};
use super::secret::password::HashedPassword;
use crate::model::{ObjectId, is_plain_line};
use crate::time::UnixTime;

const MOST_NAME_BYTES: usize = 64;
const MOST_DISPLAY_BYTES: usize = 256;
const MOST_ISSUER_BYTES: usize = 512;
const MOST_SUBJECT_BYTES: usize = 255;
const MOST_APPLICATIONS: usize = 1000;

/// The author of revisions by which a candidate ends without anybody's doing.
pub const ROLLOUT_AUTHOR: &str = "rollout";

/// The account that something is made for. Where somebody has proven to be its owner, it is the
/// account as it was then: what comes of the proof does not outlive the password and the subject
/// that proved it. Other changes do not matter: somebody who gives roles would keep people from
/// signing in.
#[derive(Clone, Copy, Debug)]
pub struct ProvenAccount<'a> {
    pub name: &'a str,
    proven: Option<&'a UserAccount>,
}

impl ProvenAccount<'_> {
    /// # Errors
    /// When the account is not as it was.
    pub fn check(&self, account: &UserAccount) -> Result<(), PeopleError> {
        let Some(proven) = self.proven else {
            return Ok(());
        };
        if proven.created_at == account.created_at
            && proven.password == account.password
            && proven.subject == account.subject
            && proven.disabled == account.disabled
        {
            Ok(())
        } else {
            Err(PeopleError::Changed(account.name.clone()))
        }
    }
}

impl<'a> From<&'a str> for ProvenAccount<'a> {
    fn from(name: &'a str) -> Self {
        Self { name, proven: None }
    }
}

impl<'a> From<&'a String> for ProvenAccount<'a> {
    fn from(name: &'a String) -> Self {
        Self { name, proven: None }
    }
}

impl<'a> From<&'a UserAccount> for ProvenAccount<'a> {
    fn from(account: &'a UserAccount) -> Self {
        Self {
            name: &account.name,
            proven: Some(account),
        }
    }
}

/// Somebody who may look at policies, or more.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct UserAccount {
    pub name: String,
    pub display_name: String,
    pub subject: Option<OidcSubject>,
    pub has_password: bool,
    #[serde(skip)]
    pub(super) password: Option<HashedPassword>,
    /// May not come in, but stands in histories.
    pub disabled: bool,
    pub rights: Rights,
    pub created_at: UnixTime,
    pub changed_at: UnixTime,
}

/// The identity of a person at an OpenID Connect provider (OpenID Connect Core §2: `iss` and
/// `sub`).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OidcSubject {
    pub issuer: String,
    pub subject: String,
}

#[derive(Clone, Default, Debug)]
pub struct NewAccount {
    pub name: String,
    pub display_name: String,
    /// Without one, only OpenID Connect and tokens lead in.
    pub password: Option<HashedPassword>,
    pub subject: Option<OidcSubject>,
    pub rights: Rights,
}

/// Members that are `None` stay as they are.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AccountChange {
    pub display_name: Option<String>,
    pub subject: Option<Option<OidcSubject>>,
    pub disabled: Option<bool>,
    /// All of them. Who gives one of them names that one.
    pub rights: Option<Rights>,
    pub roles: Vec<RoleChange>,
    /// `created_at` of the account that is meant: by now another one may have its name.
    pub made_at: Option<UnixTime>,
    /// The person who is meant: if the account is not theirs any more, nothing is changed.
    pub of_subject: Option<OidcSubject>,
    /// Ends the account's sessions and revokes its tokens. So does another `subject` in place of
    /// one: it may be another person.
    pub shuts_out: bool,
}

/// Whether an account's tokens outlive its old password.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EarlierTokens {
    Keep,
    Revoke,
}

/// Names go into paths, and into the history as authors.
pub fn check_name(name: &str) -> Result<(), PeopleError> {
    let message =
        "the name of an account has 1 to 64 letters, digits, dots, dashes, underscores, @ and +";
    if !is_name(name) {
        return Err(PeopleError::Invalid(message.into()));
    }
    if name.starts_with('-') {
        let message = format!(
            "no account is called {name}: commands would take it for an option. Take another name"
        );
        return Err(PeopleError::Invalid(message));
    }
    // An account of such a name would be taken for the author of what the gateway does by itself.
    if name.starts_with('@') || name.eq_ignore_ascii_case(ROLLOUT_AUTHOR) {
        let message = format!(
            "no account is called {name}: @… and {ROLLOUT_AUTHOR} are the gateway's own names in the history. Take another name"
        );
        return Err(PeopleError::Invalid(message));
    }
    Ok(())
}

/// Whether it may be a name, as far as its letters go.
pub fn is_name(name: &str) -> bool {
    (1..=MOST_NAME_BYTES).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_.-@+".contains(&byte))
        && name != "."
        && name != ".."
}

pub fn check_display_name(name: &str) -> Result<(), PeopleError> {
    check_text("display name", name, MOST_DISPLAY_BYTES)
}

pub fn check_subject(subject: Option<&OidcSubject>) -> Result<(), PeopleError> {
    let Some(OidcSubject { issuer, subject }) = subject else {
        return Ok(());
    };
    check_text("issuer", issuer, MOST_ISSUER_BYTES)?;
    check_text("subject", subject, MOST_SUBJECT_BYTES)
}

pub fn check_rights(rights: &Rights) -> Result<(), PeopleError> {
    if rights.applications.len() > MOST_APPLICATIONS {
        let message = format!("an account has a role in {MOST_APPLICATIONS} applications at most");
        return Err(PeopleError::Invalid(message));
    }
    for application in rights.applications.keys() {
        ObjectId::of_application(application)
            .map_err(|problem| PeopleError::Invalid(problem.to_string()))?;
    }
    Ok(())
}

pub fn check_text(what: &str, text: &str, most: usize) -> Result<(), PeopleError> {
    if (1..=most).contains(&text.len()) && is_plain_line(text) {
        return Ok(());
    }
    Err(PeopleError::Invalid(format!(
        "the {what} has 1 to {most} bytes without control characters"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::people::ApplicationRole;

    #[test]
    fn what_an_account_says_is_bounded() {
        for name in ["ada", "ada.lovelace@example.com", "a+b", "x"] {
            assert_eq!(check_name(name), Ok(()));
        }
        for name in ["", ".", "..", "a b", "a/b", "ä", &"a".repeat(65)] {
            assert!(check_name(name).is_err(), "{name}");
        }
        for name in ["rollout", "Rollout", "@rollout", "@ada", "-ada", "--admin"] {
            let message = check_name(name).unwrap_err().to_string();
            assert!(
                message.starts_with(&format!("no account is called {name}: ")),
                "{message}"
            );
            assert!(message.ends_with("Take another name"), "{message}");
        }
        assert_eq!(check_name("rollouts"), Ok(()));
        assert!(check_display_name("Ada Lovelace, née Byron").is_ok());
        assert!(
            check_display_name("").is_err()
                && check_display_name("a\n").is_err()
                && check_display_name("\u{202e}a").is_err()
        );
        assert!(check_rights(&Rights::new("shop", ApplicationRole::Owner)).is_ok());
        assert!(check_rights(&Rights::new("a/b", ApplicationRole::Owner)).is_err());
        let subject = OidcSubject {
            issuer: "https://id.example.com".into(),
            subject: "x".repeat(256),
        };
        assert!(check_subject(Some(&subject)).is_err() && check_subject(None).is_ok());
    }
}
