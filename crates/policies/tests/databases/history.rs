//! The history, of everything and of one object, page by page.

use tollgate_policies::database::{DatabaseError, ObjectRevision, Page};

use crate::drafts::{commit, draft, fine, gone, rate, strategy};
use crate::servers::TestDatabase;

over_all! {
    the_history_has_every_revision_newest_first,
    the_history_of_an_object_has_what_became_of_it,
}

async fn the_history_has_every_revision_newest_first(test: TestDatabase) {
    let database = test.migrated().await;
    for number in 1..=5 {
        database
            .commit(&draft(&format!("a{number}"), vec![rate("a", number)]), fine)
            .await
            .unwrap();
    }
    let pages = |limit| {
        let database = database.clone();
        async move {
            let (mut numbers, mut before) = (Vec::new(), None);
            loop {
                let page = database.history(Page { before, limit }).await.unwrap();
                before = page.last().map(|revision| revision.number);
                match page.len() {
                    0 => return numbers,
                    _ => numbers.push(
                        page.into_iter()
                            .map(|revision| revision.number)
                            .collect::<Vec<_>>(),
                    ),
                }
            }
        }
    };
    assert_eq!(pages(2).await, [vec![5, 4], vec![3, 2], vec![1]]);
    assert_eq!(pages(0).await.len(), 5, "a page has one at least");
    assert_eq!(pages(9000).await, [vec![5, 4, 3, 2, 1]]);
    let third = database.revision(3).await.unwrap();
    assert_eq!(
        (third.author.as_str(), third.reason.as_str(), third.edits),
        ("a3", "a3 wants it", 1)
    );
    for number in [0, 6, u64::MAX] {
        let unknown = DatabaseError::UnknownRevision {
            asked: number,
            head: 5,
        };
        assert_eq!(database.revision(number).await, Err(unknown));
    }
}

async fn the_history_of_an_object_has_what_became_of_it(test: TestDatabase) {
    let database = test.migrated().await;
    for edits in [
        vec![rate("a", 1), rate("b", 1)],
        vec![rate("a", 2)],
        vec![rate("b", 2)],
        vec![gone("a")],
        vec![rate("b", 3)],
        vec![rate("a", 6)],
        vec![gone("a")],
        vec![rate("a", 8)],
        vec![rate("a", 9)],
    ] {
        commit(&database, edits).await;
    }
    let shown = |found: &ObjectRevision| {
        let rate = |side: &Option<std::sync::Arc<tollgate_policies::model::Object>>| {
            side.as_ref().map_or("-".to_owned(), |object| {
                object.body["limit"]["rate"].to_string()
            })
        };
        format!(
            "{}: {} {}",
            found.revision.number,
            rate(&found.change.before),
            rate(&found.change.after)
        )
    };
    let expected = [
        "9: 8 9", "8: - 8", "7: 6 -", "6: - 6", "4: 2 -", "2: 1 2", "1: - 1",
    ];
    for limit in 1..=8 {
        let (mut all, mut before) = (Vec::new(), None);
        loop {
            let page = database
                .history_of(&strategy("a"), Page { before, limit })
                .await
                .unwrap();
            assert!(page.len() <= limit as usize);
            let Some(last) = page.last() else { break };
            before = Some(last.revision.number);
            all.extend(page.iter().map(shown));
        }
        assert_eq!(all, expected, "{limit} a page");
    }
    assert!(
        database
            .history_of(&strategy("z"), Page::default())
            .await
            .unwrap()
            .is_empty()
    );
}
