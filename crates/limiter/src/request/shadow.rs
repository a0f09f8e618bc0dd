//! Limits that watch a request without a say in it.
//!
//! Guarantees that they are charged and counted as if they were enforced, each for itself, and that no request waits for
//! them. Knows nothing of requests.

use std::slice;
use std::sync::Arc;

use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::decide::decision::Decision;
use crate::decide::limiter::Limiter;
use crate::decide::settlement::Reservation;
use crate::request::metrics::{CountedAs, LimitMetrics};
use crate::request::permit::{Later, Permit};
use crate::store::Ask;

/// The limits that watch one request.
#[derive(Debug, Default)]
#[must_use = "what is not watched is not counted"]
pub struct Shadows(SmallVec<[Box<Shadow>; 1]>);

#[derive(Debug)]
struct Shadow {
    ask: Ask,
    tally: Arc<LimitMetrics>,
    later: Option<Later>,
}

impl Shadows {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn add(&mut self, ask: Ask, tally: Arc<LimitMetrics>, later: Option<Later>) {
        self.0.push(Box::new(Shadow { ask, tally, later }));
    }

    /// Asks and counts, beside the request when a store has to be asked. For a request that its other limits let pass:
    /// limits are charged all or none, and one that is enforced would not have been charged for any other. What they reserve
    /// is held with the request.
    pub fn watch(self, limiter: &Limiter, holding: &mut Permit) {
        for shadow in self.0 {
            if let Some(verdict) = limiter.decide_now(slice::from_ref(&shadow.ask)) {
                shadow.count(&verdict);
                if let Some((later, reservation)) = shadow.reserved(&verdict) {
                    holding.reserve(later, reservation, limiter);
                }
                holding.stay_in(verdict.slots);
            } else if let Ok(runtime) = Handle::try_current() {
                let limiter = limiter.clone();
                let told = shadow.later.as_ref().map(|later| {
                    let (sender, told) = oneshot::channel();
                    holding.report(later, sender);
                    told
                });
                let ended = shadow.ask.quota.in_flight().map(|_| holding.end());
                runtime.spawn(async move {
                    let verdict = limiter.decide(slice::from_ref(&shadow.ask)).await;
                    shadow.count(&verdict);
                    if let Some(((later, reservation), told)) = shadow.reserved(&verdict).zip(told)
                        && let Ok(told) = told.await
                    {
                        later.account(reservation, &limiter).settle(told);
                    }
                    if let Some(ended) = ended {
                        // Told by being dropped.
                        let _ = ended.await;
                        drop(verdict.slots);
                    }
                });
            }
        }
    }
}

impl Shadow {
    /// What it reserved, if it was granted.
    fn reserved(self, verdict: &Decision) -> Option<(Later, Reservation)> {
        let later = self.later.filter(|_| verdict.granted)?;
        Some((later, Reservation::of(self.ask, verdict)))
    }

    fn count(&self, verdict: &Decision) {
        let counted = if verdict.granted { CountedAs::ShadowAllowed } else { CountedAs::ShadowDenied };
        self.tally.count(counted, verdict.decided_by);
    }
}
