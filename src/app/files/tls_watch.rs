//! Files of TLS under watch, which are taken over together: a certificate and its key change one
//! after the other.
//!
//! Guarantees that a change is reported only once no file is being written any more.

use std::collections::BTreeSet;
use std::path::PathBuf;

use tollgate_config::watch::{FileWatch, MOST_MOVES, Sighting};

/// Files under watch.
#[derive(Default)]
pub struct TlsFileWatches {
    watches: Vec<FileWatch>,
    /// A file has changed since they were read.
    stale: bool,
    /// Looks since then that waited for others to stand still.
    waits: u32,
}

impl TlsFileWatches {
    /// Watches the files from their present versions on. To be called before they are read: a
    /// change meanwhile is found.
    pub fn new(files: BTreeSet<PathBuf>) -> Self {
        Self {
            watches: files.into_iter().map(FileWatch::new).collect(),
            stale: false,
            waits: 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.watches.is_empty()
    }

    /// Looks whether the files are to be read again, and logs those that are gone or back.
    pub fn have_changed(&mut self) -> bool {
        for watch in &mut self.watches {
            match watch.look() {
                Sighting::Same => {}
                Sighting::Changed => self.stale = true,
                Sighting::Gone => {
                    tracing::warn!(file = %watch.path().display(), "a file of TLS is gone: its last version holds on");
                }
                Sighting::Back => {
                    tracing::info!(file = %watch.path().display(), "a file of TLS is back")
                }
            }
        }
        if !self.stale {
            return false;
        }
        if self.watches.iter().any(FileWatch::is_moving) && self.waits < MOST_MOVES {
            self.waits += 1;
            return false;
        }
        self.stale = false;
        self.waits = 0;
        true
    }

    /// The files could not be read, for a reason that passes: the next look finds them again.
    pub fn find_again(&mut self) {
        self.stale = true;
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_pair_is_reported_once_when_both_of_its_files_stand_still() {
        let folder = tempfile::tempdir().unwrap();
        let [certificate, key] = ["certificate", "key"].map(|file| folder.path().join(file));
        for file in [&certificate, &key] {
            fs::write(file, "before").unwrap();
        }
        let mut watches = TlsFileWatches::new([certificate.clone(), key.clone()].into());
        fs::write(&certificate, "new").unwrap();
        assert!(!watches.have_changed());
        // The certificate stands still by now, and the key has just come.
        fs::write(&key, "new").unwrap();
        assert!(!watches.have_changed());
        assert!(watches.have_changed());
        assert!(!watches.have_changed());
    }
}
