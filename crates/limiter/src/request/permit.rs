//! What a request holds of its limits until its response's body has ended.
//!
//! The one place for that: whoever has the response hands its head and its body past here, or drops this. A request that
//! holds nothing, which is nearly every one, costs a null pointer. Guarantees that a reservation is settled once, whatever
//! becomes of the response, and that nothing of the body is kept or changed. Refuses to know servers and bodies' types.

use std::sync::Arc;

use http::header::ACCEPT_ENCODING;
use http::{HeaderMap, HeaderValue};
use tokio::sync::oneshot;

use crate::decide::limiter::Limiter;
use crate::decide::settlement::{Reservation, SettlementResult, Settler};
use crate::limit::cost::ByResponse;
use crate::node::permits::ConcurrencyPermit;
use crate::request::metrics::{SettlementMetrics, SettlementOutcome as Outcome};
use crate::request::usage::reader::{Usage, UsageReader};

/// What one request holds. Dropped before its end is told, a reservation stands.
#[derive(Debug, Default)]
#[must_use = "dropped at once, it is given up before there is a response"]
pub struct Permit(Option<Box<HeldResources>>);

/// Why there is no response to read a cost from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// No upstream had the request, through no fault of the client's.
    NotForwarded,
    /// An upstream may have worked on it.
    Forwarded,
}

#[derive(Debug, Default)]
struct HeldResources {
    deposits: Vec<Deposit>,
    permits: Vec<ConcurrencyPermit>,
    /// Told when the response has ended: shadows that hold permits of their own as long.
    companions: Vec<oneshot::Sender<()>>,
}

/// Tokens reserved, and where the response says how many are needed.
#[derive(Debug)]
struct Deposit {
    reading: UsageReader,
    settled_by: SettledBy,
}

#[derive(Debug)]
enum SettledBy {
    /// SettlementResult by who drops the request.
    Request(Box<Settling>),
    /// By who asks beside the request, and may not have an answer yet.
    Shadow(oneshot::Sender<Usage>),
}

/// What is settled after the response.
#[derive(Clone, Debug)]
pub(crate) struct LaterCost {
    pub by: Arc<ByResponse>,
    pub settlements: Arc<SettlementMetrics>,
}

/// A reservation with all that settling it takes.
pub(crate) struct Settling {
    pub reservation: Reservation,
    pub settler: Arc<Settler>,
    pub settlements: Arc<SettlementMetrics>,
}

impl LaterCost {
    /// What settles `reservation`, which was granted by `limiter`.
    pub fn settling(self, reservation: Reservation, limiter: &Limiter) -> Settling {
        Settling { reservation, settler: limiter.settler().clone(), settlements: self.settlements }
    }
}

impl Permit {
    /// Holds a reservation until the response has told its cost.
    pub(crate) fn reserve(&mut self, later: LaterCost, reservation: Reservation, limiter: &Limiter) {
        let by = later.by.clone();
        self.add(by, SettledBy::Request(Box::new(later.settling(reservation, limiter))));
    }

    /// Resolves with what the response says of its cost.
    pub(crate) fn report(&mut self, later: &LaterCost) -> oneshot::Receiver<Usage> {
        let (sender, usage) = oneshot::channel();
        self.add(later.by.clone(), SettledBy::Shadow(sender));
        usage
    }

    /// Holds these permits until the response has ended.
    pub(crate) fn hold_permits(&mut self, permits: Vec<ConcurrencyPermit>) {
        if !permits.is_empty() {
            self.0.get_or_insert_default().permits.extend(permits);
        }
    }

    /// Resolves when the response has ended.
    pub(crate) fn end(&mut self) -> oneshot::Receiver<()> {
        let (companion, ended) = oneshot::channel();
        self.0.get_or_insert_default().companions.push(companion);
        ended
    }

    fn add(&mut self, by: Arc<ByResponse>, settled_by: SettledBy) {
        let held = self.0.get_or_insert_default();
        held.deposits.push(Deposit { reading: UsageReader::new(by), settled_by });
    }

    /// Whether there is nothing to hold, and the rest need not be called.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Before the request goes on: where the body of the response is to tell, asks for one without a content coding.
    pub fn prepare(&self, fields: &mut HeaderMap) {
        let Some(held) = &self.0 else { return };
        if held.deposits.iter().any(|deposit| deposit.reading.wants_plain_text()) {
            // Without the field any coding would be welcome (RFC 9110 §12.5.3).
            fields.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        }
    }

    /// The head of the response.
    pub fn answered(&mut self, fields: &HeaderMap) {
        let Some(held) = &mut self.0 else { return };
        held.deposits.iter_mut().for_each(|deposit| deposit.reading.head(fields));
        // What the head says need not wait for the body.
        held.deposits.extract_if(.., |deposit| !deposit.reading.reads_on()).for_each(|deposit| deposit.end(true));
        if held.is_empty() {
            self.0 = None;
        }
    }

    /// There is no response but one that says why. Where no upstream had the request, all of it comes back.
    pub fn failed(&mut self, unanswered: Unanswered) {
        let told = match unanswered {
            Unanswered::NotForwarded => Usage::Unreached,
            Unanswered::Forwarded => Usage::Nothing,
        };
        let Some(held) = self.0.take() else { return };
        held.deposits.into_iter().for_each(|deposit| deposit.settled_by.settle(told));
    }

    /// A piece of the response's body.
    pub fn saw(&mut self, piece: &[u8]) {
        if let Some(held) = &mut self.0 {
            held.deposits.iter_mut().for_each(|deposit| deposit.reading.feed(piece));
        }
    }

    /// The body has ended, or was given up.
    pub fn ended(&mut self, complete: bool) {
        let Some(held) = self.0.take() else { return };
        held.deposits.into_iter().for_each(|deposit| deposit.end(complete));
    }
}

impl HeldResources {
    fn is_empty(&self) -> bool {
        self.deposits.is_empty() && self.permits.is_empty() && self.companions.is_empty()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.ended(false);
    }
}

impl Deposit {
    fn end(self, complete: bool) {
        self.settled_by.settle(self.reading.end(complete));
    }
}

impl SettledBy {
    fn settle(self, told: Usage) {
        match self {
            Self::Request(settling) => settling.settle(told),
            // Who would have listened was denied.
            Self::Shadow(listener) => drop(listener.send(told)),
        }
    }
}

impl Settling {
    pub fn settle(self, told: Usage) {
        let reserved = self.reservation.charge.cost;
        let (actual, outcome) = match told {
            Usage::Tokens(tokens) => (tokens, None),
            Usage::Nothing => (reserved, Some(Outcome::Absent)),
            Usage::Unreadable => (reserved, Some(Outcome::Unreadable)),
            Usage::Cut(least) => (reserved.max(least.unwrap_or_default()), Some(Outcome::Cut)),
            Usage::Unreached => (0, Some(Outcome::Unreached)),
        };
        let settled = self.settler.settle(self.reservation, actual);
        self.settlements.count(outcome.unwrap_or(match settled {
            SettlementResult::More => Outcome::More,
            SettlementResult::Less => Outcome::Less,
            SettlementResult::Even => Outcome::Even,
            SettlementResult::Late => Outcome::Late,
        }));
    }
}

impl std::fmt::Debug for Settling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Settling").field(&self.reservation).finish()
    }
}
