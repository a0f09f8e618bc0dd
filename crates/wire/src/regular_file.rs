//! The files that the gateway reads: configurations, certificates, keys, pages.
//!
//! Guarantees that a read has an end: anything but a regular file is refused. A pipe would keep its
//! reader waiting for a writer, and a device may have no end.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

/// Opens the file at `path`.
///
/// # Errors
/// The file cannot be opened, or is no file.
pub fn open(path: &Path) -> io::Result<File> {
    // NONBLOCK: the opening of a pipe would wait. NOCTTY: a terminal does not become the process's.
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::options()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
    // The metadata of the open file: there may be another one at the path by now.
    let kind = file.metadata()?;
    // A read from a folder fails with a better message.
    if kind.is_file() || kind.is_dir() {
        Ok(file)
    } else {
        Err(io::Error::other("it is not a file"))
    }
}

/// The content of the file at `path`.
///
/// # Errors
/// The file cannot be read, is no file or has more than `most` bytes.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    let read = open(path)?
        .take(most.saturating_add(1))
        .read_to_end(&mut content)?;
    if read as u64 > most {
        Err(io::Error::other("it is too large for such a file"))
    } else {
        Ok(content)
    }
}

/// Whether a file that could not be read for this reason may be readable in a moment: the process,
/// or the machine, was out of something.
pub fn is_transient(error: &io::Error) -> bool {
    const TRANSIENT: [Errno; 7] = [
        Errno::MFILE,
        Errno::NFILE,
        Errno::NOMEM,
        Errno::IO,
        Errno::AGAIN,
        Errno::STALE,
        Errno::TIMEDOUT,
    ];
    TRANSIENT
        .iter()
        .any(|transient| error.raw_os_error() == Some(transient.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn a_lack_of_descriptors_is_transient_and_a_file_that_is_not_there_is_not() {
        for (errno, expected) in [
            (Errno::MFILE, true),
            (Errno::NFILE, true),
            (Errno::NOENT, false),
            (Errno::ACCESS, false),
        ] {
            assert_eq!(is_transient(&errno.into()), expected, "{errno}");
        }
        assert!(!is_transient(&io::Error::other("it is not a file")));
    }

    #[test]
    fn nothing_but_a_file_of_bounded_size_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        let sparse = folder.path().join("sparse");
        let pipe = folder.path().join("pipe");
        let link = folder.path().join("link");
        fs::write(&file, "content").unwrap();
        assert_eq!(read(&file, 7).unwrap(), b"content");
        assert!(
            read(&file, 6)
                .unwrap_err()
                .to_string()
                .contains("too large")
        );
        // A sparse file larger than any memory: a read without a bound fails.
        File::create(&sparse).unwrap().set_len(1 << 42).unwrap();
        assert!(
            read(&sparse, 7)
                .unwrap_err()
                .to_string()
                .contains("too large")
        );
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        for no_file in [pipe, "/dev/zero".into(), "/dev/null".into()] {
            assert_eq!(
                read(&no_file, 7).unwrap_err().to_string(),
                "it is not a file",
                "{}",
                no_file.display()
            );
        }
        assert!(
            read(folder.path(), 7)
                .unwrap_err()
                .to_string()
                .contains("directory")
        );
        // A file is a file by whatever name.
        std::os::unix::fs::symlink("file", &link).unwrap();
        assert_eq!(read(&link, 7).unwrap(), b"content");
    }
}
