//! `upstream`, `split_by` and `mirror` of a route: where requests go, if not all to one upstream.

use std::sync::Arc;

use serde_json::{Value as Json, json};
use tollgate_limiter::limit::key::KeyPart;
use tollgate_limiter::limit::units;

use crate::report::{Location, Report, ValueProblem, quote};
use crate::scalar::number::{ByteSize, WholeNumber};
use crate::scalar::text::DefinedName;
use crate::section::common::named::NamedSection;
use crate::section::limit::key::RawKey;
use crate::yaml::collection::NonEmptyList;
use crate::yaml::decode::{Decode, Located, Scalar, SchemaDefinitions, Setting};
use crate::yaml::node::{YamlNode, YamlValue};
use crate::yaml::record::record;
use crate::yaml::schema::or_variable;
use tollgate_proxy::upstream::UpstreamSpec;
use tollgate_spec::route::Match;
use tollgate_spec::route::distribution::{MirrorSpec, SplitPart, TrafficShare, WHOLE};

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
        /// The share of the requests, such as 5% or 0.5%. All are 100% together.
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

/// Several upstreams with their shares. `None`: a mistake was reported.
pub fn split(
    at: &Location,
    raws: &[RawSplitPart],
    upstreams: &NamedSection<UpstreamSpec>,
    report: &mut Report,
) -> Option<Vec<SplitPart>> {
    let mut parts: Vec<SplitPart> = Vec::new();
    for raw in raws {
        let Setting::Valid(name) = &raw.to else {
            continue;
        };
        let upstream = upstreams.find(name, report);
        let (Some(upstream), Some(share)) = (upstream, raw.weight.value()) else {
            continue;
        };
        if parts.iter().any(|part| part.upstream == upstream.name) {
            let problem = ValueProblem::new(format!("{} is listed twice", quote(&upstream.name)));
            report.mistake(
                &name.location,
                problem.hint("list each upstream once, with all of its share"),
            );
            return None;
        }
        parts.push(SplitPart {
            upstream: upstream.name.clone(),
            share,
        });
    }
    if parts.len() < raws.len() {
        return None;
    }
    let sum: u64 = parts
        .iter()
        .map(|part| u64::from(part.share.hundredths()))
        .sum();
    if sum != u64::from(WHOLE) {
        let sum = format!("{}.{:02}", sum / 100, sum % 100);
        let problem = ValueProblem::new(format!(
            "the weights are {}% together",
            sum.trim_end_matches(".00")
        ));
        report.mistake(
            at,
            problem.hint("change them so that they are 100% together"),
        );
        return None;
    }
    Some(parts)
}

/// The key that requests are split by. `None`: a mistake was reported.
pub fn split_key(
    split_by: &Setting<RawKey>,
    upstream: &Setting<RawForwardTo>,
    location: &Location,
    matches: Option<&Match>,
    report: &mut Report,
) -> Option<Arc<[KeyPart]>> {
    let parts = split_by.build(RawKey::parts)?.unwrap_or_default();
    if parts.iter().any(|part| matches!(part, KeyPart::Body(_))) {
        let problem = ValueProblem::new("only the keys of limits read the body");
        report.mistake(
            location,
            problem.hint("split by a part of the request's head, such as {header: x-tenant}"),
        );
        return None;
    }
    if !parts.is_empty() && matches!(upstream, Setting::Valid(RawForwardTo::One(_))) {
        let problem = ValueProblem::new("\"split_by\" is for routes with several upstreams");
        report.mistake(
            location,
            problem.hint("remove it, or list upstreams with their weights"),
        );
        return None;
    }
    for part in &parts {
        if let (KeyPart::PathParam(param), Some(matches)) = (part, matches)
            && !matches.has_param(param)
        {
            let problem = ValueProblem::new(format!("this route's path does not have {{{param}}}"));
            report.mistake(
                location,
                problem.hint(format!("put {{{param}}} into the route's path")),
            );
            return None;
        }
    }
    Some(parts.into())
}

/// Copies. `None`: a mistake was reported.
pub fn mirror(
    raw: &RawMirror,
    upstreams: &NamedSection<UpstreamSpec>,
    report: &mut Report,
) -> Option<MirrorSpec> {
    let upstream = raw.to.valid().and_then(|name| upstreams.find(name, report));
    Some(MirrorSpec {
        upstream: upstream?.name.clone(),
        share: raw.share.value()?,
        max_body: usize::try_from(raw.max_body.value()?.0).ok()?,
        max_in_flight: raw.max_in_flight.value()?.count().get(),
    })
}
