//! What a limit does with requests over it, and with which of them.

use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use tollgate_limiter::limit::fixed_response::FixedResponse;
use tollgate_limiter::limit::on_limit::{Degrade, OnLimit, Queueing};
use tollgate_limiter::limit::rollout::Rollout;

use super::named::Named;
use super::optional;
use super::rewrite::{respond, response_headers};
use crate::config::decode::Slot;
use crate::config::mistake::{Report, Trouble};
use crate::config::raw;
use crate::upstream::UpstreamSpec;

/// What a limit does, and to which keys. `None`: said in the report.
pub(super) fn build(
    raw: &raw::Limit,
    upstreams: &Named<UpstreamSpec>,
    report: &mut Report,
) -> Option<(OnLimit, Rollout)> {
    let enforced = raw.enforce.value();
    let on_limit = match raw.on_limit.good()? {
        raw::OnLimit::Reject(None) => OnLimit::Reject,
        raw::OnLimit::Reject(Some(refusal)) => OnLimit::Answer(Arc::new(answer(refusal, report)?)),
        raw::OnLimit::Queue(bounds) => OnLimit::Queue(queueing(bounds)?),
        raw::OnLimit::Degrade(degrade) => OnLimit::Degrade(self::degrade(degrade, upstreams, report)?),
        raw::OnLimit::Shadow(place) => {
            if enforced.is_some_and(|enforced| enforced != Rollout::ALL) {
                let trouble = Trouble::new("a limit that is all shadow enforces no share of its keys");
                report.mistake(place, trouble.hint("remove \"on_limit\" or \"enforce\""));
                return None;
            }
            return Some((OnLimit::Reject, Rollout::NONE));
        }
    };
    Some((on_limit, enforced?))
}

fn answer(raw: &raw::Refusal, report: &mut Report) -> Option<FixedResponse> {
    let headers = optional(&raw.headers, |table| {
        for row in table.0.iter().filter(|row| row.key.as_ref() == Some(&CONTENT_TYPE)) {
            let trouble = Trouble::new("the type of the body has a key of its own");
            report.mistake(&row.place, trouble.hint("write content_type: … beside \"headers\""));
        }
        response_headers(table, report)
    });
    let body = optional(&raw.body, |at| Some(Bytes::copy_from_slice(at.value.0.as_bytes())));
    let mut headers = headers?.unwrap_or_default();
    if matches!(raw.body, Slot::Good(_)) {
        headers.push((CONTENT_TYPE, raw.content_type.value()?));
    }
    Some(FixedResponse { status: raw.status.value()?.0, headers, body: body?.unwrap_or_default() })
}

fn queueing(raw: &raw::QueueBounds) -> Option<Queueing> {
    Some(Queueing { max_wait: raw.max_wait.value()?.0, max_waiting: raw.max_waiting.value()?.count() })
}

fn degrade(raw: &raw::Degrade, upstreams: &Named<UpstreamSpec>, report: &mut Report) -> Option<Degrade> {
    match raw {
        raw::Degrade::Upstream(name) => Some(Degrade::Upstream(upstreams.find(name, report)?.name.clone())),
        raw::Degrade::Respond(fixed) => respond(fixed, report).map(|fixed| Degrade::Respond(Arc::new(fixed))),
    }
}
