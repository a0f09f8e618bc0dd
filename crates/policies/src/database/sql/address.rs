//! The address of a database, read from its URL. The address as it is shown has neither user nor
//! password, and of the parameters those alone that lead to another database.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use sqlx::ConnectOptions as _;
use sqlx::mysql::MySqlConnectOptions;
use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;

use super::connection::{Connection, Driver};
use super::failure::{SqlFailure, reported};
use crate::database::error::DatabaseError;

/// The time that a whole statement may take in the database, in time limits.
const STATEMENT_LIMITS: u32 = 12;

/// Why a URL names no database. Shows nothing of it, since it may hold a password.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UrlProblem {
    #[error("the database's URL begins with none of sqlite:, postgres:// and mysql://")]
    Scheme,
    #[error("the database's URL is invalid: {0}")]
    Invalid(String),
    #[error("the database's URL names no database: postgres://user@host/DATABASE")]
    NoDatabase,
    #[error("the database's URL names no file: sqlite:///var/lib/tollgate/policies.db")]
    NoFile,
    #[error("a database in memory is lost at the end and seen by nobody else: name a file")]
    Memory,
    #[error("the URL of a SQLite database takes no parameters")]
    Parameters,
}

#[derive(Clone)]
enum DriverOptions {
    Sqlite(PathBuf),
    Postgres(Box<PgConnectOptions>),
    MySql(Box<MySqlConnectOptions>),
}

/// A database's address, and the time limit of each wait for it.
#[derive(Clone)]
pub struct DatabaseAddress {
    options: DriverOptions,
    place: Arc<str>,
    limit: Duration,
}

impl DatabaseAddress {
    pub fn parse(url: &str, limit: Duration) -> Result<Self, UrlProblem> {
        let (options, place) = match url.split_once(':').ok_or(UrlProblem::Scheme)? {
            ("sqlite", path) => sqlite(path)?,
            ("postgres" | "postgresql", _) => {
                let place = place("postgres", url)?;
                let options = PgConnectOptions::from_str(url)
                    .map_err(|error| UrlProblem::Invalid(error.to_string()))?
                    .application_name("tollgate");
                (
                    DriverOptions::Postgres(Box::new(options.disable_statement_logging())),
                    place,
                )
            }
            ("mysql" | "mariadb", _) => {
                let place = place("mysql", url)?;
                let options = MySqlConnectOptions::from_str(url)
                    .map_err(|error| UrlProblem::Invalid(error.to_string()))?;
                (
                    DriverOptions::MySql(Box::new(options.disable_statement_logging())),
                    place,
                )
            }
            _ => return Err(UrlProblem::Scheme),
        };
        Ok(Self {
            options,
            place: place.into(),
            limit,
        })
    }

    pub fn place(&self) -> &Arc<str> {
        &self.place
    }

    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// The file of a SQLite database.
    pub fn file(&self) -> Option<&Path> {
        match &self.options {
            DriverOptions::Sqlite(path) => Some(path),
            DriverOptions::Postgres(_) | DriverOptions::MySql(_) => None,
        }
    }

    pub async fn connect(&self) -> Result<Connection, DatabaseError> {
        self.connect_as(false).await
    }

    /// A connection that cannot write to a file. Servers do not learn of that.
    pub async fn connect_to_read(&self) -> Result<Connection, DatabaseError> {
        self.connect_as(true).await
    }

    /// Waits for locks half as long as for anything, so that a lock is reported as a lock.
    async fn connect_as(&self, reads: bool) -> Result<Connection, DatabaseError> {
        let limit = self.limit;
        let lock = limit / 2;
        let connecting = async {
            let driver = match &self.options {
                DriverOptions::Sqlite(path) => {
                    let options = SqliteConnectOptions::new()
                        .filename(path)
                        .foreign_keys(true)
                        .busy_timeout(lock);
                    let options = options.read_only(reads);
                    Driver::Sqlite(Box::new(
                        options.disable_statement_logging().connect().await?,
                    ))
                }
                DriverOptions::Postgres(options) => {
                    Driver::Postgres(Box::new(options.connect().await?))
                }
                DriverOptions::MySql(options) => Driver::MySql(Box::new(options.connect().await?)),
            };
            Ok(driver)
        };
        let connected = match tokio::time::timeout(limit, connecting).await {
            Ok(connected) => connected,
            Err(_) => Err(SqlFailure::Late(limit)),
        };
        let driver = connected.map_err(|failure| reported(failure, &self.place))?;
        let mut connection = Connection::new(driver, Arc::clone(&self.place), limit);
        match &self.options {
            DriverOptions::Sqlite(_) => {}
            DriverOptions::Postgres(_) => {
                // A statement whose rows are read one by one takes longer than each of them may.
                let lock = lock.as_millis().max(1);
                let all = (limit * STATEMENT_LIMITS).as_millis().max(1);
                connection
                    .run(&format!(
                        "SET lock_timeout = {lock}; SET statement_timeout = {all}"
                    ))
                    .await?;
            }
            DriverOptions::MySql(_) => {
                let seconds = lock.as_secs().max(1);
                let limits = format!(
                    "innodb_lock_wait_timeout = {seconds}, SESSION lock_wait_timeout = {seconds}"
                );
                connection.run(&format!("SET SESSION {limits}")).await?;
            }
        }
        Ok(connection)
    }
}

fn sqlite(rest: &str) -> Result<(DriverOptions, String), UrlProblem> {
    let path = rest.strip_prefix("//").unwrap_or(rest);
    match path {
        "" | "/" => Err(UrlProblem::NoFile),
        ":memory:" => Err(UrlProblem::Memory),
        _ if path.contains('?') => Err(UrlProblem::Parameters),
        _ => Ok((
            DriverOptions::Sqlite(PathBuf::from(path)),
            format!("sqlite://{path}"),
        )),
    }
}

/// Parameters of a URL that lead to another database, as `options[NAME]` does.
const LEADING: [&str; 6] = ["dbname", "host", "hostaddr", "options", "port", "socket"];

fn is_leading(name: &str) -> bool {
    LEADING.contains(&name) || name.starts_with("options[")
}

/// The setting of a parameter. Of several of one setting, the last holds.
fn setting(name: &str) -> &str {
    if name == "hostaddr" { "host" } else { name }
}

/// The address of a database. Parameters that lead to it stand in one order, however they are
/// written.
fn place(scheme: &str, url: &str) -> Result<String, UrlProblem> {
    let url = url::Url::parse(url).map_err(|error| UrlProblem::Invalid(error.to_string()))?;
    if url.path().trim_matches('/').is_empty() {
        return Err(UrlProblem::NoDatabase);
    }
    let host = url.host_str().unwrap_or_default();
    let port = match url.port() {
        Some(port) => format!(":{port}"),
        None => String::new(),
    };
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    let mut leading: Vec<_> = url
        .query_pairs()
        .filter(|(name, _)| is_leading(name))
        .collect();
    leading.sort_by(|(one, _), (other, _)| setting(one).cmp(setting(other)));
    query.extend_pairs(leading);
    let query = query.finish();
    let mut place = format!("{scheme}://{host}{port}{}", url.path());
    if !query.is_empty() {
        place += "?";
        place += &query;
    }
    Ok(place)
}

impl fmt::Debug for DatabaseAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatabaseAddress")
            .field("place", &self.place)
            .field("limit", &self.limit)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<DatabaseAddress, UrlProblem> {
        DatabaseAddress::parse(url, Duration::from_secs(1))
    }

    #[test]
    fn what_is_shown_of_an_address_has_no_secret() {
        for (url, place) in [
            (
                "postgres://ada:hunter2@db.example.com:5433/policies?sslmode=require",
                "postgres://db.example.com:5433/policies",
            ),
            (
                "postgresql://ada@[::1]/policies",
                "postgres://[::1]/policies",
            ),
            (
                "mysql://ada:hunter2@10.0.0.1/policies?password=hunter2",
                "mysql://10.0.0.1/policies",
            ),
            ("mariadb://h/p", "mysql://h/p"),
            (
                "postgres://ada@h/p?password=hunter2&host=/run/pg&options=-c search_path=b",
                "postgres://h/p?host=%2Frun%2Fpg&options=-c+search_path%3Db",
            ),
            (
                "postgres://ada@h/p?options[search_path]=b&password=hunter2&dbname=q",
                "postgres://h/p?dbname=q&options%5Bsearch_path%5D=b",
            ),
            (
                "postgres://ada@h/p?dbname=q&options[search_path]=b&password=hunter2",
                "postgres://h/p?dbname=q&options%5Bsearch_path%5D=b",
            ),
            (
                "postgres://h/p?hostaddr=10.0.0.1&host=b",
                "postgres://h/p?hostaddr=10.0.0.1&host=b",
            ),
            (
                "postgres://h/p?host=b&hostaddr=10.0.0.1",
                "postgres://h/p?host=b&hostaddr=10.0.0.1",
            ),
            (
                "sqlite:///var/lib/policies.db",
                "sqlite:///var/lib/policies.db",
            ),
            ("sqlite://policies.db", "sqlite://policies.db"),
            ("sqlite:policies.db", "sqlite://policies.db"),
        ] {
            let address = parse(url).unwrap();
            assert_eq!(address.place().as_ref(), place);
            assert!(!format!("{address:?}").contains("hunter2"), "{address:?}");
        }
    }

    #[test]
    fn a_url_that_names_no_database_is_refused_without_showing_it() {
        for (url, problem) in [
            ("", "none of sqlite:, postgres:// and mysql://"),
            (
                "oracle://ada:hunter2@h/p",
                "none of sqlite:, postgres:// and mysql://",
            ),
            ("postgres://ada:hunter2@h", "names no database"),
            ("postgres://ada:hunter2@h:port/p", "invalid port"),
            ("postgres://ada:hunter2/w@h/p", "invalid port"),
            ("mysql://ada:hunter2@h/p?ssl-mode=hunter", "is invalid"),
            ("sqlite:", "names no file"),
            ("sqlite::memory:", "in memory"),
            ("sqlite:///p.db?mode=ro", "takes no parameters"),
        ] {
            let refused = parse(url).map(|_| ()).unwrap_err().to_string();
            assert!(
                refused.contains(problem) && !refused.contains("hunter2"),
                "{url}: {refused}"
            );
        }
    }
}
