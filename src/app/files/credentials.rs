//! The files that authenticators check credentials by: read at the start, and again when they or the configuration change.
//!
//! Guarantees that a file which cannot be used changes nothing: what was read before holds on.

use std::path::Path;
use std::sync::Arc;

use crate::config::watch::{FileWatch, Sighting};
use crate::config::{self, Config, Mistakes};
use crate::gateway::Gateway;
use crate::identity::authenticator::{Authenticator, Material};
use crate::identity::spec::{AuthenticationMethod, AuthenticatorSpec};

/// The authenticators of the running configuration that have a file, under watch.
#[derive(Default)]
pub struct CredentialFiles(Vec<WatchedAuthenticator>);

struct WatchedAuthenticator {
    authenticator: Arc<Authenticator>,
    watch: FileWatch,
}

/// The files of a configuration, read and not yet at work.
pub struct PreparedCredentials {
    /// Watched from before they were read: a change meanwhile is found.
    files: CredentialFiles,
    materials: Vec<Material>,
}

impl CredentialFiles {
    /// Reads all files that the authenticators of `gateway` have.
    ///
    /// # Errors
    /// The mistakes in the first file that cannot be used.
    pub fn prepare(gateway: &Gateway) -> Result<PreparedCredentials, Mistakes> {
        let with_file = gateway.authenticators.values().filter_map(|one| Some((one, one.spec.file()?)));
        let watched = with_file.map(|(authenticator, file)| WatchedAuthenticator {
            authenticator: authenticator.clone(),
            watch: FileWatch::new(file.clone()),
        });
        let files = Self(watched.collect());
        let materials = files.0.iter().map(|one| read(&one.authenticator.spec, one.watch.path()));
        let materials = materials.collect::<Result<_, _>>()?;
        Ok(PreparedCredentials { files, materials })
    }

    /// Looks whether a file has changed, and if so takes it over, or logs why not and changes nothing.
    pub fn check(&mut self) {
        for WatchedAuthenticator { authenticator, watch } in &mut self.0 {
            let (file, name) = (watch.path().display().to_string(), &authenticator.spec.name);
            match watch.look() {
                Sighting::Same => {}
                Sighting::Gone => {
                    tracing::warn!(file, authenticator = %name, "a file of credentials is gone: its last version holds on");
                }
                Sighting::Back => tracing::info!(file, authenticator = %name, "a file of credentials is back"),
                Sighting::Changed => match read(&authenticator.spec, watch.path()) {
                    Ok(material) => {
                        tracing::info!(file, authenticator = %name, entries = material.len(), "credentials reloaded");
                        authenticator.install(material);
                    }
                    Err(mistakes) => {
                        authenticator.metrics.reloaded(None);
                        mistakes.log();
                        tracing::error!(file, authenticator = %name, "credentials not reloaded: nothing has changed");
                    }
                },
            }
        }
    }
}

impl PreparedCredentials {
    /// Takes over the files that were read.
    pub fn install(self) -> CredentialFiles {
        for (one, material) in self.files.0.iter().zip(self.materials) {
            one.authenticator.install(material);
        }
        self.files
    }
}

/// Checks every file of credentials that `config` names.
///
/// # Errors
/// The mistakes in the first that cannot be used.
pub fn check(config: &Config) -> Result<(), Mistakes> {
    config.authenticators.iter().try_for_each(|spec| match spec.file() {
        Some(file) => read(spec, file).map(drop),
        None => Ok(()),
    })
}

fn read(spec: &AuthenticatorSpec, file: &Path) -> Result<Material, Mistakes> {
    match &spec.method {
        AuthenticationMethod::Basic(_) => config::load_users(file, &spec.name).map(Arc::new).map(Material::Users),
        AuthenticationMethod::Jwt(_) => config::load_key_set(file).map(Material::KeySet),
        AuthenticationMethod::ApiKey(_)
        | AuthenticationMethod::Forward(_)
        | AuthenticationMethod::ClientCertificate(_) => config::load_api_keys(file, &spec.name).map(Material::ApiKeys),
    }
}
