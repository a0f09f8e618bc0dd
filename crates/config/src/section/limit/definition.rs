//! `limits`: what a limit counts, how much it allows, and what happens beyond that.

use std::time::Duration;

use http::HeaderName;
use serde_json::{Value as Json, json};
use tollgate_limiter::limit::definition::{Consistency, Limit};
use tollgate_limiter::limit::exemption::Exemption;
use tollgate_limiter::limit::key::{KeySpec, OnMissing};
use tollgate_limiter::limit::rollout::Rollout;
use tollgate_limiter::limit::units;

use crate::report::{Report, ValueProblem, quote};
use crate::scalar::address::Cidr;
use crate::scalar::text::DefinedName;
use crate::section::common::header::{RawHeaderCondition, check_names};
use crate::section::common::named::NamedSection;
use crate::section::limit::algorithm::RawAlgorithm;
use crate::section::limit::assigned::{self, PlannedLimit};
use crate::section::limit::cost::{self, RawCost};
use crate::section::limit::count::RawCount;
use crate::section::limit::key::{RawKey, hashed_parts};
use crate::section::limit::on_limit::{RawOnLimit, on_limit};
use crate::section::limit::on_outage::RawOnOutage;
use crate::section::limit::plan::{PlanContext, RawPlans};
use crate::yaml::collection::Mapping;
use crate::yaml::decode::{Located, Scalar};
use crate::yaml::record::record;
use crate::yaml::schema::or_variable;
use crate::yaml::words::words;
use tollgate_identity::credential::CredentialPlace;
use tollgate_proxy::upstream::UpstreamSpec;

record! {
    /// A rate limit: how much, counted by what.
    RawLimit {
        /// The part of a request to count by, or a list of parts.
        required key: RawKey,
        /// How much is allowed, and how it is counted.
        group algorithm: RawAlgorithm,
        /// Tokens one request takes.
        default(1) cost: RawCost,
        /// The responses that count; requests with another get back what they took. Default: all.
        optional count: RawCount,
        /// While the store is away: this node's share of the limit, let all pass, deny all, or
        /// {local: 10s, then: deny}.
        default("local") on_outage: RawOnOutage,
        /// Ask the store for each request, or take tokens ahead and spend them in process.
        default("exact") consistency: Located<Consistency>,
        /// When a part of the key is not in the request: share one bucket, skip the limit, or
        /// refuse with 400.
        default("share") on_missing: Located<OnMissing>,
        /// The treatment of a request over the limit: reject, shadow, or {reject: …}, {queue: …},
        /// {degrade: …}.
        default("reject") on_limit: RawOnLimit,
        /// The share of keys that the limit acts on; the others are only counted.
        default("100%") enforce: Located<Rollout>,
        /// Other rates for some clients.
        optional plans: RawPlans,
        /// Requests that the limit does not count.
        optional exempt: RawExemption,
        /// Clients are told neither the limit's fields nor its name. A denied request has
        /// Retry-After all the same.
        default(false) hidden: Located<bool>,
    }
}

record! {
    /// Requests that a limit does not count: any of these is enough.
    RawExemption at location {
        /// Addresses or networks of clients.
        optional client: Vec<Located<Cidr>>,
        /// Header fields: a value, or {present: true} for any. A client can send them too.
        optional headers: Mapping<HeaderName, RawHeaderCondition>,
    }
}

impl RawExemption {
    /// The exemption. `None`: a mistake was reported.
    pub fn build(&self, report: &mut Report) -> Option<Exemption> {
        let clients = self
            .client
            .build(|networks| Some(networks.iter().map(|at| at.network(report)).collect()));
        let headers = self.headers.build(|headers| {
            check_names(headers, report);
            headers
                .0
                .iter()
                .map(|entry| Some((entry.key.clone()?, entry.value.as_ref()?.0.clone())))
                .collect()
        });
        let exempt = Exemption {
            clients: clients?.unwrap_or_default(),
            headers: headers?.unwrap_or_default(),
        };
        if exempt.is_empty() {
            let problem = ValueProblem::new("the exemption is empty");
            report.mistake(
                &self.location,
                problem.hint("write {client: [10.0.0.0/8]} or {headers: {x-name: value}}"),
            );
            return None;
        }
        Some(exempt)
    }
}

words! {
    Consistency: "exact or leased" { "exact" => Exact, "leased" => Leased }
}

impl Scalar for Rollout {
    const WHAT: &'static str = "a percentage";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        let share = units::parse_percent(text).and_then(Self::from_hundredths);
        share.ok_or_else(|| {
            ValueProblem::new(format!("{} is not a share", quote(text)))
                .hint("write 0% to 100%, such as 25% or 0.5%")
        })
    }

    fn schema() -> Json {
        json!({ "type": "string", "pattern": or_variable("[0-9]+(\\.[0-9]{1,2})?%") })
    }
}

/// The rest of the file, where a limit refers to it.
pub struct LimitContext<'a> {
    pub upstreams: &'a NamedSection<UpstreamSpec>,
    /// Whether the file names a store.
    pub has_store: bool,
    /// For how long nodes hold back a silent one's share, if there is a store.
    pub autonomy: Option<Duration>,
    /// Where authenticators find credentials.
    pub credentials: &'a [CredentialPlace],
}

/// A limit, with the plans that an application has for it. `None`: a mistake was reported.
pub fn build(
    name: &DefinedName,
    raw: &RawLimit,
    context: &LimitContext<'_>,
    application: Option<PlannedLimit<'_>>,
    report: &mut Report,
) -> Option<Limit> {
    let choice = raw.algorithm.choose(&raw.consistency, report);
    let algorithm = choice
        .as_ref()
        .and_then(|choice| choice.of_limit(&raw.algorithm.quota, report));
    let cost = match (raw.cost.valid(), &choice, &algorithm) {
        (Some(cost), Some(choice), Some(algorithm)) => {
            cost::build(cost, algorithm, choice.capacity(), report)
        }
        _ => None,
    };
    let enforcement = on_limit(&raw.on_limit, &raw.enforce, context.upstreams, report);
    let exempt = raw.exempt.build(|raw| raw.build(report));
    let count = raw
        .count
        .build(|raw_count| raw_count.build(algorithm.as_ref(), raw.consistency.value(), report));
    let key_parts = raw.key.valid().and_then(RawKey::parts);
    let key = key_parts.map(|parts| hashed_parts(parts, context.credentials));
    let on_outage = raw
        .on_outage
        .valid()
        .and_then(|raw| raw.build(context.autonomy, report));
    let planned = choice.as_ref().map(|algorithm| PlanContext {
        key: key.as_deref(),
        algorithm,
        cost: cost.as_ref(),
        has_store: context.has_store,
        credentials: context.credentials,
    });
    let plans = assigned::plans(&raw.plans, application, planned.as_ref(), report);
    let (on_limit, enforced) = enforcement?;
    Some(Limit {
        name: name.0.clone(),
        key: KeySpec {
            parts: key?,
            on_missing: raw.on_missing.value()?,
        },
        algorithm: algorithm?,
        cost: cost?,
        count: count?,
        on_outage: on_outage?,
        on_limit,
        rollout: enforced,
        exemption: exempt?.unwrap_or_default(),
        plans: plans?,
        consistency: raw.consistency.value()?,
        hidden: raw.hidden.value()?,
    })
}
