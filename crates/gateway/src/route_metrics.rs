//! The metrics of a route: how many requests it answered, by method and status, and how long they
//! took. Besides, its access log.
//!
//! Handles are resolved once per route, or when a method and status are first seen. Counting a
//! request takes no lock and no allocation.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use http::{Method, StatusCode};
use metrics::{Counter, Histogram, counter, histogram};
use parking_lot::Mutex;

use super::access_log::RouteLog;
use tollgate_wire::grpc::GrpcStatus;

/// Pairs of method and status whose counters are found without a lock. Routes answer with few.
const SLOTS: usize = 24;

/// The metrics of one route.
pub struct RouteMetrics {
    pub route: Arc<str>,
    /// The access log. `None`: the route's requests have no lines in it.
    pub log: Option<RouteLog>,
    pub duration: Histogram,
    pub requests: RequestCounters,
    /// Resolved by the route's first call of gRPC: most routes have none.
    calls: OnceLock<CallCounters>,
}

/// `tollgate_grpc_calls_total` of one route, by status.
struct CallCounters([Counter; GrpcStatus::ALL.len()]);

/// `tollgate_requests_total` of one route, by method and status. Slots are filled in order and
/// never emptied.
pub struct RequestCounters {
    slots: [OnceLock<RequestCounter>; SLOTS],
    /// Counters that found all slots taken.
    overflow: Mutex<HashMap<(Method, StatusCode), Counter>>,
}

struct RequestCounter {
    method: Method,
    status: StatusCode,
    counter: Counter,
}

impl RouteMetrics {
    /// Resolves the metrics of the route called `route`.
    pub fn new(route: Arc<str>, log: Option<RouteLog>) -> Self {
        let duration =
            histogram!("tollgate_request_duration_seconds", "route" => route.to_string());
        Self {
            route,
            log,
            duration,
            requests: RequestCounters::new(),
            calls: OnceLock::new(),
        }
    }

    /// Counts an ended call of gRPC.
    pub fn count_call(&self, status: GrpcStatus) {
        let calls = self.calls.get_or_init(|| CallCounters::new(&self.route));
        calls.0[usize::from(status.code())].increment(1);
    }
}

impl CallCounters {
    fn new(route: &str) -> Self {
        Self(GrpcStatus::ALL.map(|status| {
            let route = route.to_owned();
            let code = status.code().to_string();
            counter!("tollgate_grpc_calls_total", "route" => route, "grpc_status" => code)
        }))
    }
}

impl RequestCounters {
    fn new() -> Self {
        Self {
            slots: [const { OnceLock::new() }; SLOTS],
            overflow: Mutex::default(),
        }
    }

    /// Counts an answered request of the route called `route`. `method` is a label: see
    /// [`method_label`].
    pub fn increment(&self, route: &str, method: &Method, status: StatusCode) {
        for slot in &self.slots {
            let slot = slot.get_or_init(|| RequestCounter::new(route, method, status));
            if slot.status == status && slot.method == *method {
                return slot.counter.increment(1);
            }
        }
        let mut overflow = self.overflow.lock();
        let counter = overflow
            .entry((method.clone(), status))
            .or_insert_with(|| RequestCounter::new(route, method, status).counter);
        counter.increment(1);
    }
}

impl RequestCounter {
    fn new(route: &str, method: &Method, status: StatusCode) -> Self {
        let counter = counter!(
            "tollgate_requests_total",
            "route" => route.to_owned(),
            "method" => method.to_string(),
            "status" => status.as_str().to_owned(),
        );
        Self {
            method: method.clone(),
            status,
            counter,
        }
    }
}

/// The label of a request without a readable method, and of methods nobody registered.
pub fn other_method() -> Method {
    Method::from_bytes(b"OTHER").unwrap_or_default()
}

/// The method as a metric label. Methods nobody registered share one, or clients could grow the
/// metrics without bound.
pub fn method_label(method: &Method) -> Method {
    const REGISTERED: [Method; 9] = [
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
    if REGISTERED.contains(method) {
        method.clone()
    } else {
        other_method()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots_taken(counters: &RequestCounters) -> usize {
        counters
            .slots
            .iter()
            .filter(|slot| slot.get().is_some())
            .count()
    }

    #[test]
    fn methods_nobody_registered_share_a_label() {
        assert_eq!(method_label(&Method::GET), Method::GET);
        assert_eq!(
            method_label(&Method::from_bytes(b"BREW").unwrap()).as_str(),
            "OTHER"
        );
    }

    #[test]
    fn each_method_and_status_has_one_counter() {
        let counters = RequestCounters::new();
        for _ in 0..3 {
            counters.increment("r", &Method::GET, StatusCode::OK);
            counters.increment("r", &Method::GET, StatusCode::NOT_FOUND);
            counters.increment("r", &Method::POST, StatusCode::OK);
        }
        assert_eq!(
            (slots_taken(&counters), counters.overflow.lock().len()),
            (3, 0)
        );
    }

    #[test]
    fn pairs_beyond_the_slots_are_counted_too() {
        let counters = RequestCounters::new();
        for code in (200..200 + SLOTS as u16 + 2).chain([200, 225]) {
            counters.increment("r", &Method::GET, StatusCode::from_u16(code).unwrap());
        }
        assert_eq!(
            (slots_taken(&counters), counters.overflow.lock().len()),
            (SLOTS, 2)
        );
    }
}
