//! The way in of files of credentials, API keys, users and keys of issuers: to what is in them, or
//! to all that is wrong with it.

use std::path::Path;
use std::sync::Arc;

use super::report::{Location, Mistakes, Report, ValueProblem};
use super::section::authenticator::key_file::{ApiKeyEntries, ClientSpace, RawApiKey};
use super::section::authenticator::user_file;
use super::yaml::decode::Decode;
use super::{source, yaml};
use tollgate_identity::api_key::ApiKeyTable;
use tollgate_identity::jwt::key_set::{KeySet, KeySetError, KeySetOrigin};
use tollgate_identity::password::user_table::UserTable;

/// Reads and checks the file at `path`, whose clients each of these `authenticators` has. It has no
/// variables.
///
/// # Errors
/// Every mistake in it, or the one that kept it from being read.
pub fn load_api_keys(path: &Path, authenticators: &[&str]) -> Result<Vec<ApiKeyTable>, Mistakes> {
    let name = path.display().to_string();
    let text = source::read_keys(&name, path)?;
    let mut report = Report::new(&name);
    let tables = tables(&Arc::from(name), &text, authenticators, &mut report);
    report.close(tables).map(|(tables, _)| tables)
}

/// Reads and checks the file of users at `path`, which an `authenticator` has.
///
/// # Errors
/// Every mistake in it, or the one that kept it from being read.
pub fn load_users(path: &Path, authenticator: &str) -> Result<UserTable, Mistakes> {
    let name = path.display().to_string();
    let text = source::read_keys(&name, path)?;
    let mut report = Report::new(&name);
    let table = user_file::table(&Arc::from(name), &text, authenticator, &mut report);
    report.close(table).map(|(table, _)| table)
}

/// Reads and checks the JSON Web Key Set at `path`.
///
/// # Errors
/// When it cannot be read, or has no key of use.
pub fn load_key_set(path: &Path) -> Result<KeySet, Mistakes> {
    let name = path.display().to_string();
    let text = source::read_keys(&name, path)?;
    KeySet::read(text.as_bytes(), KeySetOrigin::File)
        .map_err(|error: KeySetError| Mistakes::unreadable(&name, error.to_string(), None))
}

fn tables(
    file: &Arc<str>,
    text: &str,
    authenticators: &[&str],
    report: &mut Report,
) -> Option<Vec<ApiKeyTable>> {
    if text.trim().is_empty() {
        // An empty file is likely one that is being written, and not meant to take all keys away.
        let problem = ValueProblem::new("the file is empty").hint("write [] for no keys");
        report.mistake(&Location::root(file, (1, 1)), problem);
        return None;
    }
    let spaces: Vec<_> = authenticators
        .iter()
        .map(|name| ClientSpace::Authenticator(name))
        .collect();
    let mut entries = ApiKeyEntries::new(&spaces);
    let root = yaml::parse::items(
        file,
        text,
        &mut |node, report| entries.add(RawApiKey::decode(&node, report).as_ref(), report),
        report,
    )?;
    // A list is empty by now, and anything else is a mistake.
    Vec::<RawApiKey>::decode(&root, report)?;
    entries.into_tables()
}
