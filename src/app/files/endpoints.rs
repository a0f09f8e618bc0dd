//! The files that list endpoints: read at the start, and again when they or the configuration
//! change.
//!
//! Guarantees that a file which cannot be used changes nothing: what was read before holds on.

use std::path::Path;
use std::sync::Arc;

use tollgate_config::watch::{FileWatch, Sighting};
use tollgate_config::{self as config, Config, Mistakes};
use tollgate_gateway::Gateway;
use tollgate_proxy::upstream::endpoints::EndpointSpec;
use tollgate_proxy::upstream::watch::discover;
use tollgate_proxy::upstream::{Upstream, UpstreamSpec};

/// The upstreams of the running configuration whose endpoints are in a file, under watch.
#[derive(Default)]
pub struct EndpointFiles(Vec<WatchedUpstream>);

struct WatchedUpstream {
    upstream: Arc<Upstream>,
    watch: FileWatch,
}

/// The files of a configuration, read and not yet at work.
pub struct PreparedEndpoints {
    /// Watched from before they were read: a change meanwhile is found.
    files: EndpointFiles,
    lists: Vec<Vec<EndpointSpec>>,
}

impl EndpointFiles {
    /// Reads all files that the upstreams of `gateway` have.
    ///
    /// # Errors
    /// The mistakes in the first file that cannot be used.
    pub fn prepare(gateway: &Gateway) -> Result<PreparedEndpoints, Mistakes> {
        let mut watched = Vec::new();
        let mut lists = Vec::new();
        for upstream in gateway.upstreams.values() {
            if let Some(file) = file(upstream.spec()) {
                let watch = FileWatch::new(file.to_owned());
                lists.push(config::load_endpoints(file, upstream.spec())?);
                watched.push(WatchedUpstream {
                    upstream: upstream.clone(),
                    watch,
                });
            }
        }
        Ok(PreparedEndpoints {
            files: Self(watched),
            lists,
        })
    }

    /// Looks whether a file has changed, and if so takes it over, or logs why not and changes
    /// nothing.
    pub fn check(&mut self) {
        for WatchedUpstream { upstream, watch } in &mut self.0 {
            let file = watch.path().display().to_string();
            let name = &*upstream.spec().name;
            match watch.look() {
                Sighting::Same => {}
                Sighting::Gone => {
                    tracing::warn!(
                        file,
                        upstream = name,
                        "a file of endpoints is gone: its last version holds on"
                    );
                }
                Sighting::Back => {
                    tracing::info!(file, upstream = name, "a file of endpoints is back")
                }
                Sighting::Changed => match config::load_endpoints(watch.path(), upstream.spec()) {
                    Ok(endpoints) => install(upstream, endpoints),
                    Err(mistakes) => {
                        if let Some(discovery) = upstream.discovery() {
                            discovery.rejected();
                        }
                        mistakes.log();
                        if mistakes.may_pass() {
                            watch.find_again();
                        }
                        tracing::error!(
                            file,
                            upstream = name,
                            "endpoints not reloaded: nothing has changed"
                        );
                    }
                },
            }
        }
    }
}

impl PreparedEndpoints {
    /// Takes over the files that were read.
    pub fn install(self) -> EndpointFiles {
        for (one, endpoints) in self.files.0.iter().zip(self.lists) {
            install(&one.upstream, endpoints);
        }
        self.files
    }
}

fn install(upstream: &Upstream, endpoints: Vec<EndpointSpec>) {
    if let Some(discovery) = upstream.discovery() {
        discovery.install(endpoints);
    }
    discover::follow(upstream);
}

/// Checks every file of endpoints that `config` names.
///
/// # Errors
/// The mistakes in the first that cannot be used.
pub fn check(config: &Config) -> Result<(), Mistakes> {
    for spec in &config.upstreams {
        if let Some(file) = file(spec) {
            config::load_endpoints(file, spec)?;
        }
    }
    Ok(())
}

fn file(spec: &UpstreamSpec) -> Option<&Path> {
    let file = spec.discovery.as_ref()?.file()?;
    Some(file)
}
