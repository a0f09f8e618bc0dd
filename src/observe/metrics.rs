//! The metrics of the gateway: names, help texts and histogram buckets, and the recorder behind
//! them.
//!
//! Modules resolve their handles once and never format a label per request. The key of a limit is
//! never a label.

use metrics::{
    Counter, Gauge, SetRecorderError, counter, describe_counter, describe_gauge,
    describe_histogram, gauge, set_global_recorder,
};
use metrics_exporter_prometheus::PrometheusBuilder;

use super::recorder::{MetricsHandle, MetricsRecorder};
use crate::clock;

/// Upper bounds in seconds, from a cache's answer to a patient upstream's.
pub const REQUEST_BUCKETS: &[f64] = &[
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0,
];
/// Upper bounds in seconds around the store's default timeout of 20 ms.
const STORE_BUCKETS: &[f64] = &[
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.05, 0.1, 0.5, 1.0, 10.0,
];
/// Upper bounds of the requests that share a call.
const BATCH_BUCKETS: &[f64] = &[
    1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0,
];

/// Outcomes of reloads. Every series exists from the start, so that the first failure is an
/// increase.
pub struct ReloadMetrics {
    applied: Counter,
    rejected: Counter,
    successful: Gauge,
    last_success: Gauge,
}

impl ReloadMetrics {
    /// For a configuration that was just read for the first time.
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
    /// For files that were just read for the first time.
    pub fn new() -> Self {
        let count =
            |outcome| counter!("tollgate_tls_certificate_reloads_total", "outcome" => outcome);
        let metrics = Self {
            applied: count("applied"),
            rejected: count("rejected"),
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

/// Installs the process's recorder. Once per process.
pub fn install() -> Result<MetricsHandle, SetRecorderError<MetricsRecorder>> {
    let recorder = MetricsRecorder::new(PrometheusBuilder::new().build_recorder(), buckets_of);
    let handle = recorder.handle();
    set_global_recorder(recorder)?;
    describe();
    gauge!("tollgate_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    Ok(handle)
}

fn buckets_of(histogram: &str) -> &'static [f64] {
    match histogram {
        "tollgate_store_call_duration_seconds" => STORE_BUCKETS,
        "tollgate_store_batch_requests" => BATCH_BUCKETS,
        _ => REQUEST_BUCKETS,
    }
}

fn describe() {
    describe_counter!(
        "tollgate_requests_total",
        "Requests answered, by route, method and status."
    );
    describe_histogram!(
        "tollgate_request_duration_seconds",
        "From a request's head to the end of its answer, by route."
    );
    describe_gauge!(
        "tollgate_route_maintenance",
        "Whether a route is under maintenance (1) or not (0)."
    );
    describe_counter!(
        "tollgate_maintenance_answers_total",
        "Requests that a route under maintenance did not serve."
    );
    describe_counter!(
        "tollgate_authentications_total",
        "Requests by authenticator and how they fared with it."
    );
    describe_counter!(
        "tollgate_authenticator_reloads_total",
        "Readings of credentials, by authenticator and outcome."
    );
    describe_counter!(
        "tollgate_forward_auth_lookups_total",
        "Looks for a kept answer of a service that knows clients, by authenticator and outcome."
    );
    describe_counter!(
        "tollgate_password_hashes_total",
        "Passwords that were hashed to be checked, by authenticator."
    );
    describe_counter!(
        "tollgate_api_key_lookups_total",
        "API keys looked up in the store, by authenticator and outcome."
    );
    describe_gauge!(
        "tollgate_authenticator_credentials",
        "Credentials, or keys for them, by authenticator."
    );
    describe_counter!(
        "tollgate_discovery_lookups_total",
        "Lookups of an upstream's endpoints, by outcome."
    );
    describe_counter!(
        "tollgate_discovery_changes_total",
        "How often the endpoints found for an upstream changed."
    );
    describe_gauge!(
        "tollgate_discovery_endpoints",
        "Endpoints found for an upstream."
    );
    describe_gauge!(
        "tollgate_discovery_last_success_timestamp_seconds",
        "When the endpoints of an upstream were last confirmed, in seconds since 1970."
    );
    describe_counter!(
        "tollgate_mirrored_requests_total",
        "Requests to be copied, by route and how the copy fared."
    );
    describe_counter!(
        "tollgate_grpc_calls_total",
        "Calls of gRPC answered, by route and status of gRPC."
    );
    describe_gauge!(
        "tollgate_requests_in_flight",
        "Requests whose answer has not ended, tunnels included."
    );
    describe_gauge!("tollgate_tunnels", "Open tunnels, such as WebSockets.");
    describe_counter!(
        "tollgate_ratelimit_decisions_total",
        "Decisions, by limit, verdict and who made them."
    );
    describe_gauge!(
        "tollgate_ratelimit_queue_waiting",
        "Requests that wait for their tokens, by limit."
    );
    describe_histogram!(
        "tollgate_ratelimit_queue_wait_seconds",
        "How long requests waited for their tokens, by limit."
    );
    describe_counter!(
        "tollgate_ratelimit_settlements_total",
        "Costs that responses told, by limit and by how they compare with what was reserved."
    );
    describe_counter!(
        "tollgate_ratelimit_settlements_lost_total",
        "Reservations that could not be given back to the shared store."
    );
    describe_gauge!(
        "tollgate_store_up",
        "Whether each server of the shared store decides (1), or some are away (0)."
    );
    describe_gauge!(
        "tollgate_store_servers_away",
        "Servers of the store that are away: nodes decide on their keys alone."
    );
    describe_counter!(
        "tollgate_store_calls_total",
        "Calls to the shared store, by outcome."
    );
    describe_histogram!(
        "tollgate_store_call_duration_seconds",
        "How long calls to the shared store took."
    );
    describe_histogram!(
        "tollgate_store_batch_requests",
        "Requests that shared a call to the store."
    );
    describe_counter!(
        "tollgate_store_breaker_transitions_total",
        "Turns of the breaker before the store."
    );
    describe_gauge!(
        "tollgate_store_debts_pending",
        "Debts to the shared store that it has not confirmed yet."
    );
    describe_counter!(
        "tollgate_store_adjustments_failed_total",
        "Charges and refunds that the shared store did not confirm in time. They are sent again, and count once."
    );
    describe_counter!(
        "tollgate_store_debts_waived_total",
        "Debts of an outage that were forgotten, because there were too many or their key holds a foreign value."
    );
    describe_counter!(
        "tollgate_plan_lookups_total",
        "Values looked up in hashes of plans, by what came of it."
    );
    describe_gauge!(
        "tollgate_fleet_nodes",
        "Gateways that share the limits, as last known, silent ones included."
    );
    describe_gauge!(
        "tollgate_fleet_nodes_silent",
        "Gateways that fell silent, whose share the others hold back."
    );
    describe_gauge!(
        "tollgate_fleet_share_held_back_ratio",
        "The part of the limits' rate that this gateway holds back for silent ones, from 0 to 1."
    );
    describe_gauge!("tollgate_local_buckets", "Buckets kept in this process.");
    describe_gauge!("tollgate_connections", "Open client connections.");
    describe_counter!("tollgate_connections_total", "Client connections accepted.");
    describe_counter!(
        "tollgate_body_keys_total",
        "Requests whose limits count by a member of the body, by what was found."
    );
    describe_counter!(
        "tollgate_bodies_not_kept_total",
        "Bodies of requests that were not kept to be sent again, since others or those of the client took all of the memory."
    );
    describe_counter!(
        "tollgate_slow_bodies_total",
        "Bodies cut off because the client was below min_body_rate, by kind."
    );
    describe_counter!(
        "tollgate_http2_floods_total",
        "HTTP/2 connections closed for what their client sent, by kind."
    );
    describe_counter!(
        "tollgate_connections_closed_for_room_total",
        "Idle client connections closed because another one needed room."
    );
    describe_counter!(
        "tollgate_connections_refused_total",
        "Client connections reset because their client had as many as it may."
    );
    describe_counter!(
        "tollgate_upstream_requests_total",
        "Requests sent upstream, by upstream and outcome."
    );
    describe_counter!(
        "tollgate_upstream_lookups_total",
        "Lookups of endpoints' names, by outcome."
    );
    describe_gauge!(
        "tollgate_upstream_lookups_under_way",
        "Lookups of endpoints' names under way."
    );
    describe_gauge!(
        "tollgate_upstream_pending_requests",
        "Requests that wait for a connection at their upstream's bound."
    );
    describe_gauge!(
        "tollgate_upstream_concurrency_limit",
        "Requests that may wait for an answer of an upstream with an adaptive bound."
    );
    describe_gauge!(
        "tollgate_upstream_min_rtt_seconds",
        "The latency of an upstream with an adaptive bound while no request waits for another, as last measured."
    );
    describe_gauge!(
        "tollgate_upstream_connections",
        "Open connections to an upstream."
    );
    describe_counter!(
        "tollgate_upstream_connects_total",
        "Connections tried to an upstream, by outcome."
    );
    describe_counter!(
        "tollgate_upstream_retries_total",
        "Times that a request was sent again."
    );
    describe_counter!(
        "tollgate_upstream_retried_requests_total",
        "Requests that their route has sent again, or would have, by what became of them."
    );
    describe_histogram!(
        "tollgate_upstream_response_seconds",
        "From sending a request upstream to its answer's head."
    );
    describe_counter!(
        "tollgate_tls_handshakes_total",
        "TLS handshakes with clients, by outcome."
    );
    describe_histogram!(
        "tollgate_tls_handshake_duration_seconds",
        "How long TLS handshakes that succeeded took."
    );
    describe_counter!(
        "tollgate_tls_certificate_reloads_total",
        "Times that changed certificate files were read, by outcome."
    );
    describe_gauge!(
        "tollgate_tls_certificate_expiry_timestamp_seconds",
        "When each certificate ends to be valid."
    );
    describe_counter!(
        "tollgate_proxy_protocol_connections_total",
        "Connections that had to begin with a header of the PROXY protocol, by outcome."
    );
    describe_counter!(
        "tollgate_config_reloads_total",
        "Reloads of the configuration, by outcome."
    );
    describe_gauge!(
        "tollgate_config_last_reload_successful",
        "Whether the configuration file was taken over when it was last read (1) or refused (0)."
    );
    describe_gauge!(
        "tollgate_config_last_reload_success_timestamp_seconds",
        "When a configuration was last taken over, in seconds since 1970."
    );
    describe_gauge!(
        "tollgate_policy_revision",
        "The revision of the policies at work. 0: none yet."
    );
    describe_gauge!(
        "tollgate_policy_age_seconds",
        "How long ago the database of policies last answered, or else since this process began."
    );
    describe_counter!(
        "tollgate_policy_rollouts_total",
        "Candidates of strategies that this node stopped, took away or promoted, by outcome."
    );
    describe_counter!(
        "tollgate_policy_updates_total",
        "New revisions of policies, by outcome."
    );
    describe_counter!(
        "tollgate_admin_changes_total",
        "Buckets changed by operators through this node, by action."
    );
    describe_counter!(
        "tollgate_compression_original_bytes_total",
        "Bytes of content that were compressed, before."
    );
    describe_counter!(
        "tollgate_compression_compressed_bytes_total",
        "Bytes of content that were compressed, afterwards."
    );
    describe_counter!(
        "tollgate_compression_skipped_total",
        "Answers sent as they are, since the process had no place for another compressor."
    );
    describe_counter!(
        "tollgate_panics_total",
        "Requests that ended in a panic: each is a bug."
    );
    describe_counter!(
        "tollgate_access_log_dropped_total",
        "Access log lines dropped because their reader was too slow, or they could not be written."
    );
    describe_counter!(
        "tollgate_log_dropped_total",
        "Lines of the gateway's own log dropped because their reader was too slow, or they could not be written."
    );
    describe_gauge!("tollgate_build_info", "1, with the version as a label.");
}
