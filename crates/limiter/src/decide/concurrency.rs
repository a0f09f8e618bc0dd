//! Requests that need slots, with tokens or without.
//!
//! Slots come first: one that turns out not to be needed is left as if nobody had been in it, which cannot be said of tokens.
//! Who is known to be denied tokens does not even enter one. Guarantees all or nothing. Refuses to know when a request ends.

use smallvec::SmallVec;

use crate::algorithm::concurrency::{ConcurrencyLimit, MAX_PERMITS, Scope};
use crate::algorithm::level::Level;
use crate::algorithm::share::Share;
use crate::clock;
use crate::decide::decision::{DecidedBy, Decision};
use crate::decide::limiter::Limiter;
use crate::limit::spec::OnOutage;
use crate::node::permits::{Admittance, ConcurrencyPermit, FULL};
use crate::store::{Ask, Levels};

/// Slots of one request.
#[derive(Default)]
struct Entered {
    slots: Vec<ConcurrencyPermit>,
    /// One per ask that needs a slot.
    levels: Levels,
    full: bool,
    decided_by: Option<DecidedBy>,
}

impl Entered {
    fn add(&mut self, entry: Result<(ConcurrencyPermit, Level), Level>, decided_by: DecidedBy) {
        self.full |= entry.is_err();
        self.decided_by = Some(decided_by);
        match entry {
            Ok((slot, level)) => {
                self.slots.push(slot);
                self.levels.push(level);
            }
            Err(level) => self.levels.push(level),
        }
    }

    /// The verdict on the tokens of a request that needs none.
    fn alone(&self) -> Decision {
        Decision::new(self.decided_by.unwrap_or(DecidedBy::Local), true, 0, Levels::new())
    }

    /// What both came to. No tokens were asked for where no slot was left.
    fn with(self, asks: &[Ask], tokens: Option<Decision>) -> Decision {
        let decided_by = self.decided_by.unwrap_or(DecidedBy::Local);
        let tokens = tokens.unwrap_or_else(|| Decision::new(decided_by, false, 0, Levels::new()).of_denials_only());
        let (mut slot_levels, mut token_levels) = (self.levels.into_iter(), tokens.levels.into_iter());
        let level = |ask: &Ask| {
            let levels = if ask.quota.in_flight().is_some() { &mut slot_levels } else { &mut token_levels };
            levels.next().unwrap_or_default()
        };
        let slots = if tokens.granted { self.slots } else { Vec::new() };
        Decision { levels: asks.iter().map(level).collect(), slots, ..tokens }
    }
}

impl Limiter {
    /// The verdict, when no store has to be asked for it.
    pub(crate) fn slotted_now(&self, asks: &[Ask]) -> Option<Decision> {
        let tokens = tokens(asks);
        if let Some(denied) = self.tokens_denied(&tokens) {
            return Some(Entered::default().with(asks, Some(denied)));
        }
        let mut entered = Entered::default();
        for (ask, slots) in needing(asks) {
            match self.enter_now(ask, slots) {
                (Admittance::In(slot, level), by) => entered.add(Ok((slot, level)), by),
                (Admittance::Full(level), by) => entered.add(Err(level), by),
                (Admittance::Unknown, _) => return None,
            }
        }
        let verdict = match (entered.full, tokens.is_empty()) {
            (true, _) => None,
            (false, true) => Some(entered.alone()),
            (false, false) => Some(self.tokens_now(&tokens)?),
        };
        Some(entered.with(asks, verdict))
    }

    /// The verdict, from the store if it decides in time.
    pub(crate) async fn slotted(&self, asks: &[Ask]) -> Decision {
        let tokens = tokens(asks);
        if let Some(denied) = self.tokens_denied(&tokens) {
            return Entered::default().with(asks, Some(denied));
        }
        let mut entered = Entered::default();
        for (ask, slots) in needing(asks) {
            let (entry, by) = match self.enter_now(ask, slots) {
                (Admittance::In(slot, level), by) => (Ok((slot, level)), by),
                (Admittance::Full(level), by) => (Err(level), by),
                (Admittance::Unknown, _) => self.enter_by_call(ask, slots).await,
            };
            entered.add(entry, by);
        }
        let verdict = match (entered.full, tokens.is_empty()) {
            (true, _) => None,
            (false, true) => Some(entered.alone()),
            (false, false) => Some(self.tokens(&tokens).await),
        };
        entered.with(asks, verdict)
    }

    fn tokens_denied(&self, tokens: &[Ask]) -> Option<Decision> {
        let shared = self.shared.as_ref().filter(|shared| !shared.node().breaker.is_open())?;
        shared.caller.denied(tokens)
    }

    fn enter_now(&self, ask: &Ask, slots: ConcurrencyLimit) -> (Admittance, DecidedBy) {
        let entered = |entry| match entry {
            Ok((slot, level)) => Admittance::In(slot, level),
            Err(level) => Admittance::Full(level),
        };
        match &self.shared {
            Some(shared) if slots.scope() == Scope::Fleet && !shared.node().breaker.is_open() => {
                match self.slots.enter_held(ask, slots.most(), clock::monotonic_micros()) {
                    entry @ Admittance::Full(_) => (entry, DecidedBy::DenialCache),
                    entry => (entry, DecidedBy::Lease),
                }
            }
            Some(shared) if slots.scope() == Scope::Fleet => {
                // The store is told of these requests when it is back.
                self.slots.keep(&shared.caller);
                (entered(self.enter_alone(ask, slots, shared.node().share.get())), DecidedBy::Local)
            }
            _ => (entered(self.slots.enter_alone(ask, slots)), DecidedBy::Local),
        }
    }

    async fn enter_by_call(
        &self,
        ask: &Ask,
        slots: ConcurrencyLimit,
    ) -> (Result<(ConcurrencyPermit, Level), Level>, DecidedBy) {
        let Some(shared) = &self.shared else { return (self.slots.enter_alone(ask, slots), DecidedBy::Local) };
        match self.slots.enter_fleet(ask, slots.most(), &shared.caller).await {
            Some(entry) => (entry, DecidedBy::Redis),
            None => (self.enter_alone(ask, slots, shared.node().share.get()), DecidedBy::Local),
        }
    }

    /// Without the store.
    fn enter_alone(
        &self,
        ask: &Ask,
        slots: ConcurrencyLimit,
        share: Share,
    ) -> Result<(ConcurrencyPermit, Level), Level> {
        match ask.on_outage {
            OnOutage::Local => {
                let part = share.of(ask.key.as_bytes(), ask.quota, ask.largest_cost);
                self.slots.enter_alone(ask, part.and_then(|part| part.in_flight()).ok_or(FULL)?)
            }
            // Counted all the same.
            OnOutage::Allow => self.slots.enter_alone(ask, ConcurrencyLimit::new(MAX_PERMITS, slots.scope())),
            OnOutage::Deny => Err(FULL),
        }
    }
}

pub(crate) fn needs_slots(asks: &[Ask]) -> bool {
    asks.iter().any(|ask| ask.quota.in_flight().is_some())
}

fn needing(asks: &[Ask]) -> impl Iterator<Item = (&Ask, ConcurrencyLimit)> {
    asks.iter().filter_map(|ask| Some((ask, ask.quota.in_flight()?)))
}

fn tokens(asks: &[Ask]) -> SmallVec<[Ask; 2]> {
    asks.iter().filter(|ask| ask.quota.in_flight().is_none()).cloned().collect()
}
