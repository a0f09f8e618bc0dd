//! Tests of people: accounts, how they sign in and act, and the log of what they did.

mod accounts;
mod audit;
mod sessions_and_tokens;

use std::time::Duration;

use tollgate_policies::people::{
    AccountChange, NewAccount, OidcSubject, People, Rights, SessionTerms,
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

async fn people(test: &TestDatabase) -> People {
    test.migrated().await.people()
}

fn disabled() -> AccountChange {
    AccountChange {
        disabled: Some(true),
        ..AccountChange::default()
    }
}
