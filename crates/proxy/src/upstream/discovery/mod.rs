//! Endpoints that are found while the gateway runs: by DNS, or in a file under watch. `spec` says
//! how, `dns` asks, `records` makes endpoints of the answers, `metrics` counts, `change_log` keeps
//! a name that flaps from flooding the log, and `own_ports` keeps clients from the admin server.
//!
//! Guarantees that a list is only replaced by a better one: a lookup that fails, or says that there
//! is nothing, leaves it for as long as the operator says. A list has at most [`MOST_ENDPOINTS`].

mod change_log;
pub mod dns;
mod metrics;
pub mod own_ports;
mod questions;
mod records;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use self::change_log::ChangeLog;
use self::dns::{DnsOutcome, FoundEndpoints};
use self::metrics::DiscoveryMetrics;
use super::health::micros;
pub use super::spec::discovery::{DiscoverySpec, DnsQuestion, DnsSpec, MOST_ENDPOINTS};
use super::spec::endpoint::EndpointSpec;
use tollgate_limiter::clock;

/// How soon a name is asked for again that could not be looked up, at most: later by twice each
/// time.
const LONGEST_RETRY: Duration = Duration::from_secs(5);

/// The running discovery of an upstream. Outlives a reload that does not change it.
pub struct Discovery {
    upstream: Arc<str>,
    spec: DiscoverySpec,
    list: ArcSwap<EndpointList>,
    state: Mutex<DiscoveryState>,
    /// When the next lookup is due, in microseconds of the monotonic clock. 0: at once.
    due: AtomicU64,
    under_way: AtomicBool,
    metrics: DiscoveryMetrics,
    /// The changes of the list.
    changes: Mutex<ListChanges>,
}

/// The endpoints that were found.
#[derive(Default)]
pub struct EndpointList {
    /// Differs between any two lists. 0: nothing was found yet.
    pub version: u64,
    pub endpoints: Box<[EndpointSpec]>,
}

/// Changes of the list that were not logged yet.
#[derive(Default)]
struct ListChanges {
    log: ChangeLog,
    added: usize,
    removed: usize,
    /// Whether the last list was cut.
    is_cut: bool,
    cut: ChangeLog,
}

/// Changes of a list, in one line of the log.
pub struct LoggedChanges {
    pub changes: u32,
    pub added: usize,
    pub removed: usize,
}

/// Whether the last list is right, as far as is known.
#[derive(Default)]
struct DiscoveryState {
    standing: LookupStanding,
    /// Why the last lookup failed, if it did.
    error: Option<Arc<str>>,
    /// When the last answer came, in microseconds since 1970.
    confirmed_at: Option<u64>,
    /// Since when there has been no answer, or one that says that there is nothing: in microseconds
    /// of the monotonic clock.
    failing_since: Option<u64>,
    empty_since: Option<u64>,
    /// Failures in a row.
    failures: u32,
    log: ChangeLog,
}

/// The outcome of the last lookup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LookupStanding {
    /// There was none yet.
    #[default]
    Unknown,
    Confirmed,
    Empty,
    Failing,
}

/// A discovery, for operators.
pub struct DiscoveryStanding {
    pub standing: LookupStanding,
    pub error: Option<Arc<str>>,
    /// In microseconds since 1970.
    pub confirmed_at: Option<u64>,
}

/// The one lookup of a discovery that is under way, until it is dropped.
pub struct LookupTurn<'a>(&'a Discovery);

impl LookupStanding {
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Confirmed => "confirmed",
            Self::Empty => "empty",
            Self::Failing => "failing",
        }
    }
}

impl Discovery {
    /// Has found nothing yet. Resolves its metrics.
    pub fn new(upstream: &Arc<str>, spec: DiscoverySpec) -> Self {
        Self {
            upstream: upstream.clone(),
            spec,
            list: ArcSwap::default(),
            state: Mutex::default(),
            due: AtomicU64::new(0),
            under_way: AtomicBool::new(false),
            metrics: DiscoveryMetrics::new(upstream),
            changes: Mutex::default(),
        }
    }

    pub fn spec(&self) -> &DiscoverySpec {
        &self.spec
    }

    pub fn list(&self) -> Arc<EndpointList> {
        self.list.load_full()
    }

    pub fn standing(&self) -> DiscoveryStanding {
        let state = self.state.lock();
        let DiscoveryState {
            standing,
            error,
            confirmed_at,
            ..
        } = &*state;
        DiscoveryStanding {
            standing: *standing,
            error: error.clone(),
            confirmed_at: *confirmed_at,
        }
    }

    /// Takes over the list of a file.
    pub fn install(&self, endpoints: Vec<EndpointSpec>) {
        self.confirmed();
        self.replace(endpoints);
    }

    /// Counts a file that could not be used.
    pub fn rejected(&self) {
        self.metrics.failed();
    }

    /// Whether a lookup is due at `now`, in microseconds of the monotonic clock.
    pub fn is_due(&self, now: u64) -> bool {
        self.due.load(Ordering::Relaxed) <= now && !self.under_way.load(Ordering::Relaxed)
    }

    /// The turn to look up, unless another has it.
    pub fn turn(&self) -> Option<LookupTurn<'_>> {
        (!self.under_way.swap(true, Ordering::Relaxed)).then_some(LookupTurn(self))
    }

    fn confirmed(&self) {
        self.metrics.answered();
        let mut state = self.state.lock();
        state.failures = 0;
        (state.failing_since, state.empty_since, state.error) = (None, None, None);
        state.confirmed_at = Some(clock::unix_micros());
        if let Some(changes) = state.turn_to(LookupStanding::Confirmed) {
            tracing::info!(upstream = %self.upstream, source = %self.spec, changes, "endpoints are found again");
        }
    }

    /// Counts a change of the endpoints that are in place.
    pub fn count_change(&self, added: usize, removed: usize) {
        let mut of = self.changes.lock();
        of.log.count();
        (of.added, of.removed) = (of.added + added, of.removed + removed);
    }

    /// The changes that the log is to tell at `now`, if any.
    pub fn untold_changes(&self, now: u64) -> Option<LoggedChanges> {
        let mut of = self.changes.lock();
        let changes = of.log.line(now)?;
        Some(LoggedChanges {
            changes,
            added: std::mem::take(&mut of.added),
            removed: std::mem::take(&mut of.removed),
        })
    }

    /// Puts another list in place, unless it is the same one.
    fn replace(&self, mut endpoints: Vec<EndpointSpec>) {
        let is_cut = endpoints.len() > MOST_ENDPOINTS;
        if is_cut {
            self.metrics.cut();
            endpoints.truncate(MOST_ENDPOINTS);
        }
        if let Some(changes) = self.changes.lock().turn_to_cut(is_cut) {
            tracing::warn!(upstream = %self.upstream, source = %self.spec, most = MOST_ENDPOINTS, changes, "more endpoints than are used");
        }
        let before = self.list.load();
        // An empty first answer is a list, too.
        if before.version > 0 && *before.endpoints == *endpoints {
            return;
        }
        self.metrics.changed(endpoints.len());
        self.list.store(Arc::new(EndpointList {
            version: before.version + 1,
            endpoints: endpoints.into(),
        }));
    }
}

impl ListChanges {
    /// Records whether the last list was cut. Returns how often lists have begun to be since the
    /// last line of the log, if one is to be written.
    fn turn_to_cut(&mut self, is_cut: bool) -> Option<u32> {
        let was_cut = std::mem::replace(&mut self.is_cut, is_cut);
        if is_cut && !was_cut {
            self.cut.count();
        }
        self.cut.line(clock::monotonic_micros())
    }
}

impl DiscoveryState {
    /// Records how the last lookup went. Returns how often that has changed since the last line of
    /// the log, if one is to be written.
    fn turn_to(&mut self, standing: LookupStanding) -> Option<u32> {
        let before = std::mem::replace(&mut self.standing, standing);
        let is_first = before == LookupStanding::Unknown && standing == LookupStanding::Confirmed;
        if before != standing && !is_first {
            self.log.count();
        }
        self.log.line(clock::monotonic_micros())
    }
}

impl LookupTurn<'_> {
    /// Records the outcome of a lookup by this spec, and when the next one is due.
    pub fn record(&self, spec: &DnsSpec, outcome: DnsOutcome) {
        let now = clock::monotonic_micros();
        let next = match outcome {
            DnsOutcome::Found(found) => self.found(spec, found, now),
            DnsOutcome::Nothing { ttl } => self.empty(spec, ttl, now),
            DnsOutcome::Failed(error) => {
                let (next, is_over) = self.failed(spec, error, now);
                if is_over {
                    self.0.replace(Vec::new());
                }
                next
            }
        };
        // A fleet's gateways do not ask all at once.
        let early = next.mul_f64(0.1 * fastrand::f64());
        self.0.due.store(
            now.saturating_add(micros(next.saturating_sub(early))),
            Ordering::Relaxed,
        );
    }

    fn found(&self, spec: &DnsSpec, found: FoundEndpoints, now: u64) -> Duration {
        let discovery = self.0;
        let ttl = found.ttl.clamp(spec.min_ttl, spec.max_ttl);
        let mut endpoints = found.endpoints;
        match found.unknown {
            None => discovery.confirmed(),
            Some((family, error)) => {
                // IPv4 or IPv6 addresses could not be looked up: those known before stay.
                let (retry, is_over) = self.failed(spec, error, now);
                let known = discovery.list();
                let kept = known
                    .endpoints
                    .iter()
                    .filter(|of| family.has(of) && !is_over);
                endpoints.extend(kept.cloned());
                discovery.replace(endpoints);
                return ttl.min(retry);
            }
        }
        discovery.replace(endpoints);
        ttl
    }

    /// There is nothing, says an answer that lasts for `ttl`.
    fn empty(&self, spec: &DnsSpec, ttl: Option<Duration>, now: u64) -> Duration {
        let discovery = self.0;
        discovery.metrics.empty();
        let mut state = discovery.state.lock();
        (state.failures, state.error) = (0, None);
        let since = *state.empty_since.get_or_insert(now);
        if let Some(changes) = state.turn_to(LookupStanding::Empty) {
            tracing::warn!(upstream = %discovery.upstream, source = %discovery.spec, changes, "DNS says that there is no endpoint");
        }
        drop(state);
        let left = spec
            .keep_on_empty
            .saturating_sub(Duration::from_micros(now.saturating_sub(since)));
        let next = ttl
            .unwrap_or(LONGEST_RETRY)
            .clamp(spec.min_ttl, spec.max_ttl);
        if left.is_zero() || discovery.list.load().endpoints.is_empty() {
            discovery.replace(Vec::new());
            return next;
        }
        next.min(left)
    }

    /// When to try again, and whether the last list may not be used any longer.
    fn failed(&self, spec: &DnsSpec, error: Arc<str>, now: u64) -> (Duration, bool) {
        let discovery = self.0;
        discovery.metrics.failed();
        let mut state = discovery.state.lock();
        let kept = discovery.list.load().endpoints.len();
        let since = *state.failing_since.get_or_insert(now);
        if let Some(changes) = state.turn_to(LookupStanding::Failing) {
            tracing::warn!(upstream = %discovery.upstream, source = %discovery.spec, %error, kept, changes, "endpoints cannot be looked up");
        }
        state.error = Some(error);
        let later = LONGEST_RETRY.max(spec.min_ttl);
        let next = spec
            .min_ttl
            .saturating_mul(1 << state.failures.min(16))
            .min(later);
        state.failures = state.failures.saturating_add(1);
        drop(state);
        let Some(keep) = spec.keep_on_failure else {
            return (next, false);
        };
        let left = keep.saturating_sub(Duration::from_micros(now.saturating_sub(since)));
        if left.is_zero() {
            (next, true)
        } else {
            (next.min(left), false)
        }
    }
}

impl Drop for LookupTurn<'_> {
    fn drop(&mut self) {
        self.0.under_way.store(false, Ordering::Relaxed);
    }
}
