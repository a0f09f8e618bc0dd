//! `tollgate check`: says what is wrong with configuration files.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use super::output::{UsageError, print};
use crate::app::files;
use tollgate_config::{self as config, Loaded, Mistake, Mistakes, PolicySet};

/// Say what is wrong with configuration files, all of it at once.
///
/// Prints each mistake with file, line, column, YAML path and a hint. Exit code 0: the files are
/// fine, perhaps with warnings; 1: one is not, or has a warning with --strict; 2: the command line
/// has a mistake.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tollgate check
  tollgate check edge.yaml sidecar.yaml
  tollgate check --print edge.yaml
  tollgate check --policies policies.yaml edge.yaml
  tollgate check --strict --without-files deploy/*/routes.yaml
  kubectl get configmap tollgate -o jsonpath='{.data.routes\\.yaml}' | tollgate check -
  tollgate check --json | jq -r '.mistakes[] | \"\\(.file):\\(.line): \\(.message)\"'")]
pub struct CheckArgs {
    /// The files to check; - is standard input.
    #[arg(
        value_name = "FILE",
        default_value = "routes.yaml",
        env = "TOLLGATE_CONFIG"
    )]
    files: Vec<PathBuf>,
    /// Print one JSON object with all mistakes and warnings.
    #[arg(long)]
    json: bool,
    /// Print a file in one piece, with included files, defaults and aliases in their places.
    #[arg(long, conflicts_with = "json")]
    print: bool,
    /// Refuse files with warnings, too.
    #[arg(long, conflicts_with = "print")]
    strict: bool,
    /// Leave out the certificates, credentials and endpoints that a file names by their paths:
    /// where it is checked, they may be absent.
    #[arg(long, conflicts_with = "print")]
    without_files: bool,
    /// Lay this policy document over each file, and check both together.
    #[arg(long, value_name = "FILE", conflicts_with = "print")]
    policies: Option<PathBuf>,
}

/// The object that `--json` prints.
#[derive(Default, Serialize)]
struct CheckReport {
    /// No file has a mistake, nor a warning with `--strict`.
    ok: bool,
    mistakes: Vec<Mistake>,
    warnings: Vec<Mistake>,
}

/// Does what the command line says.
///
/// # Errors
/// When the output cannot be written.
pub fn run(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    if args.files.iter().filter(|file| is_stdin(file)).count() > 1 {
        let message = "standard input (-) can be read once only";
        anyhow::bail!(UsageError::new("check", message));
    }
    if args.print {
        return print_whole(&args.files);
    }
    let policies = args.policies.as_deref().map(PolicySet::load).transpose();
    let mut report = CheckReport::default();
    for file in &args.files {
        match args.check(file, policies.clone()) {
            Ok(loaded) => {
                if !args.json {
                    print_lines(file, &loaded)?;
                }
                report.warnings.extend(loaded.warnings);
            }
            Err(mistakes) => {
                report.mistakes.extend_from_slice(mistakes.all());
                if !args.json {
                    writeln!(std::io::stderr(), "{mistakes}")?;
                }
            }
        }
    }
    let warnings_pass = !args.strict || report.warnings.is_empty();
    report.ok = report.mistakes.is_empty() && warnings_pass;
    if args.json {
        print(&format!("{}\n", serde_json::to_string_pretty(&report)?))?;
    }
    if report.ok {
        Ok(ExitCode::SUCCESS)
    } else {
        Ok(ExitCode::FAILURE)
    }
}

impl CheckArgs {
    fn check(
        &self,
        file: &Path,
        policies: Result<Option<PolicySet>, Mistakes>,
    ) -> Result<Loaded, Mistakes> {
        let loaded = load(file, policies?)?;
        if self.without_files {
            Ok(loaded)
        } else {
            with_files(file, loaded)
        }
    }
}

/// Reads and checks the file at `path`, or standard input where that is `-`, with policies applied
/// over it.
pub(super) fn load(path: &Path, policies: Option<PolicySet>) -> Result<Loaded, Mistakes> {
    if is_stdin(path) {
        config::load_stdin(policies)
    } else {
        config::read_with(path, policies).result
    }
}

/// Checks the files of certificates, credentials and endpoints that the configuration names, too: a
/// start would fail without them.
fn with_files(path: &Path, loaded: Loaded) -> Result<Loaded, Mistakes> {
    files::credentials::check(&loaded.config)?;
    files::endpoints::check(&loaded.config)?;
    match files::tls::check(&loaded.config) {
        Ok(()) => Ok(loaded),
        Err(error) => Err(Mistakes::unreadable(
            &path.display().to_string(),
            error.to_string(),
            None,
        )),
    }
}

/// Prints a file without mistakes as the gateway understands it.
fn print_whole(files: &[PathBuf]) -> anyhow::Result<ExitCode> {
    let [file] = files else {
        anyhow::bail!(UsageError::new("check", "--print takes one file"));
    };
    match whole(file) {
        Ok(text) => {
            print(&text)?;
            Ok(ExitCode::SUCCESS)
        }
        Err(mistakes) => {
            writeln!(std::io::stderr(), "{mistakes}")?;
            Ok(ExitCode::FAILURE)
        }
    }
}

fn whole(file: &Path) -> Result<String, Mistakes> {
    let name = shown_name(file);
    let text = if is_stdin(file) {
        config::read_stdin()?
    } else {
        config::read_file(&name, file)?
    };
    config::parse(&name, &text, &|variable| std::env::var(variable).ok())?;
    config::print(&name, &text)
}

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn shown_name(file: &Path) -> String {
    if is_stdin(file) {
        config::STDIN.to_owned()
    } else {
        file.display().to_string()
    }
}

fn print_lines(file: &Path, loaded: &Loaded) -> anyhow::Result<()> {
    for warning in &loaded.warnings {
        print(&format!("warning: {warning}\n"))?;
    }
    let name = shown_name(file);
    print(&format!("{name}: OK, {}\n", loaded.config.summary()))
}
