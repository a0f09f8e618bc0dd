//! The share of every limit that this node enforces alone, and what it holds back for others, as its heartbeat last learned
//! it.

use std::sync::atomic::{AtomicU64, Ordering};

use metrics::Gauge;
use parking_lot::Mutex;

use crate::algorithm::held_back::HeldBack;
use crate::algorithm::share::Share;
use crate::store::merged_charges::MergedCharge;

/// The longest until the nodes that reach the store notice that one does not, and hold its share back.
pub(crate) const NOTICE_US: u64 = 2_000_000;

/// The share of this node, set by the heartbeat and read by each worker.
#[derive(Debug)]
pub struct FleetShare {
    packed: AtomicU64,
    /// Nodes that are silent. While there are none, no lock is taken.
    silent: AtomicU64,
    silent_ranks: Mutex<Vec<u32>>,
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
        self.packed.store(share.packed(), Ordering::Relaxed);
        self.fleet_nodes.set(f64::from(share.nodes()));
        let count = u32::try_from(silent.len()).unwrap_or(u32::MAX);
        self.silent_nodes.set(f64::from(count));
        self.held_back_ratio.set(share.held_back_ratio(count));
        *self.silent_ranks.lock() = silent;
        self.silent.store(count.into(), Ordering::Relaxed);
    }

    /// The part of the limit of `charge` that this node must not use while it reaches the store.
    #[inline]
    pub(crate) fn held_back(&self, charge: &MergedCharge<'_>) -> HeldBack {
        if self.silent.load(Ordering::Relaxed) == 0 {
            return HeldBack::Nothing;
        }
        let MergedCharge { key, quota, largest_cost, .. } = *charge;
        self.get().held_back(key, quota, largest_cost, &self.silent_ranks.lock())
    }
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
