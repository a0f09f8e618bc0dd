//! Decisions on requests of which the store has only some buckets: a server of it is away.
//!
//! Guarantees all or nothing, and that the buckets on other servers are decided by the store. The local buckets are charged
//! first: they can be put right without a trace.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::algorithm::level::Level;
use crate::clock::Instant;
use crate::decide::batch::batcher::Batcher;
use crate::decide::check::TokenChecks;
use crate::decide::decision::Decision;
use crate::decide::late_call::{NoAnswer, note_grant};
use crate::decide::limiter::{Limiter, by_store};
use crate::store::Levels;

/// The checks of a request, by whether the store may be asked.
struct PartedChecks {
    /// For each check, whether its server is away.
    away: SmallVec<[bool; 4]>,
    local: TokenChecks,
    shared: TokenChecks,
}

impl Limiter {
    /// The decision, from the store as far as it has the buckets.
    pub(super) async fn partly_by_store(
        &self,
        checks: &TokenChecks,
        batcher: &Arc<Batcher>,
        deadline: Instant,
    ) -> Decision {
        let parted = PartedChecks::of(checks, batcher);
        let node = batcher.node();
        let share = node.share.get();
        let local = self.take_locally(&parted.local, share);
        if !local.granted {
            return parted.denied_locally(local);
        }
        let shared = match batcher.client.known(&parted.shared) {
            Some(known) => Ok(known),
            None => by_store(&parted.shared, batcher, deadline).await,
        };
        let shared = shared.unwrap_or_else(|NoAnswer(late)| self.during_outage(&parted.shared, node, late.as_deref()));
        if shared.granted {
            note_grant(&parted.local, &local.levels, share, node, None);
        } else {
            self.put_back(&parted.local, local.taken_at_us, share);
        }
        parted.together(&local, shared)
    }
}

impl PartedChecks {
    fn of(checks: &TokenChecks, batcher: &Arc<Batcher>) -> Self {
        let mut parted = Self { away: SmallVec::new(), local: TokenChecks::default(), shared: TokenChecks::default() };
        for (charge, policy) in checks.iter() {
            let away = batcher.client.is_away(&charge.key);
            let part = if away { &mut parted.local } else { &mut parted.shared };
            part.push(charge.clone(), policy);
            parted.away.push(away);
        }
        parted
    }

    /// The decision on a request that a local bucket denied: the store was not asked.
    fn denied_locally(&self, local: Decision) -> Decision {
        let levels = self.spread(&local.levels, &[]);
        Decision { levels, ..local }.of_denials_only()
    }

    fn together(&self, local: &Decision, shared: Decision) -> Decision {
        let levels = self.spread(&local.levels, &shared.levels);
        Decision { levels, ..shared }
    }

    /// The levels of both parts, in the order of the checks.
    fn spread(&self, local: &[Level], shared: &[Level]) -> Levels {
        let (mut local, mut shared) = (local.iter(), shared.iter());
        let level = |away: &bool| if *away { local.next() } else { shared.next() }.copied().unwrap_or_default();
        self.away.iter().map(level).collect()
    }
}
