//! Accounts: made, changed and taken away, with passwords and roles, and always with an admin.

use serde_json::json;
use tollgate_policies::model::{Expected, ObjectId};
use tollgate_policies::people::{
    AccountChange, ApplicationRole, EarlierTokens, HashedPassword, NewAccount, NewToken,
    OidcSubject, PeopleError, Rights, RoleChange,
};
use tollgate_policies::time::UnixTime;

use super::{ChangedPeople, OPERATOR, TERMS, admin, disabled, new, people};
use crate::drafts::{draft, edit, fine};
use crate::servers::TestDatabase;

over_all! {
    an_account_is_made_changed_and_taken_away,
    only_the_right_password_lets_in,
    an_application_that_goes_takes_its_roles_along,
    the_last_admin_stays,
    two_admins_cannot_take_each_others_rights_at_once,
}

async fn an_account_is_made_changed_and_taken_away(test: TestDatabase) {
    let people = people(&test).await;
    let subject = |subject: &str| OidcSubject {
        issuer: "https://id.example.com".into(),
        subject: subject.into(),
    };
    let ada = NewAccount {
        subject: Some(subject("ä|1")),
        ..new("ada", Rights::admin())
    };
    let made = people.create(&ada).await.unwrap();
    assert_eq!(
        (made.has_password, made.disabled, &made.rights),
        (false, false, &Rights::admin())
    );
    assert_eq!(people.account("ada").await.unwrap().unwrap(), made);
    assert_eq!(
        people.account_of(&subject("ä|1")).await.unwrap().unwrap(),
        made
    );
    assert_eq!(
        people.create(&ada).await,
        Err(PeopleError::Exists("ada".into()))
    );
    assert_eq!(
        people.account("Ada").await.unwrap(),
        None,
        "names are compared byte by byte"
    );
    assert_eq!(
        people.create(&new("ADA", Rights::default())).await,
        Err(PeopleError::Exists("ada".into())),
        "no two differ in case alone"
    );
    let bob = people
        .create(&NewAccount {
            subject: Some(subject("2")),
            ..new("bob", Rights::default())
        })
        .await
        .unwrap();
    let taken = AccountChange {
        subject: Some(Some(subject("ä|1"))),
        ..AccountChange::default()
    };
    let refused = people.change("bob", &taken).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "ä|1 at https://id.example.com is ada already"
    );
    let change = AccountChange {
        display_name: Some("Robert".into()),
        subject: Some(None),
        rights: Some(Rights::new("shop", ApplicationRole::Editor)),
        made_at: Some(bob.created_at),
        of_subject: Some(subject("2")),
        ..AccountChange::default()
    };
    let changed = people.change("bob", &change).await.unwrap();
    assert_eq!(
        (changed.display_name.as_str(), &changed.subject),
        ("Robert", &None)
    );
    assert_eq!(
        (changed.created_at, changed.changed_at >= bob.changed_at),
        (bob.created_at, true)
    );
    let another = Err(PeopleError::Changed("bob".into()));
    assert_eq!(
        people.change("bob", &change).await,
        another,
        "it is not that subject's any more"
    );
    let of_nobody = AccountChange {
        of_subject: None,
        subject: None,
        ..change
    };
    let earlier = AccountChange {
        made_at: Some(UnixTime::from_millis(1)),
        ..of_nobody.clone()
    };
    assert_eq!(
        people.change("bob", &earlier).await,
        another,
        "another one had the name"
    );
    assert_eq!(
        people.change("bob", &of_nobody).await.unwrap(),
        changed,
        "nothing differs: it is the same version"
    );
    let role = |role| AccountChange {
        roles: vec![RoleChange::Application("bank".into(), role)],
        ..AccountChange::default()
    };
    let both = people
        .change("bob", &role(Some(ApplicationRole::Viewer)))
        .await
        .unwrap();
    assert_eq!(both.rights.applications.len(), 2, "the other one stays");
    let changed = people.change("bob", &role(None)).await.unwrap();
    assert_eq!(changed.rights, Rights::new("shop", ApplicationRole::Editor));
    let odd = people
        .change(
            "bob",
            &AccountChange {
                roles: vec![RoleChange::Application("a b".into(), None)],
                ..role(None)
            },
        )
        .await;
    assert_eq!(odd.unwrap(), changed, "nobody has such a role");
    let odd = AccountChange {
        roles: vec![RoleChange::Application(
            "a b".into(),
            Some(ApplicationRole::Owner),
        )],
        ..role(None)
    };
    assert!(matches!(
        people.change("bob", &odd).await,
        Err(PeopleError::Invalid(_))
    ));
    assert_eq!(people.account_of(&subject("2")).await.unwrap(), None);
    assert_eq!(people.accounts().await.unwrap(), [made, changed]);
    assert!(matches!(
        people.create(&new("a b", Rights::default())).await,
        Err(PeopleError::Invalid(_))
    ));
    people.create(&new("eve", Rights::default())).await.unwrap();
    people.remove("eve").await.unwrap();
    assert_eq!(people.account("eve").await.unwrap(), None);
    assert_eq!(
        people.remove("eve").await,
        Err(PeopleError::Unknown("eve".into()))
    );
    assert_eq!(
        people.change("eve", &of_nobody).await,
        Err(PeopleError::Unknown("eve".into()))
    );
}

async fn only_the_right_password_lets_in(test: TestDatabase) {
    let people = people(&test).await;
    let ada = NewAccount {
        password: Some(HashedPassword::new("correct horse").await.unwrap()),
        ..new("ada", Rights::admin())
    };
    people.create(&ada).await.unwrap();
    people.create(&new("bob", Rights::default())).await.unwrap();
    assert_eq!(
        people
            .log_in("ada", "correct horse")
            .await
            .unwrap()
            .unwrap()
            .name,
        "ada"
    );
    for (name, password) in [
        ("ada", "correct house"),
        ("bob", "nobody's"),
        ("eve", "nobody's"),
    ] {
        assert_eq!(people.log_in(name, password).await.unwrap(), None, "{name}");
    }
    let (session, _) = people.begin_session("ada", TERMS).await.unwrap();
    assert!(matches!(
        people
            .set_password("ada", "short", EarlierTokens::Keep)
            .await,
        Err(PeopleError::Invalid(_))
    ));
    assert!(people.session(session.expose()).await.unwrap().is_some());
    let all = NewToken {
        label: "ci".into(),
        scope: Rights::admin(),
        expires_in: None,
    };
    let (token, _) = people.create_token("ada", &all).await.unwrap();
    people
        .set_password("ada", "a third horse", EarlierTokens::Keep)
        .await
        .unwrap();
    assert!(people.token(token.expose()).await.unwrap().is_some());
    people
        .set_password("ada", "another horse", EarlierTokens::Revoke)
        .await
        .unwrap();
    assert!(
        people.token(token.expose()).await.unwrap().is_none(),
        "a new password takes tokens with it"
    );
    assert_eq!(
        people.session(session.expose()).await.unwrap(),
        None,
        "a new password ends sessions"
    );
    assert_eq!(people.log_in("ada", "correct horse").await.unwrap(), None);
    assert!(
        people
            .log_in("ada", "another horse")
            .await
            .unwrap()
            .is_some()
    );
    what_was_proven_by_a_password_holds_while_it_stands(&people).await;
    assert!(matches!(
        people
            .set_password("eve", "another horse", EarlierTokens::Keep)
            .await,
        Err(PeopleError::Unknown(_))
    ));
    people.create(&admin("root")).await.unwrap();
    people.change("ada", &disabled()).await.unwrap();
    assert_eq!(
        people.log_in("ada", "another horse").await.unwrap(),
        None,
        "a disabled account stays out"
    );
}

/// The old password gives nothing once there is another, however early it was checked.
async fn what_was_proven_by_a_password_holds_while_it_stands(people: &ChangedPeople) {
    let proven = people
        .log_in("ada", "another horse")
        .await
        .unwrap()
        .unwrap();
    people
        .set_password("ada", "a fourth horse", EarlierTokens::Revoke)
        .await
        .unwrap();
    let changed = Err(PeopleError::Changed("ada".into()));
    let token = NewToken {
        label: "ci".into(),
        scope: Rights::default(),
        expires_in: None,
    };
    assert_eq!(
        people.begin_session(&proven, TERMS).await.map(drop),
        changed
    );
    assert_eq!(
        people.create_token(&proven, &token).await.map(drop),
        changed
    );
    assert_eq!(
        people
            .set_password(&proven, "another horse", EarlierTokens::Keep)
            .await
            .map(drop),
        changed
    );
    let proven = people
        .log_in("ada", "a fourth horse")
        .await
        .unwrap()
        .unwrap();
    let proven = people
        .set_password(&proven, "another horse", EarlierTokens::Keep)
        .await
        .unwrap();
    // A change of roles keeps nobody out.
    let role = RoleChange::Application("shop".into(), Some(ApplicationRole::Viewer));
    people
        .change(
            "ada",
            &AccountChange {
                roles: vec![role],
                ..AccountChange::default()
            },
        )
        .await
        .unwrap();
    people.begin_session(&proven, TERMS).await.unwrap();
    people.create_token(&proven, &token).await.unwrap();
    let proven = people
        .log_in("ada", "another horse")
        .await
        .unwrap()
        .unwrap();
    let subject = OidcSubject {
        issuer: "https://id.example.com".into(),
        subject: "7".into(),
    };
    let bound = AccountChange {
        subject: Some(Some(subject)),
        ..AccountChange::default()
    };
    people.change("ada", &bound).await.unwrap();
    assert_eq!(
        people.begin_session(&proven, TERMS).await.map(drop),
        changed
    );
    assert!(!format!("{proven:?}").contains("argon2"), "{proven:?}");
    assert_eq!(
        people.log_in("ada\0", "another horse").await.unwrap(),
        None,
        "what is no name is nobody's"
    );
}

async fn an_application_that_goes_takes_its_roles_along(test: TestDatabase) {
    let people = people(&test).await;
    let mut both = Rights::new("shop", ApplicationRole::Owner);
    both.give(&RoleChange::Application(
        "shop-x".into(),
        Some(ApplicationRole::Editor),
    ));
    people.create(&new("ada", Rights::admin())).await.unwrap();
    people.create(&new("bob", both)).await.unwrap();
    people
        .create(&new("eve", Rights::new("bank", ApplicationRole::Viewer)))
        .await
        .unwrap();
    people
        .create(&new("zoe", Rights::new("shop", ApplicationRole::Viewer)))
        .await
        .unwrap();
    let before = people.accounts().await.unwrap();
    let token = |scope: &Rights| NewToken {
        label: "ci".into(),
        scope: scope.clone(),
        expires_in: None,
    };
    let (bobs, _) = people
        .create_token("bob", &token(&before[1].rights))
        .await
        .unwrap();
    let (adas, _) = people
        .create_token("ada", &token(&Rights::new("shop", ApplicationRole::Owner)))
        .await
        .unwrap();
    let database = test.handle();
    let make = Expected::Absent;
    let shop = ObjectId::of_application("shop").unwrap();
    let made = draft("ada", vec![edit(&shop, make, Some(json!({})))]);
    database.commit(&made, fine).await.unwrap();
    let removal = draft("ada", vec![edit(&shop, Expected::Any, None)]);
    let (_, entries) = database
        .commit_by(&removal, &OPERATOR, |_| Ok(()), fine)
        .await
        .unwrap();
    let objects: Vec<_> = entries.iter().map(|entry| &*entry.record.object).collect();
    assert_eq!(objects, ["revision 2", "account bob", "account zoe"]);
    let scope = |secret: &str| {
        let (people, secret) = (people.clone(), secret.to_owned());
        async move { people.token(&secret).await.unwrap().unwrap().1.scope }
    };
    assert_eq!(
        scope(bobs.expose()).await,
        Rights::new("shop-x", ApplicationRole::Editor)
    );
    assert_eq!(
        scope(adas.expose()).await,
        Rights::default(),
        "it was for the application that is gone"
    );
    let rights = |name: &'static str| {
        let people = people.clone();
        async move { people.account(name).await.unwrap().unwrap() }
    };
    assert_eq!(
        rights("bob").await.rights,
        Rights::new("shop-x", ApplicationRole::Editor)
    );
    assert_eq!(rights("zoe").await.rights, Rights::default());
    assert!(
        rights("bob").await.changed_at > before[1].changed_at,
        "whoever saw it as it was is told"
    );
    assert_eq!(
        (rights("ada").await, rights("eve").await),
        (before[0].clone(), before[2].clone())
    );
}

async fn the_last_admin_stays(test: TestDatabase) {
    let people = people(&test).await;
    people
        .create(&new("bob", Rights::new("shop", ApplicationRole::Owner)))
        .await
        .unwrap();
    people.change("bob", &disabled()).await.unwrap();
    people.create(&new("ghost", Rights::admin())).await.unwrap();
    people.remove("ghost").await.unwrap();
    people.create(&admin("ada")).await.unwrap();
    let demoted = AccountChange {
        rights: Some(Rights::default()),
        ..AccountChange::default()
    };
    assert_eq!(
        people.change("ada", &disabled()).await,
        Err(PeopleError::LastAdmin)
    );
    assert_eq!(
        people.change("ada", &demoted).await,
        Err(PeopleError::LastAdmin)
    );
    assert_eq!(people.remove("ada").await, Err(PeopleError::LastAdmin));
    let ada = people.account("ada").await.unwrap().unwrap();
    assert!(
        !ada.disabled && ada.rights == Rights::admin(),
        "nothing of it was kept: {ada:?}"
    );
    people.create(&admin("eve")).await.unwrap();
    people.change("eve", &disabled()).await.unwrap();
    assert_eq!(
        people.remove("ada").await,
        Err(PeopleError::LastAdmin),
        "a disabled admin is none"
    );
    people.create(&new("ghost", Rights::admin())).await.unwrap();
    assert_eq!(
        people.remove("ada").await,
        Err(PeopleError::LastAdmin),
        "nobody can sign in to the other"
    );
    people.remove("ghost").await.unwrap();
    people.remove("eve").await.unwrap();
    people.create(&admin("zoe")).await.unwrap();
    people.remove("ada").await.unwrap();
}

async fn two_admins_cannot_take_each_others_rights_at_once(test: TestDatabase) {
    let people = people(&test).await;
    for round in 0..4 {
        let names = [format!("a{round}"), format!("b{round}")];
        for name in &names {
            people.create(&admin(name)).await.unwrap();
        }
        for old in people
            .accounts()
            .await
            .unwrap()
            .iter()
            .filter(|account| !names.contains(&account.name))
        {
            people.remove(&old.name).await.unwrap();
        }
        let both = names.map(|name| {
            let people = ChangedPeople(test.handle().people());
            tokio::spawn(async move { people.change(&name, &disabled()).await })
        });
        let mut done = Vec::new();
        for one in both {
            done.push(one.await.unwrap().map(|_| ()));
        }
        done.sort_by_key(Result::is_err);
        assert_eq!(done, [Ok(()), Err(PeopleError::LastAdmin)]);
        let left = people
            .accounts()
            .await
            .unwrap()
            .into_iter()
            .find(|account| account.disabled)
            .unwrap();
        people.remove(&left.name).await.unwrap();
    }
}
