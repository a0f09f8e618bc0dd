//! The way in: a path, standard input or a text, to a checked configuration or all that is wrong with it.

use std::fs::File;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::Path;

use tollgate_limiter::limit::units::show_size;

use super::file::config::RawConfig;
use super::report::{Location, Mistake, Mistakes, Report, ValueProblem};
use super::settings::Config;
use super::yaml::decode::Decode;
use super::yaml::variables::{self, VariableLookup};
use super::{check, yaml};

/// Bytes of a file at most. Real ones have a thousandth of it.
const MAX_BYTES: usize = 1 << 20;

/// How messages call standard input.
pub const STDIN: &str = "<stdin>";

/// A configuration without mistakes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    pub config: Config,
    /// Settings that work, but are probably not meant.
    pub warnings: Vec<Mistake>,
}

/// Reads and checks the file at `path`, with this process's environment.
///
/// # Errors
/// Every mistake in the file, or the one that kept it from being read.
pub fn load(path: &Path) -> Result<Loaded, Mistakes> {
    let name = path.display().to_string();
    let text = text(&name, || File::open(path))?;
    parse(&name, &text, &variable)
}

/// Reads and checks standard input, with this process's environment.
///
/// # Errors
/// Every mistake in it, or the one that kept it from being read.
pub fn load_stdin() -> Result<Loaded, Mistakes> {
    let text = text(STDIN, || Ok(io::stdin().lock()))?;
    parse(STDIN, &text, &variable)
}

/// Where the admin server is that the file at `path` names; `None`: it is off. Mistakes elsewhere in the file do not
/// matter: a gateway beside a file that it refused goes on with what it read before.
///
/// # Errors
/// When the file cannot be read, or does not say where the admin server is.
pub fn load_admin(path: &Path) -> Result<Option<SocketAddr>, Mistakes> {
    let name = path.display().to_string();
    let text = text(&name, || File::open(path))?;
    let mut report = Report::new(&name);
    let admin = tree(&text, &variable, &mut report).and_then(|file| check::admin(&file));
    admin.map_or_else(|| report.close(None).map(|(admin, _)| admin), Ok)
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The text of the file called `name`: all of it, or just too much.
fn text<R: Read>(name: &str, open: impl FnOnce() -> io::Result<R>) -> Result<String, Mistakes> {
    let unreadable = |error: io::Error| {
        let hint = (error.kind() == io::ErrorKind::NotFound).then(|| "is the path right?".to_owned());
        Mistakes::unreadable(name, format!("cannot read: {error}"), hint)
    };
    let mut bytes = Vec::new();
    // Reads a byte more than allowed: enough to tell, and no more of an endless file.
    let most = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    open().and_then(|file| file.take(most).read_to_end(&mut bytes)).map_err(unreadable)?;
    String::from_utf8(bytes).or_else(|error| {
        let bytes = error.as_bytes();
        if bytes.len() > MAX_BYTES {
            return Ok(String::from_utf8_lossy(bytes).into_owned());
        }
        let valid = &bytes[..error.utf8_error().valid_up_to()];
        let line = 1 + valid.iter().filter(|byte| **byte == b'\n').count();
        let hint = Some("save the file as UTF-8".to_owned());
        Err(Mistakes::unreadable(name, format!("line {line} is not UTF-8"), hint))
    })
}

/// Checks `text`, as read from a file called `file_name`. `env` looks environment variables up.
///
/// # Errors
/// Every mistake in the text.
pub fn parse(file_name: &str, text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Loaded, Mistakes> {
    let mut report = Report::new(file_name);
    let config = read(text, env, &mut report);
    report.close(config).map(|(config, warnings)| Loaded { config, warnings })
}

fn read(text: &str, env: VariableLookup<'_>, report: &mut Report) -> Option<Config> {
    let file = tree(text, env, report)?;
    check::config(&file, report)
}

fn tree(text: &str, env: VariableLookup<'_>, report: &mut Report) -> Option<RawConfig> {
    if text.len() > MAX_BYTES {
        let problem = ValueProblem::new(format!("the file is over {}", show_size(MAX_BYTES as u64)));
        report.mistake(&Location::root(1, 1), problem.hint("is this the right file?"));
        return None;
    }
    let mut root = yaml::parse::tree(text, report)?;
    variables::substitute(&mut root, env, report);
    RawConfig::decode(&root, report)
}
