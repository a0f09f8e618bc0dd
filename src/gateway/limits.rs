//! The step of a request through its limits: asked at once, and for most requests that is all.
//!
//! Guarantees that every request is judged once, whatever it waited for or gave up before. A request waits in one line
//! only: that of the limit which keeps it longest, or which someone waits for already. At its head it asks for all its
//! limits. Knows no sockets and no stores.

use std::time::Duration;

use futures_util::future::BoxFuture;
use tollgate_limiter::decide::decision::Decision;
use tollgate_limiter::decide::limiter::Limiter;
use tollgate_limiter::limit::key::Facts;
use tollgate_limiter::request::rule_set::{Judged, Next, PendingRequest, RuleSet};

use super::queue::{Queues, Ticket, TooLong};
use crate::error::Failure;

/// What becomes of a request that is held to its limits.
#[expect(
    clippy::large_enum_variant,
    reason = "the large one is what nearly every request is: a box of its own would cost more"
)]
pub enum Hold<'a> {
    Judged(Judged),
    /// Boxed: a request that waits for nothing does not carry the room that waiting takes, which would be moved with it.
    Waiting(BoxFuture<'a, Judged>),
}

/// Holds a request to its limits: at once, unless something has to be waited for.
///
/// # Errors
/// When the request lacks what a limit counts by, and is refused for that.
pub fn hold<'a>(
    queues: &'a Queues,
    limiter: &'a Limiter,
    rules: &'a RuleSet,
    facts: &Facts<'_>,
) -> Result<Hold<'a>, Failure> {
    let mut asking = PendingRequest::default();
    rules.ask(facts, &mut asking)?;
    if !rules.is_lenient()
        && !asking.lacks_plans()
        && let Some(verdict) = limiter.decide_now(&asking.asks)
    {
        return Ok(Hold::Judged(rules.judge(&mut asking, verdict)));
    }
    Ok(Hold::Waiting(Box::pin(wait_for(queues, limiter, rules, asking))))
}

async fn wait_for(queues: &Queues, limiter: &Limiter, rules: &RuleSet, mut asking: PendingRequest) -> Judged {
    let wanted = asking.take_wanted();
    if let Some(reading) = limiter.read_plans(&wanted) {
        // Once per client and node, and then again when nobody asked for its plan for long.
        reading.await;
        rules.take_in(&mut asking, &wanted);
    }
    if rules.is_lenient() {
        // Boxed: few limits are such, and the others would carry the room for it.
        return Box::pin(insist(queues, limiter, rules, asking)).await;
    }
    let verdict = limiter.decide(&asking.asks).await;
    rules.judge(&mut asking, verdict)
}

/// The same where the first no need not be the last word.
async fn insist(queues: &Queues, limiter: &Limiter, rules: &RuleSet, mut asking: PendingRequest) -> Judged {
    let mut ticket = match behind_others(queues, rules, &mut asking) {
        Ok(ticket) => ticket,
        Err(verdict) => return rules.judge(&mut asking, *verdict),
    };
    let mut said = None;
    let verdict = loop {
        if let Some(ticket) = &ticket
            && !ticket.turn().await
        {
            break said.unwrap_or_else(|| turned_away(rules, &mut asking, ticket));
        }
        let verdict = limiter.decide(&asking.asks).await;
        said = match rules.next(&mut asking, &verdict) {
            Next::Judge => break verdict,
            Next::AskAgain => None,
            Next::Wait(at) => match wait_at(queues, rules, &asking, &verdict, at, ticket) {
                Some(kept) => {
                    ticket = Some(kept);
                    Some(verdict)
                }
                None => break verdict,
            },
        };
    };
    rules.judge(&mut asking, verdict)
}

/// A place behind those who wait already for what this request needs, if anyone does.
fn behind_others(
    queues: &Queues,
    rules: &RuleSet,
    asking: &mut PendingRequest,
) -> Result<Option<Ticket>, Box<Decision>> {
    for at in 0..asking.asks.len() {
        let Some(line) = rules.line(asking, at) else { continue };
        let Some(queue) = queues.get(line.limit).filter(|queue| queue.has_line(line.key)) else { continue };
        return match queue.join(&line, Duration::ZERO) {
            Ok(ticket) => Ok(Some(ticket)),
            Err(TooLong(wait)) => Err(Box::new(rules.turn_away(asking, at, micros(wait)))),
        };
    }
    Ok(None)
}

/// The place to wait at after a denial, if waiting is of use.
fn wait_at(
    queues: &Queues,
    rules: &RuleSet,
    asking: &PendingRequest,
    verdict: &Decision,
    at: usize,
    ticket: Option<Ticket>,
) -> Option<Ticket> {
    let retry_after = Duration::from_micros(verdict.levels.get(at)?.retry_after_us);
    if let Some(ticket) = ticket {
        ticket.put_off(retry_after);
        return Some(ticket);
    }
    let line = rules.line(asking, at)?;
    queues.get(line.limit)?.join(&line, retry_after).ok()
}

/// The verdict on a request whose turn did not come in time.
fn turned_away(rules: &RuleSet, asking: &mut PendingRequest, ticket: &Ticket) -> Decision {
    let at = asking.asks.iter().position(|ask| ask.key == *ticket.key()).unwrap_or_default();
    rules.turn_away(asking, at, micros(ticket.wait()))
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
