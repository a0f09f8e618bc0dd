//! Metrics of the process, as the operating system reports them.

/// CPU time, memory, file descriptors and threads of the process, by the names that Prometheus's
/// own clients use. Empty on systems other than Linux.
#[derive(Default)]
pub struct ProcessMetrics {
    #[cfg(target_os = "linux")]
    collector: metrics_process::Collector,
}

impl ProcessMetrics {
    /// Describes the metrics.
    pub fn new() -> Self {
        let metrics = Self::default();
        #[cfg(target_os = "linux")]
        metrics.collector.describe();
        metrics
    }

    /// Reads the values anew. Opens files: never call it for a request.
    pub fn collect(&self) {
        #[cfg(target_os = "linux")]
        self.collector.collect();
    }
}
