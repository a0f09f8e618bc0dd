use std::net::{IpAddr, Ipv4Addr};

use futures_util::poll;
use tempfile::TempDir;
use tollgate_policies::database::PolicyDatabase;
use tollgate_policies::people::{NewAccount, NewToken, Rights};

use super::*;

const IP: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The accounts of a database of this test's own, with one account and its token.
async fn service_with_token() -> (AccountService, String, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let database = PolicyDatabase::open(&format!("sqlite://{}/policies.db", folder.path().display())).unwrap();
    database.migrate().await.unwrap();
    let people = database.people();
    let ada = NewAccount { name: "ada".into(), display_name: "Ada".into(), ..NewAccount::default() };
    people.create(&ada).await.unwrap();
    let token = NewToken { label: "ci".into(), scope: Rights::default(), expires_in: None };
    let (secret, _) = people.create_token("ada", &token).await.unwrap();
    let service = AccountService::new(people, SessionCookies { is_secure: false }, None).unwrap();
    (service, secret.expose().to_owned(), folder)
}

/// As many as may fail send `token`, and go away while it is looked up.
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
    assert_eq!(service.check_token(&token, IP).await.unwrap().unwrap().name, "ada");
    impatient(&service, &format!("tgt_{}", "A".repeat(43))).await;
    assert_eq!(service.check_token(&token, IP).await.unwrap_err().status, 429);
}
