//! Round robin: each endpoint has its turns.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::pick::{PickEndpoint, PickList, Tried, Turn};

/// Picks endpoints in turn.
#[derive(Debug, Default)]
pub struct RoundRobin {
    next: AtomicUsize,
}

impl PickEndpoint for RoundRobin {
    fn pick(&self, list: PickList<'_>, tried: &Tried, turn: Turn) -> Option<usize> {
        let start = match turn {
            Turn::Takes => self.next.fetch_add(1, Ordering::Relaxed),
            Turn::Leaves => self.next.load(Ordering::Relaxed),
        };
        list.in_turn(start, tried)
    }
}
