//! Tests of people: accounts, how they sign in and act, and the log of what they did.

mod accounts;
mod audit;
mod changes;
mod sessions_and_tokens;

use std::time::Duration;

use tollgate_policies::people::{
    AccountChange, ApiToken, AuthorProof, ChangeAuthor, EarlierTokens, HashedPassword, NewAccount,
    NewToken, OidcSubject, People, PeopleError, ProvenAccount, Rights, Secret, Session,
    SessionTerms, UserAccount,
};

use crate::servers::TestDatabase;

const TERMS: SessionTerms = SessionTerms {
    idle: Duration::from_secs(900),
    absolute: Duration::from_secs(3600),
};

fn new(name: &str, rights: Rights) -> NewAccount {
    NewAccount {
        name: name.into(),
        display_name: format!("The {name}"),
        rights,
        ..NewAccount::default()
    }
}

/// An admin whom a provider vouches for.
fn admin(name: &str) -> NewAccount {
    let subject = OidcSubject {
        issuer: "https://id.example.com".into(),
        subject: name.into(),
    };
    NewAccount {
        subject: Some(subject),
        ..new(name, Rights::admin())
    }
}

/// Somebody at a terminal.
pub const OPERATOR: ChangeAuthor<'_> = ChangeAuthor {
    account: "",
    address: "command line",
    proof: AuthorProof::Trusted,
};

/// People whose changes are made one by one, by somebody at a terminal.
#[derive(Clone)]
pub struct ChangedPeople(pub People);

impl std::ops::Deref for ChangedPeople {
    type Target = People;

    fn deref(&self) -> &People {
        &self.0
    }
}

/// A change with one step.
macro_rules! change_of_one_step {
    ($people:expr, $change:ident => $step:expr) => {{
        let mut $change = $people.begin(&OPERATOR).await?;
        let done = $step.await?;
        $change.commit_unrecorded().await?;
        Ok(done)
    }};
}

impl ChangedPeople {
    pub async fn create(&self, new: &NewAccount) -> Result<UserAccount, PeopleError> {
        change_of_one_step!(self, change => change.create(new))
    }

    pub async fn change(
        &self,
        name: &str,
        changed: &AccountChange,
    ) -> Result<UserAccount, PeopleError> {
        change_of_one_step!(self, change => change.change(name, changed))
    }

    pub async fn remove(&self, name: &str) -> Result<(), PeopleError> {
        change_of_one_step!(self, change => change.remove(name))
    }

    pub async fn set_password(
        &self,
        account: impl Into<ProvenAccount<'_>>,
        password: &str,
        tokens: EarlierTokens,
    ) -> Result<UserAccount, PeopleError> {
        let password = HashedPassword::new(password).await?;
        change_of_one_step!(self, change => change.set_password(account, &password, tokens))
    }

    pub async fn create_token(
        &self,
        account: impl Into<ProvenAccount<'_>>,
        token: &NewToken,
    ) -> Result<(Secret, ApiToken), PeopleError> {
        change_of_one_step!(self, change => change.create_token(account, token))
    }

    pub async fn revoke_token(&self, name: &str, id: &str) -> Result<bool, PeopleError> {
        change_of_one_step!(self, change => change.revoke_token(name, id))
    }

    pub async fn begin_session(
        &self,
        account: impl Into<ProvenAccount<'_>>,
        terms: SessionTerms,
    ) -> Result<(Secret, Session), PeopleError> {
        change_of_one_step!(self, change => change.begin_session(account, terms))
    }

    pub async fn end_session(&self, secret: &str) -> Result<(), PeopleError> {
        change_of_one_step!(self, change => change.end_session(secret))
    }

    pub async fn end_sessions(&self, name: &str) -> Result<u64, PeopleError> {
        change_of_one_step!(self, change => change.end_sessions(name))
    }
}

async fn people(test: &TestDatabase) -> ChangedPeople {
    ChangedPeople(test.migrated().await.people())
}

fn disabled() -> AccountChange {
    AccountChange {
        disabled: Some(true),
        ..AccountChange::default()
    }
}
