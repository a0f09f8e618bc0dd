//! What a gateway begins with: the policies of the database, else those of the copy.

use tollgate_policies::database::{DatabaseError, PolicyDatabase};
use tollgate_policies::model::PolicyState;

use super::copy::PolicyCopy;
use crate::config::{Config, Ground, Loaded, Mistakes};

/// The policies that a gateway begins with.
pub struct FirstPolicies {
    pub database: PolicyDatabase,
    pub copy: PolicyCopy,
    /// What the database has, or the copy.
    pub newest: PolicyState,
    /// What was checked together with the file.
    pub running: PolicyState,
    /// Whether the database was found with the tables of this version.
    pub is_current: bool,
}

/// Whether `config` has policies: their database, and this node's copy.
///
/// # Errors
/// When the database's URL names none, which that of a checked configuration does.
pub fn source(config: &Config) -> anyhow::Result<Option<(PolicyDatabase, PolicyCopy)>> {
    let Some(source) = &config.policies else { return Ok(None) };
    let database = PolicyDatabase::open(&source.database.0)?;
    let copy = PolicyCopy::new(source.copy.clone(), database.place());
    Ok(Some((database, copy)))
}

/// Finds the policies that a gateway begins with, and the configuration that comes of `ground` with them.
///
/// # Errors
/// When neither database nor copy has any that fit the file, and they are `required`.
pub async fn begin(
    (database, copy): (PolicyDatabase, PolicyCopy),
    required: bool,
    ground: &Ground,
) -> anyhow::Result<(FirstPolicies, Loaded)> {
    let in_database = newest(&database).await;
    let is_current = in_database.is_ok();
    let mut reasons = Vec::new();
    let mut newest = None;
    match in_database {
        Ok(state) => match ground.with_state(&state) {
            Ok(loaded) => {
                tracing::info!(database = database.place(), revision = state.revision(), "policies read");
                return Ok((
                    FirstPolicies { database, copy, newest: state.clone(), running: state, is_current },
                    loaded,
                ));
            }
            Err(mistakes) => {
                reasons.push(refused(&state, "in the database", &mistakes));
                newest = Some(state);
            }
        },
        Err(error) => reasons.push(error.to_string()),
    }
    let kept = copy.read().map_err(|error| error.to_string());
    let kept = kept.and_then(|state| match ground.with_state(&state) {
        Ok(loaded) => Ok((state, loaded)),
        Err(mistakes) => Err(refused(&state, "in the copy", &mistakes)),
    });
    match kept {
        Ok((running, loaded)) => {
            tracing::warn!(
                reason = reasons.join("; "),
                copy = %copy.path().display(),
                revision = running.revision(),
                "beginning with the copy of the policies"
            );
            let newest = newest.unwrap_or_else(|| running.clone());
            Ok((FirstPolicies { database, copy, newest, running, is_current }, loaded))
        }
        Err(reason) => {
            reasons.push(reason);
            let reasons = reasons.join("; ");
            anyhow::ensure!(
                !required,
                "there are no policies to begin with: {reasons}. Start again when the database answers, put a copy of another \
                 node in that place, or write `required: false` under `policies` to run with the limits of the file alone"
            );
            tracing::error!(
                reasons,
                "no policies to begin with: only the limits of the file hold until there are some"
            );
            let running = PolicyState::empty();
            let loaded = ground.with_state(&running)?;
            let newest = newest.unwrap_or_else(|| running.clone());
            Ok((FirstPolicies { database, copy, newest, running, is_current }, loaded))
        }
    }
}

async fn newest(database: &PolicyDatabase) -> Result<PolicyState, DatabaseError> {
    migrate(database).await?;
    database.state(None).await
}

/// Makes the tables of a database, or brings them up to date, where need be.
///
/// # Errors
/// When it is away, or of a newer version.
pub async fn migrate(database: &PolicyDatabase) -> Result<(), DatabaseError> {
    match database.migrate().await {
        Ok(migrated) if migrated.from != migrated.to => {
            tracing::info!(
                database = database.place(),
                from = migrated.from,
                to = migrated.to,
                "the schema of the database is up to date now"
            );
        }
        // Who may only read may follow: whether there is something to read is told by the next call.
        Ok(_) | Err(DatabaseError::ReadOnly { .. }) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Logs the mistakes of a revision, and says that it has some.
fn refused(state: &PolicyState, place: &str, mistakes: &Mistakes) -> String {
    mistakes.log();
    format!("revision {} {place} does not fit the file, the log says why", state.revision())
}
