//! The attempts under way and those that wait, by the networks of their clients.
//!
//! Guarantees a bound on those that wait, per network and in sum, and that nothing is kept of a
//! network without attempts.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tokio::sync::oneshot;
use tollgate_limiter::limit::key::Key;

use super::claim::AttemptClaim;

/// Attempts that wait at one authenticator.
pub const MAX_WAITING: usize = 4_096;

/// Attempts that wait from one address: its /64, for IPv6.
pub const MAX_WAITING_OF_CLIENT: usize = 512;

/// Attempts that wait from one wider network of IPv6.
const MAX_WAITING_OF_NETWORK: usize = 1_024;

/// The end of a wait: it has its place, or there are so many seconds until another attempt may be
/// made.
pub type WaitOutcome = Result<(), u64>;

/// The attempts of one authenticator. An attempt waits in the queue of the widest network of its
/// client.
#[derive(Default)]
pub struct AttemptTable {
    /// By address and by name.
    keys: HashMap<Key, KeyAttempts>,
    queues: HashMap<Key, VecDeque<WaitingEntry>>,
    waiting: usize,
    last_number: u64,
}

#[derive(Default)]
struct KeyAttempts {
    under_way: u64,
    waiting: usize,
}

/// The wait of an attempt, for the attempt itself.
pub struct Wait {
    /// The attempt's number in its queue.
    pub number: u64,
    pub end: oneshot::Receiver<WaitOutcome>,
}

/// An attempt in a queue.
pub struct WaitingEntry {
    number: u64,
    pub claim: Arc<AttemptClaim>,
    end: Option<oneshot::Sender<WaitOutcome>>,
}

impl WaitingEntry {
    /// Ends its wait.
    pub fn end(&mut self, outcome: WaitOutcome) {
        if let Some(end) = self.end.take() {
            // A client that has gone away has left the queue.
            let _ = end.send(outcome);
        }
    }
}

impl AttemptTable {
    /// The attempts of an address or at a name that are under way.
    pub fn under_way(&self, key: &Key) -> u64 {
        self.keys.get(key).map_or(0, |attempts| attempts.under_way)
    }

    /// Whether other attempts of its client wait already.
    pub fn is_behind_others(&self, claim: &AttemptClaim) -> bool {
        claim
            .addresses()
            .next()
            .is_some_and(|address| self.waiting_of(address) > 0)
    }

    fn waiting_of(&self, address: &Key) -> usize {
        self.keys
            .get(address)
            .map_or(0, |attempts| attempts.waiting)
    }

    /// The attempt is under way.
    pub fn begin(&mut self, claim: &AttemptClaim) {
        for charge in claim.charges() {
            self.keys.entry(charge.key.clone()).or_default().under_way += 1;
        }
    }

    /// The attempt is under way no more.
    pub fn end(&mut self, claim: &AttemptClaim) {
        for charge in claim.charges() {
            self.change(&charge.key, |attempts| {
                attempts.under_way = attempts.under_way.saturating_sub(1)
            });
        }
    }

    /// The attempt waits from now on. `None`: too many wait.
    pub fn enqueue(&mut self, claim: &Arc<AttemptClaim>) -> Option<Wait> {
        let mut most = MAX_WAITING_OF_CLIENT;
        for address in claim.addresses() {
            if self.waiting_of(address) >= most {
                return None;
            }
            most = MAX_WAITING_OF_NETWORK;
        }
        if self.waiting >= MAX_WAITING {
            return None;
        }
        let (sender, end) = oneshot::channel();
        self.waiting += 1;
        self.last_number += 1;
        for address in claim.addresses() {
            self.keys.entry(address.clone()).or_default().waiting += 1;
        }
        let entry = WaitingEntry {
            number: self.last_number,
            claim: claim.clone(),
            end: Some(sender),
        };
        self.queues
            .entry(claim.widest().clone())
            .or_default()
            .push_back(entry);
        Some(Wait {
            number: self.last_number,
            end,
        })
    }

    /// The client of this waiting attempt has gone away, unless the wait has ended before.
    pub fn leave(&mut self, claim: &AttemptClaim, number: u64) {
        let Some(queue) = self.queues.get_mut(claim.widest()) else {
            return;
        };
        let Ok(place) = queue.binary_search_by_key(&number, |entry| entry.number) else {
            return;
        };
        queue.remove(place);
        if queue.is_empty() {
            self.queues.remove(claim.widest());
        }
        self.stop_waiting(claim);
    }

    /// Asks `is_to_wait` of each attempt that waits in the queue of `claim`, in their order. It
    /// ends the wait of others.
    pub fn serve(
        &mut self,
        claim: &AttemptClaim,
        mut is_to_wait: impl FnMut(&mut Self, &mut WaitingEntry) -> bool,
    ) {
        let Some((widest, mut queue)) = self.queues.remove_entry(claim.widest()) else {
            return;
        };
        queue.retain_mut(|entry| {
            let waits = is_to_wait(self, entry);
            if !waits {
                self.stop_waiting(&entry.claim);
            }
            waits
        });
        if !queue.is_empty() {
            self.queues.insert(widest, queue);
        }
    }

    fn stop_waiting(&mut self, claim: &AttemptClaim) {
        self.waiting = self.waiting.saturating_sub(1);
        for address in claim.addresses() {
            self.change(address, |attempts| {
                attempts.waiting = attempts.waiting.saturating_sub(1)
            });
        }
    }

    fn change(&mut self, key: &Key, change: impl Fn(&mut KeyAttempts)) {
        let Some(attempts) = self.keys.get_mut(key) else {
            return;
        };
        change(attempts);
        if attempts.under_way == 0 && attempts.waiting == 0 {
            self.keys.remove(key);
        }
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.queues.is_empty() && self.waiting == 0
    }
}
