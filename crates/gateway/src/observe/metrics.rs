//! The table of the gateway's metrics: names, kinds, labels, help texts and buckets of histograms.
//!
//! Descriptions in the recorder and `docs/metrics.md` come from this table. Modules resolve their
//! handles once and never format a label per request. The key of a limit is never a label.

use metrics::{
    SetRecorderError, describe_counter, describe_gauge, describe_histogram, gauge,
    set_global_recorder,
};
use metrics_exporter_prometheus::PrometheusBuilder;

use super::recorder::{MetricsHandle, MetricsRecorder};

#[cfg(test)]
mod tests;

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

/// A row of the table.
struct Metric {
    name: &'static str,
    kind: MetricKind,
    #[cfg_attr(
        not(test),
        expect(
            dead_code,
            reason = "the page shows the labels, and a test compares them"
        )
    )]
    labels: &'static [&'static str],
    /// The meaning, in Markdown. Links start in `docs/`.
    meaning: &'static str,
}

enum MetricKind {
    Counter,
    Gauge,
    /// Upper bounds of the buckets, the least first.
    Histogram(&'static [f64]),
}

/// Makes [`METRICS`] of rows: a kind, a name, labels and a meaning.
macro_rules! table {
    ($($kind:ident$(($bounds:ident))? $name:literal $labels:tt: $meaning:literal,)*) => {
        /// Every metric but `process_*`, which their own library describes. In the page's order.
        const METRICS: &[Metric] = &[$(Metric {
            name: $name,
            kind: MetricKind::$kind$(($bounds))?,
            labels: &$labels,
            meaning: $meaning,
        },)*];
    };
}

table! {
    Counter "tollgate_requests_total" ["route", "method", "status"]: "requests answered",
    Histogram(REQUEST_BUCKETS) "tollgate_request_duration_seconds" ["route"]:
        "from a request's head to the end of its response's body",
    Gauge "tollgate_requests_in_flight" []: "requests whose answer has not ended, tunnels included",
    Gauge "tollgate_tunnels" []: "open tunnels, such as WebSockets",
    Counter "tollgate_grpc_calls_total" ["route", "grpc_status"]: "calls of gRPC answered",
    Counter "tollgate_panics_total" []: "requests answered with 500 because of a bug in Tollgate",
    Gauge "tollgate_route_maintenance" ["route"]:
        "1 while a route is [under maintenance](maintenance.md), else 0",
    Counter "tollgate_maintenance_answers_total" ["route"]:
        "requests that were answered with 503 because their route was under maintenance",
    Counter "tollgate_authentications_total" ["authenticator", "outcome"]:
        "[how requests fared](identity.md#watching-it) with an authenticator: `accepted`, \
         `absent`, `rejected`, `forbidden`, `limited`, `unavailable`",
    Counter "tollgate_authenticator_reloads_total" ["authenticator", "outcome"]:
        "files of credentials and keys of issuers: `applied` or `rejected`",
    Gauge "tollgate_authenticator_credentials" ["authenticator"]:
        "credentials, or keys for them, that an authenticator knows",
    Counter "tollgate_api_key_lookups_total" ["authenticator", "outcome"]:
        "[API keys looked up in Redis](identity.md#keys-in-redis): `found`, `none`, `invalid`, \
         `failed`",
    Counter "tollgate_forward_auth_lookups_total" ["authenticator", "outcome"]:
        "looks for [kept answers](forward-auth.md#keeping-answers) of a service that knows \
         clients: `found` or `none`",
    Counter "tollgate_password_hashes_total" ["authenticator"]:
        "[passwords that were hashed](passwords.md#watching-it) to be checked",
    Counter "tollgate_ratelimit_decisions_total" ["limit", "verdict", "decided_by"]:
        "[decisions](how-it-works.md#who-decides) on each limit: `allowed`, `denied`, `degraded`, `exempt`, and `shadow_allowed` or \
         `shadow_denied` of a limit that does not act. They were made by `redis`, by tokens taken \
         ahead (`lease`), by a denial of the last second that this node remembers (`denial_cache`), or by this node \
         (`local`: there is no store, or it is away)",
    Gauge "tollgate_ratelimit_queue_waiting" ["limit"]: "requests that wait for their tokens",
    Histogram(REQUEST_BUCKETS) "tollgate_ratelimit_queue_wait_seconds" ["limit"]:
        "how long requests waited for their tokens",
    Counter "tollgate_ratelimit_settlements_total" ["limit", "outcome"]:
        "costs that the response reported, or whose response [counts or \
         not](configuration/limits/cost.md#counting-by-status): `more` or `less` than was reserved, `even`, \
         `late` (less, but nothing left to give back), `unreached` (given back whole), `uncounted` \
         (given back, since responses of this status do not count); `absent`, `unreadable` and \
         `cut` leave the reservation as it is, or cost what `absent` says",
    Counter "tollgate_ratelimit_settlements_lost_total" []:
        "reservations that could not be given back: Redis was away, or too many waited",
    Gauge "tollgate_local_buckets" []: "buckets kept in this process",
    Gauge "tollgate_store_up" []:
        "1 while the store decides, 0 while limits (in a cluster: some) hold node by node; a node \
         without requests looks once a second",
    Gauge "tollgate_store_servers_away" []:
        "servers of the store that are away; more than one only in a cluster",
    Counter "tollgate_store_evicted_keys_total" []:
        "[keys that Redis evicted](configuration/store.md#memory) to make room, whosesoever, since this node \
         began to look",
    Counter "tollgate_store_calls_total" ["outcome"]:
        "calls to Redis: `ok`, or [why not](operating.md#surviving-an-outage-of-the-store); calls \
         with `late` were counted as `timeout` before",
    Histogram(STORE_BUCKETS) "tollgate_store_call_duration_seconds" []:
        "how long calls to Redis took, with the time that they waited for others to go together",
    Histogram(BATCH_BUCKETS) "tollgate_store_batch_requests" []:
        "equal requests that shared a call to Redis; calls for different clients may share a command, too, \
         and are counted apart",
    Counter "tollgate_store_breaker_transitions_total" ["to"]:
        "turns of the breaker before the store, to `open` or to `closed`",
    Gauge "tollgate_store_debts_pending" []:
        "buckets that are owed what this node admitted without Redis",
    Counter "tollgate_store_debts_waived_total" []:
        "debts of an outage that were dropped: there were too many, or their key holds another \
         program's value, or tokens of another algorithm",
    Counter "tollgate_store_adjustments_failed_total" []:
        "charges and refunds that Redis did not confirm in time; they are sent again, and count \
         once",
    Counter "tollgate_plan_lookups_total" ["outcome"]:
        "values looked up in hashes of plans: `found`, `none`, `invalid` (a text that is no plan), \
         `failed` (no answer), `skipped` (too many wait)",
    Gauge "tollgate_fleet_heartbeat_up" []:
        "1 while the fleet hears of this node, 0 while its heartbeats fail",
    Gauge "tollgate_fleet_nodes" []: "nodes of the fleet, by their heartbeats in Redis",
    Gauge "tollgate_fleet_nodes_silent" []:
        "nodes that fell silent, whose share the others hold back",
    Gauge "tollgate_fleet_share_held_back_ratio" []:
        "the part of the limits' rate that is held back for silent nodes, from 0 to 1",
    Counter "tollgate_upstream_requests_total" ["upstream", "outcome"]:
        "[requests sent upstream](proxying.md#metrics)",
    Histogram(REQUEST_BUCKETS) "tollgate_upstream_response_seconds" ["upstream"]:
        "from sending a request upstream to the head of its response",
    Gauge "tollgate_upstream_connections" ["upstream"]:
        "open connections to an upstream, tunnels included",
    Counter "tollgate_upstream_connects_total" ["upstream", "outcome"]:
        "connections tried to an upstream: `connected`, `failed`, `timeout`, `tls_failed`, \
         `exhausted`",
    Gauge "tollgate_upstream_pending_requests" ["upstream"]:
        "requests that wait for a connection at their upstream's bound",
    Gauge "tollgate_upstream_concurrency_limit" ["upstream"]:
        "requests that may wait for an answer of an upstream with an [adaptive bound](adaptive.md)",
    Gauge "tollgate_upstream_min_rtt_seconds" ["upstream"]:
        "the latency of an upstream with an [adaptive bound](adaptive.md) without a queue, as last \
         measured; 0 before",
    Counter "tollgate_upstream_retries_total" ["upstream"]: "times that a request was sent again",
    Counter "tollgate_upstream_retried_requests_total" ["upstream", "outcome"]:
        "[requests that a route sent again](retries.md#watching), or would have: `succeeded` in \
         the end, `failed` in all attempts, or `over_budget`",
    Counter "tollgate_upstream_lookups_total" ["outcome"]:
        "lookups of endpoints' names: `resolved`, `failed`, `refused` (too many were under way)",
    Gauge "tollgate_upstream_lookups_under_way" []: "lookups of endpoints' names under way",
    Gauge "tollgate_upstream_endpoint_up" ["upstream", "endpoint"]:
        "1 while an endpoint [is in service](health.md#watching), 0 while it is ejected or \
         unhealthy",
    Counter "tollgate_upstream_endpoint_ejections_total" ["upstream", "endpoint", "reason"]:
        "how often an endpoint was ejected, for `failures` or for `latency`",
    Counter "tollgate_upstream_endpoint_probes_total" ["upstream", "endpoint", "outcome"]:
        "probes of an endpoint's health that `passed` or `failed`",
    Counter "tollgate_discovery_lookups_total" ["upstream", "outcome"]:
        "[lookups of endpoints](discovery.md#watching): `answered`, `empty`, `failed`, `cut`",
    Counter "tollgate_discovery_changes_total" ["upstream"]:
        "how often the endpoints that were found changed",
    Gauge "tollgate_discovery_endpoints" ["upstream"]: "endpoints that were found",
    Gauge "tollgate_discovery_last_success_timestamp_seconds" ["upstream"]:
        "when the endpoints of an upstream were last confirmed, in seconds since 1970",
    Counter "tollgate_mirrored_requests_total" ["route", "outcome"]:
        "[copies of requests](balancing.md#mirror): `answered`, `failed`, `too_many`, `too_large`, \
         `incomplete`",
    Counter "tollgate_bodies_not_kept_total" []:
        "bodies for which [`keep_body`](retries.md#the-budget) had no memory left",
    Counter "tollgate_body_keys_total" ["route", "outcome"]:
        "bodies that were read for [keys](body-keys.md): `found`, `missing`, `refused`",
    Gauge "tollgate_connections" []: "open connections of clients",
    Counter "tollgate_connections_total" []: "connections of clients that were accepted",
    Counter "tollgate_connections_closed_for_room_total" []:
        "idle client connections closed because another one needed room",
    Counter "tollgate_connections_refused_total" []:
        "client connections reset because their client had as many as it may",
    Counter "tollgate_slow_bodies_total" ["kind"]:
        "bodies of a `request` or a `response` cut off because the client was slower than \
         [`min_body_rate`](overload.md#slow-clients)",
    Counter "tollgate_http2_floods_total" ["kind"]:
        "HTTP/2 connections closed for what their client sent: `resets`, `control_frames`, `other`",
    Counter "tollgate_tls_handshakes_total" ["outcome"]:
        "[TLS handshakes](tls.md#metrics) with clients: `full`, `resumed`, `timeout`, `closed`, \
         `plain_http`, `client_certificate`, `failed`, `evicted`",
    Histogram(REQUEST_BUCKETS) "tollgate_tls_handshake_duration_seconds" []:
        "how long TLS handshakes that succeeded took",
    Gauge "tollgate_tls_certificate_expiry_timestamp_seconds" ["certificate"]:
        "when each certificate file ends to be valid",
    Counter "tollgate_tls_certificate_reloads_total" ["outcome"]:
        "changed certificate files that were `applied`, or `rejected` and changed nothing",
    Counter "tollgate_proxy_protocol_connections_total" ["outcome"]:
        "connections to ports with `proxy_protocol`: `accepted`, `untrusted`, `malformed`, \
         `timeout`, `closed`, `evicted`",
    Counter "tollgate_compression_original_bytes_total" ["route"]:
        "bytes of content before [compression](compression.md)",
    Counter "tollgate_compression_compressed_bytes_total" ["route"]:
        "bytes of content after [compression](compression.md)",
    Counter "tollgate_compression_skipped_total" ["route"]:
        "answers sent as they are, since the process or the client had as many compressors as it may",
    Counter "tollgate_config_reloads_total" ["outcome"]:
        "files of the configuration that were `applied` or `rejected`; both start at 0",
    Gauge "tollgate_config_last_reload_successful" []: "1, or 0 while the present file is refused",
    Gauge "tollgate_config_last_reload_success_timestamp_seconds" []:
        "when a file was last applied",
    Gauge "tollgate_policy_revision" []:
        "the revision of the [policies](policies.md#in-a-database) at work; 0: none yet",
    Gauge "tollgate_policy_age_seconds" []:
        "how long ago the database of policies answered, or else since this process began",
    Counter "tollgate_policy_updates_total" ["outcome"]:
        "new revisions: `applied`, or `refused` since they do not fit this node's file; both start \
         at 0",
    Counter "tollgate_policy_rollouts_total" ["outcome"]:
        "[candidates](rollouts.md) that this node `stopped`, and that its commits `aborted` or \
         `promoted`; all start at 0",
    Counter "tollgate_admin_changes_total" ["action"]:
        "buckets that operators changed through this node: `reset`, or given tokens (`grant`)",
    Counter "tollgate_access_log_dropped_total" []:
        "lines of the [access log](access-log.md#when-lines-are-lost) that were lost: their reader \
         was too slow, or they could not be written",
    Counter "tollgate_log_dropped_total" []:
        "lines of the gateway's own log that were lost: their reader was too slow, or they could \
         not be written",
    Gauge "tollgate_build_info" ["version"]: "always 1",
}

/// Installs the process's recorder. Once per process.
pub fn install() -> Result<MetricsHandle, SetRecorderError<MetricsRecorder>> {
    let recorder = MetricsRecorder::new(PrometheusBuilder::new().build_recorder(), buckets);
    let handle = recorder.handle();
    set_global_recorder(recorder)?;
    METRICS.iter().for_each(Metric::describe);
    gauge!("tollgate_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    Ok(handle)
}

/// Upper bounds of a histogram's buckets. Empty for a name that is not in the table.
fn buckets(histogram: &str) -> &'static [f64] {
    for metric in METRICS {
        if let MetricKind::Histogram(bounds) = metric.kind
            && metric.name == histogram
        {
            return bounds;
        }
    }
    &[]
}

impl Metric {
    fn describe(&self) {
        let help = plain_text(self.meaning);
        match self.kind {
            MetricKind::Counter => describe_counter!(self.name, help),
            MetricKind::Gauge => describe_gauge!(self.name, help),
            MetricKind::Histogram(_) => describe_histogram!(self.name, help),
        }
    }
}

/// Markdown without its marks of code and the targets of its links.
fn plain_text(markdown: &str) -> String {
    let mut text = String::new();
    let mut rest = markdown;
    while let Some((before, link)) = rest.split_once('[') {
        let (label, target) = link.split_once("](").unwrap_or((link, ""));
        text += before;
        text += label;
        rest = target.split_once(')').map_or("", |(_, after)| after);
    }
    (text + rest).replace('`', "")
}
