//! The certificate files of all listeners and of the admin server: read at the start, and again
//! when they or the configuration change.
//!
//! Guarantees that the files of all listeners are taken over together or not at all, and that a
//! change is only read once no file is being written any more: a certificate and its key change one
//! after the other.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::tls_watch::TlsFileWatches;
use tollgate_config::Config;
use tollgate_gateway::observe::reload_metrics::CertificateMetrics;
use tollgate_limiter::clock::{self, Instant};
use tollgate_wire::transport::tls::server::acceptor::{TlsAcceptor, TlsSettings};
use tollgate_wire::transport::tls::server::certificate::{ServerCertificate, TlsFileError};
use tollgate_wire::transport::tls::server::spec::TlsServerSpec;

/// How often a certificate that expires soon is warned of.
const WARN_EVERY: Duration = Duration::from_secs(24 * 60 * 60);
/// A certificate expires soon when it has less left than this, or than a fifth of its life if that
/// is shorter.
const SOON: Duration = Duration::from_secs(14 * 24 * 60 * 60);

/// The TLS sides of all listeners, and their files.
pub struct TlsFiles {
    /// The admin server's, then by listener. `None`: it speaks HTTP in the clear.
    acceptors: Vec<Option<Arc<TlsAcceptor>>>,
    watches: TlsFileWatches,
    /// When certificates are looked at for their expiry.
    warn_at: Instant,
    metrics: CertificateMetrics,
}

/// The settings of all listeners, read and not yet at work.
pub struct PreparedTls {
    settings: Vec<Option<TlsSettings>>,
    /// From before the files were read: a change meanwhile is found.
    watches: TlsFileWatches,
}

impl TlsFiles {
    /// Reads all files that `config` names, for the first time.
    ///
    /// # Errors
    /// The first file that cannot be used.
    pub fn load(config: &Config) -> Result<Self, TlsFileError> {
        let PreparedTls { settings, watches } = prepare(config, &[])?;
        let mut acceptors = Vec::with_capacity(settings.len());
        for settings in settings {
            acceptors.push(settings.map(|settings| Arc::new(TlsAcceptor::new(settings))));
        }
        let mut this = Self {
            acceptors,
            watches,
            warn_at: clock::now(),
            metrics: CertificateMetrics::new(),
        };
        this.installed();
        Ok(this)
    }

    /// The TLS side of a listener, by its place in the configuration.
    pub fn acceptor(&self, listener: usize) -> Option<Arc<TlsAcceptor>> {
        self.acceptors.get(1 + listener)?.clone()
    }

    /// The TLS side of the admin server.
    pub fn admin(&self) -> Option<Arc<TlsAcceptor>> {
        self.acceptors.first()?.clone()
    }

    /// Reads all files that `config` names, for the listeners that run.
    ///
    /// # Errors
    /// The first file that cannot be used.
    pub fn prepare(&self, config: &Config) -> Result<PreparedTls, TlsFileError> {
        prepare(config, &self.acceptors)
    }

    /// Takes over the files that were read for `config`.
    pub fn install(&mut self, PreparedTls { settings, watches }: PreparedTls) {
        for (acceptor, settings) in self.acceptors.iter().zip(settings) {
            if let (Some(acceptor), Some(settings)) = (acceptor, settings) {
                acceptor.install(settings);
            }
        }
        self.watches = watches;
        self.installed();
    }

    /// Looks whether a file has changed, and if so takes all of them over, or logs why not and
    /// changes nothing.
    pub fn check(&mut self, config: &Config) {
        if self.watches.have_changed() {
            self.reload(config);
        }
        self.warn_of_expiry();
    }

    fn reload(&mut self, config: &Config) {
        match self.prepare(config) {
            Ok(prepared) => {
                self.install(prepared);
                self.metrics.applied();
                tracing::info!("certificates reloaded");
            }
            Err(error) => {
                self.metrics.rejected();
                if error.is_transient() {
                    self.watches.find_again();
                }
                tracing::error!(%error, "certificates not reloaded: nothing has changed");
            }
        }
    }

    fn installed(&mut self) {
        self.each_certificate(ServerCertificate::record_expiry);
        self.warn_at = clock::now();
        self.warn_of_expiry();
    }

    fn warn_of_expiry(&mut self) {
        let now = clock::now();
        if now < self.warn_at {
            return;
        }
        self.warn_at = now + WARN_EVERY;
        let seconds = i64::try_from(clock::unix_micros() / 1_000_000).unwrap_or(i64::MAX);
        self.each_certificate(|certificate| {
            let file = certificate.file.display();
            let (begins, ends) = certificate.validity;
            let soon = SOON
                .as_secs()
                .min(ends.saturating_sub(begins).unsigned_abs() / 5);
            let left = ends.saturating_sub(seconds);
            if left <= 0 {
                tracing::error!(%file, "a certificate has expired");
            } else if left.unsigned_abs() < soon {
                tracing::warn!(%file, days = left / 86_400, "a certificate expires soon");
            } else if seconds < begins {
                tracing::warn!(%file, "a certificate is not valid yet");
            }
        });
    }

    fn each_certificate(&self, mut look: impl FnMut(&ServerCertificate)) {
        for acceptor in self.acceptors.iter().flatten() {
            for certificate in acceptor.settings().certificates() {
                look(certificate);
            }
        }
    }
}

fn prepare(
    config: &Config,
    running: &[Option<Arc<TlsAcceptor>>],
) -> Result<PreparedTls, TlsFileError> {
    let watches = watches(config);
    let mut all = Vec::new();
    for (index, spec) in specs(config).into_iter().enumerate() {
        let mut settings = None;
        if let Some(spec) = spec {
            let acceptor = running.get(index).and_then(Option::as_ref);
            let before = acceptor.map(|acceptor| acceptor.settings());
            settings = Some(TlsSettings::load(spec, before.as_deref())?);
        }
        all.push(settings);
    }
    Ok(PreparedTls {
        settings: all,
        watches,
    })
}

fn watches(config: &Config) -> TlsFileWatches {
    let mut files = BTreeSet::new();
    for spec in specs(config).into_iter().flatten() {
        files.extend(spec.files().cloned());
    }
    TlsFileWatches::new(files)
}

/// The settings of the admin server, then those of the listeners: a file with other listeners
/// leaves the first in its place.
fn specs(config: &Config) -> Vec<Option<&TlsServerSpec>> {
    let admin = config.admin.as_ref().and_then(|admin| admin.tls.as_ref());
    let mut specs = vec![admin];
    specs.extend(
        config
            .listeners
            .iter()
            .map(|listener| listener.tls.as_ref()),
    );
    specs
}

/// Checks every file that `config` names.
///
/// # Errors
/// The first that cannot be used.
pub fn check(config: &Config) -> Result<(), TlsFileError> {
    prepare(config, &[]).map(drop)
}
