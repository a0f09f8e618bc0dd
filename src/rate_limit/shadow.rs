//! Limits that watch a request without a say in it.
//!
//! Guarantees that they are charged and counted as if they were enforced, each for itself, and that no request waits for
//! them. Knows nothing of requests.

use std::slice;
use std::sync::Arc;

use smallvec::SmallVec;
use tokio::runtime::Handle;

use super::decision::Verdict;
use super::limiter::Limiter;
use super::tally::{Counted, Tally};
use crate::store::Ask;

/// The limits that watch one request.
#[derive(Debug, Default)]
#[must_use = "what is not watched is not counted"]
pub struct Shadows(SmallVec<[Box<Shadow>; 1]>);

#[derive(Debug)]
struct Shadow {
    ask: Ask,
    tally: Arc<Tally>,
}

impl Shadows {
    pub(super) fn add(&mut self, ask: Ask, tally: Arc<Tally>) {
        self.0.push(Box::new(Shadow { ask, tally }));
    }

    /// Asks and counts, beside the request when a store has to be asked. For a request that its other limits let pass:
    /// limits are charged all or none, and one that is enforced would not have been charged for any other.
    pub fn watch(self, limiter: &Limiter) {
        for shadow in self.0 {
            if let Some(verdict) = limiter.decide_now(slice::from_ref(&shadow.ask)) {
                shadow.count(&verdict);
            } else if let Ok(runtime) = Handle::try_current() {
                let limiter = limiter.clone();
                runtime.spawn(async move {
                    let verdict = limiter.decide(slice::from_ref(&shadow.ask)).await;
                    shadow.count(&verdict);
                });
            }
        }
    }
}

impl Shadow {
    fn count(&self, verdict: &Verdict) {
        let counted = if verdict.granted { Counted::ShadowAllowed } else { Counted::ShadowDenied };
        self.tally.count(counted, verdict.decided_by);
    }
}
