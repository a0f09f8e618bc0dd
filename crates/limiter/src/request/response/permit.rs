//! Reservations and permits that a request holds until its response's body has ended, or told all
//! that they wait for.
//!
//! The owner of the response hands its head and its body to a [`Permit`], or drops it. A request
//! that holds nothing, which is nearly every one, costs a null pointer. Guarantees that a
//! reservation is settled once, whatever becomes of the response, and that nothing of the body is
//! kept or changed.

use std::sync::Arc;

use http::header::ACCEPT_ENCODING;
use http::{HeaderMap, HeaderValue, StatusCode};
use tokio::sync::oneshot;

use crate::decide::limiter::Limiter;
use crate::decide::settlement::{Reservation, SettlementResult, Settler};
use crate::limit::cost::ResponseCost;
use crate::limit::status_set::StatusSet;
use crate::node::permits::ConcurrencyPermit;
use crate::request::metrics::{SettlementMetrics, SettlementOutcome as Outcome};
use crate::request::response::usage::reader::{Unreported, Usage, UsageReader};

/// The permit of one request. When it is dropped before its end, reservations stand.
#[derive(Debug, Default)]
#[must_use = "a permit that is dropped at once is given up before there is a response"]
pub struct Permit(Option<Box<HeldUntilEnd>>);

/// The reason for which there is no response to read a cost or a status from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// No upstream had the request, through no fault of the client's.
    NotForwarded,
    /// No upstream had the request, and the client was at fault, or may have been.
    Refused,
    /// An upstream may have worked on it.
    Forwarded,
}

#[derive(Debug, Default)]
struct HeldUntilEnd {
    reserved_costs: Vec<ReservedCost>,
    permits: Vec<ConcurrencyPermit>,
    /// Notified when the response has ended, for shadow limits that hold permits of their own.
    end_listeners: Vec<oneshot::Sender<()>>,
}

/// Reserved tokens, and what the response decides of them.
#[derive(Debug)]
struct ReservedCost {
    /// The responses that count. `None`: all.
    counted: Option<StatusSet>,
    /// The reader of the cost in the response. `None`: the cost is what is reserved.
    reading: Option<UsageReader>,
    /// The usage, once it is known.
    known: Option<Usage>,
    settled_by: SettledBy,
}

#[derive(Debug)]
enum SettledBy {
    /// SettlementResult by who drops the request.
    Request(Box<Settling>),
    /// Settled by a shadow limit, which may not have its decision yet.
    Shadow(oneshot::Sender<Usage>),
}

/// A cost that is settled after the response.
#[derive(Clone, Debug)]
pub(crate) struct LaterCost {
    /// Where the response tells the cost. `None`: it is known.
    pub by: Option<Arc<ResponseCost>>,
    /// The responses that count. `None`: all.
    pub counted: Option<StatusSet>,
    pub settlements: Arc<SettlementMetrics>,
}

/// A reservation with all that is needed to settle it.
pub(crate) struct Settling {
    pub reservation: Reservation,
    pub settler: Arc<Settler>,
    pub settlements: Arc<SettlementMetrics>,
}

impl LaterCost {
    /// The settlement of `reservation`, which was granted by `limiter`.
    pub fn settling(self, reservation: Reservation, limiter: &Limiter) -> Settling {
        Settling {
            reservation,
            settler: limiter.settler().clone(),
            settlements: self.settlements,
        }
    }
}

impl Permit {
    /// Holds a reservation until the response has told its cost.
    pub(crate) fn reserve(
        &mut self,
        later: LaterCost,
        reservation: Reservation,
        limiter: &Limiter,
    ) {
        let by = later.by.clone();
        let counted = later.counted.clone();
        self.add(
            by,
            counted,
            SettledBy::Request(Box::new(later.settling(reservation, limiter))),
        );
    }

    /// Resolves with the usage that the response tells.
    pub(crate) fn report(&mut self, later: &LaterCost) -> oneshot::Receiver<Usage> {
        let (sender, usage) = oneshot::channel();
        self.add(
            later.by.clone(),
            later.counted.clone(),
            SettledBy::Shadow(sender),
        );
        usage
    }

    /// Holds these permits until the response has ended.
    pub(crate) fn hold_permits(&mut self, permits: Vec<ConcurrencyPermit>) {
        if !permits.is_empty() {
            let held = &mut self.0.get_or_insert_default().permits;
            if held.is_empty() {
                // Nearly always, and without another list.
                *held = permits;
            } else {
                held.extend(permits);
            }
        }
    }

    /// Resolves when the response has ended.
    pub(crate) fn end(&mut self) -> oneshot::Receiver<()> {
        let (listener, ended) = oneshot::channel();
        self.0.get_or_insert_default().end_listeners.push(listener);
        ended
    }

    fn add(
        &mut self,
        by: Option<Arc<ResponseCost>>,
        counted: Option<StatusSet>,
        settled_by: SettledBy,
    ) {
        let reading = by.map(UsageReader::new);
        let held = self.0.get_or_insert_default();
        held.reserved_costs.push(ReservedCost {
            counted,
            reading,
            known: None,
            settled_by,
        });
    }

    /// Whether nothing is held, and the rest need not be called.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Prepares the request: where the body of the response has the cost, asks for one without a
    /// content coding.
    pub fn prepare(&self, fields: &mut HeaderMap) {
        let Some(held) = &self.0 else { return };
        if held
            .reserved_costs
            .iter()
            .any(ReservedCost::wants_plain_text)
        {
            // Without the field any coding would be welcome (RFC 9110 §12.5.3).
            fields.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        }
    }

    /// The head of the response.
    pub fn answered(&mut self, status: StatusCode, fields: &HeaderMap) {
        let Some(held) = &mut self.0 else { return };
        held.reserved_costs
            .iter_mut()
            .for_each(|reserved_cost| reserved_cost.head(status, fields));
        // A cost that the head tells need not wait for the body.
        held.reserved_costs
            .extract_if(.., |reserved_cost| reserved_cost.known.is_some())
            .for_each(|reserved_cost| reserved_cost.end(true));
        if held.is_empty() {
            self.0 = None;
        }
    }

    /// Ends the permit without a response of an upstream: the failure is answered with `status`.
    /// Where no upstream had the request, that status counts, and a reservation of a cost that only
    /// a response could have told is refunded. Where one had it, nothing is refunded, whatever the
    /// status.
    pub fn failed(&mut self, status: StatusCode, unanswered: Unanswered) {
        let Some(held) = self.0.take() else { return };
        held.reserved_costs
            .into_iter()
            .for_each(|reserved_cost| reserved_cost.fail(status, unanswered));
    }

    /// A piece of the response's body.
    pub fn saw(&mut self, piece: &[u8]) {
        if let Some(held) = &mut self.0 {
            let readers = held
                .reserved_costs
                .iter_mut()
                .filter_map(|reserved_cost| reserved_cost.reading.as_mut());
            readers.for_each(|reading| reading.feed(piece));
        }
    }

    /// The body has ended, or was given up.
    pub fn ended(&mut self, complete: bool) {
        let Some(held) = self.0.take() else { return };
        held.reserved_costs
            .into_iter()
            .for_each(|reserved_cost| reserved_cost.end(complete));
    }
}

impl HeldUntilEnd {
    fn is_empty(&self) -> bool {
        self.reserved_costs.is_empty() && self.permits.is_empty() && self.end_listeners.is_empty()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.ended(false);
    }
}

impl ReservedCost {
    fn wants_plain_text(&self) -> bool {
        self.reading
            .as_ref()
            .is_some_and(UsageReader::wants_plain_text)
    }

    fn counts(&self, status: StatusCode) -> bool {
        self.counted
            .as_ref()
            .is_none_or(|counted| counted.contains(status))
    }

    fn head(&mut self, status: StatusCode, fields: &HeaderMap) {
        let counts = self.counts(status);
        self.known = match &mut self.reading {
            _ if !counts => Some(Usage::Uncounted),
            None => Some(Usage::Whole),
            Some(reading) => reading.head(status, fields),
        };
    }

    fn fail(self, status: StatusCode, unanswered: Unanswered) {
        let usage = match (unanswered, &self.reading) {
            // The client may have brought the failure about, once it had learned from the
            // upstream's silence what it wanted.
            (Unanswered::Forwarded, None) => Usage::Whole,
            (Unanswered::Forwarded, Some(_)) => Usage::AtLeast(0, Unreported::Absent),
            _ if !self.counts(status) => Usage::Uncounted,
            (_, None) => Usage::Whole,
            (Unanswered::NotForwarded, Some(_)) => Usage::Unreached,
            (Unanswered::Refused, Some(_)) => Usage::AtLeast(0, Unreported::Absent),
        };
        self.settled_by.settle(usage);
    }

    /// Without a head, nobody knows whether the response would have counted.
    fn end(self, complete: bool) {
        self.settled_by.settle(self.known.unwrap_or_else(|| {
            self.reading
                .map_or(Usage::AtLeast(0, Unreported::Cut), |reading| {
                    reading.end(complete)
                })
        }));
    }
}

impl SettledBy {
    fn settle(self, usage: Usage) {
        match self {
            Self::Request(settling) => settling.settle(usage),
            // The shadow limit was denied, and does not listen.
            Self::Shadow(listener) => drop(listener.send(usage)),
        }
    }
}

impl Settling {
    pub fn settle(self, usage: Usage) {
        let reserved = self.reservation.charge.cost;
        let (actual, outcome) = match usage {
            Usage::Tokens(tokens) => (tokens, None),
            Usage::AtLeast(least, why) => (reserved.max(least), Some(untold(why))),
            Usage::Whole => (reserved, None),
            Usage::Uncounted => (0, Some(Outcome::Uncounted)),
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

fn untold(why: Unreported) -> Outcome {
    match why {
        Unreported::Absent => Outcome::Absent,
        Unreported::Unreadable => Outcome::Unreadable,
        Unreported::Cut => Outcome::Cut,
    }
}

impl std::fmt::Debug for Settling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Settling").field(&self.reservation).finish()
    }
}
