//! Decisions on requests that need permits, with tokens or without.
//!
//! Guarantees all or nothing. Permits are taken first: an unneeded permit can be given back without
//! a trace, tokens cannot. A request already known to be denied tokens takes no permit.

use crate::algorithm::concurrency::{ConcurrencyLimit, MAX_PERMITS, Scope};
use crate::algorithm::level::Level;
use crate::clock::{self, Instant};
use crate::decide::check::{Checks, PermitCheck};
use crate::decide::decision::{DecidedBy, Decision, DecisionMakers};
use crate::decide::limiter::Limiter;
use crate::decide::permit_claims::{claim_permit, keep_claims, leave_permits};
use crate::decide::store_client::StoreClient;
use crate::limit::definition::OnOutage;
use crate::node::permits::{Admittance, ConcurrencyPermit, FULL};
use crate::store::Levels;

/// The permits of one request that are taken so far.
#[derive(Default)]
pub(crate) struct TakenPermits {
    permits: Vec<ConcurrencyPermit>,
    /// A level per permit check.
    levels: Vec<Level>,
    full: bool,
    /// The maker of the decision on each.
    decided_by: DecisionMakers,
}

impl TakenPermits {
    fn add(&mut self, outcome: Result<(ConcurrencyPermit, Level), Level>, decided_by: DecidedBy) {
        self.full |= outcome.is_err();
        self.decided_by.push(decided_by);
        match outcome {
            Ok((permit, level)) => {
                self.permits.push(permit);
                self.levels.push(level);
            }
            Err(level) => self.levels.push(level),
        }
    }

    /// The decision, where no tokens are needed for it: no permit was left, or the request needs no
    /// tokens.
    fn settled(&self, checks: &Checks) -> Option<Decision> {
        let decided_by = self.decided_by.last().copied().unwrap_or(DecidedBy::Local);
        if self.full {
            let levels = checks.tokens.iter().map(|_| Level::default()).collect();
            return Some(Decision::new(decided_by, false, 0, levels).with_denials_only());
        }
        checks
            .tokens
            .is_empty()
            .then(|| Decision::new(decided_by, true, 0, Levels::new()))
    }

    /// The decision of permits and tokens together.
    fn with(self, checks: &Checks, tokens: Decision) -> Decision {
        let mut permit_levels = self.levels;
        permit_levels.resize(checks.permits.len(), Level::default());
        let permits = if tokens.granted {
            self.permits
        } else {
            Vec::new()
        };
        Decision {
            permit_levels,
            permits,
            ..tokens
        }
        .with_permits_decided_by(self.decided_by)
    }
}

impl Limiter {
    /// The decision, when the store need not be asked for it.
    pub(crate) fn permits_locally(&self, checks: &Checks) -> Option<Decision> {
        if let Some(denied) = self.known_denial(&checks.tokens) {
            return Some(TakenPermits::default().with(checks, denied));
        }
        let mut taken = TakenPermits::default();
        if self.take_known(&checks.permits, &mut taken).is_some() {
            return None;
        }
        let tokens = taken
            .settled(checks)
            .or_else(|| self.tokens_locally(&checks.tokens))?;
        Some(taken.with(checks, tokens))
    }

    /// The decision, from the store if it answers by `deadline`, for all permits and tokens
    /// together.
    pub(crate) async fn permits_by_store(&self, checks: &Checks, deadline: Instant) -> Decision {
        if let Some(denied) = self.known_denial(&checks.tokens) {
            return TakenPermits::default().with(checks, denied);
        }
        let mut taken = TakenPermits::default();
        let mut rest = &checks.permits[..];
        while let Some(unknown) = self.take_known(rest, &mut taken) {
            let (outcome, by) = self.take_by_call(&rest[unknown], deadline).await;
            taken.add(outcome, by);
            rest = &rest[unknown + 1..];
        }
        let tokens = match taken.settled(checks) {
            Some(settled) => settled,
            None => self.tokens(&checks.tokens, deadline).await,
        };
        taken.with(checks, tokens)
    }

    /// Gives back to the store all permits that no request uses, for the end of the process. The
    /// others stay this node's until their time is over.
    pub async fn leave_permits(&self) {
        if let Some(client) = self.client() {
            leave_permits(client).await;
        }
    }

    /// Takes permits that need no call. `Some`: the place of the first of `checks` that needs one.
    fn take_known(&self, checks: &[PermitCheck], taken: &mut TakenPermits) -> Option<usize> {
        for (at, check) in checks.iter().enumerate() {
            match self.take_now(check) {
                (Admittance::Taken(permit, level), by) => taken.add(Ok((permit, level)), by),
                (Admittance::Full(level), by) => taken.add(Err(level), by),
                (Admittance::Unknown, _) => return Some(at),
            }
        }
        None
    }

    fn take_now(&self, check: &PermitCheck) -> (Admittance, DecidedBy) {
        let need = &check.need;
        match self.client() {
            Some(client)
                if need.limit.scope() == Scope::Fleet && !client.has_permits_away(&need.key) =>
            {
                match self.permits().take_held(need, clock::monotonic_micros()) {
                    full @ Admittance::Full(_) => (full, DecidedBy::DenialCache),
                    held => (held, DecidedBy::Lease),
                }
            }
            Some(client) if need.limit.scope() == Scope::Fleet => {
                // The store learns of these requests when it is back.
                keep_claims(client);
                (self.take_alone(check, client).into(), DecidedBy::Local)
            }
            _ => (
                self.permits().take_alone(need, need.limit).into(),
                DecidedBy::Local,
            ),
        }
    }

    async fn take_by_call(
        &self,
        check: &PermitCheck,
        deadline: Instant,
    ) -> (Result<(ConcurrencyPermit, Level), Level>, DecidedBy) {
        let need = &check.need;
        let Some(client) = self.client() else {
            return (
                self.permits().take_alone(need, need.limit),
                DecidedBy::Local,
            );
        };
        match claim_permit(client, need, deadline).await {
            Some(outcome) => (outcome, DecidedBy::Redis),
            None => (self.take_alone(check, client), DecidedBy::Local),
        }
    }

    /// Takes a permit without the store.
    fn take_alone(
        &self,
        check: &PermitCheck,
        client: &StoreClient,
    ) -> Result<(ConcurrencyPermit, Level), Level> {
        let need = &check.need;
        match check
            .on_outage
            .after(client.away_for(client.store.server_of_permits(&need.key)))
        {
            OnOutage::Local | OnOutage::LocalFor { .. } => {
                let share = client.node.share.get();
                let parts = share
                    .permit_parts(need.key.as_bytes(), need.limit, check.largest_cost)
                    .ok_or(FULL)?;
                self.permits().take_alone(need, need.limit.shared_by(parts))
            }
            // The permits in use are counted all the same.
            OnOutage::Allow => self
                .permits()
                .take_alone(need, ConcurrencyLimit::new(MAX_PERMITS, need.limit.scope())),
            OnOutage::Deny => Err(FULL),
        }
    }
}
