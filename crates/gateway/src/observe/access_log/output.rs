//! Writes lines: to a stream, a file or a socket.
//!
//! A write may wait, since only the log's own thread writes. A destination that takes nothing costs
//! lines and nothing else.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::connection::LineConnection;
use super::line_stream::{LineStream, WriteOutcome};
use super::receiver::ReceiverLookup;
use super::syslog::SyslogSender;
use tollgate_spec::access_log::LogDestination;

/// The mode of a file, for owner and group: lines are personal data.
const MODE: u32 = 0o640;

/// A destination that lines are written to.
pub enum LogOutput {
    Stream(LineStream<File>),
    File {
        path: PathBuf,
        stream: LineStream<File>,
    },
    Syslog(SyslogSender),
    Tcp(LineConnection),
}

impl LogOutput {
    /// Opens a destination.
    ///
    /// # Errors
    /// The file cannot be opened, or the process has no descriptor left.
    pub fn open(to: &LogDestination) -> io::Result<Self> {
        Ok(match to {
            LogDestination::Stdout => Self::Stream(LineStream::new(same_descriptor(io::stdout())?)),
            LogDestination::Stderr => Self::Stream(LineStream::new(same_descriptor(io::stderr())?)),
            LogDestination::File(path) => Self::File {
                path: path.clone(),
                stream: LineStream::new(open_file(path)?),
            },
            LogDestination::SyslogUnix(path) => Self::Syslog(SyslogSender::unix(path)),
            LogDestination::SyslogUdp(receiver) => {
                Self::Syslog(SyslogSender::udp(ReceiverLookup::new(receiver.clone())))
            }
            LogDestination::Tcp(receiver) => {
                Self::Tcp(LineConnection::new(ReceiverLookup::new(receiver.clone())))
            }
        })
    }

    /// Opens a file anew, and goes on with the former one where that fails.
    pub fn reopen(&mut self) {
        if let Self::File { path, stream } = self {
            match open_file(path) {
                Ok(opened) => *stream = LineStream::new(opened),
                Err(error) => {
                    tracing::error!(file = %path.display(), %error, "the access log cannot be opened anew: it goes on in the former file");
                }
            }
        }
    }

    /// Writes whole lines.
    pub fn write(&mut self, lines: &[u8]) -> WriteOutcome {
        match self {
            Self::Stream(stream) | Self::File { stream, .. } => stream.write(lines),
            Self::Syslog(sender) => sender.send(lines),
            Self::Tcp(connection) => connection.write(lines),
        }
    }
}

/// The stream without the buffer that the standard library puts before it: a write that fails
/// leaves nothing behind.
fn same_descriptor(stream: impl AsFd) -> io::Result<File> {
    stream.as_fd().try_clone_to_owned().map(File::from)
}

fn open_file(path: &Path) -> io::Result<File> {
    if fs::metadata(path).is_ok_and(|file| file.file_type().is_fifo()) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "a named pipe keeps whoever opens it until it is read",
        ));
    }
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(MODE)
        .open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_costs_lines() {
        let mut full = LogOutput::open(&LogDestination::File("/dev/full".into())).unwrap();
        let outcome = full.write(b"one\ntwo\n");
        assert_eq!(
            (outcome.lost, outcome.error.unwrap().kind()),
            (2, io::ErrorKind::StorageFull)
        );
    }

    #[test]
    fn a_file_that_cannot_be_opened_and_a_named_pipe_are_errors() {
        assert!(LogOutput::open(&LogDestination::File("/nowhere/access.log".into())).is_err());
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(
            std::process::Command::new("mkfifo")
                .arg(&pipe)
                .status()
                .unwrap()
                .success()
        );
        let error = LogOutput::open(&LogDestination::File(pipe)).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
