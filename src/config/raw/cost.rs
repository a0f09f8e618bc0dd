//! `cost`: how many tokens a request takes.

use ::http::HeaderName;
use serde_json::{Value as Json, json};

use super::number::{Size, Whole};
use crate::config::decode::{At, Decode, Definitions, Slot};
use crate::config::mistake::{Report, Trouble};
use crate::config::node::{Node, Place, Value};
use crate::config::record::record;
use crate::rate_limit::bucket::MAX_BURST;

record! {
    /// A cost that differs from request to request: by a header field, or by the length of the body.
    CostOptions at place {
        /// The header field that says how many tokens the request takes.
        optional header: At<HeaderName>,
        /// Tokens without that field. Default: 1.
        optional default: At<Whole<1, MAX_BURST>>,
        /// Bytes of body for one token; a unit that is begun counts.
        optional body: At<Size<1, { u64::MAX }>>,
        /// Tokens at most, and when the field cannot be read or the length is not known. Default: the burst.
        optional max: At<Whole<1, MAX_BURST>>,
    }
}

/// How many tokens a request takes.
pub(in crate::config) enum Cost {
    Fixed(At<Whole<1, MAX_BURST>>),
    Header { name: At<HeaderName>, default: Slot<At<Whole<1, MAX_BURST>>>, max: Slot<At<Whole<1, MAX_BURST>>> },
    Body { unit: At<Size<1, { u64::MAX }>>, max: Slot<At<Whole<1, MAX_BURST>>> },
}

impl Cost {
    /// Where it is written.
    pub fn place(&self) -> &Place {
        match self {
            Self::Fixed(at) => &at.place,
            Self::Header { name, .. } => &name.place,
            Self::Body { unit, .. } => &unit.place,
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
        let Self { place, header, default, body, max } = self;
        match (header, body, default) {
            (Slot::Good(name), Slot::Absent, default) => Some(Cost::Header { name, default, max }),
            (Slot::Absent, Slot::Good(unit), Slot::Absent) => Some(Cost::Body { unit, max }),
            (Slot::Bad, ..) | (_, Slot::Bad, _) => None,
            _ => {
                let trouble = Trouble::new("a cost is by one of header and body");
                report.mistake(
                    &place,
                    trouble.hint("write {header: x-cost, default: 1, max: 100} or {body: 1KiB, max: 100}"),
                );
                None
            }
        }
    }
}
