//! Sessions and API tokens: as good as their account, and no longer than it.

use std::time::Duration;

use tollgate_policies::people::{
    AccountChange, ApplicationRole, FleetRole, MOST_SESSIONS, MOST_TOKENS, NewToken, OidcSubject,
    PeopleError, Rights, Session,
};

use super::{TERMS, admin, disabled, new, people};
use crate::servers::TestDatabase;

over_all! {
    a_session_ends_in_every_way_it_can,
    an_account_has_so_many_tokens_and_sessions_and_no_more,
    a_token_does_no_more_than_its_account,
    another_person_finds_no_session_and_no_token_of_the_one_before,
}

async fn a_session_ends_in_every_way_it_can(test: TestDatabase) {
    let people = people(&test).await;
    people
        .create(&new("ada", Rights::new("shop", ApplicationRole::Viewer)))
        .await
        .unwrap();
    let begin = || async { people.begin_session("ada", TERMS).await.unwrap() };
    let is_in = |secret: &str| {
        let (people, secret) = (people.clone(), secret.to_owned());
        async move { people.session(&secret).await.unwrap().is_some() }
    };
    let (secret, session) = begin().await;
    let (account, found) = people.session(secret.expose()).await.unwrap().unwrap();
    assert!(found.read_at >= session.read_at);
    let found = Session {
        read_at: session.read_at,
        ..found
    };
    assert_eq!((account.name.as_str(), &found), ("ada", &session));
    assert_eq!(
        session.ends_at.millis() - session.begun_at.millis(),
        3_600_000
    );
    assert!(!is_in(&format!("tgs_{}", "A".repeat(43))).await && !is_in("").await);

    // The passing of time, done by hand.
    test.run("UPDATE tollgate_sessions SET idle_until = idle_until - 600000")
        .await;
    let (_, looked_at) = people.idle_session(secret.expose()).await.unwrap().unwrap();
    assert_eq!(
        looked_at.idle_until.millis(),
        session.idle_until.millis() - 600_000,
        "a page that is left open"
    );
    let (_, moved) = people.session(secret.expose()).await.unwrap().unwrap();
    assert!(
        moved.idle_until >= session.idle_until,
        "use moves the idle end on: {moved:?} {session:?}"
    );
    test.run("UPDATE tollgate_sessions SET idle_until = idle_until - 900000")
        .await;
    assert!(!is_in(secret.expose()).await, "idle for too long");
    let (secret, session) = begin().await;
    test.run("UPDATE tollgate_sessions SET ends_at = ends_at - 2800000")
        .await;
    test.run("UPDATE tollgate_sessions SET idle_until = idle_until - 600000")
        .await;
    let (_, moved) = people.session(secret.expose()).await.unwrap().unwrap();
    assert_eq!(
        moved.idle_until.millis(),
        session.ends_at.millis() - 2_800_000,
        "use moves it no further than the end"
    );
    test.run("UPDATE tollgate_sessions SET ends_at = begun_at")
        .await;
    assert!(!is_in(secret.expose()).await, "too old");

    let (first, _) = begin().await;
    let (second, _) = begin().await;
    people.end_session(first.expose()).await.unwrap();
    assert!(
        !is_in(first.expose()).await && is_in(second.expose()).await,
        "one logged out"
    );
    assert_eq!(
        people.end_sessions("ada").await.unwrap(),
        1,
        "the others had ended and were forgotten"
    );
    let (secret, _) = begin().await;
    test.run("UPDATE tollgate_accounts SET disabled = 1").await;
    assert!(
        !is_in(secret.expose()).await,
        "begun by somebody who was disabled meanwhile"
    );
    test.run("UPDATE tollgate_accounts SET disabled = 0").await;
    people.change("ada", &disabled()).await.unwrap();
    assert!(!is_in(secret.expose()).await);
    assert_eq!(
        people.begin_session("ada", TERMS).await.unwrap_err(),
        PeopleError::Disabled("ada".into())
    );
    people
        .change(
            "ada",
            &AccountChange {
                disabled: Some(false),
                ..AccountChange::default()
            },
        )
        .await
        .unwrap();
    assert!(!is_in(secret.expose()).await, "it is gone, and not asleep");
    let (secret, _) = begin().await;
    people.remove("ada").await.unwrap();
    assert!(!is_in(secret.expose()).await);
    assert_eq!(
        people.begin_session("ada", TERMS).await.unwrap_err(),
        PeopleError::Unknown("ada".into())
    );
}

async fn an_account_has_so_many_tokens_and_sessions_and_no_more(test: TestDatabase) {
    let people = people(&test).await;
    people.create(&new("ada", Rights::default())).await.unwrap();
    people.create(&new("bob", Rights::default())).await.unwrap();
    let token = NewToken {
        label: "ci".into(),
        scope: Rights::default(),
        expires_in: None,
    };
    let (first, bobs) = (
        people.create_token("ada", &token).await.unwrap(),
        people.create_token("bob", &token).await,
    );
    for _ in 1..MOST_TOKENS {
        people.create_token("ada", &token).await.unwrap();
    }
    let refused = people
        .create_token("ada", &token)
        .await
        .unwrap_err()
        .to_string();
    assert_eq!(
        refused,
        format!("ada has {MOST_TOKENS} tokens, and may have no more: revoke one")
    );
    for round in 0..60 {
        let oldest = people
            .tokens("ada")
            .await
            .unwrap()
            .into_iter()
            .find(|token| !token.revoked)
            .unwrap();
        assert!(
            people.revoke_token("ada", &oldest.id).await.unwrap(),
            "{round}"
        );
        people.create_token("ada", &token).await.unwrap();
    }
    let kept = people.tokens("ada").await.unwrap();
    assert!(kept.len() <= 2 * MOST_TOKENS + 1, "{}", kept.len());
    assert_eq!(
        kept.iter().filter(|token| !token.revoked).count(),
        MOST_TOKENS
    );
    assert!(
        !kept.contains(&first.1),
        "the oldest of those that are revoked is forgotten"
    );
    assert!(
        people
            .token(bobs.unwrap().0.expose())
            .await
            .unwrap()
            .is_some(),
        "others keep theirs"
    );

    let (others, _) = people.begin_session("bob", TERMS).await.unwrap();
    let mut begun = Vec::new();
    for _ in 0..=MOST_SESSIONS {
        begun.push(people.begin_session("ada", TERMS).await.unwrap().0);
        // Each has a time of its own.
        test.run("UPDATE tollgate_sessions SET begun_at = begun_at - 1000")
            .await;
    }
    assert_eq!(
        people.session(begun[0].expose()).await.unwrap(),
        None,
        "the oldest has ended"
    );
    for session in &begun[1..] {
        assert!(people.session(session.expose()).await.unwrap().is_some());
    }
    assert!(people.session(others.expose()).await.unwrap().is_some());
}

async fn a_token_does_no_more_than_its_account(test: TestDatabase) {
    let people = people(&test).await;
    let editor = Rights::new("shop", ApplicationRole::Editor);
    people.create(&new("ada", editor.clone())).await.unwrap();
    let token = |scope: &Rights| NewToken {
        label: "ci".into(),
        scope: scope.clone(),
        expires_in: None,
    };
    for beyond in [
        Rights::new("shop", ApplicationRole::Owner),
        Rights::new("bank", ApplicationRole::Viewer),
        Rights::admin(),
    ] {
        assert_eq!(
            people
                .create_token("ada", &token(&beyond))
                .await
                .unwrap_err(),
            PeopleError::BeyondRights
        );
    }
    let viewer = Rights::new("shop", ApplicationRole::Viewer);
    let (narrow, _) = people.create_token("ada", &token(&viewer)).await.unwrap();
    let (wide, made) = people.create_token("ada", &token(&editor)).await.unwrap();
    let rights = |secret: &str| {
        let (people, secret) = (people.clone(), secret.to_owned());
        async move {
            people
                .token(&secret)
                .await
                .unwrap()
                .map(|(account, _)| account.rights)
        }
    };
    assert_eq!(rights(narrow.expose()).await, Some(viewer.clone()));
    assert_eq!(rights(wide.expose()).await, Some(editor.clone()));
    assert_eq!(rights(&format!("tgt_{}", "A".repeat(43))).await, None);
    people
        .change(
            "ada",
            &AccountChange {
                rights: Some(viewer.clone()),
                ..AccountChange::default()
            },
        )
        .await
        .unwrap();
    assert_eq!(
        rights(wide.expose()).await,
        Some(viewer.clone()),
        "it shrinks with its account"
    );
    let operator = Rights {
        fleet: Some(FleetRole::Operator),
        ..Rights::default()
    };
    people
        .change(
            "ada",
            &AccountChange {
                rights: Some(operator),
                ..AccountChange::default()
            },
        )
        .await
        .unwrap();
    assert_eq!(
        rights(wide.expose()).await,
        Some(viewer.clone()),
        "and does not grow beyond its scope"
    );
    people
        .change(
            "ada",
            &AccountChange {
                rights: Some(editor.clone()),
                ..AccountChange::default()
            },
        )
        .await
        .unwrap();
    assert_eq!(
        rights(wide.expose()).await,
        Some(viewer.clone()),
        "nor does a role that comes back bring it back"
    );
    let scopes: Vec<_> = people
        .tokens("ada")
        .await
        .unwrap()
        .into_iter()
        .map(|token| token.scope)
        .collect();
    assert_eq!(scopes, [viewer.clone(), viewer], "and it says so");

    let limited = NewToken {
        expires_in: Some(Duration::from_secs(60)),
        ..token(&Rights::default())
    };
    let (brief, _) = people.create_token("ada", &limited).await.unwrap();
    assert!(rights(brief.expose()).await.is_some());
    test.run("UPDATE tollgate_tokens SET expires_at = expires_at - 60000")
        .await;
    assert_eq!(rights(brief.expose()).await, None, "expired");
    people.create(&new("bob", Rights::default())).await.unwrap();
    assert!(
        !people.revoke_token("bob", &made.id).await.unwrap(),
        "another's token"
    );
    assert!(people.revoke_token("ada", &made.id).await.unwrap());
    assert_eq!(rights(wide.expose()).await, None, "revoked");
    assert!(
        !people.revoke_token("ada", &made.id).await.unwrap(),
        "a second time"
    );
    let all = people.tokens("ada").await.unwrap();
    assert_eq!(
        (all.len(), all.iter().filter(|token| token.revoked).count()),
        (3, 1)
    );
    people.change("ada", &disabled()).await.unwrap();
    assert_eq!(rights(narrow.expose()).await, None, "disabled");
    assert_eq!(
        people.create_token("ada", &limited).await.unwrap_err(),
        PeopleError::Disabled("ada".into())
    );
    people.remove("ada").await.unwrap();
    assert!(people.tokens("ada").await.unwrap().is_empty());
}

async fn another_person_finds_no_session_and_no_token_of_the_one_before(test: TestDatabase) {
    let people = people(&test).await;
    people.create(&new("ada", Rights::admin())).await.unwrap();
    people.create(&admin("bob")).await.unwrap();
    let subject = |subject: &str| OidcSubject {
        issuer: "https://id.example.com".into(),
        subject: subject.into(),
    };
    let bound = |who: Option<&str>| AccountChange {
        subject: Some(who.map(subject)),
        ..AccountChange::default()
    };
    let token = NewToken {
        label: "ci".into(),
        scope: Rights::admin(),
        expires_in: None,
    };
    let shut_out = AccountChange {
        rights: Some(Rights::default()),
        shuts_out: true,
        ..AccountChange::default()
    };
    // Bound for the first time or once more, it is the same person's.
    for (change, stays) in [
        (bound(Some("1")), true),
        (bound(Some("1")), true),
        (bound(Some("2")), false),
        (bound(None), false),
        (
            AccountChange {
                rights: Some(Rights::admin()),
                ..AccountChange::default()
            },
            true,
        ),
        (shut_out.clone(), false),
    ] {
        let (session, _) = people.begin_session("ada", TERMS).await.unwrap();
        let (secret, _) = people.create_token("ada", &token).await.unwrap();
        let (other, _) = people.begin_session("bob", TERMS).await.unwrap();
        people.change("ada", &change).await.unwrap();
        assert_eq!(
            people.session(session.expose()).await.unwrap().is_some(),
            stays,
            "{change:?}"
        );
        assert_eq!(
            people.token(secret.expose()).await.unwrap().is_some(),
            stays,
            "{change:?}"
        );
        assert!(people.session(other.expose()).await.unwrap().is_some());
    }
    // The last admin stays, and stays in.
    let (session, _) = people.begin_session("bob", TERMS).await.unwrap();
    assert_eq!(
        people.change("bob", &shut_out).await,
        Err(PeopleError::LastAdmin)
    );
    assert!(people.session(session.expose()).await.unwrap().is_some());
}
