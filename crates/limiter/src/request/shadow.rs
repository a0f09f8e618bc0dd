//! Shadow limits: counted on a request, but not enforced.
//!
//! Guarantees that they are charged and counted as if they were enforced, each for itself, and that
//! no request waits for them.

use std::sync::Arc;

use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::decide::check::Checks;
use crate::decide::decision::Decision;
use crate::decide::limiter::{Deciding, Limiter};
use crate::decide::settlement::Reservation;
use crate::request::denied_keys::DeniedKeys;
use crate::request::metrics::{CountedAs, LimitMetrics};
use crate::request::response::permit::{LaterCost, Permit};
use crate::request::response::usage::reader::Usage;
use crate::request::rule::Rule;

/// The shadow limits of one request.
#[derive(Debug, Default)]
#[must_use = "a shadow that is dropped is not counted"]
pub struct Shadows(SmallVec<[Box<Shadow>; 1]>);

#[derive(Debug)]
struct Shadow {
    /// A single check.
    checks: Checks,
    metrics: Arc<LimitMetrics>,
    denied_keys: Option<Arc<DeniedKeys>>,
    later: Option<LaterCost>,
}

impl Shadows {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn add(&mut self, checks: Checks, rule: &Rule, later: Option<LaterCost>) {
        let metrics = rule.metrics.clone();
        let denied_keys = rule.denied_keys.clone();
        self.0.push(Box::new(Shadow {
            checks,
            metrics,
            denied_keys,
            later,
        }));
    }

    /// Decides and counts, beside the request when a store has to be asked. Only for a request that
    /// its other limits let pass: limits are charged all or none, so an enforced one would not have
    /// been charged for a denied request. Reservations are held with the request.
    pub(crate) fn start(self, limiter: &Limiter, permit: &mut Permit) {
        for shadow in self.0 {
            if let Deciding::Done(decision) = limiter.decide(&shadow.checks) {
                shadow.count(&decision);
                if let Some((later, reservation)) = shadow.reserved(&decision) {
                    permit.reserve(later, reservation, limiter);
                }
                permit.hold_permits(decision.permits);
            } else if let Ok(runtime) = Handle::try_current() {
                let usage = shadow.later.as_ref().map(|later| permit.report(later));
                let ended = (!shadow.checks.permits.is_empty()).then(|| permit.end());
                runtime.spawn(shadow.run_beside(limiter.clone(), usage, ended));
            }
        }
    }
}

impl Shadow {
    /// Asks the store while the request goes on, and settles by the usage that the response tells.
    async fn run_beside(
        self: Box<Self>,
        limiter: Limiter,
        usage: Option<oneshot::Receiver<Usage>>,
        ended: Option<oneshot::Receiver<()>>,
    ) {
        let decision = limiter.decide(&self.checks).wait().await;
        self.count(&decision);
        if let Some(((later, reservation), usage)) = self.reserved(&decision).zip(usage)
            && let Ok(usage) = usage.await
        {
            later.settling(reservation, &limiter).settle(usage);
        }
        if let Some(ended) = ended {
            // The end is the sender's drop.
            let _ = ended.await;
            drop(decision.permits);
        }
    }

    /// The reservation, if it was granted.
    fn reserved(&self, decision: &Decision) -> Option<(LaterCost, Reservation)> {
        let later = self.later.clone().filter(|_| decision.granted)?;
        let (charge, policy) = self.checks.tokens.iter().next()?;
        Some((
            later,
            Reservation::new(charge.clone(), policy.on_outage, decision.source(0)),
        ))
    }

    fn count(&self, decision: &Decision) {
        let counted = if decision.granted {
            CountedAs::ShadowAllowed
        } else {
            CountedAs::ShadowDenied
        };
        if let (false, Some(denied_keys)) = (decision.granted, &self.denied_keys) {
            let of_tokens = self
                .checks
                .tokens
                .charges()
                .first()
                .map(|charge| &charge.key);
            let key =
                of_tokens.or_else(|| self.checks.permits.first().map(|check| &check.need.key));
            key.into_iter().for_each(|key| denied_keys.count(key));
        }
        let is_permit = self.checks.tokens.is_empty();
        let by = if is_permit {
            decision.permit_decided_by(0)
        } else {
            decision.source(0).decided_by
        };
        self.metrics.count(counted, by);
    }
}
