//! The policies that a gateway begins with: those of the database, else those of the copy.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use tollgate_policies::database::{DatabaseError, PolicyDatabase};
use tollgate_policies::model::PolicyState;

use super::copy::{CopyContent, CopyProblem, PolicyCopy};
use super::local::{CandidateKnowledge, NodePolicies};
use tollgate_config::{Config, Ground, Loaded, Mistakes};

/// The policies that a gateway begins with.
pub struct FirstPolicies {
    pub database: PolicyDatabase,
    pub copy: PolicyCopy,
    /// The policies of the database, or of the copy.
    pub newest: PolicyState,
    /// The policies that were checked together with the file.
    pub running: PolicyState,
    /// The knowledge of candidates.
    pub candidates: CandidateKnowledge,
    /// The name of this node.
    pub node: Arc<str>,
}

/// Where a gateway gets its policies from.
pub struct PolicyOrigin {
    database: PolicyDatabase,
    copy: PolicyCopy,
    /// Whether a start without any policies fails.
    is_required: bool,
    /// The name of this node.
    node: Arc<str>,
}

/// Where the policies of `config` come from. `None`: it has none.
///
/// # Errors
/// When the database's URL names none, which the URL of a checked configuration does.
pub fn source(config: &Config) -> anyhow::Result<Option<PolicyOrigin>> {
    let Some(source) = &config.policies else {
        return Ok(None);
    };
    let database = PolicyDatabase::open(&source.database.0)?;
    let copy = PolicyCopy::new(source.copy.clone(), database.place());
    Ok(Some(PolicyOrigin {
        database,
        copy,
        is_required: source.required,
        node: config.node_name.clone(),
    }))
}

/// Finds the policies that a gateway begins with, and the configuration that comes of `ground` with
/// them.
///
/// # Errors
/// When neither database nor copy has any that fit the file, and they are required.
pub async fn begin(
    origin: PolicyOrigin,
    ground: &Ground,
) -> anyhow::Result<(FirstPolicies, Loaded)> {
    let PolicyOrigin {
        database,
        copy,
        is_required,
        node,
    } = origin;
    let in_database = newest(&database).await;
    if let Some(file) = database.file() {
        warn_of_readers(file);
    }
    warn_of_readers(copy.path());
    copy.remove_remains();
    let kept = copy.read();
    let in_database = match in_database {
        Ok(state) => usable(state, &kept),
        Err(error) => Err(error.to_string()),
    };
    let (kept, stopped) = match kept {
        Ok(CopyContent { state, stopped }) => (Ok(state), stopped),
        Err(error) => (Err(error.to_string()), Vec::new()),
    };
    let mut first = FirstPolicies {
        database,
        copy,
        newest: PolicyState::empty(),
        running: PolicyState::empty(),
        candidates: CandidateKnowledge::new(stopped, in_database.is_ok()),
        node,
    };
    let mut reasons = Vec::new();
    let newest = match in_database {
        Ok(state) => match first.apply(&state, &state, ground) {
            Ok(loaded) => {
                tracing::info!(
                    database = first.database.place(),
                    revision = state.revision(),
                    "policies read"
                );
                first.newest = state.clone();
                first.running = state;
                return Ok((first, loaded));
            }
            Err(mistakes) => {
                reasons.push(refused(&state, "in the database", &mistakes));
                Some(state)
            }
        },
        Err(reason) => {
            reasons.push(reason);
            None
        }
    };
    let loaded = match kept {
        Ok(state) => match first.apply(&state, newest.as_ref().unwrap_or(&state), ground) {
            Ok(loaded) => {
                tracing::warn!(
                    reason = reasons.join("; "),
                    copy = %first.copy.path().display(),
                    revision = state.revision(),
                    "beginning with the copy of the policies"
                );
                first.running = state;
                Some(loaded)
            }
            Err(mistakes) => {
                reasons.push(refused(&state, "in the copy", &mistakes));
                None
            }
        },
        Err(reason) => {
            reasons.push(reason);
            None
        }
    };
    let loaded = match loaded {
        Some(loaded) => loaded,
        None => without_policies(&reasons, is_required, ground)?,
    };
    first.newest = newest.unwrap_or_else(|| first.running.clone());
    Ok((first, loaded))
}

impl FirstPolicies {
    /// The configuration that `ground` comes to with the policies of `state`, where the database
    /// was last seen to have `newest`.
    fn apply(
        &self,
        state: &PolicyState,
        newest: &PolicyState,
        ground: &Ground,
    ) -> Result<Loaded, Mistakes> {
        let policies =
            NodePolicies::new(self.node.clone(), state.clone(), newest, &self.candidates);
        policies.apply(ground)
    }
}

/// The policies of the database, unless it has none though this node knows some, or may have known
/// some.
fn usable(
    state: PolicyState,
    kept: &Result<CopyContent, CopyProblem>,
) -> Result<PolicyState, String> {
    if state.revision() > 0 {
        return Ok(state);
    }
    match kept {
        Ok(CopyContent { state: kept, .. }) if kept.revision() > 0 => Err(emptied(kept.revision())),
        Ok(_) | Err(CopyProblem::Missing(_)) => Ok(state),
        Err(CopyProblem::Stranger(_, other)) => Err(another(other)),
        Err(CopyProblem::Unreadable(..) | CopyProblem::Damaged(..) | CopyProblem::Format(..)) => {
            Err(unread())
        }
    }
}

/// A database that lost all policies is another one, or its disk is not there: nothing that holds
/// is given up for it.
pub fn emptied(known: u64) -> String {
    format!(
        "the database has no policies, and this node knows revision {known}: it was emptied, or is another one. Restore it, or \
         import the policies with `tollgate policy import`"
    )
}

/// Policies of a wrong database would be none at all.
fn another(other: &str) -> String {
    format!(
        "the database has no policies, and this node ran those of {other}. Look whether `policies.database` is the right one. If \
         it is, import the policies with `tollgate policy import`, or take the copy away to begin without any"
    )
}

/// The database and the copy may have had policies: nothing is known of either.
fn unread() -> String {
    "the database has no policies, and the copy of those that this node ran cannot be read: the database may have been emptied, or \
     is another one. Restore it, import the policies with `tollgate policy import`, or take the copy away to begin without any"
        .to_owned()
}

/// Readers of the database have the hashes of passwords; writers of the database or the copy decide
/// limits.
fn warn_of_readers(path: &Path) {
    let mode = path
        .metadata()
        .map_or(0, |file| file.permissions().mode() & 0o7777);
    if mode & 0o066 != 0 {
        let mode = format!("{mode:04o}");
        tracing::warn!(file = %path.display(), mode, "others of this machine may read or write it: chmod 600");
    }
}

/// The file alone, if it may do without policies.
fn without_policies(reasons: &[String], required: bool, ground: &Ground) -> anyhow::Result<Loaded> {
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
    Ok(ground.with(None)?)
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
        // A gateway that may only read may follow: the next call tells whether there is something
        // to read.
        Ok(_) | Err(DatabaseError::ReadOnly { .. }) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Logs the mistakes of a revision, and says that it has some.
fn refused(state: &PolicyState, place: &str, mistakes: &Mistakes) -> String {
    mistakes.log();
    format!(
        "revision {} {place} does not fit the file, the log says why",
        state.revision()
    )
}
