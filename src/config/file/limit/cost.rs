//! `cost`: how many tokens a request takes.

use http::HeaderName;
use serde_json::{Value as Json, json};
use tollgate_limiter::algorithm::token_bucket::MAX_BURST;

use super::response_cost::{AbsentCost, RawJsonSum, RawResponseField};
use crate::config::file::scalar::number::{ByteSize, WholeNumber};
use crate::config::report::{Location, Report, ValueProblem};
use crate::config::yaml::decode::{Decode, Located, SchemaDefinitions, Setting, only_one};
use crate::config::yaml::node::{YamlNode, YamlValue};
use crate::config::yaml::record::record;

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
