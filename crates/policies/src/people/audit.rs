//! The audit log: it is only appended to, and each entry carries the hash of the one before. The
//! database refuses to change it; a change that gets around that is found by `verify_audit`.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::handle::{ChangeAuthor, People, PeopleChange, lock};
use super::secret::sha256;
use crate::database::sql::{BadData, Connection, SqlRow, SqlValue};
use crate::database::{DatabaseError, Page};
use crate::model::is_hidden;
use crate::time::UnixTime;

/// Bytes of each text: a longer one is cut.
const MOST_BYTES: usize = 4096;
/// The hash that stands before the first entry.
const NOTHING: &str = "0";
/// Entries that are verified at a time.
const PART: i64 = 1000;

/// A record of an action and its account. Texts are cut to 4 KiB, and their hidden characters are
/// replaced.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AuditRecord {
    /// Empty for somebody unknown.
    pub account: String,
    /// Such as `log_in` or `commit`.
    pub action: String,
    pub object: String,
    /// The address that the request came from.
    pub address: String,
    pub outcome: AuditOutcome,
    pub detail: String,
}

/// A change that was made, in the words of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deed<'a> {
    pub action: &'a str,
    pub object: &'a str,
    pub detail: &'a str,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditOutcome {
    Done,
    /// The rights were not enough, or the password was wrong.
    Refused,
    Failed,
}

/// A record in the log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AuditEntry {
    /// 1, 2, 3 … without gaps.
    pub number: u64,
    pub at: UnixTime,
    #[serde(flatten)]
    pub record: AuditRecord,
    /// The hash of the entry before.
    pub previous: String,
    /// SHA-256 of all of this, in hex.
    pub hash: String,
}

/// The result of verifying the log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub enum AuditVerdict {
    /// The hash of the last entry. A reader who keeps it elsewhere can tell later that nothing was
    /// cut off at the end.
    Intact { entries: u64, hash: String },
    /// The first entry that is not as it was written.
    Damaged { number: u64, what: String },
}

/// The condition of a row beyond the end of the log, which somebody else has written.
const STRANGE: &str =
    "number < 1 OR number > (SELECT number FROM tollgate_heads WHERE name = 'audit')";

const AUDIT_COLUMNS: &str =
    "number, made_at, account, action, object, address, outcome, detail, previous, hash";

impl People {
    pub async fn record(&self, record: &AuditRecord) -> Result<AuditEntry, DatabaseError> {
        let mut lease = self.pool.take().await?;
        lease.begin().await?;
        let entry = append(&mut lease, record).await?;
        lease.commit().await?;
        lease.give_back();
        Ok(entry)
    }

    /// A page of the log, newest first.
    pub async fn audit(&self, page: Page) -> Result<Vec<AuditEntry>, DatabaseError> {
        let (before, limit) = page.bounds();
        let sql = format!(
            "SELECT {AUDIT_COLUMNS} FROM tollgate_audit WHERE number < ? AND NOT ({STRANGE}) ORDER BY number DESC LIMIT {limit}"
        );
        let mut lease = self.pool.take().await?;
        let found = lease
            .rows(&sql, &[SqlValue::Int(before)], read_entry)
            .await?;
        lease.give_back();
        Ok(found)
    }

    /// Reads all of the log, and finds the first entry that was changed, removed, added or moved.
    pub async fn verify_audit(&self) -> Result<AuditVerdict, DatabaseError> {
        let mut lease = self.pool.take().await?;
        let sql = "SELECT number, mark FROM tollgate_heads WHERE name = 'audit'";
        let head = lease
            .row(sql, &[], |row| {
                Ok((row.number(0)?, row.text(1)?.to_owned()))
            })
            .await?;
        let (entries, hash) = head.ok_or_else(|| lease.broken("the audit log has no head"))?;
        let mut seen = 0;
        let mut previous = NOTHING.to_owned();
        while seen < entries {
            let part = part(&mut lease, seen).await?;
            let last = seen;
            for entry in &part {
                if entry.number > entries {
                    break;
                }
                if let Some(what) = entry.fault(seen + 1, &previous) {
                    lease.give_back();
                    return Ok(AuditVerdict::Damaged {
                        number: seen + 1,
                        what,
                    });
                }
                seen = entry.number;
                previous.clone_from(&entry.hash);
            }
            if seen == last {
                break;
            }
        }
        let sql =
            format!("SELECT number FROM tollgate_audit WHERE {STRANGE} ORDER BY number LIMIT 1");
        let strange = lease.row(&sql, &[], |row| row.int(0)).await?;
        lease.give_back();
        let number;
        let what;
        if let Some(strange) = strange {
            number = u64::try_from(strange).unwrap_or_default();
            what = "the log has not come to it: it was added by other means";
        } else if seen < entries {
            number = seen + 1;
            what = "it is missing";
        } else if previous != hash {
            number = seen;
            what = "the log has noted another hash for it";
        } else {
            return Ok(AuditVerdict::Intact { entries, hash });
        }
        Ok(AuditVerdict::Damaged {
            number,
            what: what.to_owned(),
        })
    }
}

impl PeopleChange<'_> {
    /// Ends the change with its entry in the log: both stand, or neither.
    pub async fn commit(mut self, deed: &Deed<'_>) -> Result<AuditEntry, DatabaseError> {
        let record = self.author.record(deed);
        let entry = append(&mut self.lease, &record).await?;
        self.commit_unrecorded().await?;
        Ok(entry)
    }

    /// Ends a change that has no entry: sessions of an account beyond a bound.
    pub async fn commit_unrecorded(mut self) -> Result<(), DatabaseError> {
        self.lease.commit().await?;
        self.lease.give_back();
        Ok(())
    }
}

impl ChangeAuthor<'_> {
    /// The record of what they have done.
    pub fn record(&self, deed: &Deed<'_>) -> AuditRecord {
        AuditRecord {
            account: self.account.to_owned(),
            action: deed.action.to_owned(),
            object: deed.object.to_owned(),
            address: self.address.to_owned(),
            outcome: AuditOutcome::Done,
            detail: deed.detail.to_owned(),
        }
    }
}

/// Adds an entry, in a transaction that is under way.
pub async fn append(
    connection: &mut Connection,
    record: &AuditRecord,
) -> Result<AuditEntry, DatabaseError> {
    lock(connection, "audit").await?;
    let now = connection.dialect().now();
    let sql = format!("SELECT number, mark, {now} FROM tollgate_heads WHERE name = 'audit'");
    let found = connection
        .row(&sql, &[], |row| {
            let mark = row.text(1)?.to_owned();
            Ok((row.number(0)?, mark, UnixTime::from_millis(row.int(2)?)))
        })
        .await?;
    let (number, previous, at) =
        found.ok_or_else(|| connection.broken("the audit log has no head"))?;
    let mut entry = AuditEntry {
        number,
        at,
        record: record.cleaned(),
        previous,
        hash: String::new(),
    };
    entry.hash = entry.computed();
    insert(connection, &entry).await?;
    Ok(entry)
}

async fn insert(connection: &mut Connection, entry: &AuditEntry) -> Result<(), DatabaseError> {
    let AuditEntry {
        number,
        at,
        record,
        previous,
        hash,
    } = entry;
    let values = [
        SqlValue::Int(i64::try_from(*number).unwrap_or(i64::MAX)),
        SqlValue::Int(at.millis()),
        SqlValue::Text(&record.account),
        SqlValue::Text(&record.action),
        SqlValue::Text(&record.object),
        SqlValue::Text(&record.address),
        SqlValue::Text(record.outcome.word()),
        SqlValue::Text(&record.detail),
        SqlValue::Text(previous),
        SqlValue::Text(hash),
    ];
    let sql = format!(
        "INSERT INTO tollgate_audit ({AUDIT_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    );
    connection.execute(&sql, &values).await?;
    let swap = "UPDATE tollgate_heads SET mark = ? WHERE name = 'audit'";
    connection.execute(swap, &[SqlValue::Text(hash)]).await?;
    Ok(())
}

async fn part(connection: &mut Connection, after: u64) -> Result<Vec<AuditEntry>, DatabaseError> {
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let sql = format!(
        "SELECT {AUDIT_COLUMNS} FROM tollgate_audit WHERE number > ? ORDER BY number LIMIT {PART}"
    );
    connection
        .rows(&sql, &[SqlValue::Int(after)], read_entry)
        .await
}

fn read_entry(row: &SqlRow<'_>) -> Result<AuditEntry, BadData> {
    let record = AuditRecord {
        account: row.text(2)?.to_owned(),
        action: row.text(3)?.to_owned(),
        object: row.text(4)?.to_owned(),
        address: row.text(5)?.to_owned(),
        outcome: AuditOutcome::read(row.text(6)?)?,
        detail: row.text(7)?.to_owned(),
    };
    let at = UnixTime::from_millis(row.int(1)?);
    Ok(AuditEntry {
        number: row.number(0)?,
        at,
        record,
        previous: row.text(8)?.to_owned(),
        hash: row.text(9)?.to_owned(),
    })
}

impl AuditEntry {
    /// The fault of an entry at the place of a `number`, after the entry with the hash `previous`.
    fn fault(&self, number: u64, previous: &str) -> Option<String> {
        if self.number != number {
            Some("it is missing".to_owned())
        } else if self.previous != previous {
            Some("it does not follow the entry before".to_owned())
        } else if self.hash != self.computed() {
            Some("it is not what was written".to_owned())
        } else {
            None
        }
    }

    fn computed(&self) -> String {
        let Self {
            number,
            at,
            record,
            previous,
            ..
        } = self;
        let AuditRecord {
            account,
            action,
            object,
            address,
            outcome,
            detail,
        } = record;
        let all = json!([
            number,
            at.millis(),
            account,
            action,
            object,
            address,
            outcome.word(),
            detail,
            previous
        ]);
        sha256(all.to_string().as_bytes())
    }
}

impl AuditRecord {
    fn cleaned(&self) -> Self {
        Self {
            account: cleaned(&self.account),
            action: cleaned(&self.action),
            object: cleaned(&self.object),
            address: cleaned(&self.address),
            outcome: self.outcome,
            detail: cleaned(&self.detail),
        }
    }
}

/// A text that any database stores as it is, and any page shows as it is.
fn cleaned(text: &str) -> String {
    let mut cleaned = String::new();
    for (at, character) in text.char_indices() {
        if at + character.len_utf8() > MOST_BYTES {
            break;
        }
        cleaned.push(if is_hidden(character) {
            char::REPLACEMENT_CHARACTER
        } else {
            character
        });
    }
    cleaned
}

impl AuditOutcome {
    fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }

    fn read(text: &str) -> Result<Self, BadData> {
        match text {
            "done" => Ok(Self::Done),
            "refused" => Ok(Self::Refused),
            "failed" => Ok(Self::Failed),
            _ => Err(BadData(format!("{text:?} is no outcome"))),
        }
    }
}
