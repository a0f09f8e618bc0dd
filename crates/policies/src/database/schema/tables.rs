//! The tables of each version of the schema, written once for the three databases.

use crate::database::sql::Dialect;

/// A column's type begins with `@` where the databases differ: see [`typed`].
struct Table {
    name: &'static str,
    columns: &'static str,
    /// Name and columns.
    indexes: &'static [(&'static str, &'static str)],
}

const FIRST: [Table; 8] = [
    Table {
        name: "tollgate_schema",
        columns: "version BIGINT NOT NULL",
        indexes: &[],
    },
    // Writers compare and swap these rows: the newest revision, change of people, and entry of the
    // audit log.
    Table {
        name: "tollgate_heads",
        columns: "name @name(64) NOT NULL PRIMARY KEY, number BIGINT NOT NULL, mark @name(64) NOT NULL",
        indexes: &[],
    },
    Table {
        name: "tollgate_revisions",
        columns: "number BIGINT NOT NULL PRIMARY KEY, token @name(64) NOT NULL, author @text NOT NULL, \
                  made_at BIGINT NOT NULL, reason @text NOT NULL, edits BIGINT NOT NULL",
        indexes: &[],
    },
    // A row for each version of an object: it stands from revision `since` until before revision
    // `until`.
    Table {
        name: "tollgate_objects",
        columns: "kind @name(16) NOT NULL, application @name(64) NOT NULL, name @name(256) NOT NULL, \
                  since BIGINT NOT NULL, until BIGINT, created BIGINT NOT NULL, body @text NOT NULL, \
                  PRIMARY KEY (kind, application, name, since), \
                  FOREIGN KEY (since) REFERENCES tollgate_revisions (number), \
                  FOREIGN KEY (created) REFERENCES tollgate_revisions (number)",
        indexes: &[
            ("tollgate_objects_since", "since"),
            ("tollgate_objects_until", "until"),
            ("tollgate_objects_created", "created"),
        ],
    },
    Table {
        name: "tollgate_accounts",
        columns: "name @name(64) NOT NULL PRIMARY KEY, display_name @text NOT NULL, password @text, \
                  issuer @name(512), subject @name(256), disabled BIGINT NOT NULL, admin BIGINT NOT NULL, \
                  rights @text NOT NULL, created_at BIGINT NOT NULL, changed_at BIGINT NOT NULL, UNIQUE (issuer, subject)",
        indexes: &[],
    },
    Table {
        name: "tollgate_sessions",
        columns: "hash @name(64) NOT NULL PRIMARY KEY, account @name(64) NOT NULL, begun_at BIGINT NOT NULL, \
                  idle_millis BIGINT NOT NULL, idle_until BIGINT NOT NULL, ends_at BIGINT NOT NULL, \
                  FOREIGN KEY (account) REFERENCES tollgate_accounts (name) ON DELETE CASCADE",
        indexes: &[("tollgate_sessions_account", "account")],
    },
    Table {
        name: "tollgate_tokens",
        columns: "id @name(64) NOT NULL PRIMARY KEY, hash @name(64) NOT NULL UNIQUE, account @name(64) NOT NULL, \
                  label @text NOT NULL, scope @text NOT NULL, created_at BIGINT NOT NULL, expires_at BIGINT, \
                  revoked BIGINT NOT NULL, \
                  FOREIGN KEY (account) REFERENCES tollgate_accounts (name) ON DELETE CASCADE",
        indexes: &[("tollgate_tokens_account", "account")],
    },
    Table {
        name: "tollgate_audit",
        columns: "number BIGINT NOT NULL PRIMARY KEY, made_at BIGINT NOT NULL, account @text NOT NULL, \
                  action @text NOT NULL, object @text NOT NULL, address @text NOT NULL, outcome @text NOT NULL, \
                  detail @text NOT NULL, previous @name(64) NOT NULL, hash @name(64) NOT NULL",
        indexes: &[],
    },
];

const HEADS: [&str; 3] = ["policies", "people", "audit"];

/// The statements that lead to this version from the one before. MySQL may run them a second time,
/// after a crash.
pub fn statements(dialect: Dialect, version: u32) -> Vec<String> {
    match version {
        1 => first(dialect),
        2 => no_replacing(dialect),
        _ => Vec::new(),
    }
}

fn first(dialect: Dialect) -> Vec<String> {
    let mut found: Vec<_> = FIRST
        .iter()
        .flat_map(|table| created(dialect, table))
        .collect();
    let ignored = match dialect {
        Dialect::MySql => ("INSERT IGNORE", ""),
        Dialect::Sqlite | Dialect::Postgres => ("INSERT", " ON CONFLICT DO NOTHING"),
    };
    let heads = HEADS.map(|name| {
        format!(
            "{} INTO tollgate_heads (name, number, mark) VALUES ('{name}', 0, '0'){}",
            ignored.0, ignored.1
        )
    });
    found.extend(heads);
    found.extend(append_only(dialect));
    found
}

fn created(dialect: Dialect, table: &Table) -> Vec<String> {
    let Table {
        name,
        columns,
        indexes,
    } = table;
    let columns = typed(dialect, columns);
    match dialect {
        Dialect::Sqlite | Dialect::Postgres => {
            let indexes = indexes
                .iter()
                .map(|(index, on)| format!("CREATE INDEX {index} ON {name} ({on})"));
            [format!("CREATE TABLE {name} ({columns})")]
                .into_iter()
                .chain(indexes)
                .collect()
        }
        Dialect::MySql => {
            let indexes: String = indexes
                .iter()
                .map(|(index, on)| format!(", INDEX {index} ({on})"))
                .collect();
            vec![format!(
                "CREATE TABLE IF NOT EXISTS {name} ({columns}{indexes}) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4"
            )]
        }
    }
}

/// Names are compared byte by byte: `@name(n)` has at most n bytes. `@text` is not compared.
fn typed(dialect: Dialect, columns: &str) -> String {
    let mut parts = columns.split("@name(");
    let mut typed = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (bytes, rest) = part.split_once(')').unwrap_or(("", part));
        typed.push_str(&match dialect {
            Dialect::Sqlite => "TEXT".to_owned(),
            Dialect::Postgres => "TEXT COLLATE \"C\"".to_owned(),
            Dialect::MySql => format!("VARBINARY({bytes})"),
        });
        typed.push_str(rest);
    }
    // TEXT of MySQL is one byte too short for the largest body.
    typed.replace(
        "@text",
        if dialect == Dialect::MySql {
            "MEDIUMTEXT"
        } else {
            "TEXT"
        },
    )
}

/// Why a statement on the audit log is refused.
const WHY: &str = "the audit log is append-only";

/// `INSERT OR REPLACE` of SQLite takes rows away without the trigger on deleting. Other servers run
/// theirs.
fn no_replacing(dialect: Dialect) -> Vec<String> {
    match dialect {
        Dialect::Sqlite => vec![format!(
            "CREATE TRIGGER tollgate_audit_insert BEFORE INSERT ON tollgate_audit \
             WHEN EXISTS (SELECT 1 FROM tollgate_audit WHERE number >= NEW.number) \
             BEGIN SELECT RAISE(ABORT, '{WHY}'); END"
        )],
        Dialect::MySql | Dialect::Postgres => Vec::new(),
    }
}

/// Triggers that refuse to change the audit log, for all who may write to the database.
fn append_only(dialect: Dialect) -> Vec<String> {
    let each =
        |make: &dyn Fn(&str, &str) -> String| [make("update", "UPDATE"), make("delete", "DELETE")];
    match dialect {
        Dialect::Sqlite => each(&|name, event| {
            format!(
                "CREATE TRIGGER tollgate_audit_{name} BEFORE {event} ON tollgate_audit \
                 BEGIN SELECT RAISE(ABORT, '{WHY}'); END"
            )
        })
        .into(),
        Dialect::MySql => each(&|name, event| {
            format!(
                "CREATE TRIGGER IF NOT EXISTS tollgate_audit_{name} BEFORE {event} ON tollgate_audit FOR EACH ROW \
                 SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{WHY}'"
            )
        })
        .into(),
        Dialect::Postgres => vec![
            format!(
                "CREATE FUNCTION tollgate_audit_refused() RETURNS trigger LANGUAGE plpgsql AS \
                 $$ BEGIN RAISE EXCEPTION '{WHY}'; END $$"
            ),
            "CREATE TRIGGER tollgate_audit_changed BEFORE UPDATE OR DELETE ON tollgate_audit \
             FOR EACH ROW EXECUTE FUNCTION tollgate_audit_refused()"
                .to_owned(),
            "CREATE TRIGGER tollgate_audit_emptied BEFORE TRUNCATE ON tollgate_audit \
             FOR EACH STATEMENT EXECUTE FUNCTION tollgate_audit_refused()"
                .to_owned(),
        ],
    }
}
