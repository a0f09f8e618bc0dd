//! The share of every limit that this node enforces alone, as its heartbeat last learned it.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::algorithm::share::Share;

/// The share of this node, set by the heartbeat and read by each worker.
#[derive(Debug)]
pub struct FleetShare {
    packed: AtomicU64,
    fleet_nodes: metrics::Gauge,
}

impl FleetShare {
    /// The share before the first heartbeat: that of one of `nodes`.
    pub fn expecting(nodes: u32) -> Self {
        let cell = Self { packed: AtomicU64::new(0), fleet_nodes: metrics::gauge!("tollgate_fleet_nodes") };
        cell.set(Share::unplaced(nodes));
        cell
    }

    pub fn get(&self) -> Share {
        Share::unpacked(self.packed.load(Ordering::Relaxed))
    }

    pub fn set(&self, share: Share) {
        self.packed.store(share.packed(), Ordering::Relaxed);
        self.fleet_nodes.set(f64::from(share.nodes()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cell_returns_what_was_set() {
        let cell = FleetShare::expecting(4);
        assert_eq!(cell.get(), Share::unplaced(4));
        cell.set(Share::new(7, 6));
        assert_eq!(cell.get(), Share::new(7, 6));
    }
}
