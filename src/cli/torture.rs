//! `tollgate torture`: tests a limit from outside. `tollgate-judge` does the work.

use std::io::Write as _;
use std::process::ExitCode;

use tollgate_judge::{Arguments, command};

use super::output::print;

/// Prints the verdict. Exit code 2, as for a mistyped command line, when there is none.
pub fn run(arguments: &Arguments) -> ExitCode {
    match is_broken(arguments) {
        Ok(false) => ExitCode::SUCCESS,
        Ok(true) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "tollgate: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Whether the promise was broken, as the verdict says that was printed.
fn is_broken(arguments: &Arguments) -> anyhow::Result<bool> {
    let verdict = command::run(arguments, &mut std::io::stderr())?;
    print(&verdict.text)?;
    Ok(verdict.broken)
}
