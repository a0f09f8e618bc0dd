//! API keys that were taken away, which stay away: a document of before still has them, and so has
//! a revision that somebody goes back to.

use std::collections::{BTreeMap, HashSet};

use serde::Deserialize;

use super::error::DatabaseError;
use super::sql::{BadData, Connection, SqlRow, SqlValue};
use super::write::{MOST_NAMES, places};
use crate::model::{ObjectChange, ObjectId, ObjectKind, PolicyState};

/// The part of a former key's body that is looked at. There may be a million of them.
#[derive(Deserialize)]
struct FormerKey {
    key_sha256: Option<String>,
}

/// Hashes, and the object that each is to be the key of.
type NewKeys<'a> = BTreeMap<String, &'a ObjectId>;

/// The first of the changed objects whose key its application once had and has not in `base`. Asked
/// about the very state that the changes are swapped for, so no key comes back while it is taken
/// away.
pub async fn find_revoked(
    connection: &mut Connection,
    base: &PolicyState,
    changes: &[ObjectChange],
) -> Result<Option<ObjectId>, DatabaseError> {
    let new = new_keys(base, changes);
    let applications: Vec<_> = new.keys().copied().collect();
    for part in applications.chunks(MOST_NAMES) {
        if let Some(id) = find_former(connection, part, &new).await? {
            return Ok(Some(id));
        }
    }
    Ok(None)
}

/// Keys of the changes that their applications do not have.
fn new_keys<'a>(base: &PolicyState, changes: &'a [ObjectChange]) -> BTreeMap<&'a str, NewKeys<'a>> {
    let mut new: BTreeMap<&str, NewKeys<'_>> = BTreeMap::new();
    for change in changes {
        if let Some(object) = &change.after
            && let Some(hash) = object.key_hash()
        {
            new.entry(object.id.application())
                .or_default()
                .insert(hash, &object.id);
        }
    }
    for (application, keys) in &mut new {
        let mut standing = HashSet::new();
        for object in base.of(ObjectKind::ApiKey, application) {
            standing.extend(object.key_hash());
        }
        keys.retain(|hash, _| !standing.contains(hash));
    }
    new.retain(|_, keys| !keys.is_empty());
    new
}

/// The first object whose key one of these applications once had. All of their former keys are read
/// once, however many are looked for.
async fn find_former(
    connection: &mut Connection,
    applications: &[&str],
    new: &BTreeMap<&str, NewKeys<'_>>,
) -> Result<Option<ObjectId>, DatabaseError> {
    let places = places(applications.len(), "?");
    let sql = format!(
        "SELECT application, body FROM tollgate_objects \
         WHERE kind = ? AND application IN ({places}) AND until IS NOT NULL"
    );
    let mut values = vec![SqlValue::Text(ObjectKind::ApiKey.word())];
    values.extend(applications.iter().copied().map(SqlValue::Text));
    let mut found: Option<&ObjectId> = None;
    connection
        .rows(&sql, &values, |row| {
            // The hashes that are not looked for are not kept: there may be a million.
            let application = row.text(0)?;
            if let Some(keys) = new.get(application)
                && let Some(hash) = former_hash(row, application)?
                && let Some(id) = keys.get(&hash)
                && found.is_none_or(|first| *id < first)
            {
                found = Some(id);
            }
            Ok(())
        })
        .await?;
    Ok(found.cloned())
}

fn former_hash(row: &SqlRow<'_>, application: &str) -> Result<Option<String>, BadData> {
    match serde_json::from_str::<FormerKey>(row.text(1)?) {
        Ok(key) => Ok(key.key_sha256.map(|hash| hash.to_ascii_lowercase())),
        Err(error) => Err(BadData(format!(
            "the body of a former API key of {application} is none: {error}"
        ))),
    }
}
