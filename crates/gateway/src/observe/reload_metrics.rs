//! Metrics of files that are read again while the gateway runs: its configuration and certificates.

use metrics::{Counter, Gauge, counter, gauge};

use tollgate_limiter::clock;

/// Outcomes of reloads. Every series exists from the start, so that the first failure is an
/// increase.
pub struct ReloadMetrics {
    applied: Counter,
    rejected: Counter,
    successful: Gauge,
    last_success: Gauge,
}

impl ReloadMetrics {
    /// The metrics of a configuration that was just read for the first time.
    pub fn new() -> Self {
        let metrics = Self {
            applied: counter!("tollgate_config_reloads_total", "outcome" => "applied"),
            rejected: counter!("tollgate_config_reloads_total", "outcome" => "rejected"),
            successful: gauge!("tollgate_config_last_reload_successful"),
            last_success: gauge!("tollgate_config_last_reload_success_timestamp_seconds"),
        };
        metrics.applied.increment(0);
        metrics.rejected.increment(0);
        metrics.succeeded();
        metrics
    }

    /// Counts a reload that applied the file.
    pub fn applied(&self) {
        self.applied.increment(1);
        self.succeeded();
    }

    /// Counts a reload that found mistakes and changed nothing.
    pub fn rejected(&self) {
        self.rejected.increment(1);
        self.successful.set(0.0);
    }

    fn succeeded(&self) {
        self.successful.set(1.0);
        self.last_success
            .set((clock::unix_micros() / 1_000) as f64 / 1e3);
    }
}

/// Outcomes of reading certificate files again.
pub struct CertificateMetrics {
    applied: Counter,
    rejected: Counter,
}

impl CertificateMetrics {
    /// The metrics of files that were just read for the first time.
    pub fn new() -> Self {
        let metrics = Self {
            applied: counter!("tollgate_tls_certificate_reloads_total", "outcome" => "applied"),
            rejected: counter!("tollgate_tls_certificate_reloads_total", "outcome" => "rejected"),
        };
        metrics.applied.increment(0);
        metrics.rejected.increment(0);
        metrics
    }

    /// Counts files that were taken over.
    pub fn applied(&self) {
        self.applied.increment(1);
    }

    /// Counts files that cannot be used and changed nothing.
    pub fn rejected(&self) {
        self.rejected.increment(1);
    }
}

impl Default for CertificateMetrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Default for ReloadMetrics {
    fn default() -> Self {
        Self::new()
    }
}
