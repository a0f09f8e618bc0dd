//! The way in: a path, standard input or a text, to a checked configuration or all that is wrong
//! with it.

use std::path::Path;
use std::sync::Arc;

#[cfg(feature = "team")]
use tollgate_policies::model::PolicyState;

use super::include::{self, FileVariables, IncludedTree};
use super::overlay::document::PolicySet;
use super::overlay::over::Overlay;
#[cfg(feature = "team")]
use super::overlay::state::KnownApplications;
use super::report::{Mistake, Mistakes, Report};
use super::section::admin::server::{ProbedAddress, probed_address};
use super::section::defaults::{self, LimitDefaults};
use super::section::root::{self, CheckedFile, RawConfig};
use super::settings::Config;
use super::source::{self, STDIN};
use super::watch::FileVersion;
use super::yaml::decode::Decode;
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
        result: ground.and_then(|ground| ground.with(policies)),
        files,
    }
}

/// The file at `path` and those that it includes, read once and checked: policies are applied to it
/// again and again, and no file is read again for that.
#[derive(Clone)]
pub struct Ground {
    /// `None`: there are mistakes in the files.
    file: Option<Arc<CheckedFile>>,
    limit_defaults: LimitDefaults,
    /// The mistakes in the files, or the warnings.
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
        let RawFile {
            raw,
            is_whole,
            limit_defaults,
            mut report,
        } = RawFile::read(file_name, text, env, files);
        // A missing name may be in a file that could not be read.
        let raw = raw.filter(|_| is_whole);
        let file = raw.and_then(|raw| root::build(&raw, &mut report));
        Self {
            file: file.filter(|_| !report.has_mistakes()).map(Arc::new),
            limit_defaults,
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
        self.checked(|report| match policies {
            Some(policies) => Overlay::read(policies, report).map(Some),
            None => Some(None),
        })
    }

    /// The configuration that the node called `name` has with the policies of a revision.
    ///
    /// # Errors
    /// Every mistake in the files and in the policies.
    #[cfg(feature = "team")]
    pub fn on(&self, name: &Arc<str>, state: &PolicyState) -> Result<Loaded, Mistakes> {
        self.checked(|report| {
            let applications = self.known.of_state(state, true, report)?;
            Some(Some(Overlay::new(applications, Some(name.clone()))))
        })
    }

    /// Checks the configuration that any node has with the policies of a revision.
    ///
    /// # Errors
    /// Every mistake in the files and in the policies.
    #[cfg(feature = "team")]
    pub fn fits(&self, state: &PolicyState) -> Result<(), Mistakes> {
        let checked = self.checked(|report| {
            let applications = self.known.of_state(state, false, report)?;
            Some(Some(Overlay::new(applications, None)))
        });
        checked.map(drop)
    }

    /// The file with the overlay that is read, if there is one. `read` reports its own mistakes.
    fn checked(
        &self,
        read: impl FnOnce(&mut Report) -> Option<Option<Overlay>>,
    ) -> Result<Loaded, Mistakes> {
        let mut report = self.report.clone();
        let overlay = read(&mut report);
        let mut config = None;
        if let (Some(file), Some(overlay)) = (&self.file, overlay) {
            let whole = match overlay {
                Some(overlay) => overlay.over(file, &self.limit_defaults, &mut report),
                None => file.config.clone(),
            };
            file.warn(&whole, &mut report);
            config = Some(whole);
        }
        report
            .close(config)
            .map(|(config, warnings)| Loaded { config, warnings })
    }
}

/// The file and those that it includes, as they are written.
struct RawFile {
    /// `None`: a mistake was reported.
    raw: Option<RawConfig>,
    /// Whether all files could be read.
    is_whole: bool,
    limit_defaults: LimitDefaults,
    report: Report,
}

impl RawFile {
    fn read(
        file_name: &str,
        text: &str,
        env: VariableLookup<'_>,
        files: &mut Vec<FileVersion>,
    ) -> Self {
        let mut report = Report::new(file_name);
        let tree = include::tree(text, FileVariables::Replaced(env), &mut report, files);
        let Some(IncludedTree { mut root, is_whole }) = tree else {
            return Self {
                raw: None,
                is_whole: false,
                limit_defaults: LimitDefaults::default(),
                report,
            };
        };
        let limit_defaults = defaults::apply(&mut root, &mut report);
        Self {
            raw: RawConfig::decode(&root, &mut report),
            is_whole,
            limit_defaults,
            report,
        }
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
    let RawFile { raw, report, .. } = RawFile::read(&name, &text, &variable, &mut Vec::new());
    if let Some(raw) = raw
        && let Some(probed) = probed_address(&raw.admin)
    {
        return Ok(probed);
    }
    report.close(None).map(|(probed, _)| probed)
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
    Ground::read(file_name, text, env, &mut Vec::new()).with(policies)
}
