//! The share of every limit that this node enforces alone, and what it holds back for others, as
//! its heartbeat last learned it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use metrics::Gauge;
use parking_lot::Mutex;

use crate::algorithm::held_back::HeldBack;
use crate::algorithm::share::Share;
use crate::clock;
use crate::store::merged_charges::MergedCharge;

/// The longest until the nodes that reach the store notice that one does not, and hold its share
/// back.
pub(crate) const NOTICE_US: u64 = 2_000_000;

/// No time.
const NEVER: u64 = u64::MAX;

/// The share of this node, set by the heartbeat and read by each worker.
#[derive(Debug)]
pub struct FleetShare {
    packed: AtomicU64,
    /// Nodes that are silent. While there are none, no lock is taken.
    silent: AtomicU64,
    silent_ranks: Mutex<Vec<u32>>,
    /// Since when the share and the silent nodes are the same, in microseconds of the monotonic
    /// clock.
    same_since_us: AtomicU64,
    /// Since when this node decides without the store, in microseconds of the monotonic clock.
    /// [`NEVER`]: it asks it.
    alone_since_us: AtomicU64,
    /// When this node last announced itself. [`NEVER`]: nobody knows of it yet.
    announced_at_us: AtomicU64,
    fleet_nodes: Gauge,
    silent_nodes: Gauge,
    held_back_ratio: Gauge,
}

impl FleetShare {
    /// The share before the first heartbeat: that of one of `nodes`.
    pub fn expecting(nodes: u32) -> Self {
        let cell = Self {
            packed: AtomicU64::new(0),
            silent: AtomicU64::new(0),
            silent_ranks: Mutex::default(),
            same_since_us: AtomicU64::new(0),
            alone_since_us: AtomicU64::new(NEVER),
            announced_at_us: AtomicU64::new(NEVER),
            fleet_nodes: metrics::gauge!("tollgate_fleet_nodes"),
            silent_nodes: metrics::gauge!("tollgate_fleet_nodes_silent"),
            held_back_ratio: metrics::gauge!("tollgate_fleet_share_held_back_ratio"),
        };
        cell.set(Share::unplaced(nodes), Vec::new());
        cell
    }

    #[inline]
    pub fn get(&self) -> Share {
        Share::unpacked(self.packed.load(Ordering::Relaxed))
    }

    /// Takes over this node's share, and the ranks of the nodes that are silent.
    pub fn set(&self, share: Share, silent: Vec<u32>) {
        let mut silent_ranks = self.silent_ranks.lock();
        if self.get() != share || *silent_ranks != silent {
            self.same_since_us
                .store(clock::monotonic_micros(), Ordering::Release);
        }
        self.packed.store(share.packed(), Ordering::Relaxed);
        self.fleet_nodes.set(f64::from(share.nodes()));
        let count = u32::try_from(silent.len()).unwrap_or(u32::MAX);
        self.silent_nodes.set(f64::from(count));
        self.held_back_ratio.set(share.held_back_ratio(count));
        *silent_ranks = silent;
        self.silent.store(count.into(), Ordering::Relaxed);
    }

    /// The ranks of the nodes that are silent.
    pub fn silent_ranks(&self) -> Vec<u32> {
        self.silent_ranks.lock().clone()
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
    }

    /// For how long nobody has heard of this node, if somebody ever has.
    pub(crate) fn unheard_for(&self) -> Duration {
        since(self.announced_at_us.load(Ordering::Relaxed))
    }

    /// The part of the limit of `charge` that this node must not use while it reaches the store.
    #[inline]
    pub(crate) fn held_back(&self, charge: &MergedCharge<'_>) -> HeldBack {
        if self.silent.load(Ordering::Relaxed) == 0 {
            return HeldBack::Nothing;
        }
        let MergedCharge {
            key,
            quota,
            largest_cost,
            ..
        } = *charge;
        self.get()
            .held_back(key, quota, largest_cost, &self.silent_ranks.lock())
    }

    /// Like [`Self::held_back`], of a charge that was made since `since_us`. Nothing, if it may
    /// have been another part then.
    pub(crate) fn held_back_since(&self, charge: &MergedCharge<'_>, since_us: u64) -> HeldBack {
        // Read first: `set` changes the time before it changes the part, so a new part never goes
        // with an old time.
        let held = self.held_back(charge);
        if self.same_since_us.load(Ordering::Acquire) <= since_us {
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
        cell.set(Share::new(7, 6), vec![2]);
        assert_eq!(cell.get(), Share::new(7, 6));
    }
}
