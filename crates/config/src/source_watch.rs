//! The files and folders that the configuration is read from, under watch together.
//!
//! Guarantees that a change is reported only once no file is being written any more, and that the
//! files of a configuration that was refused are watched besides those of the one at work.

use std::collections::HashMap;
use std::path::Path;

use super::watch::{FileVersion, FileWatch, MOST_MOVES, Sighting};

/// The files and folders under watch.
pub struct SourceWatches {
    watches: Vec<FileWatch>,
    /// A file has changed since they were read.
    stale: bool,
    /// Looks since then at which some file was still changing.
    waits: u32,
}

impl SourceWatches {
    /// Watches what was read.
    pub fn new(read: Vec<FileVersion>) -> Self {
        Self {
            watches: read.into_iter().map(FileWatch::since).collect(),
            stale: false,
            waits: 0,
        }
    }

    /// Looks whether the configuration is to be read again, and logs files that are gone or back.
    pub fn have_changed(&mut self) -> bool {
        let mut gone = Vec::new();
        for watch in &mut self.watches {
            match watch.look() {
                Sighting::Same => {}
                Sighting::Changed => self.stale = true,
                Sighting::Gone => gone.push(watch.path()),
                Sighting::Back => {
                    tracing::info!(file = %watch.path().display(), "the configuration file is back");
                }
            }
        }
        if !self.stale {
            for file in gone {
                warn_of_gone(file);
            }
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

    /// The configuration was read from these versions. What a refused one does not name is watched
    /// on: it may be why.
    pub fn follow(&mut self, read: Vec<FileVersion>, refused: bool) {
        self.stale = false;
        let mut read: HashMap<_, _> = read
            .into_iter()
            .map(|version| (version.path.clone(), version))
            .collect();
        self.watches
            .retain_mut(|watch| match read.remove(watch.path()) {
                Some(version) => {
                    watch.pass_over(&version);
                    true
                }
                None => refused,
            });
        self.watches
            .extend(read.into_values().map(FileWatch::since));
    }
}

fn warn_of_gone(file: &Path) {
    tracing::warn!(file = %file.display(), "the configuration file is gone: its last version holds on");
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_folder_that_gets_a_file_has_changed() {
        let folder = tempfile::tempdir().unwrap();
        let mut watches = SourceWatches::new(vec![FileVersion::current(folder.path())]);
        assert!(!watches.have_changed());
        fs::write(folder.path().join("a.yaml"), "a").unwrap();
        assert!(!watches.have_changed(), "it may still be written");
        assert_eq!(
            (watches.have_changed(), watches.have_changed()),
            (true, false)
        );
    }

    #[test]
    fn files_that_never_stand_still_at_once_are_read_in_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let files = ["a", "b"].map(|name| folder.path().join(name));
        let mut watches = SourceWatches::new(
            files
                .each_ref()
                .map(|file| FileVersion::current(file))
                .into(),
        );
        let mut changes = 0;
        for look in 1..60 {
            // The files take turns: one of them always moves.
            fs::write(&files[look / 3 % 2], "a".repeat(look)).unwrap();
            if watches.have_changed() {
                changes += 1;
            }
        }
        assert!(changes >= 2);
    }

    #[test]
    fn what_could_not_be_read_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut watches = SourceWatches::new(vec![FileVersion::current(folder.path())]);
        watches.find_again();
        assert_eq!(
            (watches.have_changed(), watches.have_changed()),
            (true, false)
        );
    }

    #[test]
    fn a_refused_configuration_is_read_again_when_any_of_its_files_or_of_those_before_changes() {
        let folder = tempfile::tempdir().unwrap();
        let [old, new] = ["old", "new"].map(|name| folder.path().join(name));
        for file in [&old, &new] {
            fs::write(file, "a").unwrap();
        }
        let mut watches = SourceWatches::new(vec![FileVersion::current(&old)]);
        watches.follow(vec![FileVersion::current(&new)], true);
        for (file, text) in [(&old, "ab"), (&new, "abc")] {
            fs::write(file, text).unwrap();
            assert_eq!(
                (watches.have_changed(), watches.have_changed()),
                (false, true)
            );
        }
        watches.follow(vec![FileVersion::current(&new)], false);
        fs::write(&old, "abcd").unwrap();
        assert_eq!(
            (watches.have_changed(), watches.have_changed()),
            (false, false)
        );
    }
}
