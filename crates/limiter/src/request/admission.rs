//! The way of a request through its limits: decided at once, and for most requests that is all.
//!
//! Guarantees that each request is judged once, whatever it waited for. A request waits in one
//! queue only: that of the limit which keeps it longest, or in which other requests wait already.
//! At the head of its line it asks for all of its limits.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::clock::Instant;
use crate::decide::decision::Decision;
use crate::decide::limiter::Limiter;
use crate::limit::key::Facts;
use crate::request::pending::{PendingRequest, PlanLookup};
use crate::request::queue::{ArrivalNumber, JoiningRequest, Ticket, TooLong};
use crate::request::rule_set::{Judgement, Next, RuleSet};

/// The result of holding a request to its limits.
pub enum Admission {
    Judged(Judgement),
    /// Boxed: a request that waits for nothing does not carry the room that waiting takes.
    Waiting(BoxFuture<'static, Judgement>),
}

impl RuleSet {
    /// Holds a request to its limits: at once, unless something has to be waited for.
    #[inline]
    pub fn admit(self: &Arc<Self>, limiter: &Limiter, facts: &Facts<'_>) -> Admission {
        let mut pending = PendingRequest::default();
        self.ask(facts, &mut pending);
        let may_wait = self.is_lenient() || pending.lacks_plans();
        let known = if may_wait {
            None
        } else {
            limiter.known(&pending.checks)
        };
        match known {
            Some(mut decision) => Admission::Judged(self.judge(&mut pending, &mut decision)),
            None => Admission::Waiting(Box::pin(wait(self.clone(), limiter.clone(), pending))),
        }
    }
}

/// Judges a request that cannot be judged at once.
async fn wait(rules: Arc<RuleSet>, limiter: Limiter, mut pending: PendingRequest) -> Judgement {
    let lookups = pending.take_lookups();
    let deadline = limiter.deadline();
    if let Some(reading) = limiter.read_plans(lookups.iter().map(PlanLookup::query), deadline) {
        // Rare: once per client and node, and again when its plan was not used for long.
        reading.await;
        rules.adopt_plans(&mut pending, &lookups);
    }
    let mut decision = if rules.is_lenient() && pending.refusal.is_none() {
        // Boxed: few limits are such, and the others would carry the room for it.
        Box::pin(decide_with_queue(&rules, &limiter, &mut pending, deadline)).await
    } else {
        limiter.decide_by(&pending.checks, deadline).wait().await
    };
    rules.judge(&mut pending, &mut decision)
}

/// The decision where a denied request may wait or be degraded. The store has until `deadline`, and
/// a new time limit for each turn that the request waited for.
async fn decide_with_queue(
    rules: &RuleSet,
    limiter: &Limiter,
    pending: &mut PendingRequest,
    deadline: Instant,
) -> Decision {
    let arrival = ArrivalNumber::now();
    let mut ticket = match behind_others(rules, limiter, pending, arrival) {
        Ok(ticket) => ticket,
        Err(turned_away) => return *turned_away,
    };
    let mut last = None;
    loop {
        let decision = match &ticket {
            None => {
                let decision = limiter.decide_by(&pending.checks, deadline).wait().await;
                match yield_grant(rules, limiter, pending, arrival, decision) {
                    ControlFlow::Break(behind) => {
                        ticket = Some(behind);
                        continue;
                    }
                    ControlFlow::Continue(decision) => decision,
                }
            }
            Some(ticket) => match ticket.turn(limiter, &pending.checks).await {
                Some(decision) => decision,
                None => return last.unwrap_or_else(|| turned_away(rules, pending, ticket)),
            },
        };
        last = match rules.next(pending, &decision) {
            Next::Judge => return decision,
            Next::AskAgain => None,
            Next::Wait(owner) => {
                let Some(check) = pending.owners.get(owner).map(|owner| owner.check) else {
                    return decision;
                };
                let Some(level) = decision.level(check) else {
                    return decision;
                };
                let retry_after = Duration::from_micros(level.retry_after_us);
                match &ticket {
                    Some(ticket) if pending.key(check) == Some(ticket.key()) => {
                        ticket.put_off(retry_after);
                    }
                    Some(ticket) => ticket.put_off_by_another(retry_after),
                    None => {
                        let joining = JoiningRequest {
                            arrival,
                            checks: &pending.checks,
                            limiter,
                        };
                        ticket = queue_up(rules, pending, owner, joining, retry_after);
                    }
                }
                if ticket.is_none() {
                    return decision;
                }
                Some(decision)
            }
        };
    }
}

/// A place behind the requests that wait already for a key of this one, if there are any.
fn behind_others(
    rules: &RuleSet,
    limiter: &Limiter,
    pending: &mut PendingRequest,
    arrival: ArrivalNumber,
) -> Result<Option<Ticket>, Box<Decision>> {
    for owner in 0..pending.owners.len() {
        let Some((queue, waiting_for)) = rules.queue(pending, owner) else {
            continue;
        };
        if !queue.has_line(waiting_for.key) {
            continue;
        }
        return match Ticket::join(
            queue,
            &waiting_for,
            JoiningRequest {
                arrival,
                checks: &pending.checks,
                limiter,
            },
            Duration::ZERO,
        ) {
            Ok(ticket) => Ok(Some(ticket)),
            Err(TooLong(wait)) => Err(Box::new(rules.turn_away(pending, owner, micros(wait)))),
        };
    }
    Ok(None)
}

/// A place behind the requests that came before this one and were denied while it was granted. They
/// get its grant.
fn yield_grant(
    rules: &RuleSet,
    limiter: &Limiter,
    pending: &PendingRequest,
    arrival: ArrivalNumber,
    mut decision: Decision,
) -> ControlFlow<Ticket, Decision> {
    if decision.granted {
        for (queue, waiting_for) in
            (0..pending.owners.len()).filter_map(|owner| rules.queue(pending, owner))
        {
            let joining = JoiningRequest {
                arrival,
                checks: &pending.checks,
                limiter,
            };
            decision = Ticket::yield_grant(queue, &waiting_for, joining, decision)?;
        }
    }
    ControlFlow::Continue(decision)
}

/// The place to wait at after a denial, if waiting is of use.
fn queue_up(
    rules: &RuleSet,
    pending: &PendingRequest,
    owner: usize,
    joining: JoiningRequest<'_>,
    retry_after: Duration,
) -> Option<Ticket> {
    let (queue, waiting_for) = rules.queue(pending, owner)?;
    // A permit may have come back before the request began to watch for one.
    let retry_after = if waiting_for.charge_us == 0 {
        Duration::ZERO
    } else {
        retry_after
    };
    Ticket::join(queue, &waiting_for, joining, retry_after).ok()
}

/// The decision on a request whose turn did not come in time.
fn turned_away(rules: &RuleSet, pending: &mut PendingRequest, ticket: &Ticket) -> Decision {
    let owner = pending
        .owners
        .iter()
        .position(|owner| pending.key(owner.check) == Some(ticket.key()))
        .unwrap_or_default();
    rules.turn_away(pending, owner, micros(ticket.wait()))
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
