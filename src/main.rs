//! The `tollgate` program: reads the command line and does what it says.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use tollgate::cli::ask::Answer;
use tollgate::cli::{Cli, Command, Run, bucket, explain};
use tollgate::{app, config, telemetry};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Run(run) => start(&run),
        Command::Check { file } => check(&file),
        Command::Explain(args) => explain::run(&args).and_then(answer),
        Command::Bucket(args) => bucket::run(&args).and_then(answer),
        Command::Schema => say(&format!("{:#}\n", config::schema())).map(|()| ExitCode::SUCCESS),
    };
    done.unwrap_or_else(|error| {
        let _ = writeln!(std::io::stderr(), "tollgate: {error:#}");
        ExitCode::FAILURE
    })
}

fn start(run: &Run) -> anyhow::Result<ExitCode> {
    telemetry::install(run.log_format, &run.log)?;
    app::run(&run.config)
}

fn check(file: &Path) -> anyhow::Result<ExitCode> {
    match config::load(file) {
        Ok(loaded) => {
            for warning in &loaded.warnings {
                say(&format!("warning: {warning}\n"))?;
            }
            say(&format!("{}: OK, {}\n", file.display(), loaded.config.summary()))?;
            Ok(ExitCode::SUCCESS)
        }
        Err(mistakes) => {
            write!(std::io::stderr(), "{mistakes}")?;
            Ok(ExitCode::FAILURE)
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
