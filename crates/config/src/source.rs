//! The text of a file: all of it, or why not.

use std::io::{self, Read};
use std::path::Path;

use tollgate_limiter::limit::units::show_size;

use super::report::{Location, Mistakes, Report, ValueProblem};
use tollgate_wire::regular_file;

/// Bytes of a file at most. Real ones have a thousandth of it.
const MAX_BYTES: usize = 1 << 20;

/// Bytes of a file of API keys at most: about a hundred thousand of them.
const MAX_KEYS_BYTES: usize = 16 << 20;

/// How messages call standard input.
pub const STDIN: &str = "<stdin>";

/// The text of the file at `path`, which messages call `name`.
///
/// # Errors
/// When it cannot be read.
pub fn read_file(name: &str, path: &Path) -> Result<String, Mistakes> {
    text(name, MAX_BYTES, || regular_file::open(path))
}

/// The text of the file of API keys at `path`, which messages call `name`.
///
/// # Errors
/// When it cannot be read, or is larger than any such file.
pub fn read_keys(name: &str, path: &Path) -> Result<String, Mistakes> {
    let text = text(name, MAX_KEYS_BYTES, || regular_file::open(path))?;
    if text.len() > MAX_KEYS_BYTES {
        let hint = Some("is this the right file?".to_owned());
        return Err(Mistakes::unreadable(
            name,
            format!("the file is over {}", show_size(MAX_KEYS_BYTES as u64)),
            hint,
        ));
    }
    Ok(text)
}

/// The text of standard input.
///
/// # Errors
/// When it cannot be read.
pub fn read_stdin() -> Result<String, Mistakes> {
    text(STDIN, MAX_BYTES, || Ok(io::stdin().lock()))
}

/// Reports a text that is larger than any file. `None`: it is.
pub fn check_size(text: &str, start: &Location, report: &mut Report) -> Option<()> {
    if text.len() <= MAX_BYTES {
        return Some(());
    }
    let problem = ValueProblem::new(format!("the file is over {}", show_size(MAX_BYTES as u64)));
    report.mistake(start, problem.hint("is this the right file?"));
    None
}

/// The text of the file called `name`: all of it, or just more than `max` bytes.
fn text<R: Read>(
    name: &str,
    max: usize,
    open: impl FnOnce() -> io::Result<R>,
) -> Result<String, Mistakes> {
    let mut bytes = Vec::new();
    // A byte more than allowed is enough to tell, and no more is read of an endless file.
    let most = u64::try_from(max).unwrap_or(u64::MAX).saturating_add(1);
    open()
        .and_then(|file| file.take(most).read_to_end(&mut bytes))
        .map_err(|error| unreadable(name, &error))?;
    String::from_utf8(bytes).or_else(|error| {
        let bytes = error.as_bytes();
        if bytes.len() > max {
            return Ok(String::from_utf8_lossy(bytes).into_owned());
        }
        let valid = &bytes[..error.utf8_error().valid_up_to()];
        let line = 1 + valid.iter().filter(|byte| **byte == b'\n').count();
        let hint = Some("save the file as UTF-8".to_owned());
        Err(Mistakes::unreadable(
            name,
            format!("line {line} is not UTF-8"),
            hint,
        ))
    })
}

/// The mistakes of a file that cannot be read.
fn unreadable(name: &str, error: &io::Error) -> Mistakes {
    let hint = if error.kind() == io::ErrorKind::NotFound {
        Some("is the path right?".to_owned())
    } else {
        None
    };
    Mistakes::unreadable(name, format!("cannot read: {error}"), hint)
        .transient(regular_file::is_transient(error))
}
