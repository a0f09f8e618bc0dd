//! Rights as the database has them: those of accounts, and the scopes of tokens.
//!
//! Guarantees that a scope never goes beyond what its account may: a role that was taken does not
//! come back with a later one.

use super::rights::Rights;
use crate::database::DatabaseError;
use crate::database::sql::{BadData, Connection, SqlValue};

pub fn read_rights(text: &str, name: &str) -> Result<Rights, BadData> {
    serde_json::from_str(text).map_err(|error| BadData(format!("the rights of {name}: {error}")))
}

pub fn written(rights: &Rights) -> String {
    serde_json::json!(rights).to_string()
}

/// Takes from the tokens of an account what it may not do any more.
pub async fn narrow_tokens(
    connection: &mut Connection,
    name: &str,
    rights: &Rights,
) -> Result<(), DatabaseError> {
    let sql = "SELECT id, scope FROM tollgate_tokens WHERE account = ?";
    let tokens = connection
        .rows(sql, &[SqlValue::Text(name)], |row| {
            let id = row.text(0)?.to_owned();
            Ok((read_rights(row.text(1)?, &id)?, id))
        })
        .await?;
    for (scope, id) in tokens.iter().filter(|(scope, _)| !scope.is_within(rights)) {
        let narrowed = written(&scope.common(rights));
        let values = [SqlValue::Text(&narrowed), SqlValue::Text(id)];
        connection
            .execute("UPDATE tollgate_tokens SET scope = ? WHERE id = ?", &values)
            .await?;
    }
    Ok(())
}

/// Takes the role in an application from every token that has one.
pub async fn take_role_from_tokens(
    connection: &mut Connection,
    application: &str,
) -> Result<(), DatabaseError> {
    let tokens = connection
        .rows("SELECT id, scope FROM tollgate_tokens", &[], |row| {
            let id = row.text(0)?.to_owned();
            Ok((read_rights(row.text(1)?, &id)?, id))
        })
        .await?;
    for (mut scope, id) in tokens {
        if scope.applications.remove(application).is_some() {
            let narrowed = written(&scope);
            let values = [SqlValue::Text(&narrowed), SqlValue::Text(&id)];
            connection
                .execute("UPDATE tollgate_tokens SET scope = ? WHERE id = ?", &values)
                .await?;
        }
    }
    Ok(())
}
