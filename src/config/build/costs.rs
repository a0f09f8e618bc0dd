//! What a request costs, held against what a bucket holds.

use std::num::NonZeroU64;
use std::sync::Arc;

use tollgate_limiter::algorithm::token_bucket::{MAX_BURST, TokenBucket, TokenBucketError};
use tollgate_limiter::limit::algorithm_kind::Algorithm;
use tollgate_limiter::limit::cost::{ByResponse, Cost};

use crate::config::decode::{At, Slot};
use crate::config::mistake::{Report, Trouble};
use crate::config::node::Place;
use crate::config::raw;

/// A cost out of what `algorithm` holds, which is `whose`. `None`: said in the report.
pub(super) fn build(raw: &raw::Cost, algorithm: &Algorithm, whose: &str, report: &mut Report) -> Option<Cost> {
    let burst = algorithm.burst();
    match raw {
        raw::Cost::Fixed(at) => {
            let cost = tokens(at, burst, whose, report)?;
            Some(Cost::Fixed(cost))
        }
        raw::Cost::Header { name, default, max } => {
            let default = optional(default, NonZeroU64::MIN, burst, whose, report);
            let most = optional(max, Cost::UNBOUNDED, burst, whose, report)?;
            let default = default?;
            if let Slot::Good(max) = max
                && default > most
            {
                let trouble = Trouble::new(format!("the default of {default} is over the max, {most}"));
                report.mistake(&max.place, trouble.hint("raise \"max\" or lower \"default\""));
                return None;
            }
            Some(Cost::Header { name: name.value.clone(), default, max: most })
        }
        raw::Cost::Response { field, .. } if matches!(algorithm, Algorithm::Concurrency { .. }) => {
            let trouble = Trouble::new("concurrency is settled when the request ends");
            report.mistake(field.place(), trouble.hint("give it a fixed cost, or one by the request"));
            None
        }
        raw::Cost::Response { field, reserve, max } => {
            let reserve = optional(reserve, NonZeroU64::MIN, burst, whose, report)?;
            let max = match max {
                Slot::Absent => burst,
                Slot::Bad => return None,
                Slot::Good(at) => flowing_off(at, algorithm, report)?,
            };
            if reserve > max {
                let trouble = Trouble::new(format!("the reserve of {reserve} is over the max, {max}"));
                report.mistake(field.place(), trouble.hint("raise \"max\" or lower \"reserve\""));
                return None;
            }
            Some(Cost::Response(Arc::new(ByResponse { field: field.field(), reserve, max })))
        }
        raw::Cost::Body { unit, max } => {
            let max = optional(max, Cost::UNBOUNDED, burst, whose, report)?;
            Some(Cost::Body { unit: NonZeroU64::new(unit.value.0)?, max })
        }
    }
}

/// What a request may turn out to cost is waited for by all that come after it, and no wait is longer than a bucket's.
fn flowing_off(max: &At<raw::Whole<1, MAX_BURST>>, algorithm: &Algorithm, report: &mut Report) -> Option<NonZeroU64> {
    let tokens = NonZeroU64::new(max.value.0)?;
    // A window forgets at its end.
    let Algorithm::TokenBucket { rate, .. } = algorithm else { return Some(tokens) };
    if let Err(TokenBucketError::TooSlow) = TokenBucket::new(rate.tokens, rate.period_us, tokens) {
        let trouble = Trouble::new(format!("{tokens} tokens would take over 366 days to come back"));
        report.mistake(&max.place, trouble.hint("lower \"max\" or raise the rate"));
        return None;
    }
    Some(tokens)
}

/// A fixed cost above `burst` could never be paid. One that varies is bounded by the bucket.
pub(super) fn check_fixed(
    cost: &Cost,
    burst: NonZeroU64,
    whose: &str,
    place: &Place,
    report: &mut Report,
) -> Option<()> {
    match cost {
        Cost::Fixed(cost) if *cost > burst => {
            let trouble = Trouble::new(format!("a cost of {cost} is over {whose}, {burst}: no request would pass"));
            report.mistake(place, trouble.hint("lower the cost or raise the burst"));
            None
        }
        Cost::Fixed(_) | Cost::Header { .. } | Cost::Body { .. } | Cost::Response(_) => Some(()),
    }
}

fn optional(
    slot: &Slot<At<raw::Whole<1, MAX_BURST>>>,
    absent: NonZeroU64,
    burst: NonZeroU64,
    whose: &str,
    report: &mut Report,
) -> Option<NonZeroU64> {
    match slot {
        Slot::Absent => Some(absent),
        Slot::Bad => None,
        Slot::Good(at) => tokens(at, burst, whose, report),
    }
}

fn tokens(
    at: &At<raw::Whole<1, MAX_BURST>>,
    burst: NonZeroU64,
    whose: &str,
    report: &mut Report,
) -> Option<NonZeroU64> {
    let cost = NonZeroU64::new(at.value.0)?;
    check_fixed(&Cost::Fixed(cost), burst, whose, &at.place, report)?;
    Some(cost)
}
