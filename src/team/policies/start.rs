//! The policies that a gateway begins with: those of the database, else those of the copy.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use tollgate_policies::database::{DatabaseError, PolicyDatabase};
use tollgate_policies::model::PolicyState;

use super::copy::{CopyContent, CopyProblem, PolicyCopy};
use super::local::{CandidateKnowledge, NodePolicies};
use crate::config::{Config, Ground, Loaded, Mistakes};

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

/// Whether `config` has policies: their database, and this node's copy.
///
/// # Errors
/// When the database's URL names none, which that of a checked configuration does.
pub fn source(config: &Config) -> anyhow::Result<Option<(PolicyDatabase, PolicyCopy)>> {
    let Some(source) = &config.policies else {
        return Ok(None);
    };
    let database = PolicyDatabase::open(&source.database.0)?;
    let copy = PolicyCopy::new(source.copy.clone(), database.place());
    Ok(Some((database, copy)))
}

/// Finds the policies that a gateway begins with, and the configuration that comes of `ground` with
/// them.
///
/// # Errors
/// When neither database nor copy has any that fit the file, and they are `required`.
pub async fn begin(
    (database, copy): (PolicyDatabase, PolicyCopy),
    (required, node): (bool, &Arc<str>),
    ground: &Ground,
) -> anyhow::Result<(FirstPolicies, Loaded)> {
    let in_database = newest(&database).await;
    database
        .file()
        .into_iter()
        .chain([copy.path()])
        .for_each(warn_of_readers);
    copy.remove_remains();
    let read = copy.read();
    let in_database = in_database
        .map_err(|error| error.to_string())
        .and_then(|state| match (state.revision(), &read) {
            (0, Ok(CopyContent { state: kept, .. })) if kept.revision() > 0 => {
                Err(emptied(kept.revision()))
            }
            (0, Err(CopyProblem::Stranger(_, other))) => Err(another(other)),
            (
                0,
                Err(
                    CopyProblem::Unreadable(..)
                    | CopyProblem::Damaged(..)
                    | CopyProblem::Format(..),
                ),
            ) => Err(unread()),
            _ => Ok(state),
        });
    let (kept, stopped) = match read {
        Ok(CopyContent { state, stopped }) => (Ok(state), stopped),
        Err(error) => (Err(error.to_string()), Vec::new()),
    };
    let candidates = CandidateKnowledge {
        stopped: stopped.into(),
        has_heard: in_database.is_ok(),
    };
    let lay = |state: &PolicyState, newest: &PolicyState| {
        NodePolicies::new(node.clone(), state.clone(), newest, &candidates).lay(ground)
    };
    let mut reasons = Vec::new();
    let newest = in_database.map_err(|reason| reasons.push(reason)).ok();
    if let Some(state) = &newest {
        match lay(state, state) {
            Ok(loaded) => {
                tracing::info!(
                    database = database.place(),
                    revision = state.revision(),
                    "policies read"
                );
                let (newest, running) = (state.clone(), state.clone());
                return Ok((
                    FirstPolicies {
                        database,
                        copy,
                        newest,
                        running,
                        candidates,
                        node: node.clone(),
                    },
                    loaded,
                ));
            }
            Err(mistakes) => reasons.push(refused(state, "in the database", &mistakes)),
        }
    }
    let kept = kept.and_then(
        |state| match lay(&state, newest.as_ref().unwrap_or(&state)) {
            Ok(loaded) => Ok((state, loaded)),
            Err(mistakes) => Err(refused(&state, "in the copy", &mistakes)),
        },
    );
    let (running, loaded) = match kept {
        Ok((running, loaded)) => {
            tracing::warn!(
                reason = reasons.join("; "),
                copy = %copy.path().display(),
                revision = running.revision(),
                "beginning with the copy of the policies"
            );
            (running, loaded)
        }
        Err(reason) => {
            reasons.push(reason);
            (
                PolicyState::empty(),
                without_policies(&reasons, required, ground)?,
            )
        }
    };
    let newest = newest.unwrap_or_else(|| running.clone());
    Ok((
        FirstPolicies {
            database,
            copy,
            newest,
            running,
            candidates,
            node: node.clone(),
        },
        loaded,
    ))
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

/// Of what was in either of the two, nothing is known but that there may have been something.
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
