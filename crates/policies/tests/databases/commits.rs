//! Commits: what they do, and what they refuse.

use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::json;
use tollgate_policies::database::{CommitError, DatabaseError, Page};
use tollgate_policies::model::{DraftProblem, Expected, ObjectKind, PolicyState};

use crate::drafts::{commit, draft, edit, fine, gone, id, named, rate, rates, strategy};
use crate::servers::TestDatabase;

over_all! {
    revisions_are_numbered_and_every_state_stays_readable,
    objects_know_who_made_and_changed_them,
    the_second_of_two_editors_is_told_who_was_first,
    an_object_that_was_taken_away_is_a_conflict_that_names_who_took_it,
    a_refused_draft_leaves_nothing_behind,
    nothing_to_change_is_no_revision,
    names_and_bodies_come_back_byte_by_byte,
}

async fn revisions_are_numbered_and_every_state_stays_readable(test: TestDatabase) {
    let database = test.migrated().await;
    assert_eq!(database.head().await.unwrap().revision, 0);
    assert!(database.state(None).await.unwrap().is_empty());
    for (number, edits) in [
        (1, vec![rate("a", 1), rate("b", 1)]),
        (2, vec![rate("a", 2)]),
        (3, vec![gone("b"), rate("c", 3)]),
        (4, vec![rate("b", 4)]),
    ] {
        let count = edits.len() as u64;
        let revision = commit(&database, edits).await;
        assert_eq!((revision.number, revision.edits), (number, count));
    }
    let other = test.handle();
    let states = [
        named(&[]),
        named(&[("a", 1), ("b", 1)]),
        named(&[("a", 2), ("b", 1)]),
        named(&[("a", 2), ("c", 3)]),
        named(&[("a", 2), ("b", 4), ("c", 3)]),
    ];
    for (number, expected) in states.iter().enumerate() {
        for handle in [&database, &other] {
            let state = handle.state(Some(number as u64)).await.unwrap();
            assert_eq!(
                (&rates(&state), state.revision()),
                (expected, number as u64)
            );
        }
    }
    for handle in [&database, &other] {
        let newest = handle.state(None).await.unwrap();
        assert_eq!(newest, handle.state(Some(4)).await.unwrap());
        assert_eq!(newest.position(), handle.head().await.unwrap());
    }
    let beyond = other.state(Some(5)).await.unwrap_err();
    assert_eq!(beyond, DatabaseError::UnknownRevision { asked: 5, head: 4 });
    assert_eq!(
        beyond.to_string(),
        "there is no revision 5: the newest is 4"
    );
}

async fn objects_know_who_made_and_changed_them(test: TestDatabase) {
    let database = test.migrated().await;
    let first = database
        .commit(&draft("ada", vec![rate("a", 1)]), fine)
        .await
        .unwrap();
    let second = database
        .commit(&draft("bob", vec![rate("a", 2)]), fine)
        .await
        .unwrap();
    for state in [
        database.state(None).await.unwrap(),
        test.handle().state(None).await.unwrap(),
    ] {
        let object = state.get(&strategy("a")).unwrap();
        let made = (
            object.created_by.as_ref(),
            object.created_at,
            object.created,
        );
        let changed = (object.changed_by.as_ref(), object.changed_at, object.since);
        assert_eq!(
            (made, changed),
            (("ada", first.at, 1), ("bob", second.at, 2))
        );
    }
    assert!(
        first.at <= second.at && first.at.millis() > 1_700_000_000_000,
        "{first:?} {second:?}"
    );
    commit(&database, vec![gone("a")]).await;
    let again = database
        .commit(&draft("eve", vec![rate("a", 3)]), fine)
        .await
        .unwrap();
    let state = test.handle().state(None).await.unwrap();
    let object = state.get(&strategy("a")).unwrap();
    assert_eq!(
        (object.created_by.as_ref(), object.created, object.since),
        ("eve", again.number, again.number)
    );
}

async fn the_second_of_two_editors_is_told_who_was_first(test: TestDatabase) {
    let (ada, bob) = (test.migrated().await, test.handle());
    commit(&ada, vec![rate("a", 1), rate("b", 1)]).await;
    let seen = bob
        .state(None)
        .await
        .unwrap()
        .get(&strategy("a"))
        .unwrap()
        .since;
    let body = |rate: u64| json!({ "limit": { "rate": rate } });
    let edited = |author: &str, rate| {
        draft(
            author,
            vec![edit(&strategy("a"), Expected::Revision(seen), body(rate))],
        )
    };
    let first = ada.commit(&edited("ada", 2), fine).await.unwrap();
    let refused = bob.commit(&edited("bob", 3), fine).await.unwrap_err();
    let CommitError::Conflict(conflicts) = &refused else {
        panic!("{refused:?}")
    };
    assert_eq!(conflicts.len(), 1);
    let last = conflicts[0].last.as_ref().unwrap();
    assert_eq!(
        (last.by.as_ref(), last.revision, last.at),
        ("ada", first.number, first.at)
    );
    assert_eq!(
        (&conflicts[0].id, conflicts[0].found),
        (&strategy("a"), Some(2))
    );
    let message = format!(
        "strategy shop/a was changed by ada in revision 2 at {}",
        first.at
    );
    assert!(refused.to_string().starts_with(&message), "{refused}");
    let again = edit(&strategy("a"), Expected::Absent, body(4));
    let refused = bob
        .commit(&draft("bob", vec![rate("c", 1), again]), fine)
        .await
        .unwrap_err();
    assert!(
        refused
            .to_string()
            .starts_with("strategy shop/a is there already: ada in revision 2"),
        "{refused}"
    );
    assert_eq!(
        rates(&bob.state(None).await.unwrap()),
        named(&[("a", 2), ("b", 1)]),
        "all or nothing"
    );
    let beside = edit(&strategy("b"), Expected::Revision(1), body(9));
    bob.commit(&draft("bob", vec![beside]), fine).await.unwrap();
}

async fn an_object_that_was_taken_away_is_a_conflict_that_names_who_took_it(test: TestDatabase) {
    let database = test.migrated().await;
    commit(&database, vec![rate("a", 1)]).await;
    database
        .commit(&draft("eve", vec![gone("a")]), fine)
        .await
        .unwrap();
    let late = edit(
        &strategy("a"),
        Expected::Revision(1),
        json!({ "limit": { "rate": 2 } }),
    );
    let refused = database
        .commit(&draft("bob", vec![late]), fine)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        refused.starts_with("strategy shop/a was taken away by eve in revision 2"),
        "{refused}"
    );
    let never = edit(&strategy("z"), Expected::Revision(1), json!({}));
    let refused = database
        .commit(&draft("bob", vec![never]), fine)
        .await
        .unwrap_err()
        .to_string();
    assert_eq!(refused, "strategy shop/z is not there, and never was");
}

async fn a_refused_draft_leaves_nothing_behind(test: TestDatabase) {
    let database = test.migrated().await;
    commit(&database, vec![rate("a", 1)]).await;
    let asked = AtomicU32::new(0);
    let check = |state: &PolicyState| {
        asked.fetch_add(1, Ordering::Relaxed);
        assert_eq!(
            (rates(state), state.revision()),
            (named(&[("a", 1), ("b", 7)]), 2),
            "the whole of what would stand"
        );
        Err("b is too fast")
    };
    let refused = database
        .commit(&draft("bob", vec![rate("b", 7)]), check)
        .await
        .unwrap_err();
    assert_eq!(refused, CommitError::Refused("b is too fast"));
    assert_eq!(refused.to_string(), "b is too fast");
    assert_eq!(asked.into_inner(), 1);
    for handle in [&database, &test.handle()] {
        assert_eq!(handle.head().await.unwrap().revision, 1);
        assert_eq!(
            rates(&handle.state(None).await.unwrap()),
            named(&[("a", 1)])
        );
        assert_eq!(handle.history(Page::default()).await.unwrap().len(), 1);
    }
}

async fn nothing_to_change_is_no_revision(test: TestDatabase) {
    let database = test.migrated().await;
    commit(&database, vec![rate("a", 1)]).await;
    let problem = |edits, reason: &str| {
        let (database, draft) = (
            database.clone(),
            tollgate_policies::model::Draft {
                reason: reason.into(),
                ..draft("ada", edits)
            },
        );
        async move {
            match database.commit(&draft, fine).await {
                Err(CommitError::Draft(problem)) => problem,
                other => panic!("{other:?}"),
            }
        }
    };
    assert_eq!(
        problem(vec![rate("a", 1), gone("b")], "why").await,
        DraftProblem::NoChange
    );
    assert_eq!(problem(vec![], "why").await, DraftProblem::NoEdits);
    assert_eq!(
        problem(vec![rate("a", 2)], " ").await,
        DraftProblem::NoReason
    );
    assert_eq!(
        problem(vec![rate("a", 2), rate("a", 3)], "why").await,
        DraftProblem::Twice(strategy("a"))
    );
    let revision = commit(&database, vec![rate("a", 1), rate("b", 1)]).await;
    assert_eq!(
        (revision.number, revision.edits),
        (2, 1),
        "an edit that changes nothing is not counted"
    );
    assert_eq!(
        database
            .state(None)
            .await
            .unwrap()
            .get(&strategy("a"))
            .unwrap()
            .since,
        1
    );
}

async fn names_and_bodies_come_back_byte_by_byte(test: TestDatabase) {
    let database = test.migrated().await;
    // Equal to some collations: case, accents, width, what is between words, what is composed.
    let clients = [
        "ada",
        "Ada",
        "ädä",
        "ada\u{301}",
        "adá",
        "a da",
        "ada'; --",
        "\u{ff41}da",
        "?",
        "ß",
        "ss",
        "\u{1f600}",
    ];
    let largest = "x\u{1f600}\"\\".repeat(6000);
    let edits = clients.iter().enumerate().map(|(at, client)| {
        let body =
            json!({ "plan": client, "at": at, "text": "\t\r\n\\", "large": if at == 0 { &largest } else { "" } });
        edit(&id(ObjectKind::Assignment, client), Expected::Absent, body)
    });
    let draft = draft("ädä \u{1f600}", edits.collect());
    database.commit(&draft, fine).await.unwrap();
    let state = test.handle().state(None).await.unwrap();
    assert_eq!(state.len(), clients.len());
    for edit in &draft.edits {
        let object = state.get(&edit.id).unwrap();
        assert_eq!(
            (Some(object.body.as_ref()), object.changed_by.as_ref()),
            (edit.body.as_ref(), "ädä \u{1f600}")
        );
    }
    let one = id(ObjectKind::Assignment, "Ada");
    database
        .commit(
            &crate::drafts::draft("bob", vec![edit(&one, Expected::Revision(1), None)]),
            fine,
        )
        .await
        .unwrap();
    assert_eq!(
        test.handle().state(None).await.unwrap().len(),
        clients.len() - 1,
        "and no other"
    );
}
