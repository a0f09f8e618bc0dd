//! The permits that a node has to claim again, to give back or to ask about, without a request that
//! waits for it.
//!
//! Guarantees that a claim under way ends, whatever becomes of the task that made it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::Notify;

use crate::algorithm::concurrency::{GrantedPermits, LEASE_US};
use crate::clock;
use crate::limit::key::Key;
use crate::node::permits::{PermitShard, PermitTable, SHARDS};
use crate::store::{PermitClaim, ServerId};

/// Held permits are claimed again when less than this is left of their time.
const RENEW_US: u64 = LEASE_US / 2;

/// Claims under way. Those whose answer is not known when it is dropped end without one.
pub(crate) struct ClaimsUnderWay {
    table: Arc<PermitTable>,
    claims: Vec<PermitClaim>,
    /// `None`: the store was not asked.
    sent_us: Option<u64>,
}

impl PermitTable {
    /// The next claim for the requests that wait for `key`.
    pub(crate) fn claim_for_waiters(self: &Arc<Self>, key: &Key) -> Option<ClaimsUnderWay> {
        let hash = self.hash(key);
        let mut shard = self.lock(hash);
        let pool = shard.pools.get_mut(hash, key)?;
        let claim = self.claim_in(key, pool.most(), pool.claim(self.next_turn()));
        Some(self.under_way(vec![claim]))
    }

    /// Claims of keys that have permits to give back, a share to learn, or watchers. `true`: there
    /// will be more soon.
    pub(crate) fn claims_on_visit(self: &Arc<Self>) -> (ClaimsUnderWay, bool) {
        let mut claims = Vec::new();
        let mut again = false;
        let now_us = clock::monotonic_micros();
        for shard in &self.shards {
            let mut shard = shard.lock();
            let PermitShard { pools, listed } = &mut *shard;
            listed.retain(|key| {
                let Some(pool) = pools.get_mut(self.hash(key), key) else {
                    return false;
                };
                let claim = pool.claim_on_visit(|| self.next_turn(), now_us);
                claims.extend(claim.map(|claim| self.claim_in(key, pool.most(), claim)));
                pool.listed = pool.needs_visit();
                pool.listed
            });
            again |= !listed.is_empty();
        }
        (self.under_way(claims), again)
    }

    /// Claims of the keys of a shard whose permits expire soon. Forgets
    /// idle keys.
    pub(crate) fn renewals(self: &Arc<Self>, shard: usize) -> ClaimsUnderWay {
        let mut claims = Vec::new();
        let now_us = clock::monotonic_micros();
        let mut shard = self.shards[shard % SHARDS].lock();
        shard.pools.retain(|pool| !pool.is_idle(now_us));
        for (key, pool) in shard.pools.iter_mut() {
            let claim = pool.renewal(|| self.next_turn(), now_us.saturating_add(RENEW_US));
            claims.extend(claim.map(|claim| self.claim_in(key, pool.most(), claim)));
        }
        drop(shard);
        self.under_way(claims)
    }

    /// Claims that give back all permits which no request uses. `true`: other claims are under way
    /// still.
    pub(crate) fn last_claims(self: &Arc<Self>) -> (ClaimsUnderWay, bool) {
        let mut claims = Vec::new();
        let mut under_way = false;
        for shard in &self.shards {
            for (key, pool) in shard.lock().pools.iter_mut() {
                under_way |= pool.is_claiming();
                let claim = pool.last_claim(|| self.next_turn());
                claims.extend(claim.map(|claim| self.claim_in(key, pool.most(), claim)));
            }
        }
        (self.under_way(claims), under_way)
    }

    /// Whether the caller is to start the upkeep, of which there is one at a time.
    pub(crate) fn start_upkeep(&self) -> bool {
        !self.upkeep_running.load(Ordering::Relaxed)
            && !self.upkeep_running.swap(true, Ordering::SeqCst)
    }

    /// Ends the upkeep if there is nothing left to keep. `false`: it has to go on.
    pub(crate) fn end_upkeep(&self) -> bool {
        if !self.is_empty() {
            return false;
        }
        self.upkeep_running.store(false, Ordering::SeqCst);
        // A request may have relied on it just before.
        self.is_empty() || !self.start_upkeep()
    }

    /// The upkeep was dropped with its runtime: another may start.
    pub(crate) fn abandon_upkeep(&self) {
        self.upkeep_running.store(false, Ordering::SeqCst);
    }

    /// Notified when there are keys to visit.
    pub(crate) fn visits(&self) -> &Notify {
        &self.visits
    }

    /// Notified when there are keys to visit at once: others wait for permits of this node.
    pub(crate) fn urgent_visits(&self) -> &Notify {
        &self.urgent_visits
    }

    /// Notified when claims have ended.
    pub(crate) fn ended_claims(&self) -> &Notify {
        &self.ended_claims
    }

    fn is_empty(&self) -> bool {
        self.shards
            .iter()
            .all(|shard| shard.lock().pools.is_empty())
    }

    /// Under the lock of the key's pool, so that of two claims of a key the later one says what was
    /// true later.
    fn next_turn(&self) -> u64 {
        self.turn.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn under_way(self: &Arc<Self>, claims: Vec<PermitClaim>) -> ClaimsUnderWay {
        ClaimsUnderWay {
            table: self.clone(),
            claims,
            sent_us: None,
        }
    }
}

impl ClaimsUnderWay {
    pub(crate) fn is_empty(&self) -> bool {
        self.claims.is_empty()
    }

    pub(crate) fn first(&self) -> Option<&PermitClaim> {
        self.claims.first()
    }

    /// Parts of at most `most` claims, for calls of their own, each to one server: one that is away
    /// costs the keys of the others nothing.
    pub(crate) fn split(
        mut self,
        most: usize,
        server: impl Fn(&PermitClaim) -> ServerId,
    ) -> Vec<Self> {
        let mut by_server: BTreeMap<ServerId, Vec<PermitClaim>> = BTreeMap::new();
        for claim in std::mem::take(&mut self.claims) {
            by_server.entry(server(&claim)).or_default().push(claim);
        }
        let mut parts = Vec::new();
        for mut claims in by_server.into_values() {
            while !claims.is_empty() {
                let part = claims.split_off(claims.len().saturating_sub(most));
                parts.push(Self {
                    table: self.table.clone(),
                    claims: part,
                    sent_us: self.sent_us,
                });
            }
        }
        parts
    }

    /// The claims leave now. What the store grants counts from here.
    pub(crate) fn send(&mut self) -> &[PermitClaim] {
        self.sent_us = Some(clock::monotonic_micros());
        &self.claims
    }

    /// Takes over the store's answer, if there is one. Returns the keys that have to be claimed
    /// again, by the caller: more requests have come to wait meanwhile.
    pub(crate) fn end(mut self, granted: Option<&[GrantedPermits]>) -> Vec<Key> {
        let now_us = clock::monotonic_micros();
        let mut again = Vec::new();
        for (at, claim) in std::mem::take(&mut self.claims).into_iter().enumerate() {
            let granted = granted.and_then(|granted| granted.get(at).copied());
            let hash = self.table.hash(&claim.key);
            let mut shard = self.table.lock(hash);
            let PermitShard { pools, listed } = &mut *shard;
            let Some(pool) = pools.get_mut(hash, &claim.key) else {
                continue;
            };
            if granted.is_none() && self.sent_us.is_some() {
                pool.doubt();
            }
            pool.answer(
                claim.claim.turn,
                granted,
                self.sent_us.unwrap_or(now_us),
                now_us,
            );
            self.table.list(pool, listed, &claim.key, false);
            if pool.start_claiming() {
                again.push(claim.key);
            }
        }
        self.table.ended_claims.notify_waiters();
        again
    }
}

impl Drop for ClaimsUnderWay {
    fn drop(&mut self) {
        for claim in std::mem::take(&mut self.claims) {
            let hash = self.table.hash(&claim.key);
            if let Some(pool) = self.table.lock(hash).pools.get_mut(hash, &claim.key) {
                pool.abandon();
            }
            self.table.ended_claims.notify_waiters();
        }
    }
}
