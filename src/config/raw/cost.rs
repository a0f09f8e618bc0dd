//! `cost`: how many tokens a request takes.

use ::http::HeaderName;
use serde_json::{Value as Json, json};
use tollgate_limiter::algorithm::token_bucket::MAX_BURST;
use tollgate_limiter::limit::cost::Field;
use tollgate_limiter::limit::json_path::JsonPath;

use super::number::{Size, Whole};
use crate::config::decode::{At, Decode, Definitions, Slot};
use crate::config::mistake::{Report, Trouble};
use crate::config::node::{Node, Place, Value};
use crate::config::record::record;

record! {
    /// A cost that differs from request to request: by a header field, by the length of the body, or by the response.
    CostOptions at place {
        /// The header field that says how many tokens the request takes.
        optional header: At<HeaderName>,
        /// Tokens without that field. Default: 1.
        optional default: At<Whole<1, MAX_BURST>>,
        /// Bytes of body for one token; a unit that is begun counts.
        optional body: At<Size<1, { u64::MAX }>>,
        /// The header field of the response that says how many tokens the request took. Settled after it.
        optional response_header: At<HeaderName>,
        /// The same by a field of the response's JSON body, names joined by dots: `usage.total_tokens`. Also of an event stream.
        optional response_json: At<JsonPath>,
        /// Tokens to take before there is a response, and when it does not tell. Default: 1.
        optional reserve: At<Whole<1, MAX_BURST>>,
        /// Tokens at most, and when the field cannot be read or the length is not known. Default: the burst.
        optional max: At<Whole<1, MAX_BURST>>,
    }
}

/// How many tokens a request takes.
pub(in crate::config) enum Cost {
    Fixed(At<Whole<1, MAX_BURST>>),
    Header { name: At<HeaderName>, default: Slot<At<Whole<1, MAX_BURST>>>, max: Slot<At<Whole<1, MAX_BURST>>> },
    Body { unit: At<Size<1, { u64::MAX }>>, max: Slot<At<Whole<1, MAX_BURST>>> },
    Response { field: ResponseField, reserve: Slot<At<Whole<1, MAX_BURST>>>, max: Slot<At<Whole<1, MAX_BURST>>> },
}

/// Where a response says what its request took.
pub(in crate::config) enum ResponseField {
    Header(At<HeaderName>),
    Json(At<JsonPath>),
}

impl ResponseField {
    /// Where it is written.
    pub fn place(&self) -> &Place {
        match self {
            Self::Header(at) => &at.place,
            Self::Json(at) => &at.place,
        }
    }

    pub fn field(&self) -> Field {
        match self {
            Self::Header(at) => Field::Header(at.value.clone()),
            Self::Json(at) => Field::Json(at.value.clone()),
        }
    }
}

impl Cost {
    /// Where it is written.
    pub fn place(&self) -> &Place {
        match self {
            Self::Fixed(at) => &at.place,
            Self::Header { name, .. } => &name.place,
            Self::Body { unit, .. } => &unit.place,
            Self::Response { field, .. } => field.place(),
        }
    }
}

impl Decode for Cost {
    fn decode(node: &Node, report: &mut Report) -> Option<Self> {
        match &node.value {
            Value::Map(_) => CostOptions::decode(node, report)?.only(report),
            _ => At::decode(node, report).map(Self::Fixed),
        }
    }

    fn schema(definitions: &mut Definitions) -> Json {
        json!({ "anyOf": [At::<Whole<1, MAX_BURST>>::schema(definitions), CostOptions::schema(definitions)] })
    }
}

impl CostOptions {
    fn only(self, report: &mut Report) -> Option<Cost> {
        let Self { place, header, default, body, response_header, response_json, reserve, max } = self;
        let response = match (response_header, response_json) {
            (Slot::Absent, Slot::Absent) => Slot::Absent,
            (Slot::Good(name), Slot::Absent) => Slot::Good(ResponseField::Header(name)),
            (Slot::Absent, Slot::Good(path)) => Slot::Good(ResponseField::Json(path)),
            (Slot::Bad, _) | (_, Slot::Bad) => Slot::Bad,
            (Slot::Good(_), Slot::Good(_)) => return ambiguous(&place, report),
        };
        match (header, body, response, default, reserve) {
            (Slot::Good(name), Slot::Absent, Slot::Absent, default, Slot::Absent) => {
                Some(Cost::Header { name, default, max })
            }
            (Slot::Absent, Slot::Good(unit), Slot::Absent, Slot::Absent, Slot::Absent) => {
                Some(Cost::Body { unit, max })
            }
            (Slot::Absent, Slot::Absent, Slot::Good(field), Slot::Absent, reserve) => {
                Some(Cost::Response { field, reserve, max })
            }
            (Slot::Bad, ..) | (_, Slot::Bad, ..) | (_, _, Slot::Bad, ..) => None,
            _ => ambiguous(&place, report),
        }
    }
}

fn ambiguous(place: &Place, report: &mut Report) -> Option<Cost> {
    let trouble = Trouble::new("a cost is by one of header, body, response_header and response_json");
    report.mistake(
        place,
        trouble.hint(
            "write {header: x-cost, default: 1, max: 100}, {body: 1KiB, max: 100} or {response_header: x-used, reserve: 1, \
             max: 100}",
        ),
    );
    None
}
