//! `cost`: the tokens that a request takes, at most as many as fit its bucket.

use std::num::NonZeroU64;
use std::sync::Arc;

use http::HeaderName;
use serde_json::{Value as Json, json};
use tollgate_limiter::algorithm::token_bucket::MAX_BURST;
use tollgate_limiter::limit::algorithm::Algorithm;
use tollgate_limiter::limit::cost::{Cost, ResponseCost};

use crate::report::{Location, Report, ValueProblem};
use crate::scalar::number::{ByteSize, WholeNumber};
use crate::section::limit::response_cost::{AbsentCost, RawJsonSum, RawResponseField};
use crate::yaml::decode::{Decode, Located, SchemaDefinitions, Setting, only_one};
use crate::yaml::node::{YamlNode, YamlValue};
use crate::yaml::record::record;

record! {
    /// A cost that differs from request to request: by a header field, by the length of the body,
    /// or by the response.
    RawCostOptions at location {
        /// The header field that says how many tokens the request takes.
        optional header: Located<HeaderName>,
        /// Tokens without that field. Default: 1.
        optional default: Located<WholeNumber<1, MAX_BURST>>,
        /// Bytes of body for one token, rounded up.
        optional body: Located<ByteSize<1, { u64::MAX }>>,
        /// The header field of the response that says how many tokens the request took. Settled
        /// after it.
        optional response_header: Located<HeaderName>,
        /// Like response_header, by a field of a JSON body or of an event stream, names joined by
        /// dots: `usage.total_tokens`. A list adds several, each with a weight if need be.
        optional response_json: RawJsonSum,
        /// Tokens to take before the response. Default: 1.
        optional reserve: Located<WholeNumber<1, MAX_BURST>>,
        /// Tokens that a successful response costs which lacks the field: reserve, max or a number.
        /// Default: reserve.
        optional absent: Located<AbsentCost>,
        /// Tokens at most, and when the field cannot be read or the length is not known. Default:
        /// the burst.
        optional max: Located<WholeNumber<1, MAX_BURST>>,
    }
}

/// How many tokens a request takes.
pub enum RawCost {
    Fixed(Located<WholeNumber<1, MAX_BURST>>),
    Header {
        name: Located<HeaderName>,
        default: Setting<Located<WholeNumber<1, MAX_BURST>>>,
        max: Setting<Located<WholeNumber<1, MAX_BURST>>>,
    },
    Body {
        unit: Located<ByteSize<1, { u64::MAX }>>,
        max: Setting<Located<WholeNumber<1, MAX_BURST>>>,
    },
    Response {
        field: RawResponseField,
        reserve: Setting<Located<WholeNumber<1, MAX_BURST>>>,
        absent: Setting<Located<AbsentCost>>,
        max: Setting<Located<WholeNumber<1, MAX_BURST>>>,
    },
}

impl RawCost {
    /// The location of the key that decides.
    pub fn location(&self) -> &Location {
        match self {
            Self::Fixed(at) => &at.location,
            Self::Header { name, .. } => &name.location,
            Self::Body { unit, .. } => &unit.location,
            Self::Response { field, .. } => field.location(),
        }
    }
}

impl Decode for RawCost {
    fn decode(node: &YamlNode, report: &mut Report) -> Option<Self> {
        match &node.value {
            YamlValue::Map(_) => RawCostOptions::decode(node, report)?.choose(report),
            _ => Located::decode(node, report).map(Self::Fixed),
        }
    }

    fn schema(definitions: &mut SchemaDefinitions) -> Json {
        let fixed = Located::<WholeNumber<1, MAX_BURST>>::schema(definitions);
        json!({ "anyOf": [fixed, RawCostOptions::schema(definitions)] })
    }
}

/// The part of a request or response that a cost goes by.
enum RawCostBasis {
    Header(Located<HeaderName>),
    Body(Located<ByteSize<1, { u64::MAX }>>),
    Response(RawResponseField),
}

impl RawCostOptions {
    fn choose(self, report: &mut Report) -> Option<RawCost> {
        let Self {
            location,
            header,
            default,
            body,
            response_header,
            response_json,
            reserve,
            absent,
            max,
        } = self;
        let of_response = reserve.is_present() || absent.is_present();
        let bases = [
            header.take(|name| Some(RawCostBasis::Header(name))),
            body.take(|unit| Some(RawCostBasis::Body(unit))),
            response_header
                .take(|name| Some(RawCostBasis::Response(RawResponseField::Header(name)))),
            response_json.take(|sum| Some(RawCostBasis::Response(RawResponseField::Json(sum)))),
        ];
        match only_one(bases) {
            Ok(None) => None,
            Ok(Some(RawCostBasis::Header(name))) if !of_response => {
                Some(RawCost::Header { name, default, max })
            }
            Ok(Some(RawCostBasis::Body(unit))) if !default.is_present() && !of_response => {
                Some(RawCost::Body { unit, max })
            }
            Ok(Some(RawCostBasis::Response(field))) if !default.is_present() => {
                Some(RawCost::Response {
                    field,
                    reserve,
                    absent,
                    max,
                })
            }
            Ok(Some(_)) | Err(_) => ambiguous(&location, report),
        }
    }
}

fn ambiguous(location: &Location, report: &mut Report) -> Option<RawCost> {
    let problem =
        ValueProblem::new("a cost is by one of header, body, response_header and response_json");
    let forms = "write {header: x-cost, default: 1, max: 100}, {body: 1KiB, max: 100} or \
        {response_header: x-used, reserve: 1, max: 100}";
    report.mistake(location, problem.hint(forms));
    None
}

/// A cost that fits the bucket of `algorithm`, whose size messages call `whose`. `None`: a mistake
/// was reported.
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
