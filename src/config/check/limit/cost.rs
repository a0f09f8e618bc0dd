//! The cost of a request, compared with the most that a bucket holds.

use std::num::NonZeroU64;
use std::sync::Arc;

use tollgate_limiter::algorithm::token_bucket::MAX_BURST;
use tollgate_limiter::limit::algorithm::Algorithm;
use tollgate_limiter::limit::cost::{Cost, ResponseCost};

use crate::config::file::limit::{AbsentCost, RawCost};
use crate::config::file::scalar::number::WholeNumber;
use crate::config::report::{Location, Report, ValueProblem};
use crate::config::yaml::decode::{Located, Setting};

/// A cost of at most what `algorithm` holds, called `whose` in messages. `None`: a mistake was
/// reported.
pub fn build(
    raw: &RawCost,
    algorithm: &Algorithm,
    whose: &str,
    report: &mut Report,
) -> Option<Cost> {
    let burst = algorithm.burst();
    match raw {
        RawCost::Fixed(at) => {
            let cost = tokens(at, burst, whose, report)?;
            Some(Cost::Fixed(cost))
        }
        RawCost::Header { name, default, max } => {
            let default = optional(default, NonZeroU64::MIN, burst, whose, report);
            let most = optional(max, Cost::UNBOUNDED, burst, whose, report)?;
            let default = default?;
            if let Setting::Valid(max) = max
                && default > most
            {
                let problem =
                    ValueProblem::new(format!("the default of {default} is over the max, {most}"));
                report.mistake(
                    &max.location,
                    problem.hint("raise \"max\" or lower \"default\""),
                );
                return None;
            }
            Some(Cost::Header {
                name: name.value.clone(),
                default,
                max: most,
            })
        }
        RawCost::Response { field, .. } if matches!(algorithm, Algorithm::Concurrency { .. }) => {
            let problem = ValueProblem::new("concurrency is settled when the request ends");
            report.mistake(
                field.location(),
                problem.hint("give it a fixed cost, or one by the request"),
            );
            None
        }
        RawCost::Response {
            field,
            reserve,
            absent,
            max,
        } => {
            let reserve = optional(reserve, NonZeroU64::MIN, burst, whose, report)?;
            let max = match max {
                Setting::Absent => burst,
                Setting::Invalid => return None,
                Setting::Valid(at) => flows_back(at, algorithm, report)?,
            };
            if reserve > max {
                let problem =
                    ValueProblem::new(format!("the reserve of {reserve} is over the max, {max}"));
                report.mistake(
                    field.location(),
                    problem.hint("raise \"max\" or lower \"reserve\""),
                );
                return None;
            }
            let absent = absent
                .build(|at| self::absent(at, reserve, max, report))?
                .flatten();
            Some(Cost::Response(Arc::new(ResponseCost {
                field: field.field(),
                reserve,
                max,
                absent,
            })))
        }
        RawCost::Body { unit, max } => {
            let max = optional(max, Cost::UNBOUNDED, burst, whose, report)?;
            Some(Cost::Body {
                unit: NonZeroU64::new(unit.value.0)?,
                max,
            })
        }
    }
}

/// Tokens of a successful response that does not tell its cost; `Some(None)`: what is reserved.
fn absent(
    at: &Located<AbsentCost>,
    reserve: NonZeroU64,
    max: NonZeroU64,
    report: &mut Report,
) -> Option<Option<NonZeroU64>> {
    let tokens = match at.value {
        AbsentCost::Reserve => return Some(None),
        AbsentCost::Max => return Some(Some(max)),
        AbsentCost::Tokens(tokens) => tokens,
    };
    if (reserve..=max).contains(&tokens) {
        return Some(Some(tokens));
    }
    let problem = ValueProblem::new(format!(
        "{tokens} tokens are not between the reserve, {reserve}, and the max, {max}"
    ));
    report.mistake(
        &at.location,
        problem.hint("write reserve, max or a number between them"),
    );
    None
}

/// A bound on what a request may turn out to cost. All later requests wait until that has flowed
/// back, and no wait is longer than a bucket's.
fn flows_back(
    max: &Located<WholeNumber<1, MAX_BURST>>,
    algorithm: &Algorithm,
    report: &mut Report,
) -> Option<NonZeroU64> {
    let tokens = NonZeroU64::new(max.value.0)?;
    if !algorithm.comes_back(tokens) {
        let problem = ValueProblem::new(format!(
            "{tokens} tokens would take over 366 days to come back"
        ));
        report.mistake(
            &max.location,
            problem.hint("lower \"max\" or raise the rate"),
        );
        return None;
    }
    Some(tokens)
}

/// A fixed cost above `burst` could never be paid. One that varies is bounded by the bucket.
pub fn check_fixed(
    cost: &Cost,
    burst: NonZeroU64,
    whose: &str,
    location: &Location,
    report: &mut Report,
) -> Option<()> {
    match cost {
        Cost::Fixed(cost) if *cost > burst => {
            let problem = ValueProblem::new(format!(
                "a cost of {cost} is over {whose}, {burst}: no request would pass"
            ));
            report.mistake(location, problem.hint("lower the cost or raise the burst"));
            None
        }
        Cost::Fixed(_) | Cost::Header { .. } | Cost::Body { .. } | Cost::Response(_) => Some(()),
    }
}

fn optional(
    setting: &Setting<Located<WholeNumber<1, MAX_BURST>>>,
    absent: NonZeroU64,
    burst: NonZeroU64,
    whose: &str,
    report: &mut Report,
) -> Option<NonZeroU64> {
    Some(
        setting
            .build(|at| tokens(at, burst, whose, report))?
            .unwrap_or(absent),
    )
}

fn tokens(
    at: &Located<WholeNumber<1, MAX_BURST>>,
    burst: NonZeroU64,
    whose: &str,
    report: &mut Report,
) -> Option<NonZeroU64> {
    let cost = NonZeroU64::new(at.value.0)?;
    check_fixed(&Cost::Fixed(cost), burst, whose, &at.location, report)?;
    Some(cost)
}
