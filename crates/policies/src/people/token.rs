//! Tokens for programs: each acts for an account, within a scope, until it expires or is revoked.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;

use super::account::{ProvenAccount, UserAccount, check_rights, check_text};
use super::accounts::{ACCOUNT_COLUMNS, known, read_account};
use super::error::PeopleError;
use super::handle::{People, PeopleChange, now};
use super::rights::Rights;
use super::secret::{Secret, is_secret, random, sha256};
use super::stored_rights::{read_rights, written};
use crate::database::DatabaseError;
use crate::database::sql::{BadData, Connection, SqlRow, SqlValue};
use crate::time::UnixTime;

/// The beginning of a token's secret.
const BEGINNING: &str = "tgt_";

const MOST_LABEL_BYTES: usize = 128;

/// Valid tokens of one account.
pub const MOST_TOKENS: usize = 50;

/// Tokens of one account that are valid no more, and are kept to be looked at.
const MOST_SPENT: usize = 50;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewToken {
    /// The purpose of the token.
    pub label: String,
    /// Within the rights of the account.
    pub scope: Rights,
    /// `None`: never.
    pub expires_in: Option<Duration>,
}

/// The data of a token. Its secret is not known.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ApiToken {
    pub id: String,
    pub label: String,
    pub scope: Rights,
    pub created_at: UnixTime,
    pub expires_at: Option<UnixTime>,
    pub revoked: bool,
}

const TOKEN_COLUMNS: &str = "t.id, t.label, t.scope, t.created_at, t.expires_at, t.revoked";

impl People {
    /// The account that acts by this secret, with the rights that it and the token have in common
    /// at this moment.
    pub async fn token(
        &self,
        secret: &str,
    ) -> Result<Option<(UserAccount, ApiToken)>, DatabaseError> {
        if !is_secret(BEGINNING, secret) {
            return Ok(None);
        }
        let mut lease = self.pool.take().await?;
        let found = find(&mut lease, secret).await?;
        lease.give_back();
        Ok(found)
    }

    /// The tokens of an account, oldest first, revoked ones too.
    pub async fn tokens(&self, name: &str) -> Result<Vec<ApiToken>, DatabaseError> {
        let mut lease = self.pool.take().await?;
        let found = tokens_of(&mut lease, name).await?;
        lease.give_back();
        Ok(found)
    }
}

impl PeopleChange<'_> {
    /// The secret is known to nobody after this.
    pub async fn create_token(
        &mut self,
        account: impl Into<ProvenAccount<'_>>,
        new: &NewToken,
    ) -> Result<(Secret, ApiToken), PeopleError> {
        check_text("label", &new.label, MOST_LABEL_BYTES)?;
        check_rights(&new.scope)?;
        create(&mut self.lease, account.into(), new).await
    }

    /// False: the account has no such token, or it was revoked before.
    pub async fn revoke_token(&mut self, name: &str, id: &str) -> Result<bool, DatabaseError> {
        let values = [SqlValue::Text(name), SqlValue::Text(id)];
        let sql =
            "UPDATE tollgate_tokens SET revoked = 1 WHERE account = ? AND id = ? AND revoked = 0";
        Ok(self.lease.execute(sql, &values).await? == 1)
    }
}

/// The valid token with this secret, and its account with the rights that both have in common.
pub async fn find(
    connection: &mut Connection,
    secret: &str,
) -> Result<Option<(UserAccount, ApiToken)>, DatabaseError> {
    let hash = sha256(secret.as_bytes());
    let sql = format!(
        "SELECT {ACCOUNT_COLUMNS}, {TOKEN_COLUMNS}, {} \
         FROM tollgate_tokens t JOIN tollgate_accounts a ON a.name = t.account WHERE t.hash = ?",
        connection.dialect().now()
    );
    let found = connection
        .row(&sql, &[SqlValue::Text(&hash)], |row| {
            let now = UnixTime::from_millis(row.int(15)?);
            Ok((read_account(row)?, read_token(row, 9)?, now))
        })
        .await?;
    let Some((account, token, now)) = found else {
        return Ok(None);
    };
    if account.disabled || !token.is_valid(now) {
        return Ok(None);
    }
    let rights = account.rights.common(&token.scope);
    Ok(Some((UserAccount { rights, ..account }, token)))
}

/// Makes a token, and forgets the oldest of those that are valid no more.
async fn create(
    connection: &mut Connection,
    proven: ProvenAccount<'_>,
    new: &NewToken,
) -> Result<(Secret, ApiToken), PeopleError> {
    let now = now(connection).await?;
    let name = proven.name;
    let account = known(connection, name).await?;
    proven.check(&account)?;
    match account {
        UserAccount { disabled: true, .. } => return Err(PeopleError::Disabled(name.to_owned())),
        account if !new.scope.is_within(&account.rights) => return Err(PeopleError::BeyondRights),
        _ => {}
    }
    let (valid, spent): (Vec<_>, Vec<_>) = tokens_of(connection, name)
        .await?
        .into_iter()
        .partition(|token| token.is_valid(now));
    if valid.len() >= MOST_TOKENS {
        return Err(PeopleError::Invalid(format!(
            "{name} has {MOST_TOKENS} tokens, and may have no more: revoke one"
        )));
    }
    for old in spent.iter().rev().skip(MOST_SPENT) {
        connection
            .execute(
                "DELETE FROM tollgate_tokens WHERE id = ?",
                &[SqlValue::Text(&old.id)],
            )
            .await?;
    }
    let secret = Secret::new(BEGINNING)?;
    let id = random::<9>()?;
    let token = ApiToken {
        id: URL_SAFE_NO_PAD.encode(id),
        label: new.label.clone(),
        scope: new.scope.clone(),
        created_at: now,
        expires_at: new.expires_in.map(|within| now.after(within)),
        revoked: false,
    };
    let hash = secret.hash();
    let scope = written(&token.scope);
    let values = [
        SqlValue::Text(&token.id),
        SqlValue::Text(&hash),
        SqlValue::Text(name),
        SqlValue::Text(&token.label),
        SqlValue::Text(&scope),
        SqlValue::Int(now.millis()),
        SqlValue::MaybeInt(token.expires_at.map(UnixTime::millis)),
        SqlValue::Int(0),
    ];
    let sql = "INSERT INTO tollgate_tokens (id, hash, account, label, scope, created_at, expires_at, revoked) \
               VALUES (?, ?, ?, ?, ?, ?, ?, ?)";
    connection.execute(sql, &values).await?;
    Ok((secret, token))
}

/// Oldest first.
async fn tokens_of(
    connection: &mut Connection,
    name: &str,
) -> Result<Vec<ApiToken>, DatabaseError> {
    let sql = format!(
        "SELECT {TOKEN_COLUMNS} FROM tollgate_tokens t WHERE t.account = ? ORDER BY t.created_at, t.id"
    );
    connection
        .rows(&sql, &[SqlValue::Text(name)], |row| read_token(row, 0))
        .await
}

impl ApiToken {
    fn is_valid(&self, now: UnixTime) -> bool {
        !self.revoked && self.expires_at.is_none_or(|end| now < end)
    }
}

fn read_token(row: &SqlRow<'_>, first: usize) -> Result<ApiToken, BadData> {
    let id = row.text(first)?.to_owned();
    Ok(ApiToken {
        label: row.text(first + 1)?.to_owned(),
        scope: read_rights(row.text(first + 2)?, &id)?,
        created_at: UnixTime::from_millis(row.int(first + 3)?),
        expires_at: row.maybe_int(first + 4)?.map(UnixTime::from_millis),
        revoked: row.int(first + 5)? != 0,
        id,
    })
}
