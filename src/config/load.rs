//! The way in: a path, standard input or a text, to a checked configuration or all that is wrong with it.

use std::net::SocketAddr;
use std::path::Path;

use super::file::config::RawConfig;
use super::include::{self, IncludedTree};
use super::report::{Mistake, Mistakes, Report};
use super::settings::Config;
use super::source::{self, STDIN};
use super::watch::FileVersion;
use super::yaml::decode::Decode;
use super::yaml::variables::VariableLookup;
use super::{check, defaults};

/// A configuration without mistakes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    pub config: Config,
    /// Settings that work, but are probably not meant.
    pub warnings: Vec<Mistake>,
}

/// A configuration, or all that is wrong with it, and the files and folders that it was read from.
pub struct Reading {
    pub result: Result<Loaded, Mistakes>,
    pub files: Vec<FileVersion>,
}

/// Reads and checks the file at `path` and those that it includes, with this process's environment.
///
/// # Errors
/// Every mistake in the files, or the one that kept them from being read.
pub fn load(path: &Path) -> Result<Loaded, Mistakes> {
    read(path).result
}

/// Like [`load`], with all files that were read, whatever came of it.
pub fn read(path: &Path) -> Reading {
    let name = path.display().to_string();
    let mut files = vec![FileVersion::of(path)];
    let result = source::of_file(&name, path).and_then(|text| checked(&name, &text, &variable, &mut files));
    Reading { result, files }
}

/// Reads and checks standard input, with this process's environment.
///
/// # Errors
/// Every mistake in it, or the one that kept it from being read.
pub fn load_stdin() -> Result<Loaded, Mistakes> {
    parse(STDIN, &source::of_stdin()?, &variable)
}

/// Where the admin server is that the file at `path` names; `None`: it is off. Mistakes elsewhere in the file do not
/// matter: a gateway beside a file that it refused goes on with what it read before.
///
/// # Errors
/// When the file cannot be read, or does not say where the admin server is.
pub fn load_admin(path: &Path) -> Result<Option<SocketAddr>, Mistakes> {
    let name = path.display().to_string();
    let text = source::of_file(&name, path)?;
    let mut report = Report::new(&name);
    let admin = tree(&text, &variable, &mut report, &mut Vec::new()).and_then(|(file, _)| check::admin(&file));
    admin.map_or_else(|| report.close(None).map(|(admin, _)| admin), Ok)
}

/// The value of an environment variable of this process.
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Checks `text`, as read from a file called `file_name`. `env` looks environment variables up.
///
/// # Errors
/// Every mistake in the text, and in the files that it includes.
pub fn parse(file_name: &str, text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Loaded, Mistakes> {
    checked(file_name, text, env, &mut Vec::new())
}

fn checked(
    file_name: &str,
    text: &str,
    env: VariableLookup<'_>,
    files: &mut Vec<FileVersion>,
) -> Result<Loaded, Mistakes> {
    let mut report = Report::new(file_name);
    let config = match tree(text, env, &mut report, files) {
        Some((file, true)) => check::config(&file, &mut report),
        // A name that is missing may stand in the part that could not be read.
        Some((_, false)) | None => None,
    };
    report.close(config).map(|(config, warnings)| Loaded { config, warnings })
}

/// The mirror of the file and of those that it includes, and whether all of them could be read.
fn tree(
    text: &str,
    env: VariableLookup<'_>,
    report: &mut Report,
    files: &mut Vec<FileVersion>,
) -> Option<(RawConfig, bool)> {
    let IncludedTree { mut root, is_whole } = include::tree(text, (env, false), report, files)?;
    defaults::apply(&mut root, report);
    Some((RawConfig::decode(&root, report)?, is_whole))
}
