//! The addresses of host names: looked up once for all that wait, and kept for a short time.
//!
//! Guarantees that a resolver which hangs holds one thread per name and [`MOST_UNDER_WAY`] in all,
//! and that a name which once had addresses keeps them while the resolver fails.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::thread;
use std::time::Duration;

use metrics::{Counter, Gauge, counter, gauge};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::timeout_at;

use super::discovery::own_ports;
use tollgate_limiter::clock::{self, Instant};

/// How long an answer is used before the name is looked up again. The system's resolver tells no
/// TTL; Envoy refreshes as often by default.
const FRESH: Duration = Duration::from_secs(5);

/// How long after [`FRESH`] an answer is still given at once, while the next lookup is under way.
const STALE: Duration = Duration::from_secs(60);

/// How long a failed lookup is not tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// How long a request waits for a lookup if there is an answer that is older than [`FRESH`] and
/// [`STALE`]. Then it takes that one.
const SLOW: Duration = Duration::from_secs(1);

/// Lookups under way in the whole process. Each holds a thread, since the system's resolver blocks.
const MOST_UNDER_WAY: usize = 32;

/// The addresses of a name, never empty.
pub type Addresses = Arc<[SocketAddr]>;

type LookUp = dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync;

type Clock = dyn Fn() -> Instant + Send + Sync;

type HostAndPort = (Box<str>, u16);

/// Looks names up.
pub struct Resolver {
    look_up: Box<LookUp>,
    /// The clock. A test pauses the time of its own thread only, and lookups run on others.
    now: Box<Clock>,
    names: Mutex<HashMap<HostAndPort, Weak<ResolvedName>>>,
    under_way: AtomicUsize,
    metrics: LookupMetrics,
}

/// A name with a port, and the addresses that it was last known to have.
pub struct ResolvedName {
    host: Box<str>,
    port: u16,
    resolver: Arc<Resolver>,
    answer: Mutex<LookupAnswer>,
    lookup_ended: Notify,
}

#[derive(Default)]
struct LookupAnswer {
    addresses: Option<Addresses>,
    /// Until then, nobody waits for a lookup.
    recent_until: Option<Instant>,
    /// The error of the last lookup, if it failed.
    error: Option<Arc<str>>,
    /// No lookup starts before: [`FRESH`] after a success, [`RETRY_AFTER`] after a failure.
    next_lookup_at: Option<Instant>,
    /// When the lookup began that is under way.
    looking_up_since: Option<Instant>,
}

/// The next step for a name.
enum LookupStep {
    Done(io::Result<Addresses>),
    /// Wait for the lookup, until then at most. `None`: there is no older answer to take instead.
    Wait(Option<Instant>),
}

struct LookupMetrics {
    resolved: Counter,
    failed: Counter,
    refused: Counter,
    under_way: Gauge,
}

/// Counts a lookup under way until it is dropped.
struct LookupUnderWay(Arc<Resolver>);

impl Resolver {
    /// The resolver of this process. The first call registers its metrics, so it comes after the
    /// recorder is installed.
    pub fn shared() -> Arc<Self> {
        static SHARED: LazyLock<Arc<Resolver>> = LazyLock::new(|| {
            Resolver::new(
                |host, port| Ok((host, port).to_socket_addrs()?.collect()),
                clock::now,
            )
        });
        Arc::clone(&SHARED)
    }

    fn new(
        look_up: impl Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
        now: impl Fn() -> Instant + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            look_up: Box::new(look_up),
            now: Box::new(now),
            names: Mutex::default(),
            under_way: AtomicUsize::new(0),
            metrics: LookupMetrics::new(),
        })
    }

    /// The name's entry, which all its endpoints share.
    pub fn name(self: &Arc<Self>, host: &str, port: u16) -> Arc<ResolvedName> {
        let mut names = self.names.lock();
        names.retain(|_, name| name.strong_count() > 0);
        let entry = names.entry((host.to_ascii_lowercase().into(), port));
        let slot = entry.or_default();
        slot.upgrade().unwrap_or_else(|| {
            let name = Arc::new(ResolvedName {
                host: host.into(),
                port,
                resolver: Arc::clone(self),
                answer: Mutex::default(),
                lookup_ended: Notify::new(),
            });
            *slot = Arc::downgrade(&name);
            name
        })
    }

    /// Counts a lookup that is about to begin. `None`: too many are under way.
    fn begin(self: &Arc<Self>) -> Option<LookupUnderWay> {
        let entered = self
            .under_way
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
                (count < MOST_UNDER_WAY).then_some(count + 1)
            });
        entered.ok()?;
        self.metrics.under_way.increment(1);
        Some(LookupUnderWay(Arc::clone(self)))
    }
}

impl ResolvedName {
    /// The addresses of the name: those known, if they are recent, and those of a lookup otherwise.
    /// The first lookup is waited for however long it takes.
    ///
    /// # Errors
    /// When no lookup has succeeded yet: why the last one failed, or why none could begin.
    pub async fn addresses(self: &Arc<Self>) -> io::Result<Addresses> {
        loop {
            let mut ended = pin!(self.lookup_ended.notified());
            ended.as_mut().enable();
            match self.step() {
                LookupStep::Done(result) => return result,
                LookupStep::Wait(None) => ended.await,
                // Too slow: the next step takes the older answer.
                LookupStep::Wait(Some(until)) => drop(timeout_at(until, ended).await),
            }
        }
    }

    /// Takes the answer that is there, or begins a lookup, under the lock that the end of the
    /// lookup waits for.
    fn step(self: &Arc<Self>) -> LookupStep {
        let now = (self.resolver.now)();
        let mut answer = self.answer.lock();
        if answer.looking_up_since.is_none() {
            if answer.next_lookup_at.is_some_and(|until| now < until) {
                return LookupStep::Done(answer.result());
            }
            if let Err(error) = self.start() {
                return LookupStep::Done(answer.addresses.clone().ok_or(error));
            }
            answer.looking_up_since = Some(now);
        }
        let is_recent = answer.recent_until.is_some_and(|until| now < until);
        match (&answer.addresses, answer.looking_up_since) {
            (Some(older), Some(since)) if is_recent || since + SLOW <= now => {
                LookupStep::Done(Ok(Arc::clone(older)))
            }
            (Some(_), Some(since)) => LookupStep::Wait(Some(since + SLOW)),
            _ => LookupStep::Wait(None),
        }
    }

    /// Starts a lookup on a thread of its own: the end of a runtime would wait for a blocking task
    /// whose resolver hangs.
    fn start(self: &Arc<Self>) -> io::Result<()> {
        let Some(under_way) = self.resolver.begin() else {
            self.resolver.metrics.refused.increment(1);
            return Err(io::Error::other("too many lookups of names are under way"));
        };
        let name = Arc::clone(self);
        thread::Builder::new()
            .name("lookup".to_owned())
            .spawn(move || {
                let result = (name.resolver.look_up)(&name.host, name.port);
                drop(under_way);
                name.finish(result);
            })
            .map(drop)
    }

    fn finish(&self, result: io::Result<Vec<SocketAddr>>) {
        let result = match result.map(|found| self.server_addresses(found)) {
            Ok(found) if found.is_empty() => Err(io::Error::new(
                io::ErrorKind::NotFound,
                "the name has no address",
            )),
            result => result,
        };
        let now = (self.resolver.now)();
        let mut answer = self.answer.lock();
        answer.looking_up_since = None;
        match result {
            Ok(found) => {
                self.resolver.metrics.resolved.increment(1);
                answer.addresses = Some(found.into());
                answer.error = None;
                answer.next_lookup_at = Some(now + FRESH);
                answer.recent_until = Some(now + FRESH + STALE);
            }
            Err(error) => {
                self.resolver.metrics.failed.increment(1);
                if answer.error.is_none() {
                    let kept = answer.addresses.is_some();
                    tracing::warn!(host = %self.host, %error, kept, "a name cannot be resolved");
                }
                answer.error = Some(error.to_string().into());
                answer.next_lookup_at = Some(now + RETRY_AFTER);
            }
        }
        drop(answer);
        self.lookup_ended.notify_waiters();
    }
}

impl ResolvedName {
    /// The addresses without those that no distant server can have, such as loopback ones.
    /// `localhost` keeps them: it is no name of DNS (RFC 6761 §6.3), but this machine.
    fn server_addresses(&self, found: Vec<SocketAddr>) -> Vec<SocketAddr> {
        if self.host.eq_ignore_ascii_case("localhost") {
            return found;
        }
        let usable = found.into_iter().filter_map(own_ports::server_address);
        usable.collect()
    }
}

impl LookupAnswer {
    fn result(&self) -> io::Result<Addresses> {
        if let Some(addresses) = &self.addresses {
            return Ok(addresses.clone());
        }
        let error = self.error.as_deref();
        Err(io::Error::other(
            error.unwrap_or("the name has no address").to_owned(),
        ))
    }
}

impl LookupMetrics {
    fn new() -> Self {
        let [resolved, failed, refused] = ["resolved", "failed", "refused"]
            .map(|outcome| counter!("tollgate_upstream_lookups_total", "outcome" => outcome));
        Self {
            resolved,
            failed,
            refused,
            under_way: gauge!("tollgate_upstream_lookups_under_way"),
        }
    }
}

impl Drop for LookupUnderWay {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
        self.0.metrics.under_way.decrement(1);
    }
}

#[cfg(test)]
mod tests;
