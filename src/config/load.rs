//! The way in: a path or a text, to a checked configuration or all that is wrong with it.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use tollgate_limiter::limit::units::show_size;

use super::decode::Decode;
use super::mistake::{Mistake, Mistakes, Report, Trouble};
use super::node::Place;
use super::{Config, build, env, raw, yaml};

/// Bytes of a file at most. Real ones have a thousandth of it.
const MAX_BYTES: usize = 1 << 20;

/// A configuration without mistakes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    pub config: Config,
    /// What works, but is probably not what was meant.
    pub warnings: Vec<Mistake>,
}

/// Reads and checks the file at `path`, with this process's environment.
///
/// # Errors
/// Every mistake in the file, or the one that kept it from being read.
pub fn load(path: &Path) -> Result<Loaded, Mistakes> {
    let name = path.display().to_string();
    let unreadable = |error: io::Error| {
        let hint = (error.kind() == io::ErrorKind::NotFound).then(|| "is the path right?".to_owned());
        Mistakes::unreadable(&name, format!("cannot read: {error}"), hint)
    };
    let mut bytes = Vec::new();
    // One more than allowed: enough to tell, and no more of an endless file.
    let most = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes)).map_err(unreadable)?;
    match str::from_utf8(&bytes) {
        Ok(text) => parse(&name, text, &|variable| std::env::var(variable).ok()),
        Err(_) if bytes.len() > MAX_BYTES => parse(&name, &String::from_utf8_lossy(&bytes), &|_| None),
        Err(error) => {
            let line = 1 + bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count();
            let hint = Some("save the file as UTF-8".to_owned());
            Err(Mistakes::unreadable(&name, format!("line {line} is not UTF-8"), hint))
        }
    }
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

fn read(text: &str, env: env::Lookup<'_>, report: &mut Report) -> Option<Config> {
    if text.len() > MAX_BYTES {
        let trouble = Trouble::new(format!("the file is over {}", show_size(MAX_BYTES as u64)));
        report.mistake(&Place::root(1, 1), trouble.hint("is this the right file?"));
        return None;
    }
    let mut root = yaml::parse(text, report)?;
    env::substitute(&mut root, env, report);
    let file = raw::File::decode(&root, report)?;
    build::config(&file, report)
}
