//! Notices that the configuration file has changed.
//!
//! By looking at it now and then rather than by file events: a mounted ConfigMap changes by the swap of a symbolic
//! link two folders up, and network file systems tell nobody.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// What tells one version of a file from another: device, inode, size, modification time in seconds and nanoseconds.
type Fingerprint = (u64, u64, u64, i64, i64);

/// A file under watch.
#[derive(Debug)]
pub struct FileWatch {
    path: PathBuf,
    /// The version that was last acted on.
    known: Option<Fingerprint>,
    /// The version at the last look.
    seen: Option<Fingerprint>,
}

impl FileWatch {
    /// Watches `path` from its present version on.
    pub fn new(path: PathBuf) -> Self {
        let mut watch = Self { path, known: None, seen: None };
        watch.seen = watch.look();
        watch.known = watch.seen;
        watch
    }

    /// Whether there is a new version that has stood still since the last call: an editor may be half-way through.
    pub fn changed(&mut self) -> bool {
        let now = self.look();
        let settled = now == self.seen;
        self.seen = now;
        let changed = settled && now.is_some() && now != self.known;
        if changed {
            self.known = now;
        }
        changed
    }

    /// Follows symbolic links. `None`: the file is not there, which is no new version.
    fn look(&self) -> Option<Fingerprint> {
        let meta = fs::metadata(&self.path).ok()?;
        Some((meta.dev(), meta.ino(), meta.size(), meta.mtime(), meta.mtime_nsec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_of_a_new_version_once_and_only_when_it_stands_still() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("routes.yaml");
        fs::write(&path, "a").unwrap();
        let mut watch = FileWatch::new(path.clone());
        assert!(!watch.changed());
        fs::write(&path, "ab").unwrap();
        assert!(!watch.changed(), "it may still be written");
        assert!(watch.changed());
        assert!(!watch.changed());
    }

    #[test]
    fn a_file_that_is_gone_for_a_moment_is_no_change() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("routes.yaml");
        fs::write(&path, "a").unwrap();
        let mut watch = FileWatch::new(path.clone());
        fs::rename(&path, folder.path().join("away")).unwrap();
        assert!(!watch.changed() && !watch.changed());
        fs::rename(folder.path().join("away"), &path).unwrap();
        assert!(!watch.changed() && !watch.changed());
    }

    #[test]
    fn follows_the_swap_of_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (folder.path().join("one"), folder.path().join("two"));
        fs::write(&one, "a").unwrap();
        fs::write(&two, "b").unwrap();
        let link = folder.path().join("routes.yaml");
        std::os::unix::fs::symlink(&one, &link).unwrap();
        let mut watch = FileWatch::new(link.clone());
        fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(&two, &link).unwrap();
        assert!(!watch.changed());
        assert!(watch.changed());
    }
}
