//! Changes of people and policies: made by the rights of their moment, and recorded, or neither.

use serde_json::json;
use tollgate_policies::database::{CommitError, Page};
use tollgate_policies::model::{Expected, ObjectId};
use tollgate_policies::people::{
    AccountChange, ApplicationRole, AuthorProof, ChangeAuthor, Deed, NewToken, PeopleError, Rights,
};

use super::{ChangedPeople, TERMS, admin, new, people};
use crate::drafts::{draft, edit, fine};
use crate::servers::TestDatabase;

over_all! {
    a_change_goes_by_the_rights_of_its_moment,
    a_change_and_its_entry_stand_together_or_not_at_all,
    a_revision_goes_by_the_rights_of_its_moment_and_stands_with_its_entries,
    all_nodes_have_one_key_of_sign_ins_and_no_other_fleet_has_it,
}

const DEED: Deed<'_> = Deed {
    action: "account_create",
    object: "account eve",
    detail: "viewer",
};

/// The caller who has this proof.
fn author(proof: AuthorProof<'_>) -> ChangeAuthor<'_> {
    ChangeAuthor {
        account: "ada",
        address: "192.0.2.1",
        proof,
    }
}

fn rights(rights: Rights) -> AccountChange {
    AccountChange {
        rights: Some(rights),
        ..AccountChange::default()
    }
}

/// The objects of the audit log, oldest first.
async fn recorded(people: &ChangedPeople) -> Vec<String> {
    let mut entries = people.audit(Page::default()).await.unwrap();
    entries.reverse();
    let objects = entries.into_iter().map(|entry| entry.record.object);
    objects.collect()
}

async fn a_change_goes_by_the_rights_of_its_moment(test: TestDatabase) {
    let people = people(&test).await;
    people.create(&admin("root")).await.unwrap();
    people.create(&admin("ada")).await.unwrap();
    let (session, _) = people.begin_session("ada", TERMS).await.unwrap();
    let viewer = Rights::new("shop", ApplicationRole::Viewer);
    let narrow = NewToken {
        label: "ci".into(),
        scope: viewer.clone(),
        expires_in: None,
    };
    let (token, _) = people.create_token("ada", &narrow).await.unwrap();
    let session = author(AuthorProof::Session(session.expose()));
    let token = author(AuthorProof::Token(token.expose()));
    for (author, found) in [(&session, Rights::admin()), (&token, viewer.clone())] {
        let change = people.begin(author).await.unwrap();
        assert_eq!(*change.rights(), found);
    }
    people.change("ada", &rights(viewer.clone())).await.unwrap();
    let change = people.begin(&session).await.unwrap();
    assert_eq!(*change.rights(), viewer);
    drop(change);
    people.end_sessions("ada").await.unwrap();
    assert_eq!(
        people.begin(&session).await.err(),
        Some(PeopleError::SignedOut)
    );
    people.remove("ada").await.unwrap();
    assert_eq!(
        people.begin(&token).await.err(),
        Some(PeopleError::SignedOut)
    );
    for (shown, secret) in [
        (format!("{session:?}"), "tgs_"),
        (format!("{token:?}"), "tgt_"),
    ] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

async fn a_change_and_its_entry_stand_together_or_not_at_all(test: TestDatabase) {
    let people = people(&test).await;
    let trusted = author(AuthorProof::Trusted);
    let eve = new("eve", Rights::default());
    let mut left = people.begin(&trusted).await.unwrap();
    left.create(&eve).await.unwrap();
    drop(left);
    assert_eq!(people.accounts().await.unwrap(), []);
    // Without its head, the log takes no entry.
    test.run("UPDATE tollgate_heads SET name = 'gone' WHERE name = 'audit'")
        .await;
    let mut unrecorded = people.begin(&trusted).await.unwrap();
    unrecorded.create(&eve).await.unwrap();
    unrecorded.commit(&DEED).await.unwrap_err();
    assert_eq!(people.accounts().await.unwrap(), []);
    test.run("UPDATE tollgate_heads SET name = 'audit' WHERE name = 'gone'")
        .await;
    let mut change = people.begin(&trusted).await.unwrap();
    let made = change.create(&eve).await.unwrap();
    let entry = change.commit(&DEED).await.unwrap();
    assert_eq!(people.accounts().await.unwrap(), [made]);
    assert_eq!(
        people.audit(Page::default()).await.unwrap(),
        std::slice::from_ref(&entry)
    );
    assert_eq!(entry.number, 1);
    assert_eq!(
        (&*entry.record.account, &*entry.record.address),
        ("ada", "192.0.2.1")
    );
}

async fn a_revision_goes_by_the_rights_of_its_moment_and_stands_with_its_entries(
    test: TestDatabase,
) {
    let people = people(&test).await;
    people.create(&admin("root")).await.unwrap();
    people.create(&admin("ada")).await.unwrap();
    let owner = Rights::new("shop", ApplicationRole::Owner);
    people.create(&new("bob", owner.clone())).await.unwrap();
    let (session, _) = people.begin_session("ada", TERMS).await.unwrap();
    let ada = author(AuthorProof::Session(session.expose()));
    let database = test.handle();
    let shop = ObjectId::of_application("shop").unwrap();
    let made = draft("ada", vec![edit(&shop, Expected::Absent, Some(json!({})))]);
    let removed = draft("ada", vec![edit(&shop, Expected::Any, None)]);
    let permit = |rights: Option<&Rights>| match rights {
        Some(rights) if rights.is_admin() => Ok(()),
        Some(_) => Err("no admin"),
        None => Err("signed out"),
    };
    let check = |_: &_| Ok(());
    let (revision, entries) = database
        .commit_by(&made, &ada, permit, check)
        .await
        .unwrap();
    assert_eq!((revision.number, entries.len()), (1, 1));
    // Without its head, the log takes no entry.
    test.run("UPDATE tollgate_heads SET name = 'gone' WHERE name = 'audit'")
        .await;
    let unrecorded = database.commit_by(&removed, &ada, permit, check).await;
    assert!(
        matches!(unrecorded, Err(CommitError::Database(_))),
        "{unrecorded:?}"
    );
    test.run("UPDATE tollgate_heads SET name = 'audit' WHERE name = 'gone'")
        .await;
    people
        .change("ada", &rights(Rights::default()))
        .await
        .unwrap();
    let demoted = database.commit_by(&removed, &ada, permit, check).await;
    assert_eq!(demoted, Err(CommitError::Refused("no admin")));
    assert_eq!(database.head().await.unwrap().revision, 1);
    assert_eq!(people.account("bob").await.unwrap().unwrap().rights, owner);
    people
        .change("ada", &rights(Rights::admin()))
        .await
        .unwrap();
    let (revision, _) = database
        .commit_by(&removed, &ada, permit, check)
        .await
        .unwrap();
    assert_eq!(revision.number, 2);
    let bob = people.account("bob").await.unwrap().unwrap();
    assert_eq!(bob.rights, Rights::default());
    assert_eq!(
        recorded(&people).await,
        ["revision 1", "revision 2", "account bob"]
    );
    people.end_sessions("ada").await.unwrap();
    let signed_out = database.commit_by(&made, &ada, permit, check).await;
    assert_eq!(signed_out, Err(CommitError::Refused("signed out")));
    // A refusal leaves no transaction behind.
    database.commit(&made, fine).await.unwrap();
}

async fn all_nodes_have_one_key_of_sign_ins_and_no_other_fleet_has_it(test: TestDatabase) {
    test.migrated().await;
    let asked = (0..4).map(|_| {
        let people = test.handle().people();
        tokio::spawn(async move { people.sign_in_key().await.unwrap() })
    });
    let mut keys = Vec::new();
    for key in asked.collect::<Vec<_>>() {
        keys.push(key.await.unwrap());
    }
    assert!(keys.iter().all(|key| *key == keys[0]));
    let other = TestDatabase::new(test.product).await;
    let others = people(&other).await.sign_in_key().await.unwrap();
    assert_ne!(others, keys[0]);
}
