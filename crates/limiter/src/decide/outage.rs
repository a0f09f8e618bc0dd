//! Decisions without the store, or with a part of it: where a server of it is away, some of a
//! request's buckets may be there.
//!
//! Guarantees all or nothing, and that the buckets on other servers are decided by the store. The
//! local buckets are charged first: they can be put right without a trace.

use std::borrow::Cow;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::algorithm::level::Level;
use crate::algorithm::share::Share;
use crate::clock::{self, Instant};
use crate::decide::batch::batcher::Batcher;
use crate::decide::call::late_call::{LateCall, NoAnswer, note_grant};
use crate::decide::check::TokenChecks;
use crate::decide::decision::{DecidedBy, Decision, DecisionSource};
use crate::decide::limiter::{Limiter, by_store};
use crate::limit::definition::OnOutage;
use crate::node::Node;
use crate::store::adjustment::{Adjustment, Change};
use crate::store::{BucketCharge, Levels};

/// The level of a limit that lets everything pass while the store is away.
fn uncounted(charge: &BucketCharge) -> Level {
    Level {
        remaining: charge.quota.burst(),
        retry_after_us: 0,
        reset_after_us: 0,
    }
}

/// The checks of a request, by whether the store may be asked.
struct PartedChecks {
    /// For each check, whether its server is away.
    away: SmallVec<[bool; 4]>,
    local: TokenChecks,
    shared: TokenChecks,
}

impl Limiter {
    /// The decision of this node alone. What it grants is owed to the store. `late`: the call that
    /// was given up.
    pub(crate) fn during_outage(
        &self,
        checks: &TokenChecks,
        node: &Node,
        late: Option<&LateCall>,
    ) -> Decision {
        let share = node.share.get();
        let checks = self
            .client()
            .map_or(Cow::Borrowed(checks), |client| client.as_of_now(checks));
        let decision = self.take_locally(&checks, share);
        if decision.granted {
            note_grant(&checks, &decision.levels, share, node, late);
        }
        decision
    }

    /// The decision by each limit's `on_outage`, as it is by now.
    pub(crate) fn take_locally(&self, checks: &TokenChecks, share: Share) -> Decision {
        if checks.all_local() {
            return self.by_share(checks.charges(), share);
        }
        let denied = checks
            .iter()
            .any(|(_, policy)| policy.on_outage == OnOutage::Deny);
        let local = checks.filtered(|_, policy| policy.on_outage.is_local());
        // No units: this reads the level and charges nothing.
        let units = if denied { 0 } else { 1 };
        let grant = self
            .memory()
            .take_at(local.charges(), units, clock::monotonic_micros(), share);
        let taken_at_us = grant.at_us;
        let mut levels = grant.levels.into_iter();
        let levels: Levels = checks
            .iter()
            .filter_map(|(charge, policy)| match policy.on_outage {
                OnOutage::Local | OnOutage::LocalFor { .. } => levels.next(),
                OnOutage::Allow => Some(uncounted(charge)),
                OnOutage::Deny => Some(Level::DENIED_WITHOUT_STORE),
            })
            .collect();
        Decision::new(
            DecidedBy::Local,
            !denied && grant.units > 0,
            taken_at_us,
            levels,
        )
        .with_sources(
            checks
                .iter()
                .map(|(_, policy)| {
                    let counted = policy.on_outage.is_local();
                    DecisionSource {
                        decided_by: DecidedBy::Local,
                        taken_at_us,
                        counted,
                    }
                })
                .collect(),
        )
    }

    /// Undoes [`Self::take_locally`].
    pub(crate) fn give_back(&self, checks: &TokenChecks, taken_at_us: u64, share: Share) {
        let now_us = clock::monotonic_micros();
        for (charge, _) in checks
            .iter()
            .filter(|(_, policy)| policy.on_outage.is_local())
        {
            let Some(parts) = share.parts(charge.key.as_bytes(), charge.quota, charge.largest_cost)
            else {
                continue;
            };
            let change = Change::Refund {
                charge: charge.quota.shared_by(parts).charge(charge.cost),
                taken_at_us,
            };
            self.memory().adjust_at(
                [&Adjustment {
                    key: charge.key.clone(),
                    quota: charge.quota,
                    change,
                }],
                now_us,
            );
        }
    }

    /// The decision, from the store as far as it has the buckets.
    pub(super) async fn partly_by_store(
        &self,
        checks: &TokenChecks,
        batcher: &Arc<Batcher>,
        deadline: Instant,
    ) -> Decision {
        let parted = PartedChecks::new(&batcher.client.as_of_now(checks), batcher);
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
        let shared = shared.unwrap_or_else(|NoAnswer(late)| {
            self.during_outage(&parted.shared, node, late.as_deref())
        });
        if shared.granted {
            note_grant(&parted.local, &local.levels, share, node, None);
        } else {
            self.give_back(&parted.local, local.taken_at_us, share);
        }
        parted.together(&local, shared)
    }
}

impl PartedChecks {
    fn new(checks: &TokenChecks, batcher: &Arc<Batcher>) -> Self {
        let mut parted = Self {
            away: SmallVec::new(),
            local: TokenChecks::default(),
            shared: TokenChecks::default(),
        };
        for (charge, policy) in checks.iter() {
            let away = batcher.client.is_away(&charge.key);
            let part = if away {
                &mut parted.local
            } else {
                &mut parted.shared
            };
            part.push(charge.clone(), policy);
            parted.away.push(away);
        }
        parted
    }

    /// The decision on a request that a local bucket denied: the store was not asked.
    fn denied_locally(&self, local: Decision) -> Decision {
        let levels = self.spread(&local.levels, &[]);
        Decision { levels, ..local }.with_denials_only()
    }

    fn together(&self, local: &Decision, shared: Decision) -> Decision {
        let levels = self.spread(&local.levels, &shared.levels);
        let mut of_local = 0..;
        let mut of_shared = 0..;
        let sources: Vec<_> = self
            .away
            .iter()
            .map(|away| {
                let (decision, places) = if *away {
                    (local, &mut of_local)
                } else {
                    (&shared, &mut of_shared)
                };
                decision.source(places.next().unwrap_or_default())
            })
            .collect();
        Decision { levels, ..shared }.with_sources(sources)
    }

    /// The levels of both parts, in the order of the checks.
    fn spread(&self, local: &[Level], shared: &[Level]) -> Levels {
        let mut local = local.iter();
        let mut shared = shared.iter();
        self.away
            .iter()
            .map(|away| {
                if *away { local.next() } else { shared.next() }
                    .copied()
                    .unwrap_or_default()
            })
            .collect()
    }
}
