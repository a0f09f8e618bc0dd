//! Calls that the store has not answered when their requests' time is over.
//!
//! A request that gives up is decided by this node, and its call goes on. The grant in a late
//! answer is set off against the requests that this node admitted. Guarantees that the store is
//! charged exactly that: tokens that it did not grant become debts, tokens that no request used are
//! refunded, unless they were charged in advance. Without an answer all of them are owed.

use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::runtime::Handle;

use crate::algorithm::level::Level;
use crate::algorithm::share::Share;
use crate::algorithm::window::Timestamp;
use crate::clock;
use crate::decide::check::TokenChecks;
use crate::decide::store_client::StoreClient;
use crate::node::Node;
use crate::store::{self, BucketCharge};

/// The requests that have given up waiting for a call. It is settled when the call and all of these
/// requests have let go of it.
pub(crate) struct LateCall {
    client: Arc<StoreClient>,
    checks: Arc<TokenChecks>,
    refunds: bool,
    outcome: Mutex<LateOutcome>,
}

#[derive(Default)]
struct LateOutcome {
    /// Requests that this node admitted.
    admitted: u32,
    /// The debts of the first of them: the others owe the same.
    debts: SmallVec<[LocalDebt; 2]>,
    answer: Option<LateAnswer>,
}

/// The units that the store granted to the requests that gave up, and when, by its own clock.
#[derive(Clone, Copy)]
struct LateAnswer {
    units: u32,
    at_us: u64,
}

/// Tokens that this node admitted without the store.
struct LocalDebt {
    /// The place of the charge in the checks of the call.
    place: usize,
    /// The parts of the limit, of which the node had one.
    parts: u32,
    /// The store's own count flows off for so long.
    known_us: u64,
    at: Timestamp,
}

/// Why the store has not decided. With the call, when its answer may still come.
pub(crate) struct NoAnswer(pub Option<Arc<LateCall>>);

impl LateCall {
    /// `refunds`: units that the answer grants to no request come back.
    pub fn new(client: Arc<StoreClient>, checks: Arc<TokenChecks>, refunds: bool) -> Self {
        Self {
            client,
            checks,
            refunds,
            outcome: Mutex::default(),
        }
    }

    /// Notes the store's answer: `units` for the requests that have given up.
    pub fn answered(&self, units: u32, at_us: u64) {
        self.outcome.lock().answer = Some(LateAnswer { units, at_us });
    }

    fn place(&self, charge: &BucketCharge) -> Option<usize> {
        self.checks
            .charges()
            .iter()
            .position(|known| known.key == charge.key)
    }

    fn admit(&self, debts: SmallVec<[LocalDebt; 2]>) {
        let mut outcome = self.outcome.lock();
        outcome.admitted += 1;
        if outcome.debts.is_empty() {
            outcome.debts = debts;
        }
    }
}

impl Drop for LateCall {
    fn drop(&mut self) {
        let LateOutcome {
            admitted,
            debts,
            answer,
        } = std::mem::take(self.outcome.get_mut());
        let granted = answer.map_or(0, |answer| answer.units);
        let owed = u64::from(admitted.saturating_sub(granted));
        for LocalDebt {
            place,
            parts,
            known_us,
            at,
        } in debts.into_iter().filter(|_| owed > 0)
        {
            if let Some(charge) = self.checks.charges().get(place) {
                let all = BucketCharge {
                    cost: charge.cost.saturating_mul(owed),
                    ..charge.clone()
                };
                self.client.node.debts.incur(&all, parts, known_us, at);
            }
        }
        let unused = granted.saturating_sub(admitted);
        if let (Some(LateAnswer { at_us, .. }), true, Ok(runtime)) =
            (answer, self.refunds && unused > 0, Handle::try_current())
        {
            let client = self.client.clone();
            let checks = self.checks.clone();
            runtime.spawn(async move { client.refund(&checks, unused, at_us).await });
        }
    }
}

/// Notes a grant without the store as a debt to it, or, for charges of a `late` call, until its
/// answer is known. A limit that lets everything pass meanwhile has no debt, and a bucket that the
/// store cannot charge has none either.
pub(crate) fn note_grant(
    checks: &TokenChecks,
    levels: &[Level],
    share: Share,
    node: &Node,
    late: Option<&LateCall>,
) {
    let now_us = clock::monotonic_micros();
    let mut deferred = SmallVec::new();
    let local = checks
        .iter()
        .zip(levels)
        .filter(|((_, policy), _)| policy.on_outage.is_local());
    for ((charge, _), level) in local {
        if node.foreign_keys.contains(&charge.key, now_us) {
            continue;
        }
        let key = charge.key.as_bytes();
        let Some(parts) = share.parts(key, charge.quota, charge.largest_cost) else {
            continue;
        };
        let part = charge.quota.shared_by(parts);
        // The local bucket before this charge: without a debt, that is the level that the store
        // knew.
        let charged_us = part.flow_us(store::cost_of(checks.charges(), charge));
        let known_us = level.reset_after_us.saturating_sub(charged_us);
        let at = node.memory.timestamp(charge.quota, now_us);
        match late.and_then(|late| late.place(charge)) {
            Some(place) => deferred.push(LocalDebt {
                place,
                parts,
                known_us,
                at,
            }),
            None => node.debts.incur(charge, parts, known_us, at),
        }
    }
    if let Some(late) = late {
        late.admit(deferred);
    }
}
