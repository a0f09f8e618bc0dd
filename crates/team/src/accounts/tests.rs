use std::net::{IpAddr, Ipv4Addr};

use axum::http::HeaderMap;
use futures_util::poll;
use tempfile::TempDir;
use tollgate_policies::database::PolicyDatabase;
use tollgate_policies::people::{NewAccount, NewToken, Rights};

use super::*;
use crate::Team;
use crate::caller::{CallerParts, SessionUse};

const IP: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The accounts of a database of this test's own, with one account and its token.
async fn service_with_token() -> (AccountService, String, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let database =
        PolicyDatabase::open(&format!("sqlite://{}/policies.db", folder.path().display())).unwrap();
    database.migrate().await.unwrap();
    let people = database.people();
    let ada = NewAccount {
        name: "ada".into(),
        display_name: "Ada".into(),
        ..NewAccount::default()
    };
    let operator = ChangeAuthor {
        account: "",
        address: "command line",
        proof: AuthorProof::Trusted,
    };
    let mut change = people.begin(&operator).await.unwrap();
    change.create(&ada).await.unwrap();
    let token = NewToken {
        label: "ci".into(),
        scope: Rights::default(),
        expires_in: None,
    };
    let (secret, _) = change.create_token("ada", &token).await.unwrap();
    change.commit_unrecorded().await.unwrap();
    let service = AccountService::new(people, SessionCookies { is_secure: false }, None).unwrap();
    (service, secret.expose().to_owned(), folder)
}

/// Sends `token` as often as may fail, and goes away while it is looked up.
async fn impatient(service: &AccountService, token: &str) {
    for _ in 0..TOKEN_FAILURES {
        let mut asking = Box::pin(service.check_token(token, IP));
        assert!(poll!(&mut asking).is_pending());
    }
}

#[tokio::test]
async fn a_token_has_failed_if_it_is_nobodys_and_not_because_its_client_went_away() {
    let (service, token, _folder) = service_with_token().await;
    impatient(&service, &token).await;
    assert_eq!(
        service.check_token(&token, IP).await.unwrap().unwrap().name,
        "ada"
    );
    let nobodys = format!("tgt_{}", "A".repeat(43));
    impatient(&service, &nobodys).await;
    let mut is_refused = false;
    // That number would fail again if those had not, and each second lets one more fail.
    for _ in 0..TOKEN_FAILURES {
        is_refused |= service
            .check_token(&nobodys, IP)
            .await
            .is_err_and(|problem| problem.status == 429);
    }
    assert!(is_refused);
}

/// The host and the user of the database, and what it says, are for people who have signed in.
#[tokio::test]
async fn strangers_are_told_nothing_of_a_database_that_is_away() {
    let database = PolicyDatabase::open("postgres://gate:secret@127.0.0.1:1/policies").unwrap();
    let service =
        AccountService::new(database.people(), SessionCookies { is_secure: false }, None).unwrap();
    let secret = "A".repeat(43);
    let mut problems = vec![
        service
            .check_password("ada", "a password of hers", IP)
            .await
            .unwrap_err(),
        service
            .check_token(&format!("tgt_{secret}"), IP)
            .await
            .unwrap_err(),
        service
            .begin_session(&an_account().await, IP, "by password")
            .await
            .unwrap_err(),
        service.unknown_caller().await,
    ];
    let mut headers = HeaderMap::new();
    headers.insert("cookie", format!("tollgate=tgs_{secret}").parse().unwrap());
    let parts = CallerParts {
        headers: &headers,
        peer: None,
        session: SessionUse::Used,
    };
    let team = Team {
        accounts: Some(Arc::new(service)),
        policies: None,
    };
    problems.push(team.caller(parts).await.err().unwrap());
    for problem in problems {
        let detail = "the database of accounts cannot be asked: the gateway's log says why";
        assert_eq!((problem.status, &*problem.detail), (503, detail));
    }
}

async fn an_account() -> UserAccount {
    let (service, _, _folder) = service_with_token().await;
    service.people.account("ada").await.unwrap().unwrap()
}
