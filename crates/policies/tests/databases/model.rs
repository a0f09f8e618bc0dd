//! Random revisions beside a model that keeps a copy of every state.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::{Value as Json, json};
use tollgate_policies::database::{ChangesAfter, CommitError, PolicyDatabase};
use tollgate_policies::model::{
    DraftProblem, Expected, ObjectEdit, ObjectId, ObjectKind, PolicyState,
};

use crate::drafts::{draft, edit, fine, id};
use crate::servers::{Product, TestDatabase};

over_all! {
    random_revisions_are_what_the_model_says,
}

/// The edits of a commit: which object, its body or none, and whether the editor saw the newest
/// version.
type Step = Vec<(u8, Option<u8>, bool)>;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let edit = (0..6u8, prop::option::of(0..3u8), prop::bool::weighted(0.9));
    prop::collection::vec(prop::collection::vec(edit, 1..4), 1..20)
}

type Bodies = BTreeMap<ObjectId, (Json, u64)>;

/// Every state there was, each object with its body and the revision that wrote it.
struct Model {
    states: Vec<Bodies>,
}

fn object(number: u8) -> ObjectId {
    let kinds = [
        ObjectKind::Strategy,
        ObjectKind::Plan,
        ObjectKind::Assignment,
    ];
    id(kinds[usize::from(number % 3)], &format!("o{}", number / 3))
}

impl Model {
    fn newest(&self) -> &Bodies {
        self.states.last().unwrap()
    }

    fn head(&self) -> u64 {
        self.states.len() as u64 - 1
    }

    fn edits(&self, written: &[(u8, Option<u8>, bool)]) -> Vec<ObjectEdit> {
        let edits = written.iter().map(|(number, body, saw_newest)| {
            let id = object(*number);
            let expected = match self.newest().get(&id) {
                _ if !saw_newest => Expected::Revision(1000),
                Some((_, since)) => Expected::Revision(*since),
                None => Expected::Absent,
            };
            edit(&id, expected, body.map(|body| json!({ "n": body })))
        });
        edits.collect()
    }

    /// Makes a state of these bodies, if they differ.
    fn commit(&mut self, bodies: &BTreeMap<ObjectId, Option<Json>>) -> Outcome {
        let (mut next, number) = (self.newest().clone(), self.head() + 1);
        for (id, body) in bodies {
            match body {
                Some(body) if next.get(id).is_some_and(|(old, _)| old == body) => {}
                Some(body) => drop(next.insert(id.clone(), (body.clone(), number))),
                None => drop(next.remove(id)),
            }
        }
        if next == *self.newest() {
            return Outcome::NoChange;
        }
        self.states.push(next);
        Outcome::Made(number)
    }

    fn step(&mut self, step: &Step) -> Outcome {
        let edits = self.edits(step);
        let ids: BTreeSet<_> = edits.iter().map(|edit| &edit.id).collect();
        if ids.len() < edits.len() {
            return Outcome::Twice;
        }
        if step.iter().any(|(_, _, saw_newest)| !saw_newest) {
            return Outcome::Conflict;
        }
        self.commit(&edits.into_iter().map(|edit| (edit.id, edit.body)).collect())
    }
}

#[derive(PartialEq, Eq, Debug)]
enum Outcome {
    Made(u64),
    NoChange,
    Twice,
    Conflict,
}

async fn act(database: &PolicyDatabase, model: &Model, step: &Step) -> Outcome {
    match database
        .commit(&draft("ada", model.edits(step)), fine)
        .await
    {
        Ok(revision) => Outcome::Made(revision.number),
        Err(CommitError::Draft(DraftProblem::NoChange)) => Outcome::NoChange,
        Err(CommitError::Draft(DraftProblem::Twice(_))) => Outcome::Twice,
        Err(CommitError::Conflict(_)) => Outcome::Conflict,
        Err(other) => panic!("{other}"),
    }
}

fn bodies(state: &PolicyState) -> Bodies {
    state
        .iter()
        .map(|object| {
            (
                object.id.clone(),
                (object.body.as_ref().clone(), object.since),
            )
        })
        .collect()
}

fn without_stamps(state: &Bodies) -> BTreeMap<&ObjectId, &Json> {
    state.iter().map(|(id, (body, _))| (id, body)).collect()
}

async fn random_revisions_are_what_the_model_says(test: TestDatabase) {
    let (product, mut runner) = (test.product, TestRunner::default());
    let cases = if product == Product::Sqlite { 24 } else { 8 };
    for _ in 0..cases {
        let steps = steps().new_tree(&mut runner).unwrap().current();
        let test = TestDatabase::new(product).await;
        check(&test, &steps).await;
    }
}

async fn check(test: &TestDatabase, steps: &[Step]) {
    let (database, reader) = (test.migrated().await, test.handle());
    let mut model = Model {
        states: vec![Bodies::new()],
    };
    for step in steps {
        let done = act(&database, &model, step).await;
        assert_eq!(done, model.step(step), "{step:?} of {steps:?}");
    }
    assert_eq!(
        bodies(&database.state(None).await.unwrap()),
        *model.newest(),
        "{steps:?}"
    );
    let newest = reader.state(None).await.unwrap();
    for (number, expected) in model.states.iter().enumerate() {
        let at = number as u64;
        let state = reader.state(Some(at)).await.unwrap();
        assert_eq!(bodies(&state), *expected, "at {number}: {steps:?}");
        let ChangesAfter::Known { changes, to } =
            reader.changes_after(state.position()).await.unwrap()
        else {
            panic!("revision {number} is not known: {steps:?}");
        };
        assert_eq!(
            state.advanced(&changes, to),
            newest,
            "after {number}: {steps:?}"
        );
        for other in 0..=model.head() {
            let target = &model.states[usize::try_from(other).unwrap()];
            let diff = reader.diff(at, other).await.unwrap();
            let mut reached = without_stamps(expected);
            for change in &diff {
                let before = change.before.as_ref().map(|object| object.body.as_ref());
                assert!(!change.is_alike(), "{at} to {other}: {steps:?}");
                assert_eq!(
                    reached.get(&change.id).copied(),
                    before,
                    "{at} to {other}: {steps:?}"
                );
                match &change.after {
                    Some(object) => drop(reached.insert(&change.id, &object.body)),
                    None => drop(reached.remove(&change.id)),
                }
            }
            assert_eq!(
                reached,
                without_stamps(target),
                "{at} to {other}: {steps:?}"
            );
        }
    }
}
