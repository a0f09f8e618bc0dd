//! The share of every limit that this node enforces alone, and what it holds back for others, as
//! its heartbeat last learned it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use metrics::Gauge;
use parking_lot::Mutex;
use smallvec::SmallVec;

#[cfg(feature = "redis-core")]
use crate::algorithm::concurrency::LEASE_US;
use crate::algorithm::held_back::{HeldBack, Reserve};
use crate::algorithm::share::Share;
use crate::clock;
use crate::store::StoreError;
use crate::store::merged_charges::MergedCharge;

/// The longest until the nodes that reach the store notice that one does not, and hold its share
/// back.
pub(crate) const NOTICE_US: u64 = 2_000_000;

/// A node that was heard of so long ago or less will be again when the store is back.
#[cfg(feature = "redis-core")]
const RECENTLY: Duration = Duration::from_secs(60);

/// No time.
const NEVER: u64 = u64::MAX;

/// A node that fell silent. Times are in microseconds of this node's monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SilentNode {
    pub rank: u32,
    /// When it was last heard of.
    pub heard_us: u64,
    /// From then on it counts as gone.
    pub gone_us: u64,
}

/// The share of this node, set by the heartbeat and read by each worker.
#[derive(Debug)]
pub struct FleetShare {
    packed: AtomicU64,
    /// Nodes that are silent. While there are none, no lock is taken.
    silent: AtomicU64,
    silent_nodes: Mutex<Vec<SilentNode>>,
    /// Since when the share and the silent nodes are the same, in microseconds of the monotonic
    /// clock.
    same_since_us: AtomicU64,
    /// Since when this node decides without the store, in microseconds of the monotonic clock.
    /// [`NEVER`]: it asks it.
    alone_since_us: AtomicU64,
    /// When this node last announced itself. [`NEVER`]: nobody knows of it yet.
    announced_at_us: AtomicU64,
    /// When it first did. [`NEVER`]: not yet.
    #[cfg(any(feature = "redis-core", test))]
    first_announced_at_us: AtomicU64,
    /// Why the fleet does not hear of this node. `None`: it does.
    unannounced: Mutex<Option<StoreError>>,
    #[cfg(any(feature = "redis-core", test))]
    heartbeat_up: Gauge,
    fleet_nodes: Gauge,
    silent_count: Gauge,
    held_back_ratio: Gauge,
}

impl FleetShare {
    /// The share before the first heartbeat: that of one of `nodes`.
    pub fn expecting(nodes: u32) -> Self {
        let cell = Self {
            packed: AtomicU64::new(0),
            silent: AtomicU64::new(0),
            silent_nodes: Mutex::default(),
            same_since_us: AtomicU64::new(0),
            alone_since_us: AtomicU64::new(NEVER),
            announced_at_us: AtomicU64::new(NEVER),
            #[cfg(any(feature = "redis-core", test))]
            first_announced_at_us: AtomicU64::new(NEVER),
            unannounced: Mutex::default(),
            #[cfg(any(feature = "redis-core", test))]
            heartbeat_up: metrics::gauge!("tollgate_fleet_heartbeat_up"),
            fleet_nodes: metrics::gauge!("tollgate_fleet_nodes"),
            silent_count: metrics::gauge!("tollgate_fleet_nodes_silent"),
            held_back_ratio: metrics::gauge!("tollgate_fleet_share_held_back_ratio"),
        };
        cell.set(Share::unplaced(nodes), Vec::new());
        cell
    }

    #[inline]
    pub fn get(&self) -> Share {
        Share::unpacked(self.packed.load(Ordering::Relaxed))
    }

    /// Takes over this node's share, and the nodes that are silent.
    pub fn set(&self, share: Share, silent: Vec<SilentNode>) {
        let mut silent_nodes = self.silent_nodes.lock();
        let before = silent_nodes.iter().map(|node| node.rank);
        if self.get() != share || !before.eq(silent.iter().map(|node| node.rank)) {
            self.same_since_us
                .store(clock::monotonic_micros(), Ordering::Release);
        }
        self.packed.store(share.packed(), Ordering::Relaxed);
        self.fleet_nodes.set(f64::from(share.nodes()));
        let count = u32::try_from(silent.len()).unwrap_or(u32::MAX);
        self.silent_count.set(f64::from(count));
        self.held_back_ratio.set(share.held_back_ratio(count));
        *silent_nodes = silent;
        self.silent.store(count.into(), Ordering::Relaxed);
    }

    /// The ranks of the nodes that are silent.
    pub fn silent_ranks(&self) -> Vec<u32> {
        let silent = self.silent_nodes.lock();
        silent.iter().map(|node| node.rank).collect()
    }

    /// Notes that the fleet does not hear of this node, because of `error`.
    #[cfg(any(feature = "redis-core", test))]
    pub(crate) fn note_unannounced(&self, error: &StoreError) {
        self.heartbeat_up.set(0.0);
        let mut unannounced = self.unannounced.lock();
        if unannounced.as_ref().map(StoreError::index) != Some(error.index()) {
            let hint = if matches!(error, StoreError::Auth | StoreError::Script(_)) {
                ": its user in Redis needs all commands that the documentation of the store names"
            } else {
                ""
            };
            tracing::warn!(%error, "the fleet does not hear of this node{hint}");
        }
        *unannounced = Some(error.clone());
    }

    /// Why the fleet does not hear of this node. `None`: it does.
    pub fn heartbeat_error(&self) -> Option<StoreError> {
        self.unannounced.lock().clone()
    }

    /// Notes whether this node decides alone on all keys, although it may be heard of.
    pub(crate) fn note_alone(&self, is_alone: bool) {
        let since_us = if is_alone {
            clock::monotonic_micros()
        } else {
            NEVER
        };
        if !is_alone || self.alone_since_us.load(Ordering::Relaxed) == NEVER {
            self.alone_since_us.store(since_us, Ordering::Relaxed);
        }
    }

    /// For how long this node has decided alone.
    #[cfg(feature = "redis-core")]
    pub(crate) fn alone_for(&self) -> Duration {
        since(self.alone_since_us.load(Ordering::Relaxed))
    }

    /// Notes that this node announced itself at `at_us`.
    #[cfg(any(feature = "redis-core", test))]
    pub(crate) fn note_announced(&self, at_us: u64) {
        self.announced_at_us.store(at_us, Ordering::Relaxed);
        self.first_announced_at_us
            .fetch_min(at_us, Ordering::Relaxed);
        self.heartbeat_up.set(1.0);
        if self.unannounced.lock().take().is_some() {
            tracing::info!("the fleet hears of this node again");
        }
    }

    /// Whether the store has heard of this node for longer than permits are held without a claim,
    /// and would still if it had not failed a moment ago.
    #[cfg(feature = "redis-core")]
    pub(crate) fn has_been_announced(&self) -> bool {
        let first_us = self.first_announced_at_us.load(Ordering::Relaxed);
        since(first_us) >= Duration::from_micros(LEASE_US) && self.unheard_for() < RECENTLY
    }

    /// For how long nobody has heard of this node, if somebody ever has.
    pub(crate) fn unheard_for(&self) -> Duration {
        since(self.announced_at_us.load(Ordering::Relaxed))
    }

    /// The part of the limit of `charge` that this node must not use while it reaches the store.
    #[inline]
    pub(crate) fn held_back(&self, charge: &MergedCharge<'_>) -> Reserve {
        if self.silent.load(Ordering::Relaxed) == 0 {
            return Reserve::NOTHING;
        }
        self.held_back_at(charge, clock::monotonic_micros())
    }

    fn held_back_at(&self, charge: &MergedCharge<'_>, now_us: u64) -> Reserve {
        let mut ranks = SmallVec::<[u32; 16]>::new();
        let mut until_us = now_us;
        let share = self.get();
        for node in &*self.silent_nodes.lock() {
            // From then on the node denies, or counts nothing.
            let ends_us = node.heard_us.saturating_add(charge.local_us);
            let ends_us = ends_us.min(node.gone_us);
            if ends_us > now_us
                && share.has_part(node.rank, charge.key, charge.quota, charge.largest_cost)
            {
                ranks.push(node.rank);
                until_us = until_us.max(ends_us);
            }
        }
        Reserve {
            part: share.held_back(charge.key, charge.quota, charge.largest_cost, &ranks),
            left_us: until_us - now_us,
        }
    }

    /// Like [`Self::held_back`], of a charge that was made since `since_us`. Nothing, if it may
    /// have been another part then.
    pub(crate) fn held_back_since(&self, charge: &MergedCharge<'_>, since_us: u64) -> HeldBack {
        // Read first: `set` changes the time before it changes the part, so a new part never goes
        // with an old time.
        let held = self.held_back(charge).part;
        let is_same = self.same_since_us.load(Ordering::Acquire) <= since_us;
        if is_same && self.held_back_at(charge, since_us).part == held {
            held
        } else {
            HeldBack::Nothing
        }
    }
}

fn since(at_us: u64) -> Duration {
    if at_us == NEVER {
        return Duration::ZERO;
    }
    Duration::from_micros(clock::monotonic_micros().saturating_sub(at_us))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cell_returns_what_was_set() {
        let cell = FleetShare::expecting(4);
        assert_eq!(cell.get(), Share::unplaced(4));
        cell.set(Share::new(7, 6), Vec::new());
        assert_eq!(cell.get(), Share::new(7, 6));
    }
}
