//! Decisions that need no call: from tokens taken ahead, or because the store just said no.
//!
//! Guarantees all or nothing: whoever cannot pay all of its leased limits pays none. Refuses to know how the rest is asked.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::time::sleep_until;

use crate::algorithm::level::Level;
use crate::clock;
use crate::decide::decision::{DecidedBy, Decision};
use crate::decide::store_client::StoreClient;
use crate::node::Node;
use crate::node::lease::{Source, Spent};
use crate::store::{self, Adjustment, Ask, Change, Levels};

/// What is left of a lease when three of this many parts of its time have passed is given back.
const PARTS: u32 = 4;

/// Tokens spent for the leased ones of a request's limits, in the order of its asks; none for the others.
pub(crate) type SpentTokens = SmallVec<[Option<Spent>; 2]>;

pub(crate) fn is_leased(ask: &Ask) -> bool {
    ask.quota.lease_us() > 0
}

/// Whether leased limits alone deny.
pub(crate) fn lacks_leased(asks: &[Ask], verdict: &Decision) -> bool {
    let mut denying = asks.iter().zip(&verdict.levels).filter(|(_, level)| level.retry_after_us > 0).peekable();
    !verdict.granted && denying.peek().is_some() && denying.all(|(ask, _)| is_leased(ask))
}

/// The verdict on a request whose limits are all paid from stock.
pub(crate) fn paid(held: &SpentTokens) -> Decision {
    let spent = || held.iter().flatten();
    let taken_at_us = spent().map(|spent| spent.source.taken_at_us).min().unwrap_or_default();
    let levels = spent().map(|spent| spent.level).collect();
    Decision::new(DecidedBy::Lease, true, taken_at_us, levels)
}

impl StoreClient {
    /// The verdict, when no call is needed for it.
    pub fn known(self: &Arc<Self>, asks: &[Ask]) -> Option<Decision> {
        let leased = asks.iter().filter(|ask| is_leased(ask)).count();
        if leased == 0 {
            return denied_before(asks, &self.node, |_| true);
        }
        let exact_denied = denied_before(asks, &self.node, |ask| !is_leased(ask));
        if exact_denied.is_some() {
            return exact_denied;
        }
        if leased < asks.len() {
            // Whether the stock can pay is for `hold` to say, and what it holds must not be lost here.
            let Some(held) = self.hold(asks) else { return denied_before(asks, &self.node, is_leased) };
            self.put_back(asks, &held);
            return None;
        }
        match self.hold(asks) {
            Some(held) => Some(paid(&held)),
            None => denied_before(asks, &self.node, is_leased),
        }
    }

    /// Denied, when the store is known to deny one of `asks` still, tokens taken ahead left aside.
    pub fn denied(&self, asks: &[Ask]) -> Option<Decision> {
        denied_before(asks, &self.node, |ask| !is_leased(ask))
    }

    /// Spends from stock for every leased one of `asks`, or for none of them. When others have to be asked for, what is
    /// spent must still be good when their answer comes.
    pub fn hold(self: &Arc<Self>, asks: &[Ask]) -> Option<SpentTokens> {
        let alone = asks.iter().all(is_leased);
        let life_us = if alone { 0 } else { u64::try_from(self.patience().as_micros()).unwrap_or(u64::MAX) };
        let (now_us, nodes) = (clock::monotonic_micros(), self.node.share.get().nodes());
        let mut held = SpentTokens::new();
        for ask in asks {
            if !is_leased(ask) {
                held.push(None);
                continue;
            }
            let Some(spent) = self.node.leases.spend(ask, nodes, now_us, life_us) else {
                self.put_back(asks, &held);
                // A call for this limit alone takes ahead by itself.
                if asks.len() > 1 {
                    self.fill(ask, self.node.leases.lack(ask, nodes, now_us), now_us);
                }
                return None;
            };
            self.fill(ask, spent.fill, now_us);
            held.push(Some(spent));
        }
        Some(held)
    }

    /// Undoes [`Self::hold`].
    pub fn put_back(&self, asks: &[Ask], held: &SpentTokens) {
        for (ask, spent) in asks.iter().zip(held) {
            if let Some(spent) = spent {
                self.node.leases.put_back(ask, spent.source);
            }
        }
    }

    /// Takes `tokens` for the stock in the background, unless the bucket is known to be empty.
    fn fill(self: &Arc<Self>, ask: &Ask, tokens: u64, now_us: u64) {
        let units = u32::try_from(tokens / ask.cost.max(1)).unwrap_or(u32::MAX);
        if units == 0 || self.node.denials.find(ask, ask.cost, now_us).is_some() {
            return;
        }
        if let Ok(runtime) = Handle::try_current() {
            let (caller, ask) = (self.clone(), ask.clone());
            runtime.spawn(async move { caller.take_ahead(std::slice::from_ref(&ask), 0, units).await });
        }
    }

    /// Gives back, later, what is not spent of these tokens by then.
    pub fn return_later(self: &Arc<Self>, ask: &Ask, source: Source) {
        let age = clock::monotonic_micros().saturating_sub(source.sent_us);
        let lease = Duration::from_micros(ask.quota.lease_us());
        let at = clock::now() + (lease * (PARTS - 1) / PARTS).saturating_sub(Duration::from_micros(age));
        let (caller, ask) = (self.clone(), ask.clone());
        tokio::spawn(async move {
            sleep_until(at).await;
            caller.give_back(&ask, source).await;
        });
    }

    async fn give_back(&self, ask: &Ask, source: Source) {
        let tokens = self.node.leases.withdraw(ask, source);
        let held_us = clock::monotonic_micros().saturating_sub(source.sent_us);
        // By then most of it has flowed in again anyway, or nobody takes calls.
        if ask.quota.flow_us(tokens) <= held_us || self.node.breaker.is_open() {
            return;
        }
        let change = Change::GiveBack { charge: ask.quota.charge(tokens), taken_at_us: source.taken_at_us };
        // Who was denied for want of these tokens may pass now, and whoever asks from here on does so after them.
        self.node.denials.forget(&ask.key);
        self.adjust(&[Adjustment { key: ask.key.clone(), quota: ask.quota, change }]).await;
    }
}

/// Denied, when the store is known to deny one of `asks` still. Those that don't `count` are not looked up.
fn denied_before(asks: &[Ask], node: &Node, counts: impl Fn(&Ask) -> bool) -> Option<Decision> {
    if node.denials.is_empty() {
        return None;
    }
    let now_us = clock::monotonic_micros();
    let mut denied = false;
    let level = |ask: &Ask| -> Level {
        let found = counts(ask).then(|| node.denials.find(ask, store::cost_of(asks, ask), now_us)).flatten();
        denied |= found.is_some();
        found.unwrap_or_default()
    };
    let levels: Levels = asks.iter().map(level).collect();
    denied.then(|| Decision::new(DecidedBy::DenialCache, false, now_us, levels).of_denials_only())
}
