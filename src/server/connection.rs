//! What the parts of one connection tell each other: its screen, its exchanges and the task that drives both.
//!
//! Shared by reference and without locks on the path of an ordinary request.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use parking_lot::Mutex;

use crate::clock::{self, Instant};
use crate::error::Failure;

/// One client's connection.
#[derive(Debug)]
pub struct Connection {
    /// The client. An IPv4 address that came through an IPv6 socket is shown as IPv4.
    pub peer: SocketAddr,
    pub local: SocketAddr,
    opened: Instant,
    /// Requests that the screen has let through, a stand-in for a refused one included.
    passed: AtomicU64,
    /// Requests that arrived at the service.
    arrived: AtomicU64,
    /// The last request whose response has begun.
    answered: AtomicU64,
    /// Requests whose response has been handed over whole.
    finished: AtomicU64,
    /// Microseconds from `opened` to the last request's end.
    idle_since: AtomicU64,
    /// The stand-in's number; 0: nothing was refused.
    refused_at: AtomicU64,
    failure: Mutex<Option<Failure>>,
    /// The last passed request's body has not arrived whole.
    in_body: AtomicBool,
    /// The last passed request's body broke off or broke the grammar.
    broken: AtomicBool,
    preface: AtomicBool,
    upgrade: AtomicU8,
    has_leftover: AtomicBool,
    leftover: Mutex<Option<Leftover>>,
    declined: Mutex<Option<OnUpgrade>>,
}

/// A request body that nobody reads any more.
#[derive(Debug)]
pub struct Leftover {
    pub body: Incoming,
    /// The client waits for a 100 that will not come: it may or may not send the body.
    pub awaits_continue: bool,
}

/// What became of a request for an upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Upgrade {
    Undecided,
    Accepted,
    Declined,
}

impl Connection {
    pub(super) fn new(peer: SocketAddr, local: SocketAddr) -> Self {
        Self {
            peer: canonical(peer),
            local: canonical(local),
            opened: clock::now(),
            passed: AtomicU64::new(0),
            arrived: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            idle_since: AtomicU64::new(0),
            refused_at: AtomicU64::new(0),
            failure: Mutex::new(None),
            in_body: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            preface: AtomicBool::new(false),
            upgrade: AtomicU8::new(Upgrade::Undecided as u8),
            has_leftover: AtomicBool::new(false),
            leftover: Mutex::new(None),
            declined: Mutex::new(None),
        }
    }

    /// Counts a request in. Its number, from 1.
    pub(super) fn arrive(&self) -> u64 {
        self.arrived.fetch_add(1, Relaxed) + 1
    }

    /// The response to request number `number` begins.
    pub(super) fn answer(&self, number: u64) {
        self.answered.store(number, Relaxed);
    }

    /// Whether the last request that arrived has an answer.
    pub(super) fn is_answered(&self) -> bool {
        self.answered.load(Relaxed) == self.arrived.load(Relaxed)
    }

    /// Counts a request out.
    pub(super) fn finish(&self) {
        let elapsed = clock::now().saturating_duration_since(self.opened);
        self.idle_since.store(u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX), Relaxed);
        self.finished.fetch_add(1, Relaxed);
    }

    /// Since when no request is under way; `None`: one is.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let under_way = self.passed.load(Relaxed).max(self.arrived.load(Relaxed)) != self.finished.load(Relaxed);
        (!under_way).then(|| self.opened + Duration::from_micros(self.idle_since.load(Relaxed)))
    }

    pub(super) fn opened(&self) -> Instant {
        self.opened
    }

    /// The screen let requests through, `passed` in all, and stands within a body or not.
    pub(super) fn pass(&self, passed: u64, in_body: bool) {
        self.passed.store(passed, Relaxed);
        self.in_body.store(in_body, Relaxed);
    }

    /// The screen refuses what comes after `passed` requests and sends a stand-in.
    pub(super) fn refuse(&self, passed: u64, failure: Failure) {
        *self.failure.lock() = Some(failure);
        self.passed.store(passed + 1, Relaxed);
        self.refused_at.store(passed + 1, Relaxed);
    }

    /// Why request number `number` was refused, if it stands in for one that was. The screen lets nothing pass after a
    /// stand-in and every passed request arrives, so the number is proof.
    pub(super) fn refusal(&self, number: u64) -> Option<Failure> {
        if self.refused_at.load(Relaxed) == number { self.failure.lock().take() } else { None }
    }

    pub(super) fn break_body(&self) {
        self.broken.store(true, Relaxed);
    }

    pub(super) fn is_broken(&self) -> bool {
        self.broken.load(Relaxed)
    }

    /// The number of the last request that arrived.
    pub(super) fn last_arrived(&self) -> u64 {
        self.arrived.load(Relaxed)
    }

    /// Whether all of the body of request number `number` has arrived.
    pub(super) fn has_arrived(&self, number: u64) -> bool {
        number < self.passed.load(Relaxed) || !self.in_body.load(Relaxed)
    }

    /// The client speaks HTTP/2.
    pub(super) fn found_preface(&self) {
        self.preface.store(true, Relaxed);
    }

    pub(super) fn has_preface(&self) -> bool {
        self.preface.load(Relaxed)
    }

    /// Tells the screen what becomes of the request that it holds everything back for.
    pub(super) fn decide_upgrade(&self, decision: Upgrade) {
        self.upgrade.store(decision as u8, Relaxed);
    }

    /// What was decided. A decision is told once.
    pub(super) fn take_upgrade(&self) -> Upgrade {
        match self.upgrade.swap(Upgrade::Undecided as u8, Relaxed) {
            1 => Upgrade::Accepted,
            2 => Upgrade::Declined,
            _ => Upgrade::Undecided,
        }
    }

    /// Keeps the way back to the socket: hyper gives it to whoever asked for an upgrade, even a declined one.
    pub(super) fn keep_declined(&self, on_upgrade: OnUpgrade) {
        *self.declined.lock() = Some(on_upgrade);
    }

    pub(super) fn take_declined(&self) -> Option<OnUpgrade> {
        self.declined.lock().take()
    }

    pub(super) fn leave(&self, leftover: Leftover) {
        *self.leftover.lock() = Some(leftover);
        self.has_leftover.store(true, Relaxed);
    }

    pub(super) fn take_leftover(&self) -> Option<Leftover> {
        if self.has_leftover.swap(false, Relaxed) { self.leftover.lock().take() } else { None }
    }
}

fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, address.port()),
        IpAddr::V6(_) => address,
    }
}
