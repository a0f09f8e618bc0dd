//! The `tollgate` program: reads the command line and does what it says.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use tollgate::app;
use tollgate::cli::ask::Answer;
use tollgate::cli::{Cli, Command, Run, bucket, explain};
use tollgate::config::{self, Mistakes};
use tollgate::telemetry::{self, LogFormat};
use tollgate_torture as torture;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Run(run) => start(&run),
        Command::Check { file } => check(&file),
        Command::Explain(args) => explain::run(&args).and_then(answer),
        Command::Bucket(args) => bucket::run(&args).and_then(answer),
        Command::Torture(torture) => return judge(&torture),
        Command::Schema => say(&format!("{:#}\n", config::schema())).map(|()| ExitCode::SUCCESS),
    };
    done.unwrap_or_else(|error| {
        let _ = match error.downcast_ref::<Mistakes>() {
            Some(mistakes) => writeln!(std::io::stderr(), "{mistakes}"),
            None => writeln!(std::io::stderr(), "tollgate: {error:#}"),
        };
        ExitCode::FAILURE
    })
}

/// A machine that reads the log reads of the failure there; a person gets it as `check` would tell it.
fn start(run: &Run) -> anyhow::Result<ExitCode> {
    telemetry::install(run.log_format, &run.log)?;
    app::run(&run.config).or_else(|error| {
        match (run.log_format, error.downcast_ref::<Mistakes>()) {
            (LogFormat::Text, _) => return Err(error),
            (LogFormat::Json, Some(mistakes)) => mistakes.log(),
            (LogFormat::Json, None) => tracing::error!("{error:#}"),
        }
        Ok(ExitCode::FAILURE)
    })
}

fn check(file: &Path) -> anyhow::Result<ExitCode> {
    let loaded = config::load(file)?;
    for warning in &loaded.warnings {
        say(&format!("warning: {warning}\n"))?;
    }
    say(&format!("{}: OK, {}\n", file.display(), loaded.config.summary()))?;
    Ok(ExitCode::SUCCESS)
}

/// Exit code 2, as for a mistyped command line, when there is no verdict.
fn judge(arguments: &torture::Arguments) -> ExitCode {
    let judged = torture::command::run(arguments, &mut std::io::stderr());
    let said = judged.map_err(anyhow::Error::from).and_then(|verdict| say(&verdict.text).map(|()| verdict.broken));
    match said {
        Ok(false) => ExitCode::SUCCESS,
        Ok(true) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "tollgate: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn answer(answer: Answer) -> anyhow::Result<ExitCode> {
    match answer {
        Answer::Done(text) => say(&text).map(|()| ExitCode::SUCCESS),
        Answer::Refused(why) => {
            writeln!(std::io::stderr(), "{}", why.trim_end())?;
            Ok(ExitCode::FAILURE)
        }
    }
}

fn say(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        // Whoever reads has read enough, as `head` does.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        done => Ok(done?),
    }
}
