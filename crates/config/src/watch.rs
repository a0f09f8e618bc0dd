//! Notices that a file of the configuration has changed, is gone, or is back. A folder is a file
//! whose entries are its content.
//!
//! By looking at it now and then rather than by file events: a mounted ConfigMap changes by the
//! swap of a symbolic link two folders up, and network file systems send no events.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Looks in a row that find another version each, after which the present one is taken: a file that
/// is touched each second never stops changing.
pub const MOST_MOVES: u32 = 10;

/// Tells one version of a file from another: device, inode, size, and the times of modification and
/// of change in seconds and nanoseconds. The latter moves when a file becomes readable: one that
/// could not be read is then read again.
type Fingerprint = (u64, u64, u64, [i64; 4]);

/// A file or a folder, and the version of it that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileVersion {
    pub path: PathBuf,
    /// `None`: it was not there.
    fingerprint: Option<Fingerprint>,
}

/// The outcome of a look at the file. Each change is found once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sighting {
    /// Nothing new.
    Same,
    /// A version to take over.
    Changed,
    /// The file is not there any more. No version of it is to be taken over.
    Gone,
    /// The file is there again. When it is another version, the next look finds that.
    Back,
}

/// A file under watch.
#[derive(Debug)]
pub struct FileWatch {
    path: PathBuf,
    /// The version that was last acted on.
    known: Option<Fingerprint>,
    /// The version at the last look.
    seen: Option<Fingerprint>,
    /// Whether it was found gone, and not back since.
    gone: bool,
    /// Looks in a row that found another version than the one before.
    moves: u32,
}

impl FileWatch {
    /// Watches `path` from its present version on.
    pub fn new(path: PathBuf) -> Self {
        let fingerprint = fingerprint(&path);
        Self {
            path,
            known: fingerprint,
            seen: fingerprint,
            gone: false,
            moves: 0,
        }
    }

    /// Watches a file from the version on that was read.
    pub fn since(FileVersion { path, fingerprint }: FileVersion) -> Self {
        Self {
            path,
            known: fingerprint,
            seen: fingerprint,
            gone: fingerprint.is_none(),
            moves: 0,
        }
    }

    /// Looks at the file. A change counts once it has stood still since the last call: an editor
    /// may be half-way through. A file that never stops changing is read in the end.
    pub fn look(&mut self) -> Sighting {
        let now = fingerprint(&self.path);
        if std::mem::replace(&mut self.seen, now) != now {
            self.moves += 1;
            if self.moves < MOST_MOVES {
                return Sighting::Same;
            }
        }
        self.moves = 0;
        match (now, self.gone) {
            (None, false) => {
                self.gone = true;
                Sighting::Gone
            }
            (Some(_), true) => {
                self.gone = false;
                Sighting::Back
            }
            (Some(_), false) if now != self.known => {
                self.known = now;
                Sighting::Changed
            }
            (None, true) | (Some(_), false) => Sighting::Same,
        }
    }

    /// Whether it differs from the version that was last acted on, since it may still be written.
    pub fn is_moving(&self) -> bool {
        self.seen.is_some() && self.seen != self.known
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The version that was last acted on could not be read, for a reason that passes: the next
    /// look finds it again.
    pub fn find_again(&mut self) {
        self.known = None;
    }

    /// This version of it was read: it need not be found.
    pub fn pass_over(&mut self, version: &FileVersion) {
        self.seen = version.fingerprint;
        self.known = self.seen;
    }
}

impl FileVersion {
    /// The present version. Taken before the file is read, it lets a
    /// change meanwhile be found.
    pub fn current(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            fingerprint: fingerprint(path),
        }
    }
}

/// Follows symbolic links. `None`: the file is not there, which is no new version.
fn fingerprint(path: &Path) -> Option<Fingerprint> {
    let meta = fs::metadata(path).ok()?;
    let times = [
        meta.mtime(),
        meta.mtime_nsec(),
        meta.ctime(),
        meta.ctime_nsec(),
    ];
    Some((meta.dev(), meta.ino(), meta.size(), times))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::Sighting::{Back, Changed, Gone, Same};
    use super::*;

    #[test]
    fn tells_of_a_new_version_once_and_only_when_it_stands_still() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("routes.yaml");
        fs::write(&path, "a").unwrap();
        let mut watch = FileWatch::new(path.clone());
        assert_eq!(watch.look(), Same);
        fs::write(&path, "ab").unwrap();
        assert_eq!(watch.look(), Same, "it may still be written");
        assert_eq!((watch.look(), watch.look()), (Changed, Same));
    }

    #[test]
    fn a_file_that_never_stands_still_is_taken_in_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("routes.yaml");
        fs::write(&path, "").unwrap();
        let mut watch = FileWatch::new(path.clone());
        let mut found = Vec::new();
        for length in 1..=2 * MOST_MOVES as usize {
            fs::write(&path, "a".repeat(length)).unwrap();
            if watch.look() == Changed {
                found.push(length);
            }
        }
        assert_eq!(found, [10, 20]);
        assert_eq!(watch.look(), Same, "the last one is known");
    }

    #[test]
    fn a_version_that_could_not_be_read_is_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("routes.yaml");
        fs::write(&path, "a").unwrap();
        let mut watch = FileWatch::new(path);
        watch.find_again();
        assert_eq!((watch.look(), watch.look()), (Changed, Same));
    }

    #[test]
    fn a_file_that_is_gone_is_told_once_and_no_change() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("routes.yaml");
        fs::write(&path, "a").unwrap();
        let mut watch = FileWatch::new(path.clone());
        fs::rename(&path, folder.path().join("away")).unwrap();
        assert_eq!(
            watch.look(),
            Same,
            "an editor may be about to put another in its place"
        );
        assert_eq!((watch.look(), watch.look()), (Gone, Same));
        watch.pass_over(&FileVersion::current(&path));
        assert_eq!(watch.look(), Same, "it is known to be gone");
        fs::rename(folder.path().join("away"), &path).unwrap();
        assert_eq!((watch.look(), watch.look()), (Same, Back));
        watch.pass_over(&FileVersion::current(&path));
        assert_eq!(watch.look(), Same);
    }

    #[test]
    fn a_file_that_comes_back_changed_is_back_and_then_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("routes.yaml");
        fs::write(&path, "a").unwrap();
        let mut watch = FileWatch::new(path.clone());
        fs::remove_file(&path).unwrap();
        assert_eq!((watch.look(), watch.look()), (Same, Gone));
        fs::write(&path, "ab").unwrap();
        assert_eq!(
            [watch.look(), watch.look(), watch.look(), watch.look()],
            [Same, Back, Changed, Same]
        );
    }

    #[test]
    fn a_file_that_becomes_readable_has_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.yaml");
        fs::write(&path, "a").unwrap();
        let mut watch = FileWatch::new(path.clone());
        // The clock of files is coarse: the first may be at the time of the writing.
        let is_seen = (0..100_000).any(|_| {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            watch.look();
            watch.look() == Changed
        });
        assert!(is_seen);
    }

    #[test]
    fn follows_the_swap_of_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let one = folder.path().join("one");
        let two = folder.path().join("two");
        fs::write(&one, "a").unwrap();
        fs::write(&two, "b").unwrap();
        let link = folder.path().join("routes.yaml");
        std::os::unix::fs::symlink(&one, &link).unwrap();
        let mut watch = FileWatch::new(link.clone());
        fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(&two, &link).unwrap();
        assert_eq!((watch.look(), watch.look()), (Same, Changed));
    }
}
