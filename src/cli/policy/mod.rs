//! `tollgate policy`: moves policies between a file and the database of a running gateway, and goes
//! through their history. `key` makes API keys and takes them away, `port` has what all commands
//! share.

mod key;
mod port;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use bytes::Bytes;
use clap::{Args, Subcommand};
use http::Method;
use http::header::ETAG;
use tollgate_policies::model::DraftProblem;

use self::key::PolicyKeyCommand;
use self::port::{PolicyChangeArgs, PortArgs};
use super::admin_client::{AdminCall, target};
use super::arguments::{QueryPairs, add_flag, add_value};
use super::output::CommandOutput;
use super::text::policies::{show_changes, show_history, show_object_history, show_outcome};
use tollgate_config::{PolicySet, STDIN, read_stdin};
use tollgate_team::views::policies::{RevisionChangesView, RevisionsView};

/// Move policies between a file and the database of a running gateway, and go through their
/// history.
///
/// Asks the admin port of a gateway that has a database of policies. Exit code 0: done; 1: refused,
/// or not reached; 2: the command line has a mistake.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tollgate policy export > policies.yaml
  tollgate policy check policies.yaml
  tollgate policy import policies.yaml --reason 'ticket 4711'
  tollgate policy history
  tollgate policy diff 11 12
  tollgate policy promote shop per-client --reason 'good for a week'
  tollgate policy key new shop mobile --client ada --reason 'the app of ada'
  tollgate policy undo 12 --reason 'denies too much'")]
pub struct PolicyArgs {
    #[command(subcommand)]
    command: PolicyCommand,
}

#[derive(Debug, Subcommand)]
enum PolicyCommand {
    /// Print all policies as one document.
    Export {
        /// The revision to print; the newest if left out.
        #[arg(long, value_name = "REVISION")]
        at: Option<u64>,
        #[command(flatten)]
        port: PortArgs,
    },
    /// Say what importing a file would change, or what is wrong with it. Changes nothing.
    Check {
        #[command(flatten)]
        document: DocumentArgs,
        #[command(flatten)]
        port: PortArgs,
    },
    /// Make the policies what a file says.
    Import {
        #[command(flatten)]
        document: DocumentArgs,
        #[command(flatten)]
        change: PolicyChangeArgs,
        #[command(flatten)]
        port: PortArgs,
    },
    /// Say what differs between two revisions.
    Diff {
        /// The older one; the last but one if left out.
        from: Option<u64>,
        /// The newer one; the newest if left out.
        to: Option<u64>,
        #[command(flatten)]
        port: PortArgs,
    },
    /// Say what was changed, when, by whom and why: of everything, or of one object.
    History {
        /// An object: APPLICATION/KIND/NAME, such as shop/strategies/per-client.
        object: Option<String>,
        /// Only what was before this revision.
        #[arg(long, value_name = "REVISION")]
        before: Option<u64>,
        /// How many revisions.
        #[arg(long, value_name = "N", default_value_t = 20)]
        limit: u32,
        #[command(flatten)]
        port: PortArgs,
    },
    /// Make an API key of an application, or take one away.
    Key {
        #[command(subcommand)]
        command: PolicyKeyCommand,
    },
    /// Make the policies what they were at a revision.
    Revert {
        revision: u64,
        #[command(flatten)]
        change: PolicyChangeArgs,
        #[command(flatten)]
        port: PortArgs,
    },
    /// Make the candidate of a strategy its limit.
    Promote {
        #[command(flatten)]
        strategy: StrategyArgs,
        #[command(flatten)]
        change: PolicyChangeArgs,
        #[command(flatten)]
        port: PortArgs,
    },
    /// Take the candidate of a strategy away.
    Abort {
        #[command(flatten)]
        strategy: StrategyArgs,
        #[command(flatten)]
        change: PolicyChangeArgs,
        #[command(flatten)]
        port: PortArgs,
    },
    /// Take back what one revision changed, and nothing else.
    Undo {
        revision: u64,
        #[command(flatten)]
        change: PolicyChangeArgs,
        #[command(flatten)]
        port: PortArgs,
    },
}

#[derive(Debug, Args)]
struct DocumentArgs {
    /// The document, as `export` prints it: YAML or JSON; - is standard input.
    file: PathBuf,
    /// Take away what the document does not have.
    #[arg(long)]
    replace: bool,
    /// Change what differs from the export that the document was made from, and be refused if
    /// somebody else has changed that since. The first line of an export says its revision.
    #[arg(long, value_name = "REVISION")]
    upon: Option<String>,
}

#[derive(Debug, Args)]
struct StrategyArgs {
    application: String,
    strategy: String,
}

/// Does what the command line says.
///
/// # Errors
/// When the admin port cannot be asked, or the file cannot be read.
pub fn run(args: &PolicyArgs) -> anyhow::Result<CommandOutput> {
    match &args.command {
        PolicyCommand::Export { at, port } => export(*at, port),
        PolicyCommand::Check { document, port } => {
            let mut query = QueryPairs::new();
            add_flag(&mut query, "dry_run", true);
            import(document, port, query)
        }
        PolicyCommand::Import {
            document,
            change,
            port,
        } => import(document, port, change.query()),
        PolicyCommand::Diff { from, to, port } => diff(*from, *to, port),
        PolicyCommand::History {
            object: None,
            before,
            limit,
            port,
        } => port.get(
            &target(&["policies", "revisions"], &page(*before, *limit)),
            show_history,
        ),
        PolicyCommand::History {
            object: Some(object),
            before,
            limit,
            port,
        } => {
            let path: Vec<_> = object.splitn(3, '/').collect();
            let [application, kind, name] = path[..] else {
                return Ok(CommandOutput::Refused(format!(
                    "\"{object}\" names no object: write APPLICATION/KIND/NAME, such as shop/strategies/per-client"
                )));
            };
            let path = [
                "policies",
                "applications",
                application,
                kind,
                name,
                "history",
            ];
            port.get(
                &target(&path, &page(*before, *limit)),
                |history: &Vec<_>| show_object_history(history),
            )
        }
        PolicyCommand::Key { command } => key::run(command),
        PolicyCommand::Revert {
            revision,
            change,
            port,
        } => post(
            &["revisions", &revision.to_string(), "revert"],
            change,
            port,
        ),
        PolicyCommand::Promote {
            strategy,
            change,
            port,
        } => post(&strategy.path("promote"), change, port),
        PolicyCommand::Abort {
            strategy,
            change,
            port,
        } => post(&strategy.path("abort"), change, port),
        PolicyCommand::Undo {
            revision,
            change,
            port,
        } => post(&["revisions", &revision.to_string(), "undo"], change, port),
    }
}

fn export(at: Option<u64>, port: &PortArgs) -> anyhow::Result<CommandOutput> {
    let mut query = QueryPairs::new();
    add_value(&mut query, "at", at.map(|at| at.to_string()));
    let call = PortArgs::call(Method::GET, target(&["policies"], &query));
    port.admin.port()?.call_for(&call, |answer| {
        let body = answer.body();
        if port.is_json() {
            return Ok(String::from_utf8(body.to_vec())?);
        }
        let etag = answer
            .headers()
            .get(ETAG)
            .context("the document has no ETag")?
            .to_str()?
            .trim_matches('"');
        let document =
            PolicySet::of_json("the document", &serde_json::from_slice(body)?)?.to_yaml();
        Ok(format!(
            "# import --upon {etag} tells of what others change meanwhile\n{document}"
        ))
    })
}

fn import(
    document: &DocumentArgs,
    port: &PortArgs,
    mut query: QueryPairs,
) -> anyhow::Result<CommandOutput> {
    let policies = if document.file == Path::new("-") {
        PolicySet::parse(STDIN, &read_stdin()?)?
    } else {
        PolicySet::load(&document.file)?
    };
    let mode = if document.replace { "replace" } else { "merge" };
    add_value(&mut query, "mode", Some(mode.to_owned()));
    add_value(&mut query, "upon", document.upon.clone());
    let call = AdminCall {
        body: Bytes::from(policies.to_json().to_string()),
        ..PortArgs::call(Method::POST, target(&["policies"], &query))
    };
    change(call, port)
}

/// Sends a change of policies. A change that leaves everything as it is counts as done, as a trial
/// of it would say, and not as refused.
fn change(call: AdminCall<'_>, port: &PortArgs) -> anyhow::Result<CommandOutput> {
    match port.change(call, |body| port.show(body, show_outcome))? {
        CommandOutput::Refused(why) if changes_nothing(&why) => {
            let nothing = RevisionChangesView {
                revision: None,
                changes: Vec::new(),
            };
            let body = serde_json::to_string_pretty(&nothing)? + "\n";
            let text = port.show(body.as_bytes(), show_outcome)?;
            Ok(CommandOutput::Done(text))
        }
        answer => Ok(answer),
    }
}

/// Whether a change was refused because it leaves everything as it is.
fn changes_nothing(why: &str) -> bool {
    why == DraftProblem::NoEdits.to_string() || why == DraftProblem::NoChange.to_string()
}

fn diff(from: Option<u64>, to: Option<u64>, port: &PortArgs) -> anyhow::Result<CommandOutput> {
    let Some(from) = from else {
        let newest = target(&["policies", "revisions"], &page(None, 1));
        let call = PortArgs::call(Method::GET, newest);
        let mut last = 0;
        let output = port.admin.port()?.call(&call, |body| {
            let page: RevisionsView = serde_json::from_slice(body)?;
            if let Some(newest) = page.revisions.first() {
                last = newest.revision;
            }
            Ok(String::new())
        })?;
        return match output {
            CommandOutput::Done(_) if last > 0 => diff(Some(last - 1), Some(last), port),
            CommandOutput::Done(_) => {
                Ok(CommandOutput::Done("there is no revision yet\n".to_owned()))
            }
            refused => Ok(refused),
        };
    };
    let mut query = QueryPairs::new();
    add_value(&mut query, "from", Some(from.to_string()));
    add_value(&mut query, "to", to.map(|to| to.to_string()));
    port.get(
        &target(&["policies", "diff"], &query),
        |changes: &Vec<_>| show_changes(changes),
    )
}

/// Asks for a change that needs no more than its path.
fn post(
    path: &[&str],
    change: &PolicyChangeArgs,
    port: &PortArgs,
) -> anyhow::Result<CommandOutput> {
    let path = [&["policies"], path].concat();
    let call = PortArgs::call(Method::POST, target(&path, &change.query()));
    self::change(call, port)
}

fn page(before: Option<u64>, limit: u32) -> QueryPairs {
    let mut query = QueryPairs::new();
    add_value(
        &mut query,
        "before",
        before.map(|before| before.to_string()),
    );
    add_value(&mut query, "limit", Some(limit.to_string()));
    query
}

impl StrategyArgs {
    fn path<'a>(&'a self, end: &'a str) -> [&'a str; 5] {
        [
            "applications",
            &self.application,
            "strategies",
            &self.strategy,
            end,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::admin_client::show_problem;

    #[test]
    fn a_change_that_leaves_everything_as_it_is_is_no_mistake() {
        for (problem, expected) in [
            (DraftProblem::NoEdits, true),
            (DraftProblem::NoChange, true),
            (DraftProblem::NoReason, false),
            (DraftProblem::LargeDraft, false),
        ] {
            let refusal = show_problem(&tollgate_team::changes::refusal::draft_problem(&problem));
            assert_eq!(changes_nothing(&refusal), expected, "{refusal}");
        }
    }
}
