//! Accounts in the database. Every change of them waits for the one before, so that two people who
//! take each other's rights at once do not leave nobody with any.

use std::time::Duration;

use super::account::{
    AccountChange, EarlierTokens, NewAccount, OidcSubject, ProvenAccount, UserAccount,
    check_display_name, check_name, check_rights, check_subject, is_name,
};
use super::error::PeopleError;
use super::handle::{People, PeopleChange, now};
use super::rights::RoleChange;
use super::secret::password::{HashedPassword, verify};
use super::stored_rights::{narrow_tokens, read_rights, take_role_from_tokens, written};
use crate::database::DatabaseError;
use crate::database::sql::{BadData, Connection, SqlRow, SqlValue};
use crate::time::UnixTime;

/// The columns that [`read_account`] reads, of accounts named `a`.
pub const ACCOUNT_COLUMNS: &str = "a.name, a.display_name, a.password, a.issuer, a.subject, a.disabled, a.rights, a.created_at, a.changed_at";

impl People {
    pub async fn account(&self, name: &str) -> Result<Option<UserAccount>, DatabaseError> {
        // A text that cannot be a name is not asked for: some databases refuse the query.
        if !is_name(name) {
            return Ok(None);
        }
        let mut lease = self.pool.take().await?;
        let found = by_name(&mut lease, name).await?;
        lease.give_back();
        Ok(found)
    }

    /// The account of somebody whom an OpenID Connect provider vouches for.
    pub async fn account_of(
        &self,
        subject: &OidcSubject,
    ) -> Result<Option<UserAccount>, DatabaseError> {
        let mut lease = self.pool.take().await?;
        let found = by_subject(&mut lease, subject).await?;
        lease.give_back();
        Ok(found)
    }

    /// All accounts, by name.
    pub async fn accounts(&self) -> Result<Vec<UserAccount>, DatabaseError> {
        let sql = format!("SELECT {ACCOUNT_COLUMNS} FROM tollgate_accounts a ORDER BY a.name");
        let mut lease = self.pool.take().await?;
        let found = lease.rows(&sql, &[], read_account).await?;
        lease.give_back();
        Ok(found)
    }

    /// `None`: there is no such account, it is disabled, or the password is another. Each takes as
    /// long.
    pub async fn log_in(
        &self,
        name: &str,
        password: &str,
    ) -> Result<Option<UserAccount>, DatabaseError> {
        let mut found = self.account(name).await?;
        let mut hash = None;
        if let Some(account) = &found
            && !account.disabled
        {
            hash = account.password.as_ref();
        }
        if !verify(password, hash).await {
            found = None;
        }
        Ok(found)
    }
}

impl PeopleChange<'_> {
    pub async fn create(&mut self, new: &NewAccount) -> Result<UserAccount, PeopleError> {
        check_name(&new.name)?;
        check_display_name(&new.display_name)?;
        check_subject(new.subject.as_ref())?;
        check_rights(&new.rights)?;
        let now = now(&mut self.lease).await?;
        let account = UserAccount {
            name: new.name.clone(),
            display_name: new.display_name.clone(),
            subject: new.subject.clone(),
            has_password: new.password.is_some(),
            password: new.password.clone(),
            disabled: false,
            rights: new.rights.clone(),
            created_at: now,
            changed_at: now,
        };
        insert(&mut self.lease, &account).await?;
        Ok(account)
    }

    /// The account as no other change can alter it before this one ends.
    pub async fn account(&mut self, name: &str) -> Result<UserAccount, PeopleError> {
        known(&mut self.lease, name).await
    }

    /// Disabling also ends the account's sessions and revokes its tokens. Tokens lose what the
    /// account loses, for good.
    pub async fn change(
        &mut self,
        name: &str,
        change: &AccountChange,
    ) -> Result<UserAccount, PeopleError> {
        if let Some(display_name) = &change.display_name {
            check_display_name(display_name)?;
        }
        if let Some(subject) = &change.subject {
            check_subject(subject.as_ref())?;
        }
        if let Some(rights) = &change.rights {
            check_rights(rights)?;
        }
        update(&mut self.lease, name, change).await
    }

    /// Takes an account away, with its sessions and tokens. Its name stays in the history and in
    /// the audit log.
    pub async fn remove(&mut self, name: &str) -> Result<(), PeopleError> {
        let account = known(&mut self.lease, name).await?;
        let sql = "DELETE FROM tollgate_accounts WHERE name = ?";
        self.lease.execute(sql, &[SqlValue::Text(name)]).await?;
        keep_an_admin(&mut self.lease, is_active_admin(&account)).await
    }

    /// Ends the account's sessions too, and unless they are kept, its tokens: a holder of the old
    /// password may have made some. Returns the account as it is then.
    pub async fn set_password(
        &mut self,
        account: impl Into<ProvenAccount<'_>>,
        password: &HashedPassword,
        tokens: EarlierTokens,
    ) -> Result<UserAccount, PeopleError> {
        replace_password(&mut self.lease, account.into(), password, tokens).await
    }
}

async fn insert(connection: &mut Connection, account: &UserAccount) -> Result<(), PeopleError> {
    // Names that differ in case alone would be taken for each other where people read them. They
    // are compared here: LOWER of MySQL leaves bytes as they are, and that of PostgreSQL goes by
    // the language of the database.
    let names = connection
        .rows("SELECT name FROM tollgate_accounts", &[], |row| {
            row.text(0).map(str::to_owned)
        })
        .await?;
    for name in names {
        if name.eq_ignore_ascii_case(&account.name) {
            return Err(PeopleError::Exists(name));
        }
    }
    alone(connection, account.subject.as_ref(), &account.name).await?;
    let rights = written(&account.rights);
    let values = [
        SqlValue::Text(&account.name),
        SqlValue::Text(&account.display_name),
        password_value(account),
        issuer_value(account),
        subject_value(account),
        SqlValue::Int(0),
        SqlValue::Int(account.rights.is_admin().into()),
        SqlValue::Text(&rights),
        SqlValue::Int(account.created_at.millis()),
        SqlValue::Int(account.changed_at.millis()),
    ];
    let sql = "INSERT INTO tollgate_accounts \
               (name, display_name, password, issuer, subject, disabled, admin, rights, created_at, changed_at) \
               VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
    connection.execute(sql, &values).await?;
    Ok(())
}

async fn update(
    connection: &mut Connection,
    name: &str,
    change: &AccountChange,
) -> Result<UserAccount, PeopleError> {
    let before = known(connection, name).await?;
    let is_another_account = match change.made_at {
        Some(made_at) => made_at != before.created_at,
        None => false,
    };
    if is_another_account || (change.of_subject.is_some() && change.of_subject != before.subject) {
        return Err(PeopleError::Changed(name.to_owned()));
    }
    let mut account = before.clone();
    let was_admin = is_active_admin(&account);
    let loses_its_subject = match &change.subject {
        Some(new) => account.subject.is_some() && account.subject != *new,
        None => false,
    };
    let shuts_out = change.shuts_out || loses_its_subject;
    if let Some(display_name) = &change.display_name {
        account.display_name.clone_from(display_name);
    }
    if let Some(subject) = &change.subject {
        alone(connection, subject.as_ref(), name).await?;
        account.subject.clone_from(subject);
    }
    if let Some(rights) = &change.rights {
        account.rights.clone_from(rights);
    }
    for role in &change.roles {
        account.rights.give(role);
    }
    check_rights(&account.rights)?;
    account.disabled = change.disabled.unwrap_or(account.disabled);
    if account == before && !account.disabled && !shuts_out {
        return Ok(account);
    }
    account.changed_at = next_change(connection, &account).await?;
    let rights = written(&account.rights);
    let values = [
        SqlValue::Text(&account.display_name),
        issuer_value(&account),
        subject_value(&account),
        SqlValue::Int(account.disabled.into()),
        SqlValue::Int(account.rights.is_admin().into()),
        SqlValue::Text(&rights),
        SqlValue::Int(account.changed_at.millis()),
        SqlValue::Text(name),
    ];
    let sql = "UPDATE tollgate_accounts SET display_name = ?, issuer = ?, subject = ?, disabled = ?, admin = ?, \
               rights = ?, changed_at = ? WHERE name = ?";
    connection.execute(sql, &values).await?;
    if account.disabled || shuts_out {
        end_sessions(connection, name).await?;
        revoke_tokens(connection, name).await?;
    }
    if account.rights != before.rights {
        narrow_tokens(connection, name, &account.rights).await?;
    }
    keep_an_admin(connection, was_admin).await?;
    Ok(account)
}

/// Takes the roles in an application from all accounts that have one, and returns their names:
/// another application may come to be called the same.
pub async fn take_roles(
    connection: &mut Connection,
    application: &str,
) -> Result<Vec<String>, PeopleError> {
    let sql = format!("SELECT {ACCOUNT_COLUMNS} FROM tollgate_accounts a ORDER BY a.name");
    let accounts = connection.rows(&sql, &[], read_account).await?;
    let mut names = Vec::new();
    for account in accounts {
        if account.rights.applications.contains_key(application) {
            names.push(account.name);
        }
    }
    let roles = vec![RoleChange::Application(application.to_owned(), None)];
    let change = AccountChange {
        roles,
        ..AccountChange::default()
    };
    for name in &names {
        update(connection, name, &change).await?;
    }
    // Tokens of admins and of viewers of the fleet, too: they were made for this application.
    take_role_from_tokens(connection, application).await?;
    Ok(names)
}

async fn replace_password(
    connection: &mut Connection,
    proven: ProvenAccount<'_>,
    password: &HashedPassword,
    tokens: EarlierTokens,
) -> Result<UserAccount, PeopleError> {
    let name = proven.name;
    let account = known(connection, name).await?;
    proven.check(&account)?;
    let changed_at = next_change(connection, &account).await?;
    let values = [
        SqlValue::Text(&password.0),
        SqlValue::Int(changed_at.millis()),
        SqlValue::Text(name),
    ];
    let sql = "UPDATE tollgate_accounts SET password = ?, changed_at = ? WHERE name = ?";
    connection.execute(sql, &values).await?;
    end_sessions(connection, name).await?;
    if tokens == EarlierTokens::Revoke {
        revoke_tokens(connection, name).await?;
    }
    Ok(UserAccount {
        has_password: true,
        password: Some(password.clone()),
        changed_at,
        ..account
    })
}

/// The time of the next change of an account. The times tell versions of the account apart: none
/// comes twice, even if the clock goes back.
async fn next_change(
    connection: &mut Connection,
    account: &UserAccount,
) -> Result<UnixTime, DatabaseError> {
    let now = now(connection).await?;
    Ok(now.max(account.changed_at.after(Duration::from_millis(1))))
}

/// An account without a password and a subject leads nobody in.
fn is_active_admin(account: &UserAccount) -> bool {
    account.rights.is_admin()
        && !account.disabled
        && (account.has_password || account.subject.is_some())
}

/// Refuses a change that leaves nobody an admin, where somebody was.
async fn keep_an_admin(connection: &mut Connection, was_admin: bool) -> Result<(), PeopleError> {
    let sql = "SELECT COUNT(*) FROM tollgate_accounts \
               WHERE admin = 1 AND disabled = 0 AND (password IS NOT NULL OR subject IS NOT NULL)";
    let left = connection.row(sql, &[], |row| row.int(0)).await?;
    if was_admin && left == Some(0) {
        Err(PeopleError::LastAdmin)
    } else {
        Ok(())
    }
}

/// A subject leads to one account.
async fn alone(
    connection: &mut Connection,
    subject: Option<&OidcSubject>,
    name: &str,
) -> Result<(), PeopleError> {
    let Some(subject) = subject else {
        return Ok(());
    };
    match by_subject(connection, subject).await? {
        Some(other) if other.name != name => Err(PeopleError::Invalid(format!(
            "{} at {} is {} already",
            subject.subject, subject.issuer, other.name
        ))),
        Some(_) | None => Ok(()),
    }
}

pub async fn known(connection: &mut Connection, name: &str) -> Result<UserAccount, PeopleError> {
    let found = by_name(connection, name).await?;
    found.ok_or_else(|| PeopleError::Unknown(name.to_owned()))
}

async fn by_name(
    connection: &mut Connection,
    name: &str,
) -> Result<Option<UserAccount>, DatabaseError> {
    let sql = format!("SELECT {ACCOUNT_COLUMNS} FROM tollgate_accounts a WHERE a.name = ?");
    connection
        .row(&sql, &[SqlValue::Text(name)], read_account)
        .await
}

async fn by_subject(
    connection: &mut Connection,
    subject: &OidcSubject,
) -> Result<Option<UserAccount>, DatabaseError> {
    let sql = format!(
        "SELECT {ACCOUNT_COLUMNS} FROM tollgate_accounts a WHERE a.issuer = ? AND a.subject = ?"
    );
    let values = [
        SqlValue::Text(&subject.issuer),
        SqlValue::Text(&subject.subject),
    ];
    connection.row(&sql, &values, read_account).await
}

pub async fn end_sessions(connection: &mut Connection, name: &str) -> Result<u64, DatabaseError> {
    connection
        .execute(
            "DELETE FROM tollgate_sessions WHERE account = ?",
            &[SqlValue::Text(name)],
        )
        .await
}

async fn revoke_tokens(connection: &mut Connection, name: &str) -> Result<(), DatabaseError> {
    let sql = "UPDATE tollgate_tokens SET revoked = 1 WHERE account = ?";
    connection.execute(sql, &[SqlValue::Text(name)]).await?;
    Ok(())
}

pub fn read_account(row: &SqlRow<'_>) -> Result<UserAccount, BadData> {
    let name = row.text(0)?.to_owned();
    let password = row
        .maybe_text(2)?
        .map(|hash| HashedPassword(hash.to_owned()));
    let subject = match (row.maybe_text(3)?, row.maybe_text(4)?) {
        (Some(issuer), Some(subject)) => Some(OidcSubject {
            issuer: issuer.into(),
            subject: subject.into(),
        }),
        _ => None,
    };
    Ok(UserAccount {
        display_name: row.text(1)?.to_owned(),
        subject,
        has_password: password.is_some(),
        password,
        disabled: row.int(5)? != 0,
        rights: read_rights(row.text(6)?, &name)?,
        created_at: UnixTime::from_millis(row.int(7)?),
        changed_at: UnixTime::from_millis(row.int(8)?),
        name,
    })
}

fn password_value(account: &UserAccount) -> SqlValue<'_> {
    SqlValue::MaybeText(match &account.password {
        Some(HashedPassword(hash)) => Some(hash),
        None => None,
    })
}

fn issuer_value(account: &UserAccount) -> SqlValue<'_> {
    SqlValue::MaybeText(match &account.subject {
        Some(subject) => Some(&subject.issuer),
        None => None,
    })
}

fn subject_value(account: &UserAccount) -> SqlValue<'_> {
    SqlValue::MaybeText(match &account.subject {
        Some(subject) => Some(&subject.subject),
        None => None,
    })
}
