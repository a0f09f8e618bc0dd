//! `tollgate schema`: the JSON Schema of the configuration file.

use std::process::ExitCode;

use super::output::print;
use tollgate_config as config;

/// Prints the schema.
///
/// # Errors
/// When standard output cannot be written to.
pub fn run() -> anyhow::Result<ExitCode> {
    print(&format!("{:#}\n", config::schema()))?;
    Ok(ExitCode::SUCCESS)
}
