//! `upstream`, `split_by` and `mirror` of a route: where requests go, if not all to one upstream.

use serde_json::{Value as Json, json};
use tollgate_limiter::limit::units;

use crate::config::file::scalar::number::{ByteSize, WholeNumber};
use crate::config::file::scalar::text::DefinedName;
use crate::config::report::{Location, Report, ValueProblem, quote};
use crate::config::yaml::collection::NonEmptyList;
use crate::config::yaml::decode::{Decode, Located, Scalar, SchemaDefinitions};
use crate::config::yaml::node::{YamlNode, YamlValue};
use crate::config::yaml::record::record;
use crate::config::yaml::schema::or_variable;
use crate::route::distribution::TrafficShare;

/// The upstream of a route, or several with their shares.
pub enum RawForwardTo {
    One(Located<DefinedName>),
    Split(Location, Vec<RawSplitPart>),
}

record! {
    /// An upstream that gets a share of the requests.
    RawSplitPart {
        /// The upstream.
        required to: Located<DefinedName>,
        /// Its share of the requests, such as 5% or 0.5%. All are 100% together.
        required weight: Located<TrafficShare>,
    }
}

record! {
    /// Copies of requests, whose answers are dropped.
    RawMirror at location {
        /// The upstream that gets them.
        required to: Located<DefinedName>,
        /// The share of the requests that is copied.
        default("100%") share: Located<TrafficShare>,
        /// A request with a longer body is not copied.
        default("64KiB") max_body: Located<ByteSize<0, 1_048_576>>,
        /// Copies under way in the whole process; beyond that, requests are not copied.
        default(100) max_in_flight: Located<WholeNumber<1, 10_000>>,
    }
}

impl Decode for RawForwardTo {
    fn decode(node: &YamlNode, report: &mut Report) -> Option<Self> {
        match &node.value {
            YamlValue::List(_) => {
                let parts = NonEmptyList::decode(node, report)?.0;
                Some(Self::Split(node.location.clone(), parts))
            }
            _ => Located::decode(node, report).map(Self::One),
        }
    }

    fn schema(definitions: &mut SchemaDefinitions) -> Json {
        let one = Located::<DefinedName>::schema(definitions);
        json!({ "anyOf": [one, NonEmptyList::<RawSplitPart>::schema(definitions)] })
    }
}

impl Scalar for TrafficShare {
    const WHAT: &'static str = "a share";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        let share = units::parse_percent(text).and_then(Self::from_hundredths);
        share.ok_or_else(|| {
            ValueProblem::new(format!("{} is not a share", quote(text)))
                .hint("write 0% to 100%, such as 5% or 0.5%")
        })
    }

    fn schema() -> Json {
        json!({ "type": "string", "pattern": or_variable("[0-9]+(\\.[0-9]{1,2})?%") })
    }
}
