//! The account of one request: opened at its head, settled when the body of its answer has ended or
//! was dropped.
//!
//! Counts, times and logs. Nothing is formatted per request unless the access log is on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{HeaderMap, Method, Response, StatusCode};
use tollgate_limiter::limit::key::CallerIdentity;
use tollgate_limiter::request::permit::Permit;

use super::access_log::{LoggedAnswer, LoggedRequest};
use super::route_metrics::RouteMetrics;
use tollgate_limiter::clock::{self, Instant};
use tollgate_proxy::{TunnelBytes, TunnelEnd, TunnelObserver};
use tollgate_wire::body::{Body, BodyObserver};
use tollgate_wire::error;
use tollgate_wire::grpc::{GRPC_STATUS, GrpcStatus};

/// Requests in flight, of one worker.
#[derive(Debug, Default)]
pub struct InFlight {
    requests: AtomicUsize,
    /// Requests among them that have become tunnels.
    tunnels: AtomicUsize,
}

/// The account of one request. Settled when dropped, so that a client that leaves early is counted
/// too.
pub struct Account {
    started: Instant,
    in_flight: Arc<InFlight>,
    method: Method,
    /// The request's line, where it is logged.
    pub log: Option<Box<LoggedRequest>>,
    pub metrics: Arc<RouteMetrics>,
    pub status: StatusCode,
    /// The name of the failure that the gateway answered with.
    pub problem: Option<&'static str>,
    /// The permit that the request holds until the answer has ended.
    pub permit: Permit,
    /// The outcome of a call of gRPC. `None` for other requests.
    pub grpc: Option<CallOutcome>,
    bytes: u64,
    complete: bool,
    /// The time when the answer ended. `None`: now.
    ended: Option<Instant>,
    /// Bytes from the client of a tunnel.
    received: Option<u64>,
}

/// How a call of gRPC ended, as far as its answer said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallOutcome(pub Option<GrpcStatus>);

impl InFlight {
    /// Counts one request more. Returns how many there were before.
    pub fn enter(&self) -> usize {
        self.requests.fetch_add(1, Ordering::Relaxed)
    }

    /// Requests in flight, tunnels included.
    pub fn count(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }

    /// Tunnels in flight.
    pub fn tunnels(&self) -> usize {
        self.tunnels.load(Ordering::Relaxed)
    }

    fn leave(&self) {
        self.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Account {
    /// Opens the account of a request that started at `started` and is counted in `in_flight`
    /// already; dropping the account counts it out. `method` is a label: see
    /// [`method_label`](super::route_metrics::method_label).
    pub fn open(
        started: Instant,
        in_flight: Arc<InFlight>,
        method: Method,
        metrics: Arc<RouteMetrics>,
    ) -> Box<Self> {
        Box::new(Self {
            started,
            in_flight,
            method,
            log: None,
            metrics,
            status: error::client_closed(),
            problem: None,
            permit: Permit::default(),
            grpc: None,
            bytes: 0,
            complete: false,
            ended: None,
            received: None,
        })
    }

    /// Writes the client, who has said who it is, into the request's line.
    pub fn identify(&mut self, identity: &Arc<CallerIdentity>) {
        if let Some(log) = &mut self.log {
            log.identity = Some(identity.clone());
        }
    }

    /// Counts the request as a tunnel, which it has become and ends with.
    fn begin_tunnel(&mut self) {
        self.in_flight.tunnels.fetch_add(1, Ordering::Relaxed);
        self.received = Some(0);
    }

    /// Takes the status of a call from the header section or the trailers of its answer.
    pub fn read_grpc_status(&mut self, fields: &HeaderMap) {
        if let (Some(outcome), Some(status)) = (&mut self.grpc, fields.get(GRPC_STATUS)) {
            outcome.0 = Some(GrpcStatus::read(status));
        }
    }

    /// Settles the request with the status of its answer, at the end of the answer's body, or of
    /// the tunnel that it begins.
    #[inline]
    pub fn follow(mut self: Box<Self>, response: &mut Response<Body>) {
        self.status = response.status();
        match response.extensions_mut().remove::<TunnelEnd>() {
            Some(end) => {
                self.begin_tunnel();
                end.observe(self);
            }
            None => response.body_mut().observe(self),
        }
    }
}

impl BodyObserver for Account {
    fn on_data(&mut self, data: &[u8]) {
        self.permit.saw(data);
    }

    fn on_trailers(&mut self, trailers: &HeaderMap) {
        self.read_grpc_status(trailers);
    }

    fn on_end(mut self: Box<Self>, bytes: u64, complete: bool, now: Option<Instant>) {
        self.bytes = bytes;
        self.ended = now;
        // The answer to a HEAD is its head: its body is not sent.
        self.complete = complete || self.method == Method::HEAD;
        self.permit.ended(self.complete);
    }
}

impl TunnelObserver for Account {
    fn on_end(mut self: Box<Self>, bytes: TunnelBytes, complete: bool) {
        self.bytes = bytes.from_upstream;
        self.received = Some(bytes.from_client);
        self.complete = complete;
        self.permit.ended(complete);
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let ended = self.ended.unwrap_or_else(clock::now);
        let seconds = ended.saturating_duration_since(self.started).as_secs_f64();
        self.in_flight.leave();
        if self.received.is_some() {
            // How long people stay in a tunnel says nothing of how fast they are served.
            self.in_flight.tunnels.fetch_sub(1, Ordering::Relaxed);
        } else {
            self.metrics.duration.record(seconds);
        }
        self.metrics
            .requests
            .increment(&self.metrics.route, &self.method, self.status);
        // A call whose answer broke off has the status that its client makes of that.
        let grpc_status = self
            .grpc
            .map(|outcome| outcome.0.unwrap_or(GrpcStatus::Unknown));
        if let Some(status) = grpc_status {
            self.metrics.count_call(status);
        }
        if let (Some(request), Some(log)) = (&self.log, &self.metrics.log) {
            let answer = LoggedAnswer {
                route: &self.metrics.route,
                status: self.status.as_u16(),
                bytes: self.bytes,
                received: self.received,
                complete: self.complete,
                started: self.started,
                ended,
                problem: self.problem,
                grpc_status: grpc_status.map(GrpcStatus::code),
            };
            log.record(request, &answer);
        }
    }
}
