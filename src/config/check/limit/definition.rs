//! A limit: its algorithm, the cost of a request, and the treatment of requests over the limit.

use std::sync::Arc;
use std::time::Duration;

use tollgate_limiter::limit::definition::Limit;
use tollgate_limiter::limit::key::KeySpec;
use tollgate_limiter::limit::on_limit::{Degrade, OnLimit};
use tollgate_limiter::limit::rollout::Rollout;

use super::assigned::PolicyTables;
use super::plan::PlanContext;
use super::{cost, credential};
use crate::config::check::named::NamedSection;
use crate::config::file::limit::{RawDegrade, RawKey, RawLimit, RawOnLimit};
use crate::config::file::scalar::text::DefinedName;
use crate::config::report::{Report, ValueProblem};
use crate::identity::credential::CredentialPlace;
use crate::upstream::UpstreamSpec;

/// The rest of the file, where a limit refers to it.
pub struct LimitContext<'a> {
    pub upstreams: &'a NamedSection<UpstreamSpec>,
    /// Whether the file names a store.
    pub has_store: bool,
    /// For how long nodes hold back a silent one's share, if there is a store.
    pub autonomy: Option<Duration>,
    pub policies: &'a PolicyTables<'a>,
    /// Where authenticators find credentials.
    pub credentials: &'a [CredentialPlace],
}

/// A limit. `None`: a mistake was reported.
pub fn build(
    name: &DefinedName,
    raw: &RawLimit,
    context: &LimitContext<'_>,
    report: &mut Report,
) -> Option<Limit> {
    let choice = raw.algorithm.choose(&raw.consistency, report);
    let algorithm = choice
        .as_ref()
        .and_then(|choice| choice.build(&raw.algorithm.quota, report));
    let cost = match (raw.cost.valid(), &choice, &algorithm) {
        (Some(cost), Some(choice), Some(algorithm)) => {
            cost::build(cost, algorithm, choice.capacity(), report)
        }
        _ => None,
    };
    let enforcement = on_limit(raw, context.upstreams, report);
    let exempt = raw.exempt.build(|raw| raw.build(report));
    let count = raw
        .count
        .build(|raw_count| raw_count.build(algorithm.as_ref(), raw.consistency.value(), report));
    let hashed = |part| credential::hashed(part, context.credentials);
    let key = raw
        .key
        .valid()
        .and_then(RawKey::parts)
        .map(|parts| parts.into_iter().map(hashed).collect::<Vec<_>>());
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
    let plans = context
        .policies
        .plans(&name.0, &raw.plans, planned.as_ref(), report);
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

/// The consequence of a denial, and the share of keys that it is for. `None`: a mistake was
/// reported.
fn on_limit(
    raw: &RawLimit,
    upstreams: &NamedSection<UpstreamSpec>,
    report: &mut Report,
) -> Option<(OnLimit, Rollout)> {
    let enforced = raw.enforce.value();
    let on_limit = match raw.on_limit.valid()? {
        RawOnLimit::Reject(None) => OnLimit::Reject,
        RawOnLimit::Reject(Some(refusal)) => OnLimit::Answer(Arc::new(refusal.build(report)?)),
        RawOnLimit::Queue(queue) => OnLimit::Queue(queue.build()?),
        RawOnLimit::Degrade(degrade) => {
            OnLimit::Degrade(self::degrade(degrade, upstreams, report)?)
        }
        RawOnLimit::Shadow(location) => {
            if enforced.is_some_and(|enforced| enforced != Rollout::ALL) {
                let problem = ValueProblem::new(
                    "a limit in shadow enforces nothing, so \"enforce\" has no effect",
                );
                report.mistake(location, problem.hint("remove \"on_limit\" or \"enforce\""));
                return None;
            }
            return Some((OnLimit::Reject, Rollout::NONE));
        }
    };
    Some((on_limit, enforced?))
}

fn degrade(
    raw: &RawDegrade,
    upstreams: &NamedSection<UpstreamSpec>,
    report: &mut Report,
) -> Option<Degrade> {
    match raw {
        RawDegrade::Upstream(name) => Some(Degrade::Upstream(
            upstreams.find(name, report)?.name.clone(),
        )),
        RawDegrade::Respond(respond) => respond
            .build(report)
            .map(|respond| Degrade::Respond(Arc::new(respond))),
    }
}
