//! The ways in which a command ends, and writing to standard output.

use std::borrow::Cow;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use tollgate_spec::plain_text::is_hidden;

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

impl UsageError {
    pub fn new(command: &'static str, message: &'static str) -> Self {
        Self { command, message }
    }
}

impl CommandOutput {
    /// Writes to standard output, or to standard error.
    ///
    /// # Errors
    /// When that cannot be written to.
    pub fn write(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Done(text) => {
                print(&text)?;
                Ok(ExitCode::SUCCESS)
            }
            Self::Refused(why) => {
                writeln!(std::io::stderr(), "{}", plain(why.trim_end()))?;
                Ok(ExitCode::FAILURE)
            }
        }
    }
}

/// `text` as terminals may show it. Terminals obey control characters and characters that turn a
/// line around, so each is written as its escape, but for line breaks and tabs. Texts of others,
/// such as the keys of clients, may have some.
pub fn plain(text: &str) -> Cow<'_, str> {
    if !text.contains(is_obeyed) {
        return text.into();
    }
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        if is_obeyed(c) {
            plain.extend(c.escape_unicode())
        } else {
            plain.push(c)
        }
    }
    plain.into()
}

/// Whether a terminal would do something at this character, save to go on in the text.
fn is_obeyed(c: char) -> bool {
    is_hidden(c) && c != '\n' && c != '\t'
}

/// Writes to standard output: to a file or a program as it is, and to a terminal without control
/// characters. A reader that has read enough, such as `head`, is no error.
///
/// # Errors
/// When standard output cannot be written to.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut output = std::io::stdout();
    let text = if output.is_terminal() {
        plain(text)
    } else {
        text.into()
    };
    match output.write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        done => Ok(done?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_obeys_no_text_of_others() {
        assert_eq!(plain("a\tb\nü ✓"), "a\tb\nü ✓");
        assert_eq!(
            plain("\u{1b}]0;x\u{7}\r\u{9b}2J\u{202e}"),
            "\\u{1b}]0;x\\u{7}\\u{d}\\u{9b}2J\\u{202e}"
        );
    }
}
