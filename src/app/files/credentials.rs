//! The files that authenticators check credentials by: read at the start, and again when they or
//! the configuration change.
//!
//! Guarantees that a file which cannot be used changes nothing: what was read before holds on.
//! Large files are read beside the control plane, which has other work meanwhile.

use std::collections::BTreeMap;
use std::future::pending;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::task::JoinSet;

use tollgate_config::watch::{FileWatch, Sighting};
use tollgate_config::{self as config, Config, Mistakes};
use tollgate_gateway::Gateway;
use tollgate_identity::NamedAuthenticator;
use tollgate_identity::authenticator::CredentialSet;
use tollgate_identity::method::CredentialFormat;
use tollgate_identity::spec::AuthenticatorSpec;

/// The files of the running configuration that authenticators have, under watch.
#[derive(Default)]
pub struct CredentialFiles {
    files: Vec<WatchedFile>,
    /// The readings of files that have changed.
    readings: JoinSet<ReadFile>,
}

struct WatchedFile {
    file: Arc<CredentialFile>,
    watch: FileWatch,
    /// A reading is under way. Meanwhile the file is not looked at, so that no older version comes
    /// after a newer one.
    is_read: bool,
}

/// A file of credentials, read once for all authenticators that go by it.
struct CredentialFile {
    path: PathBuf,
    authenticators: Vec<Arc<NamedAuthenticator>>,
}

/// A file that was read: the material of each of its authenticators, or why the file cannot be
/// used.
struct ReadFile {
    file: Arc<CredentialFile>,
    result: Result<Vec<Box<dyn CredentialSet>>, Mistakes>,
}

/// The files of a configuration, read and not yet at work.
pub struct PreparedCredentials {
    /// Watched from before they were read: a change meanwhile is found.
    files: CredentialFiles,
    materials: Vec<Vec<Box<dyn CredentialSet>>>,
}

impl CredentialFiles {
    /// The files that the authenticators of `gateway` have, still to be read.
    pub fn new(gateway: &Gateway) -> Self {
        let mut by_path: BTreeMap<&Path, Vec<Arc<NamedAuthenticator>>> = BTreeMap::new();
        for authenticator in gateway.authenticators.values() {
            if let Some(file) = authenticator.spec.settings().file() {
                by_path
                    .entry(file.path)
                    .or_default()
                    .push(authenticator.clone());
            }
        }
        let mut files = Vec::new();
        for (path, authenticators) in by_path {
            files.push(WatchedFile {
                watch: FileWatch::new(path.to_owned()),
                file: Arc::new(CredentialFile {
                    path: path.to_owned(),
                    authenticators,
                }),
                is_read: false,
            });
        }
        Self {
            files,
            readings: JoinSet::new(),
        }
    }

    /// Reads all of them. Takes seconds if they are large.
    ///
    /// # Errors
    /// The mistakes in the first file that cannot be used.
    pub fn read(self) -> Result<PreparedCredentials, Mistakes> {
        let mut materials = Vec::with_capacity(self.files.len());
        for watched in &self.files {
            materials.push(watched.file.read()?);
        }
        Ok(PreparedCredentials {
            files: self,
            materials,
        })
    }

    /// Looks whether a file has changed, and if so begins to read it.
    pub fn check(&mut self) {
        for WatchedFile {
            file,
            watch,
            is_read,
        } in self.files.iter_mut().filter(|watched| !watched.is_read)
        {
            let path = file.path.display();
            match watch.look() {
                Sighting::Same => {}
                Sighting::Gone => {
                    tracing::warn!(file = %path, "a file of credentials is gone: its last version holds on");
                }
                Sighting::Back => tracing::info!(file = %path, "a file of credentials is back"),
                Sighting::Changed => {
                    *is_read = true;
                    let file = file.clone();
                    self.readings.spawn_blocking(move || ReadFile {
                        result: file.read(),
                        file,
                    });
                }
            }
        }
    }

    /// Waits until a file that has changed was read, and takes it over, or logs why not and changes
    /// nothing. May be dropped at any time.
    pub async fn follow(&mut self) {
        match self.readings.join_next().await {
            None => pending().await,
            Some(Ok(ReadFile { file, result })) => {
                let may_pass = result.as_ref().is_err_and(Mistakes::may_pass);
                for watched in &mut self.files {
                    if Arc::ptr_eq(&watched.file, &file) {
                        watched.is_read = false;
                        if may_pass {
                            watched.watch.find_again();
                        }
                    }
                }
                file.take_over(result);
            }
            Some(Err(error)) => {
                tracing::error!(%error, "the reading of a file of credentials failed: nothing has changed");
                for watched in &mut self.files {
                    watched.is_read = false;
                }
            }
        }
    }
}

impl CredentialFile {
    fn read(&self) -> Result<Vec<Box<dyn CredentialSet>>, Mistakes> {
        let specs: Vec<_> = self.authenticators.iter().map(|one| &*one.spec).collect();
        read(&self.path, &specs)
    }

    fn take_over(&self, result: Result<Vec<Box<dyn CredentialSet>>, Mistakes>) {
        let file = self.path.display();
        match result {
            Ok(materials) => {
                for (authenticator, material) in self.authenticators.iter().zip(materials) {
                    let name = &authenticator.spec.name;
                    let entries = material.count();
                    tracing::info!(%file, authenticator = %name, entries, "credentials reloaded");
                    authenticator.install(material);
                }
            }
            Err(mistakes) => {
                mistakes.log();
                for authenticator in &self.authenticators {
                    authenticator.metrics.reloaded(None);
                    let name = &authenticator.spec.name;
                    tracing::error!(%file, authenticator = %name, "credentials not reloaded: nothing has changed");
                }
            }
        }
    }
}

impl PreparedCredentials {
    /// Takes over the files that were read.
    pub fn install(self) -> CredentialFiles {
        for (watched, materials) in self.files.files.iter().zip(self.materials) {
            for (authenticator, material) in watched.file.authenticators.iter().zip(materials) {
                authenticator.install(material);
            }
        }
        self.files
    }
}

/// Checks every file of credentials that `config` names.
///
/// # Errors
/// The mistakes in the first that cannot be used.
pub fn check(config: &Config) -> Result<(), Mistakes> {
    for spec in &config.authenticators {
        if let Some(file) = spec.settings().file() {
            read(file.path, &[spec])?;
        }
    }
    Ok(())
}

/// The credentials of each of the authenticators whose file this is.
fn read(
    file: &Path,
    specs: &[&AuthenticatorSpec],
) -> Result<Vec<Box<dyn CredentialSet>>, Mistakes> {
    let mut with_keys = Vec::new();
    for spec in specs {
        if format(spec) == Some(CredentialFormat::ApiKeys) {
            with_keys.push(&*spec.name);
        }
    }
    let tables = if with_keys.is_empty() {
        Vec::new()
    } else {
        config::load_api_keys(file, &with_keys)?
    };
    let mut tables = tables.into_iter();
    let mut read: Vec<Box<dyn CredentialSet>> = Vec::new();
    for spec in specs {
        read.push(match format(spec) {
            Some(CredentialFormat::ApiKeys) | None => Box::new(tables.next().unwrap_or_default()),
            Some(CredentialFormat::Users) => Box::new(config::load_users(file, &spec.name)?),
            Some(CredentialFormat::KeySet) => Box::new(config::load_key_set(file)?),
        });
    }
    Ok(read)
}

fn format(spec: &AuthenticatorSpec) -> Option<CredentialFormat> {
    spec.settings().file().map(|file| file.format)
}
