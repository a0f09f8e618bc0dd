//! The account of one request: opened at its head, settled when its answer's body has ended or was dropped.
//!
//! Counts, times and logs. Handles are resolved once per route; nothing is formatted per request unless the access log
//! is on.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::UNIX_EPOCH;

use http::{HeaderValue, Method, StatusCode};
use metrics::{Counter, Histogram, counter, histogram};
use serde::Serialize;
use tollgate_limiter::request::permit::Permit;

use crate::body::Observer;
use crate::clock::{self, Instant};
use crate::error;
use crate::telemetry::AccessLog;

/// The metrics of one route.
pub struct RouteMetrics {
    route: Arc<str>,
    duration: Histogram,
    requests: Tally,
}

/// `tollgate_requests_total` of one route: a list of the counters that were needed so far, append-only and without
/// locks. Routes answer with few methods and statuses, so the list is short.
#[derive(Default)]
struct Tally(OnceLock<Box<Entry>>);

struct Entry {
    method: Method,
    status: StatusCode,
    counter: Counter,
    next: Tally,
}

/// Requests in flight, of one worker.
#[derive(Debug, Default)]
pub struct InFlight(AtomicUsize);

/// One request's account. Settled when dropped, so that a client that leaves early is counted too.
pub struct Account {
    started: Instant,
    in_flight: Arc<InFlight>,
    method: Method,
    log: Option<Box<Entered>>,
    pub metrics: Arc<RouteMetrics>,
    pub status: StatusCode,
    /// Why the gateway answered itself, by the failure's name.
    pub problem: Option<&'static str>,
    /// What the request's limits want to know of the answer.
    pub permit: Permit,
    bytes: u64,
    complete: bool,
}

/// What the access log wants to know, gathered at the head of a request.
pub struct Entered {
    pub log: AccessLog,
    pub client: String,
    pub host: String,
    pub path: String,
    pub protocol: &'static str,
    pub request_id: HeaderValue,
    pub user_agent: Option<HeaderValue>,
}

/// One line of the access log.
#[derive(Serialize)]
struct Line<'a> {
    /// Seconds since 1970-01-01T00:00:00Z at the end of the answer, to the microsecond.
    time: f64,
    client: &'a str,
    method: &'a str,
    host: &'a str,
    /// Without the query: queries carry secrets.
    path: &'a str,
    protocol: &'a str,
    route: &'a str,
    status: u16,
    bytes: u64,
    /// Whether the whole answer was sent.
    complete: bool,
    /// To the microsecond.
    duration_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<&'a str>,
    request_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_agent: Option<&'a str>,
}

impl RouteMetrics {
    /// Resolves the metrics of the route called `route`.
    pub fn of(route: Arc<str>) -> Self {
        let duration = histogram!("tollgate_request_duration_seconds", "route" => route.to_string());
        Self { route, duration, requests: Tally::default() }
    }
}

impl Tally {
    /// The counter of this method and status, made when first needed.
    fn get(&self, route: &str, method: &Method, status: StatusCode) -> &Counter {
        let mut tally = self;
        loop {
            let entry = tally.0.get_or_init(|| Entry::new(route, method, status));
            if entry.method == *method && entry.status == status {
                return &entry.counter;
            }
            tally = &entry.next;
        }
    }
}

impl Entry {
    fn new(route: &str, method: &Method, status: StatusCode) -> Box<Self> {
        let counter = counter!(
            "tollgate_requests_total",
            "route" => route.to_owned(),
            "method" => method.to_string(),
            "status" => status.as_str().to_owned(),
        );
        Box::new(Self { method: method.clone(), status, counter, next: Tally::default() })
    }
}

impl InFlight {
    /// Counts one more; says how many there were before.
    pub fn enter(&self) -> usize {
        self.0.fetch_add(1, Ordering::Relaxed)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn leave(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The method of what could not be read, and the metric label of methods nobody registered.
pub fn unknown_method() -> Method {
    Method::from_bytes(b"OTHER").unwrap_or_default()
}

/// The method as a metric label: methods nobody registered share one, or clients could grow the metrics without bound.
pub fn known_method(method: &Method) -> Method {
    const KNOWN: [Method; 9] = [
        Method::GET,
        Method::POST,
        Method::HEAD,
        Method::PUT,
        Method::DELETE,
        Method::PATCH,
        Method::OPTIONS,
        Method::CONNECT,
        Method::TRACE,
    ];
    if KNOWN.contains(method) { method.clone() } else { unknown_method() }
}

impl Account {
    /// Opens the account of a request that started at `started` and is counted in `in_flight` already; it is counted out
    /// with the account. `method` is a label: see [`known_method`].
    pub fn open(
        started: Instant,
        in_flight: Arc<InFlight>,
        method: Method,
        metrics: Arc<RouteMetrics>,
        log: Option<Box<Entered>>,
    ) -> Box<Self> {
        let status = error::client_closed();
        let (permit, bytes, complete) = (Permit::default(), 0, false);
        Box::new(Self { started, in_flight, method, log, metrics, status, problem: None, permit, bytes, complete })
    }

    fn line<'a>(&'a self, entered: &'a Entered, seconds: f64) -> Line<'a> {
        Line {
            time: clock::wall().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_micros() as f64 / 1e6),
            client: &entered.client,
            method: self.method.as_str(),
            host: &entered.host,
            path: &entered.path,
            protocol: entered.protocol,
            route: &self.metrics.route,
            status: self.status.as_u16(),
            bytes: self.bytes,
            complete: self.complete,
            duration_ms: (seconds * 1e6).round() / 1e3,
            problem: self.problem,
            request_id: entered.request_id.to_str().unwrap_or_default(),
            user_agent: entered.user_agent.as_ref().and_then(|value| value.to_str().ok()),
        }
    }
}

impl Observer for Account {
    fn saw(&mut self, piece: &[u8]) {
        self.permit.saw(piece);
    }

    fn ended(mut self: Box<Self>, bytes: u64, complete: bool) {
        self.bytes = bytes;
        // The answer to a HEAD is its head: nobody asks for its body.
        self.complete = complete || self.method == Method::HEAD;
        self.permit.ended(self.complete);
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let seconds = clock::now().saturating_duration_since(self.started).as_secs_f64();
        self.in_flight.leave();
        self.metrics.duration.record(seconds);
        self.metrics.requests.get(&self.metrics.route, &self.method, self.status).increment(1);
        if let Some(entered) = &self.log {
            entered.log.record(&self.line(entered, seconds));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_nobody_registered_share_a_label() {
        assert_eq!(known_method(&Method::GET), Method::GET);
        assert_eq!(known_method(&Method::from_bytes(b"BREW").unwrap()).as_str(), "OTHER");
    }

    #[test]
    fn a_tally_keeps_one_entry_for_each_method_and_status() {
        let tally = Tally::default();
        for _ in 0..3 {
            tally.get("r", &Method::GET, StatusCode::OK);
            tally.get("r", &Method::GET, StatusCode::NOT_FOUND);
            tally.get("r", &Method::POST, StatusCode::OK);
        }
        let mut length = 0;
        let mut at = &tally;
        while let Some(entry) = at.0.get() {
            length += 1;
            at = &entry.next;
        }
        assert_eq!(length, 3);
    }
}
