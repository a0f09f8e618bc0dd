//! The way in: a path, standard input or a text, to a checked configuration or all that is wrong
//! with it.

use std::path::Path;
#[cfg(feature = "team")]
use std::sync::Arc;

#[cfg(feature = "team")]
use tollgate_policies::model::PolicyState;

use super::include::{self, FileVariables};
use super::overlay::document::PolicySet;
#[cfg(feature = "team")]
use super::overlay::state::KnownApplications;
use super::overlay::tree::{Overlay, OverlayParts};
use super::report::{Mistake, Mistakes, Report};
use super::section::admin::server::{ProbedAddress, probed_address};
use super::section::defaults;
use super::section::root::{self, RawConfig};
use super::settings::Config;
use super::source::{self, STDIN};
use super::watch::FileVersion;
use super::yaml::decode::Decode;
use super::yaml::node::YamlNode;
use super::yaml::variables::VariableLookup;

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

/// Like [`load`], with all files that were read, also where they have mistakes.
pub fn read(path: &Path) -> Reading {
    read_with(path, None)
}

/// Like [`read`], with policies applied to it.
pub fn read_with(path: &Path, policies: Option<PolicySet>) -> Reading {
    let (ground, files) = read_ground(path);
    Reading {
        result: ground.and_then(|ground| ground.checked(|report| Overlay::read(policies?, report))),
        files,
    }
}

/// The file at `path` and those that it includes as trees: policies are applied to them again and
/// again.
#[derive(Clone)]
pub struct Ground {
    root: Option<YamlNode>,
    /// Whether all files could be read.
    is_whole: bool,
    /// The mistakes in the files so far.
    report: Report,
    #[cfg(feature = "team")]
    known: KnownApplications,
}

/// Reads the file at `path` and those that it includes, and all files that were read, also where
/// they have mistakes.
///
/// # Errors
/// When the file itself cannot be read.
pub fn read_ground(path: &Path) -> (Result<Ground, Mistakes>, Vec<FileVersion>) {
    let name = path.display().to_string();
    let mut files = vec![FileVersion::current(path)];
    let text = source::read_file(&name, path);
    (
        text.map(|text| Ground::read(&name, &text, &variable, &mut files)),
        files,
    )
}

impl Ground {
    fn read(
        file_name: &str,
        text: &str,
        env: VariableLookup<'_>,
        files: &mut Vec<FileVersion>,
    ) -> Self {
        let mut report = Report::new(file_name);
        let tree = include::tree(text, FileVariables::Replaced(env), &mut report, files);
        let is_whole = tree.as_ref().is_some_and(|tree| tree.is_whole);
        Self {
            root: tree.map(|tree| tree.root),
            is_whole,
            report,
            #[cfg(feature = "team")]
            known: KnownApplications::default(),
        }
    }

    /// The configuration with policies applied to it.
    ///
    /// # Errors
    /// Every mistake in the files and in the policies.
    pub fn with(&self, policies: Option<PolicySet>) -> Result<Loaded, Mistakes> {
        self.clone()
            .checked(|report| Overlay::read(policies?, report))
    }

    /// The configuration that the node called `name` has with the policies of a revision.
    ///
    /// # Errors
    /// Every mistake in the files and in the policies.
    #[cfg(feature = "team")]
    pub fn on(&self, name: &Arc<str>, state: &PolicyState) -> Result<Loaded, Mistakes> {
        self.clone().checked(|report| {
            let applications = self.known.of_state(state, true, report)?;
            Some(Overlay::new(applications, Some(name.clone())))
        })
    }

    /// Checks the configuration that any node has with the policies of a revision.
    ///
    /// # Errors
    /// Every mistake in the files and in the policies.
    #[cfg(feature = "team")]
    pub fn fits(&self, state: &PolicyState) -> Result<(), Mistakes> {
        self.clone()
            .checked(|report| {
                let applications = self.known.of_state(state, false, report)?;
                Some(Overlay::new(applications, None))
            })
            .map(drop)
    }

    /// Checks the file with the overlay that is read, which reports its own mistakes.
    fn checked(
        mut self,
        overlay: impl FnOnce(&mut Report) -> Option<Overlay>,
    ) -> Result<Loaded, Mistakes> {
        let config = match self.tree(overlay) {
            Some(CheckedTree {
                file,
                additions: parts,
            }) if self.is_whole => {
                let OverlayParts {
                    plans,
                    candidates,
                    keys,
                    known,
                    file_limits,
                    additions,
                } = parts;
                let config = root::build(&file, &plans, &known, &mut self.report);
                let mut config = config.map(|config| Config {
                    candidates,
                    policy_keys: keys,
                    ..config
                });
                // Limits that were checked before are behind the others until here.
                if let (Some(config), Some(file_limits)) = (&mut config, file_limits)
                    && let Some(of_policies) = config.limits.get_mut(file_limits..)
                {
                    of_policies.sort_by(|one, other| one.name.cmp(&other.name));
                }
                if let (Some(config), Some(additions)) = (&config, additions) {
                    additions.keep(config, &self.report);
                }
                config
            }
            // A missing name may be in a file that could not be read.
            _ => None,
        };
        self.report
            .close(config)
            .map(|(config, warnings)| Loaded { config, warnings })
    }

    fn tree(
        &mut self,
        overlay: impl FnOnce(&mut Report) -> Option<Overlay>,
    ) -> Option<CheckedTree> {
        let mut root = self.root.take()?;
        let report = &mut self.report;
        // A route that policies name may be in a file that could not be read.
        let mut overlay = if self.is_whole { overlay(report) } else { None };
        if let Some(overlay) = &mut overlay {
            overlay.add_limits(&mut root, report);
        }
        defaults::apply(
            &mut root,
            overlay.as_ref().map_or(0, Overlay::known_limits),
            report,
        );
        if let Some(overlay) = &mut overlay {
            overlay.change_routes(&mut root, report);
        }
        let additions = overlay.map(Overlay::into_parts).unwrap_or_default();
        Some(CheckedTree {
            file: RawConfig::decode(&root, report)?,
            additions,
        })
    }
}

/// Reads and checks standard input, with this process's environment and policies applied to it.
///
/// # Errors
/// Every mistake in it, or the one that kept it from being read.
pub fn load_stdin(policies: Option<PolicySet>) -> Result<Loaded, Mistakes> {
    parse_with(STDIN, &source::read_stdin()?, &variable, policies)
}

/// Where a gateway on the file at `path` says whether it is ready; `None`: nowhere. Mistakes
/// elsewhere in the file do not matter: a gateway beside a file that it refused goes on with what
/// it read before.
///
/// # Errors
/// When the file cannot be read, or does not say where the admin server is.
pub fn load_probed(path: &Path) -> Result<Option<ProbedAddress>, Mistakes> {
    let name = path.display().to_string();
    let text = source::read_file(&name, path)?;
    let mut ground = Ground::read(&name, &text, &variable, &mut Vec::new());
    if let Some(CheckedTree { file, .. }) = ground.tree(|_| None)
        && let Some(probed) = probed_address(&file.admin)
    {
        return Ok(probed);
    }
    ground.report.close(None).map(|(probed, _)| probed)
}

/// The value of an environment variable of this process.
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Checks `text`, as read from a file called `file_name`. `env` looks environment variables up.
///
/// # Errors
/// Every mistake in the text, and in the files that it includes.
pub fn parse(
    file_name: &str,
    text: &str,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Loaded, Mistakes> {
    parse_with(file_name, text, env, None)
}

/// Like [`parse`], with policies applied to it.
///
/// # Errors
/// Every mistake in the text, in the files that it includes and in the policies.
pub fn parse_with(
    file_name: &str,
    text: &str,
    env: &dyn Fn(&str) -> Option<String>,
    policies: Option<PolicySet>,
) -> Result<Loaded, Mistakes> {
    Ground::read(file_name, text, env, &mut Vec::new())
        .checked(|report| Overlay::read(policies?, report))
}

/// The mirror of the file and of those that it includes.
struct CheckedTree {
    file: RawConfig,
    /// The additions of policies to it.
    additions: OverlayParts,
}
