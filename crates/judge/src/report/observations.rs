//! The observations of clients: each request, its answer and its latency. No judgement.

use std::collections::BTreeMap;

use tollgate_limiter::decide::decision::DecidedBy;

use crate::judge::AdmittedRequest;
use crate::judge::in_flight::HeldRequest;
use crate::report::latencies::Latencies;

/// Everything that the clients of a thread, or of a whole run, observed.
#[derive(Debug, Default)]
pub struct Observations {
    pub admissions: Vec<AdmittedRequest>,
    /// Where requests are in flight for a while: when those admitted were.
    pub held: Vec<HeldRequest>,
    pub requests: u64,
    /// Tokens that the reference bucket admits of the same requests.
    pub expected: u64,
    pub latencies: Latencies,
    /// How often each answer came.
    pub answers: BTreeMap<AnswerKind, u64>,
    /// How often each answer came for keys that an outage was to spare.
    pub of_spared: BTreeMap<AnswerKind, u64>,
    /// Where clients ask for fresh keys: all requests.
    pub of_fresh: Vec<Observation>,
}

/// A request whose answer has just come.
#[derive(Clone, Copy, Debug)]
pub struct Observation {
    pub key: u32,
    pub sent_us: u64,
    pub now_us: u64,
    pub answer: AnswerKind,
    /// Tokens it was admitted for.
    pub admitted: Option<u64>,
    /// Tokens that the reference bucket admits for it.
    pub expected: u64,
}

/// How a request was answered: by whom, or with which status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AnswerKind {
    Redis,
    Lease,
    DenialCache,
    Local,
    /// By the limits of a route, which do not say who decided.
    Admitted,
    Denied,
    Status(u16),
    /// The connection broke, or nothing came: the client was not told that it was admitted.
    Broken,
}

impl Observation {
    /// Whether the client was told that the request is denied.
    pub fn is_denied(&self) -> bool {
        self.admitted.is_none()
            && match self.answer {
                AnswerKind::Status(status) => AnswerKind::admits(status) == Some(false),
                AnswerKind::Broken => false,
                _ => true,
            }
    }
}

impl Observations {
    pub fn record(&mut self, observation: Observation) {
        let Observation {
            key,
            sent_us,
            now_us,
            answer,
            admitted,
            expected,
        } = observation;
        self.requests += 1;
        self.expected += expected;
        *self.answers.entry(answer).or_default() += 1;
        self.latencies.record(now_us.saturating_sub(sent_us));
        if let Some(cost) = admitted {
            // Clocks are cut to whole microseconds: the answer came before the next one.
            self.admissions.push(AdmittedRequest {
                key,
                cost,
                sent_us,
                answered_us: now_us + 1,
            });
        }
    }

    pub fn absorb(&mut self, other: Self) {
        self.admissions.extend(other.admissions);
        self.held.extend(other.held);
        self.of_fresh.extend(other.of_fresh);
        self.requests += other.requests;
        self.expected += other.expected;
        self.latencies.absorb(&other.latencies);
        for (answer, count) in other.answers {
            *self.answers.entry(answer).or_default() += count;
        }
        for (answer, count) in other.of_spared {
            *self.of_spared.entry(answer).or_default() += count;
        }
    }
}

impl From<DecidedBy> for AnswerKind {
    fn from(by: DecidedBy) -> Self {
        match by {
            DecidedBy::Redis => Self::Redis,
            DecidedBy::Lease => Self::Lease,
            DecidedBy::DenialCache => Self::DenialCache,
            DecidedBy::Local => Self::Local,
        }
    }
}

impl std::fmt::Display for AnswerKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Redis => f.write_str(DecidedBy::Redis.as_str()),
            Self::Lease => f.write_str(DecidedBy::Lease.as_str()),
            Self::DenialCache => f.write_str(DecidedBy::DenialCache.as_str()),
            Self::Local => f.write_str(DecidedBy::Local.as_str()),
            Self::Admitted => f.write_str("admitted"),
            Self::Denied => f.write_str("denied"),
            Self::Status(status) => write!(f, "{status}"),
            Self::Broken => f.write_str("broken"),
        }
    }
}

impl AnswerKind {
    /// Whether a gateway's answer with this status admits the request; `None`: neither that nor a
    /// denial.
    pub fn admits(status: u16) -> Option<bool> {
        match status {
            200..=299 => Some(true),
            429 | 503 => Some(false),
            _ => None,
        }
    }
}
