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

/// How long an answer is used. The system's resolver tells no TTL; Envoy refreshes as often by
/// default.
const FRESH: Duration = Duration::from_secs(5);

/// An answer that is older by less is used while the next lookup is under way.
const STALE: Duration = Duration::from_secs(60);

/// How long a failed lookup is not tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// A lookup that takes longer is not waited for by those who have an older answer, however old.
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
    /// Read by all threads: tests pause the time of theirs only.
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
    changed: Notify,
}

#[derive(Default)]
struct LookupAnswer {
    addresses: Option<Addresses>,
    /// Until then, the addresses are used while a lookup is under way.
    recent_until: Option<Instant>,
    /// The error of the last lookup, if it failed.
    error: Option<Arc<str>>,
    /// Until then, it is not looked up again.
    fresh_until: Option<Instant>,
    /// Since when a lookup is under way.
    since: Option<Instant>,
}

/// The next step for a name.
enum LookupStep {
    Done(io::Result<Addresses>),
    /// Wait for the lookup, until then at most.
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
    /// The resolver of this process. Its metrics are resolved when it is first asked for.
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
                changed: Notify::new(),
            });
            *slot = Arc::downgrade(&name);
            name
        })
    }

    fn enter(self: &Arc<Self>) -> Option<LookupUnderWay> {
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
    ///
    /// # Errors
    /// When no lookup has succeeded yet: why the last one failed.
    pub async fn addresses(self: &Arc<Self>) -> io::Result<Addresses> {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            match self.step() {
                LookupStep::Done(result) => return result,
                LookupStep::Wait(None) => changed.await,
                // Too slow: the next step takes the older answer.
                LookupStep::Wait(Some(until)) => drop(timeout_at(until, changed).await),
            }
        }
    }

    fn step(self: &Arc<Self>) -> LookupStep {
        let now = (self.resolver.now)();
        let mut answer = self.answer.lock();
        if answer.since.is_none() {
            if answer.fresh_until.is_some_and(|until| now < until) {
                return LookupStep::Done(answer.result());
            }
            if let Err(error) = self.start() {
                return LookupStep::Done(answer.addresses.clone().ok_or(error));
            }
            answer.since = Some(now);
        }
        let is_recent = answer.recent_until.is_some_and(|until| now < until);
        match (&answer.addresses, answer.since) {
            (Some(older), Some(since)) if is_recent || since + SLOW <= now => {
                LookupStep::Done(Ok(Arc::clone(older)))
            }
            (Some(_), Some(since)) => LookupStep::Wait(Some(since + SLOW)),
            _ => LookupStep::Wait(None),
        }
    }

    /// Starts a lookup on a thread of its own: the end of no runtime has to wait for it.
    fn start(self: &Arc<Self>) -> io::Result<()> {
        let Some(under_way) = self.resolver.enter() else {
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
        answer.since = None;
        match result {
            Ok(found) => {
                self.resolver.metrics.resolved.increment(1);
                answer.addresses = Some(found.into());
                answer.error = None;
                answer.fresh_until = Some(now + FRESH);
                answer.recent_until = Some(now + FRESH + STALE);
            }
            Err(error) => {
                self.resolver.metrics.failed.increment(1);
                if answer.error.is_none() {
                    let kept = answer.addresses.is_some();
                    tracing::warn!(host = %self.host, %error, kept, "a name cannot be resolved");
                }
                answer.error = Some(error.to_string().into());
                answer.fresh_until = Some(now + RETRY_AFTER);
            }
        }
        drop(answer);
        self.changed.notify_waiters();
    }
}

impl ResolvedName {
    /// The addresses that servers can have. `localhost` is no name of DNS (RFC 6761 §6.3): who
    /// writes that means this machine.
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
