//! The identities of a SQLite database's files, by which a database that was replaced or deleted is
//! noticed. An open connection would go on with files that no path leads to any more.

use std::fs::{canonicalize, metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use tokio::sync::OwnedRwLockReadGuard;

/// The files that the path of a database leads to. The database is another when one of the files is
/// another: the write-ahead log has the last commits, and processes agree by its index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DatabaseFiles {
    main: Option<FileId>,
    log: Option<FileId>,
    index: Option<FileId>,
}

/// A lock of a connection in use: all connections lead to the same files until it is released.
pub type FilesInUse = OwnedRwLockReadGuard<Option<DatabaseFiles>>;

/// Device and inode.
type FileId = (u64, u64);

impl DatabaseFiles {
    /// The files that are there now.
    pub fn at(path: &Path) -> Self {
        // SQLite names the others after the file that a link leads to.
        let path = canonicalize(path).unwrap_or_else(|_| path.to_owned());
        Self {
            main: id_of(&path),
            log: id_of(&beside(&path, "-wal")),
            index: id_of(&beside(&path, "-shm")),
        }
    }

    /// Whether the database is another file than `former`.
    pub fn is_other_database(&self, former: &Self) -> bool {
        self.main != former.main
    }

    /// Whether the log of the `former` file stands beside this one, at `path`. SQLite would take
    /// it for this file's log.
    pub fn has_log_of(&self, former: &Self, path: &Path) -> bool {
        let path = canonicalize(path).unwrap_or_else(|_| path.to_owned());
        self.main.is_some()
            && self.main != former.main
            && self.log.is_some()
            && self.log == former.log
            && metadata(beside(&path, "-wal")).is_ok_and(|log| log.len() > 0)
    }
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

fn id_of(path: &Path) -> Option<FileId> {
    let file = metadata(path).ok()?;
    Some((file.dev(), file.ino()))
}
