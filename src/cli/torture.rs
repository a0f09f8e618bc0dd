//! `tollgate torture`: tests a limit from outside. `tollgate-torture` does the work.

use std::io::Write as _;
use std::process::ExitCode;

use tollgate_torture::{Arguments, command};

use super::output::print;

/// Prints the verdict. Exit code 2, as for a mistyped command line, when there is none.
pub fn run(arguments: &Arguments) -> ExitCode {
    let verdict = command::run(arguments, &mut std::io::stderr()).map_err(anyhow::Error::from);
    match verdict.and_then(|verdict| print(&verdict.text).map(|()| verdict.broken)) {
        Ok(false) => ExitCode::SUCCESS,
        Ok(true) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "tollgate: {error:#}");
            ExitCode::from(2)
        }
    }
}
