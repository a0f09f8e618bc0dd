//! Metrics of the process: what the operating system says of it.

/// CPU time, memory, file descriptors and threads of the process, by the names that Prometheus's
/// own clients use. Empty on systems other than Linux.
#[derive(Default)]
pub struct ProcessMetrics {
    #[cfg(target_os = "linux")]
    collector: metrics_process::Collector,
}

impl ProcessMetrics {
    /// Describes them.
    pub fn new() -> Self {
        let metrics = Self::default();
        #[cfg(target_os = "linux")]
        metrics.collector.describe();
        metrics
    }

    /// Reads them anew. Opens files, so never for a request.
    pub fn collect(&self) {
        #[cfg(target_os = "linux")]
        self.collector.collect();
    }
}
