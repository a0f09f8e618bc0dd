//! The permits of one key in this process: which of them requests hold, and who waits for more.
//!
//! Guarantees that requests hold no more permits than the store granted, counted from before it was
//! asked. A request is denied only if the store refused what was asked for it, or this process
//! alone has all permits of the limit in use.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::{Notify, oneshot};

use crate::algorithm::concurrency::{
    GrantedPermits, LEASE_US, MAX_PERMITS, PermitRequest, RETRY_US,
};
use crate::algorithm::level::Level;
use crate::clock;

/// After a denial, the store is not asked again for so long. A permit that this node's own requests
/// give back is available at once.
const PAUSE_US: u64 = 20_000;

/// The pause of a node that holds less than its share: the others are giving permits back.
const SHORT_PAUSE_US: u64 = 10_000;

/// While all permits of a limit are held, a node that passes them on asks for its share this often.
const SHARE_CHECK_US: u64 = 100_000;

/// A node may keep one in so many permits of a limit at hand, although no request needs them.
const SPARE_PART: u64 = 128;

/// The level when no permit is left.
pub(crate) const FULL: Level = Level {
    remaining: 0,
    retry_after_us: RETRY_US,
    reset_after_us: RETRY_US,
};

/// The result of asking a pool for permits.
pub(super) enum PoolAnswer {
    Taken(Level),
    Full,
    /// The store must be asked.
    Unknown,
}

/// A request that waits for permits.
struct PermitWaiter {
    cost: u64,
    /// Whether a claim asked for it.
    asked: bool,
    outcome: oneshot::Sender<Result<Level, Level>>,
}

/// The permits of one key.
pub(super) struct PermitPool {
    most: u64,
    in_use: u64,
    /// Granted by the store, for requests to take until `until_us`.
    held: u64,
    until_us: u64,
    others: u64,
    /// The node's fair share, as the store last said.
    share: u64,
    answered_us: u64,
    /// The turn of the claim that those are the answer to. 0: the store was never asked.
    answered_turn: u64,
    claiming: bool,
    /// Whether the store may have granted permits in an answer that was lost: the next claim puts
    /// it right.
    is_unsure: bool,
    waiters: VecDeque<PermitWaiter>,
    denied_until_us: u64,
    /// Permits of requests that were denied since the last claim.
    denied: u64,
    largest_cost: u64,
    /// The most in use since the last visit of the upkeep.
    peak: u64,
    /// Whether a request took a permit since the last renewal.
    is_busy: bool,
    /// Whether the limit is one of the fleet.
    pub of_fleet: bool,
    /// Whether the upkeep has the key on its list.
    pub listed: bool,
    /// Permits that watchers hope for.
    watched: u64,
    freed: Option<Arc<Notify>>,
}

impl Default for PermitPool {
    fn default() -> Self {
        Self {
            most: 0,
            in_use: 0,
            held: 0,
            until_us: 0,
            others: 0,
            share: MAX_PERMITS,
            answered_us: 0,
            answered_turn: 0,
            claiming: false,
            is_unsure: false,
            waiters: VecDeque::new(),
            denied_until_us: 0,
            denied: 0,
            largest_cost: 1,
            peak: 0,
            is_busy: false,
            of_fleet: false,
            listed: false,
            watched: 0,
            freed: None,
        }
    }
}

impl PermitPool {
    pub fn in_use(&self) -> u64 {
        self.in_use
    }

    pub fn most(&self) -> u64 {
        self.most
    }

    /// Follows a limit that changed, or a request that takes more than those before.
    pub fn follow(&mut self, most: u64, cost: u64, of_fleet: bool) {
        (self.most, self.of_fleet) = (most, of_fleet);
        self.largest_cost = self.largest_cost.max(cost);
    }

    /// Takes permits that this process gives out on its own.
    pub fn take(&mut self, cost: u64) -> Level {
        self.in_use = self.in_use.saturating_add(cost);
        self.peak = self.peak.max(self.in_use);
        self.is_busy = true;
        let remaining = self
            .most
            .saturating_sub(self.in_use)
            .saturating_sub(self.others);
        Level {
            remaining,
            retry_after_us: 0,
            reset_after_us: if remaining == 0 { RETRY_US } else { 0 },
        }
    }

    /// Takes permits that the node holds, unless others wait for them.
    pub fn try_take(&mut self, cost: u64, now_us: u64) -> PoolAnswer {
        if !self.waiters.is_empty() {
            return PoolAnswer::Unknown;
        }
        if self.has_room(cost) && now_us < self.until_us {
            return PoolAnswer::Taken(self.take(cost));
        }
        if now_us < self.denied_until_us || self.in_use.saturating_add(cost) > self.most {
            self.denied = self.denied.saturating_add(cost);
            return PoolAnswer::Full;
        }
        PoolAnswer::Unknown
    }

    /// Whether requests may take `cost` more of the permits that the node holds. What it holds
    /// beyond its share goes back.
    fn has_room(&self, cost: u64) -> bool {
        self.in_use.saturating_add(cost) <= self.held.min(self.most).min(self.share)
    }

    /// Lets a request wait for its permits.
    pub fn wait(&mut self, cost: u64) -> oneshot::Receiver<Result<Level, Level>> {
        let (outcome, receiver) = oneshot::channel();
        self.waiters.push_back(PermitWaiter {
            cost,
            asked: false,
            outcome,
        });
        receiver
    }

    /// Whether the caller is to claim permits: somebody waits whom no claim asked for.
    pub fn start_claiming(&mut self) -> bool {
        let starts = !self.claiming && self.waiters.iter().any(|waiter| !waiter.asked);
        self.claiming |= starts;
        starts
    }

    /// A claim for all who need permits now. Until the answer comes, requests may use what it
    /// keeps.
    pub fn claim(&mut self, turn: u64) -> PermitRequest {
        self.waiters.retain(|waiter| !waiter.outcome.is_closed());
        let waited_for = self
            .waiters
            .iter()
            .fold(0, |sum, waiter| waiter.cost.saturating_add(sum));
        self.waiters
            .iter_mut()
            .for_each(|waiter| waiter.asked = true);
        // More requests may come while the store is asked.
        let ahead = waited_for.min(self.most / SPARE_PART);
        let new = waited_for
            .saturating_add(self.watched)
            .saturating_add(ahead);
        self.claim_of(self.in_use.saturating_add(new), turn)
    }

    fn claim_of(&mut self, wanted: u64, turn: u64) -> PermitRequest {
        self.claiming = true;
        let wanted = wanted.min(self.most).max(self.in_use);
        let demand = wanted
            .saturating_add(std::mem::take(&mut self.denied))
            .min(self.most)
            .max(wanted);
        let kept = self.held.min(self.share).min(wanted).max(self.in_use);
        self.held = self.held.min(kept);
        PermitRequest {
            wanted,
            demand,
            kept,
            needed: self.in_use,
            largest_cost: self.largest_cost,
            turn,
        }
    }

    /// Takes over the answer to a claim that was sent at `sent_us`, and gives the permits to those
    /// who wait. `None`: the store did not answer, and requests that the claim asked for are told
    /// so.
    pub fn answer(
        &mut self,
        turn: u64,
        granted: Option<GrantedPermits>,
        sent_us: u64,
        now_us: u64,
    ) {
        self.claiming = false;
        let Some(granted) = granted else {
            return self.waiters.retain(|waiter| !waiter.asked);
        };
        self.is_unsure = false;
        if turn >= self.answered_turn {
            (self.answered_turn, self.answered_us) = (turn, now_us);
            (self.held, self.others, self.share) = (granted.own, granted.others, granted.share);
            self.until_us = sent_us.saturating_add(LEASE_US);
        }
        self.serve(now_us);
        if self.waiters.iter().any(|waiter| waiter.asked) {
            let pause_us = if self.held < self.share.min(self.most) {
                SHORT_PAUSE_US
            } else {
                PAUSE_US
            };
            // From the answer on: a store may take longer than the pause to give it.
            self.denied_until_us = now_us.saturating_add(pause_us);
            for waiter in self.waiters.drain(..) {
                self.denied = self.denied.saturating_add(waiter.cost);
                let _ = waiter.outcome.send(Err(FULL));
            }
        } else {
            self.denied_until_us = 0;
        }
        let spare = self.held.min(self.share).saturating_sub(self.in_use);
        (0..spare.min(self.watched)).for_each(|_| self.notify_watcher());
    }

    /// The store may have taken over a claim that it does not answer.
    pub fn doubt(&mut self) {
        self.is_unsure = true;
    }

    /// Ends a claim whose answer nobody will hear of, for all who wait.
    pub fn abandon(&mut self) {
        (self.claiming, self.is_unsure) = (false, true);
        self.waiters.clear();
    }

    /// Gives permits to the requests that wait and have room, in their order.
    fn serve(&mut self, now_us: u64) {
        while self.has_room(1) && now_us < self.until_us {
            let Some(first) = self
                .waiters
                .iter()
                .position(|waiter| self.has_room(waiter.cost))
            else {
                return;
            };
            let Some(waiter) = self.waiters.remove(first) else {
                return;
            };
            let level = self.take(waiter.cost);
            if waiter.outcome.send(Ok(level)).is_err() {
                // The request is gone.
                self.in_use = self.in_use.saturating_sub(waiter.cost);
            }
        }
    }

    /// Takes permits back from a request that has ended. The next ones that wait get them.
    pub fn give_back(&mut self, cost: u64) {
        self.in_use = self.in_use.saturating_sub(cost);
        if !self.waiters.is_empty() {
            self.serve(clock::monotonic_micros());
        }
        if self.watched > 0 && (self.held == 0 || self.has_room(1)) {
            self.notify_watcher();
        }
    }

    /// Whether permits are held that no request uses.
    pub fn has_spare(&self) -> bool {
        self.held > self.in_use
    }

    /// Whether the node has to give back permits, for others to have their share.
    pub fn is_beyond_share(&self) -> bool {
        self.has_spare() && self.held > self.share
    }

    /// Whether the node should ask for its share: all permits are held, and requests here pass them
    /// on.
    pub fn is_share_check_due(&self, now_us: u64) -> bool {
        self.of_fleet
            && self.is_busy
            && self
                .held
                .saturating_add(self.others)
                .saturating_add(self.largest_cost)
                > self.most
            && now_us >= self.answered_us.saturating_add(SHARE_CHECK_US)
            && self.answered_turn > 0
    }

    /// The claim that a visit of the upkeep finds to make, to give permits back, to learn the
    /// share, or for watchers.
    pub fn claim_on_visit(
        &mut self,
        turn: impl FnOnce() -> u64,
        now_us: u64,
    ) -> Option<PermitRequest> {
        let peak = std::mem::replace(&mut self.peak, self.in_use);
        if self.claiming || !self.of_fleet {
            return None;
        }
        let hoped_for = self.watched > 0 && self.answered_turn > 0 && !self.has_room(1);
        let asks_for_watchers = hoped_for && now_us >= self.denied_until_us;
        let wanted = peak
            .saturating_add(self.most / SPARE_PART)
            .min(self.held.max(peak));
        if self.held <= wanted
            && !self.is_beyond_share()
            && !asks_for_watchers
            && !self.is_share_check_due(now_us)
        {
            if self.watched > 0 && self.has_room(1) {
                self.notify_watcher();
            }
            return None;
        }
        if asks_for_watchers {
            self.denied_until_us = now_us.saturating_add(PAUSE_US);
        }
        Some(self.claim_of(wanted.saturating_add(self.watched), turn()))
    }

    /// The claim that renews permits held whose time ends before `end_us`, or reports those taken
    /// without the store.
    pub fn renewal(&mut self, turn: impl FnOnce() -> u64, end_us: u64) -> Option<PermitRequest> {
        let is_ageing = (self.held > 0 || self.in_use > 0) && self.until_us < end_us;
        let is_due = self.of_fleet && !self.claiming && (is_ageing || self.is_unsure);
        if !is_due {
            return None;
        }
        let is_busy = std::mem::replace(&mut self.is_busy, self.in_use > 0);
        let wanted = if is_busy { self.held } else { 0 };
        Some(self.claim_of(wanted, turn()))
    }

    /// The claim that gives back all that no request uses, at the end of the process.
    pub fn last_claim(&mut self, turn: impl FnOnce() -> u64) -> Option<PermitRequest> {
        let is_due = self.of_fleet && !self.claiming && (self.has_spare() || self.is_unsure);
        is_due.then(|| {
            (self.denied, self.is_unsure) = (0, false);
            self.claim_of(self.in_use, turn())
        })
    }

    pub fn is_claiming(&self) -> bool {
        self.claiming
    }

    /// Whether the upkeep has to visit the pool again soon.
    pub fn needs_visit(&self) -> bool {
        let has_much = self.held > self.in_use.saturating_add(self.most / SPARE_PART);
        self.answered_turn > 0 && (has_much || self.is_beyond_share() || self.watched > 0)
    }

    /// Whether nothing is lost when the pool is forgotten.
    pub fn is_idle(&self, now_us: u64) -> bool {
        self.in_use == 0
            && self.held == 0
            && self.waiters.is_empty()
            && !self.claiming
            && !self.is_unsure
            && self.watched == 0
            && now_us >= self.denied_until_us
    }

    /// Adds a watcher that hopes for `cost` permits.
    pub fn watch(&mut self, cost: u64) -> Arc<Notify> {
        self.watched = self.watched.saturating_add(cost);
        self.freed.get_or_insert_default().clone()
    }

    /// Removes a watcher. The next one in line looks for itself: this one may have been woken and
    /// not have taken anything.
    pub fn unwatch(&mut self, cost: u64) {
        self.watched = self.watched.saturating_sub(cost);
        if self.watched > 0 && (self.held == 0 || self.has_room(1)) {
            self.notify_watcher();
        }
    }

    fn notify_watcher(&self) {
        if let Some(freed) = &self.freed {
            freed.notify_one();
        }
    }
}
