//! Drafts and objects that the tests write.

use std::convert::Infallible;

use serde_json::{Value as Json, json};
use tollgate_policies::database::PolicyDatabase;
use tollgate_policies::model::{
    Draft, Expected, ObjectEdit, ObjectId, ObjectKind, PolicyState, Revision,
};

pub fn id(kind: ObjectKind, name: &str) -> ObjectId {
    let application = if kind == ObjectKind::Application {
        ""
    } else {
        "shop"
    };
    ObjectId::new(kind, application, name).unwrap()
}

pub fn strategy(name: &str) -> ObjectId {
    id(ObjectKind::Strategy, name)
}

pub fn edit(id: &ObjectId, expected: Expected, body: impl Into<Option<Json>>) -> ObjectEdit {
    ObjectEdit {
        id: id.clone(),
        expected,
        body: body.into(),
    }
}

/// Sets a strategy's rate, whatever it is.
pub fn rate(name: &str, rate: u64) -> ObjectEdit {
    edit(
        &strategy(name),
        Expected::Any,
        json!({ "limit": { "rate": rate } }),
    )
}

pub fn gone(name: &str) -> ObjectEdit {
    edit(&strategy(name), Expected::Any, None)
}

pub fn draft(author: &str, edits: Vec<ObjectEdit>) -> Draft {
    Draft {
        edits,
        author: author.into(),
        reason: format!("{author} wants it"),
    }
}

/// Any state is good.
pub fn fine(_: &PolicyState) -> Result<(), Infallible> {
    Ok(())
}

pub async fn commit(database: &PolicyDatabase, edits: Vec<ObjectEdit>) -> Revision {
    database.commit(&draft("ada", edits), fine).await.unwrap()
}

/// Names and rates of all strategies.
pub fn rates(state: &PolicyState) -> Vec<(String, u64)> {
    let strategies = state.of(ObjectKind::Strategy, "shop");
    strategies
        .map(|object| {
            (
                object.id.name().to_owned(),
                object.body["limit"]["rate"].as_u64().unwrap(),
            )
        })
        .collect()
}

pub fn named(pairs: &[(&str, u64)]) -> Vec<(String, u64)> {
    pairs
        .iter()
        .map(|(name, rate)| ((*name).to_owned(), *rate))
        .collect()
}
