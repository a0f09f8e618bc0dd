//! The content of files that values name: certificates and secrets.
//!
//! Guarantees that a configuration is checked with what they had when it was read: while policies
//! are applied to it, a file that is renewed or missing for a moment changes nothing.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use tollgate_wire::regular_file;

/// The files that were read, by their paths. A clone shares them.
#[derive(Clone, Default)]
pub struct NamedFiles(Arc<Mutex<HashMap<PathBuf, Vec<u8>>>>);

impl NamedFiles {
    /// The content of the file at `path`, as it was when it was first read.
    ///
    /// # Errors
    /// When it never could be read, or has more than `most` bytes.
    pub fn read(&self, path: &Path, most: u64) -> io::Result<Vec<u8>> {
        if let Some(content) = self.0.lock().get(path) {
            return Ok(content.clone());
        }
        let content = regular_file::read(path, most)?;
        self.0.lock().insert(path.to_owned(), content.clone());
        Ok(content)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_that_was_read_stays_what_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        let files = NamedFiles::default();
        assert!(files.read(&path, 100).is_err());
        fs::write(&path, "first").unwrap();
        assert_eq!(files.read(&path, 100).unwrap(), b"first");
        fs::remove_file(&path).unwrap();
        assert_eq!(files.read(&path, 100).unwrap(), b"first");
        fs::write(&path, "second").unwrap();
        assert_eq!(files.read(&path, 100).unwrap(), b"first");
        assert_eq!(NamedFiles::default().read(&path, 100).unwrap(), b"second");
    }
}
