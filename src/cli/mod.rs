//! The command line: one file for each subcommand, with its arguments and what it does.
//!
//! Beside them, `admin_client` asks the admin port of a running gateway, `arguments` reads what
//! several commands take, `output` has the ways in which a command ends, and `text` shows for
//! people what an admin port says in JSON; `people` has the commands about accounts.

mod admin_client;
mod arguments;
mod bucket;
mod check;
mod explain;
mod health;
mod key;
mod output;
#[cfg(feature = "team")]
mod people;
#[cfg(feature = "team")]
mod policy;
mod run;
mod schema;
mod text;
mod torture;

use std::io::Write as _;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, Parser, Subcommand};
use output::{CommandOutput, UsageError, plain};

use tollgate_config::Mistakes;

/// An HTTP gateway whose rate limit is a promise.
///
/// Tollgate forwards HTTP requests to upstreams and holds each route to its limits: for every key
/// and every window of t seconds, it admits at most burst + rate x t, across the whole fleet, with
/// Redis as the shared memory, and each node its share of that while Redis is away.
#[derive(Debug, Parser)]
#[command(
    name = "tollgate",
    version,
    propagate_version = true,
    arg_required_else_help = true
)]
#[command(after_help = "\
First steps:
  tollgate check routes.yaml            say what is wrong with a file, all of it at once
  tollgate run --config routes.yaml     start the gateway
  curl -i localhost:8080/               send a request through it
  curl localhost:9901/metrics           see what it counted
  tollgate explain localhost/hello      say what becomes of a request, and why
  tollgate bucket peek per-client --client-ip 127.0.0.1
                                        say how much is left

A change of the file is taken over while running, as is a SIGHUP; a file with mistakes changes nothing.
SIGTERM stops taking connections and lets requests in flight end.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start the gateway.
    Run(run::RunArgs),
    Check(check::CheckArgs),
    Explain(explain::ExplainArgs),
    Bucket(bucket::BucketArgs),
    #[cfg(feature = "team")]
    Policy(policy::PolicyArgs),
    Health(health::HealthArgs),
    Key(key::KeyArgs),
    #[cfg(feature = "team")]
    Account(people::account::AccountArgs),
    #[cfg(feature = "team")]
    Token(people::token::TokenArgs),
    /// Print the JSON Schema of the configuration file, for editors.
    Schema,
    /// Hold a limit to its promise: drive a fleet, or any gateways, flat out and judge every window
    /// of what they admit.
    ///
    /// Without --target, nodes are started in this process, and scenarios make their lives hard.
    /// With --target, gateways that run already are driven over HTTP, whatever they are: 2xx counts
    /// as admitted, 429 and 503 as denied. Exit code 0: the promise was kept; 1: it was broken; 2:
    /// there is no verdict.
    Torture(tollgate_judge::Arguments),
}

/// Does what the command line of this process says, and writes why not to standard error.
pub fn main() -> ExitCode {
    let cli = Cli::try_parse().unwrap_or_else(|error| advise(error).exit());
    let result = match cli.command {
        Command::Run(args) => run::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Explain(args) => explain::run(&args).and_then(CommandOutput::write),
        Command::Bucket(args) => bucket::run(&args).and_then(CommandOutput::write),
        #[cfg(feature = "team")]
        Command::Policy(args) => policy::run(&args).and_then(CommandOutput::write),
        Command::Health(args) => health::run(&args).and_then(CommandOutput::write),
        Command::Key(args) => key::run(&args),
        #[cfg(feature = "team")]
        Command::Account(args) => people::account::run(args).and_then(CommandOutput::write),
        #[cfg(feature = "team")]
        Command::Token(args) => people::token::run(args).and_then(CommandOutput::write),
        Command::Schema => schema::run(),
        Command::Torture(args) => return torture::run(&args),
    };
    result.unwrap_or_else(|error| {
        if let Some(usage) = error.downcast_ref::<UsageError>() {
            exit_over(usage);
        }
        let _ = match error.downcast_ref::<Mistakes>() {
            Some(mistakes) => writeln!(std::io::stderr(), "{}", plain(&mistakes.to_string())),
            None => writeln!(
                std::io::stderr(),
                "tollgate: {}",
                plain(&format!("{error:#}"))
            ),
        };
        ExitCode::FAILURE
    })
}

/// Adds how a command takes the file, where it was written as another command takes it.
fn advise(mut error: clap::Error) -> clap::Error {
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    let advice = if unknown.ends_with(".yaml") || unknown.ends_with(".yml") {
        format!("this command takes the file as an option: --config {unknown}")
    } else if ["-c", "--config"].contains(&unknown.as_str()) {
        "this command takes the file without an option: tollgate check FILE".to_owned()
    } else {
        return error;
    };
    let advice = ContextValue::StyledStrs(vec![advice.into()]);
    error.insert(ContextKind::Suggested, advice);
    error
}

/// Ends the process as clap does over a mistake in the command line.
fn exit_over(usage: &UsageError) -> ! {
    let mut cli = Cli::command();
    cli.build();
    let error = match cli.find_subcommand_mut(usage.command) {
        Some(command) => command.error(ErrorKind::ArgumentConflict, usage.message),
        None => cli.error(ErrorKind::ArgumentConflict, usage.message),
    };
    error.exit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    fn told(line: &str) -> String {
        let error = Cli::try_parse_from(line.split(' ')).unwrap_err();
        advise(error).to_string()
    }

    #[test]
    fn a_file_in_the_wrong_place_is_told_the_right_one() {
        let run = told("tollgate run first.yaml");
        assert!(run.contains("--config first.yaml"), "{run}");
        let check = told("tollgate check -c first.yaml");
        assert!(check.contains("tollgate check FILE"), "{check}");
        let long = told("tollgate check --config=first.yaml");
        assert!(long.contains("tollgate check FILE"), "{long}");
        let other = told("tollgate run --confg first.yaml");
        assert!(other.contains("--config"), "{other}");
    }
}
