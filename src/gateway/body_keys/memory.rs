//! The memory for bodies that are read ahead, of all routes together.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// Counts the bytes that are held. It outlives reloads, as the bodies do.
#[derive(Debug, Default)]
pub struct BodyMemory {
    held: AtomicUsize,
    most: AtomicUsize,
}

/// Bytes that are held. Dropping them gives them back.
#[derive(Debug)]
pub struct HeldMemory {
    memory: Arc<BodyMemory>,
    bytes: usize,
}

impl BodyMemory {
    /// Holds no more than `most` bytes from now on.
    pub fn bound(&self, most: NonZeroUsize) {
        self.most.store(most.get(), Relaxed);
    }

    /// No bytes yet.
    pub fn hold(self: &Arc<Self>) -> HeldMemory {
        HeldMemory { memory: self.clone(), bytes: 0 }
    }
}

impl HeldMemory {
    /// Holds `bytes` in all. Returns whether there was room for them.
    pub fn grow_to(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let most = self.memory.most.load(Relaxed);
        let with = |held: usize| held.checked_add(more).filter(|held| *held <= most);
        let fits = self.memory.held.fetch_update(Relaxed, Relaxed, with).is_ok();
        if fits {
            self.bytes += more;
        }
        fits
    }
}

impl Drop for HeldMemory {
    fn drop(&mut self) {
        self.memory.held.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_stays_within_the_bound_and_comes_back() {
        let memory = Arc::new(BodyMemory::default());
        memory.bound(NonZeroUsize::new(10).unwrap());
        let (mut first, mut second) = (memory.hold(), memory.hold());
        assert!(first.grow_to(6) && first.grow_to(4) && second.grow_to(4));
        assert!(!second.grow_to(5));
        drop(first);
        assert!(second.grow_to(10));
        drop(second);
        assert_eq!(memory.held.load(Relaxed), 0);
    }
}
