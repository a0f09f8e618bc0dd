//! This node's copy of the policies that it runs.
//!
//! Guarantees that the file is whole: it is written beside itself and renamed. Only its owner can
//! read it.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tollgate_policies::model::PolicyState;

use super::local::{CandidateKnowledge, StoppedCandidate, without_revoked_keys};
use tollgate_wire::regular_file;

const FORMAT: &str = "tollgate-policy-copy/1";

/// From a revision that is applied to its copy: the machine may be busy until all of its nodes have
/// applied it.
const SETTLE: Duration = Duration::from_secs(2);

/// From a copy that could not be written to the next attempt.
const RETRY: Duration = Duration::from_secs(30);

/// Bytes of a copy at most: a million assignments have half of it.
const MOST_BYTES: u64 = 1 << 30;

/// Where the copy is, and of which database.
#[derive(Clone)]
pub struct PolicyCopy {
    path: PathBuf,
    /// The URL of the database without secrets.
    place: Arc<str>,
}

/// Why a copy cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CopyProblem {
    #[error("there is no copy at {0}")]
    Missing(String),
    #[error("the copy {0} cannot be read: {1}")]
    Unreadable(String, io::Error),
    #[error("the copy {0} is damaged: {1}")]
    Damaged(String, serde_json::Error),
    #[error("the copy {0} is of the format {1:?}, and this version reads {FORMAT:?}")]
    Format(String, String),
    #[error("the copy {0} is of another database, {1}")]
    Stranger(String, String),
}

#[derive(Serialize)]
struct WrittenCopy<'a> {
    format: &'a str,
    database: &'a str,
    state: &'a PolicyState,
    stopped: &'a [StoppedCandidate],
}

#[derive(Deserialize)]
struct CopyHead {
    format: String,
    database: String,
}

/// The content of a copy.
#[derive(Deserialize)]
pub struct CopyContent {
    pub state: PolicyState,
    /// Candidates in it that the node has stopped.
    #[serde(default)]
    pub stopped: Vec<StoppedCandidate>,
}

impl PolicyCopy {
    pub fn new(path: PathBuf, place: &str) -> Self {
        Self {
            path,
            place: place.into(),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The content of the copy.
    ///
    /// # Errors
    /// When there is none, or it cannot be used.
    pub fn read(&self) -> Result<CopyContent, CopyProblem> {
        let path = self.path.display().to_string();
        let content = match regular_file::read(&self.path, MOST_BYTES) {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(CopyProblem::Missing(path));
            }
            Err(error) => return Err(CopyProblem::Unreadable(path, error)),
        };
        let CopyHead { format, database } = match serde_json::from_slice(&content) {
            Ok(head) => head,
            Err(error) => return Err(CopyProblem::Damaged(path, error)),
        };
        if format != FORMAT {
            return Err(CopyProblem::Format(path, format));
        }
        if *database != *self.place {
            return Err(CopyProblem::Stranger(path, database));
        }
        serde_json::from_slice(&content).map_err(|error| CopyProblem::Damaged(path, error))
    }

    /// Writes what the next start without database begins with.
    ///
    /// # Errors
    /// When it cannot be written: the old one is still there.
    pub fn write(&self, state: &PolicyState, stopped: &[StoppedCandidate]) -> io::Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
        let mut beside = self.path.clone().into_os_string();
        // The process that is taken over from may write at the same time.
        beside.push(format!(".{}", std::process::id()));
        let beside = PathBuf::from(beside);
        let written = self
            .write_to(&beside, state, stopped)
            .and_then(|()| fs::rename(&beside, &self.path));
        if written.is_err() {
            // The file that is left may be half a copy.
            let _ = fs::remove_file(&beside);
        }
        written?;
        File::open(folder)?.sync_all()
    }

    fn write_to(
        &self,
        path: &Path,
        state: &PolicyState,
        stopped: &[StoppedCandidate],
    ) -> io::Result<()> {
        if let Err(error) = fs::remove_file(path)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
        let mut file = BufWriter::new(
            File::options()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(path)?,
        );
        serde_json::to_writer(
            &mut file,
            &WrittenCopy {
                format: FORMAT,
                database: &self.place,
                state,
                stopped,
            },
        )?;
        file.flush()?;
        file.get_ref().sync_all()
    }

    /// Takes away what processes left beside the copy that ended while they wrote it.
    pub fn remove_remains(&self) {
        let (Some(folder), Some(name)) = (self.path.parent(), self.path.file_name()) else {
            return;
        };
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if is_remains(&entry.file_name(), name)
                && let Err(error) = fs::remove_file(entry.path())
            {
                tracing::warn!(file = %entry.path().display(), %error, "cannot remove what is left of a copy of the policies");
            }
        }
    }

    /// Writes each state that is applied, beginning with the first, and the candidates in it that
    /// were stopped. API keys that the newest state does not have are left out, also of a state
    /// that goes on because the newest does not fit. Runs until dropped.
    pub async fn follow(
        &self,
        mut running: watch::Receiver<PolicyState>,
        mut newest: watch::Receiver<PolicyState>,
        mut known: watch::Receiver<CandidateKnowledge>,
    ) {
        running.mark_changed();
        let mut is_written = true;
        loop {
            tokio::select! {
                // The next revision may be near as well.
                Ok(()) = running.changed() => sleep(SETTLE).await,
                Ok(()) = newest.changed() => sleep(SETTLE).await,
                Ok(()) = known.changed() => {}
                () = sleep(RETRY), if !is_written => {}
                else => return,
            }
            let state = running.borrow_and_update().clone();
            let stopped = known.borrow_and_update().stopped.clone();
            let state = without_revoked_keys(&state, &newest.borrow_and_update());
            // Before the first answer of a database there is nothing to keep.
            if state.revision() == 0 && state.is_empty() {
                continue;
            }
            let copy = self.clone();
            let written = spawn_blocking(move || copy.write(&state, &stopped)).await;
            let written = written.unwrap_or_else(|broken| Err(io::Error::other(broken)));
            if let Err(error) = &written {
                tracing::error!(
                    copy = %self.path.display(),
                    %error,
                    "cannot write the copy of the policies: a start without the database would find none, or an old one. \
                     Name a file that this user can write by `policies.copy`. Trying again in 30 s"
                );
            }
            is_written = written.is_ok();
        }
    }
}

/// Whether a file beside the copy was left by a process that has ended. The process that is taken
/// over from may be writing.
fn is_remains(file: &OsStr, copy: &OsStr) -> bool {
    let Some(writer) = writer_of(file, copy) else {
        return false;
    };
    writer == std::process::id() || !Path::new(&format!("/proc/{writer}")).exists()
}

/// The number of the process that writes a file called like the copy, a dot and the number.
fn writer_of(file: &OsStr, copy: &OsStr) -> Option<u32> {
    let writer = file
        .to_str()?
        .strip_prefix(copy.to_str()?)?
        .strip_prefix('.')?;
    let number: u32 = writer.parse().ok()?;
    if number.to_string() == writer {
        Some(number)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use tollgate_policies::model::Position;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_copy_that_could_not_be_written_is_tried_again() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("kept");
        // A file stands where the folder is to be.
        fs::write(&folder, "").unwrap();
        let copy = PolicyCopy::new(folder.join("copy.json"), "sqlite:policies.db");
        let state = PolicyState::new(
            Position {
                revision: 7,
                ..Position::default()
            },
            [],
        );
        let (_newest, newest) = watch::channel(state.clone());
        let (_running, running) = watch::channel(state);
        let (_known, known) = watch::channel(CandidateKnowledge::new(Vec::new(), true));
        let kept = copy.clone();
        let following = tokio::spawn(async move { kept.follow(running, newest, known).await });
        sleep(SETTLE * 2).await;
        fs::remove_file(&folder).unwrap();
        sleep(RETRY / 2).await;
        assert!(matches!(copy.read(), Err(CopyProblem::Missing(_))));
        sleep(RETRY).await;
        assert_eq!(copy.read().unwrap().state.revision(), 7);
        following.abort();
    }

    #[test]
    fn what_a_killed_process_left_is_taken_away() {
        let place = tempfile::tempdir().unwrap();
        let copy = PolicyCopy::new(place.path().join("copy.json"), "sqlite:policies.db");
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        let ended_id = ended.id();
        ended.wait().unwrap();
        let parent = std::os::unix::process::parent_id();
        let mut kept = [
            "copy.json".to_owned(),
            format!("copy.json.{parent}"),
            "copy.json.old".into(),
            "other.1".into(),
        ];
        let left = [
            format!("copy.json.{ended_id}"),
            format!("copy.json.{}", std::process::id()),
        ];
        kept.iter()
            .chain(&left)
            .for_each(|name| fs::write(place.path().join(name), "{").unwrap());
        copy.remove_remains();
        let there = fs::read_dir(place.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut there: Vec<String> = there.collect();
        there.sort();
        kept.sort();
        assert_eq!(there, kept);
    }
}
