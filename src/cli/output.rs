//! The ways in which a command ends, and writing to standard output.

use std::io::Write as _;
use std::process::ExitCode;

/// The end of a command that asked for something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandOutput {
    /// Text to print; exit code 0.
    Done(String),
    /// Why the gateway refused, or could not do it; exit code 1.
    Refused(String),
}

/// A mistake in the command line that the types of its arguments could not rule out; exit code 2.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("{message}")]
pub struct UsageError {
    /// The subcommand's name.
    pub command: &'static str,
    pub message: &'static str,
}

impl CommandOutput {
    /// Writes to standard output, or to standard error.
    ///
    /// # Errors
    /// When that cannot be written to.
    pub fn write(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Done(text) => print(&text).map(|()| ExitCode::SUCCESS),
            Self::Refused(why) => {
                writeln!(std::io::stderr(), "{}", why.trim_end())?;
                Ok(ExitCode::FAILURE)
            }
        }
    }
}

/// Writes to standard output. A reader that has read enough, such as `head`, is no error.
///
/// # Errors
/// When standard output cannot be written to.
pub fn print(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        done => Ok(done?),
    }
}
