//! The memory for bodies that are kept, such as bodies that are read ahead, of all routes together.
//!
//! Guarantees a bound in sum, and that no client takes all of it.

use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use crate::address_shares::{AddressShare, AddressShares};

/// The part of all memory that one client address may hold.
const CLIENTS: usize = 8;

/// The count of bytes that are held. Outlives reloads, as the bodies do.
#[derive(Debug, Default)]
pub struct BodyMemory {
    held: AtomicUsize,
    most: AtomicUsize,
    by_client: Arc<AddressShares>,
    /// Most bytes of one client.
    share: AtomicUsize,
}

/// Bytes that are held. Dropping them gives them back.
#[derive(Debug)]
pub struct HeldMemory {
    memory: Arc<BodyMemory>,
    share: Option<AddressShare>,
    bytes: usize,
}

impl BodyMemory {
    /// Holds no more than `most` bytes from now on, and for one client no more than an eighth, or
    /// one body of `body` bytes.
    pub fn bound(&self, most: NonZeroUsize, body: NonZeroUsize) {
        self.most.store(most.get(), Relaxed);
        self.share
            .store((most.get() / CLIENTS).max(body.get()), Relaxed);
    }

    /// No bytes yet, for the client at `ip`.
    pub fn hold(self: &Arc<Self>, ip: IpAddr) -> HeldMemory {
        HeldMemory {
            memory: self.clone(),
            share: self.by_client.take(ip, 0, usize::MAX),
            bytes: 0,
        }
    }
}

impl HeldMemory {
    /// Holds `bytes` in all. Returns whether there was room for them.
    pub fn grow_to(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let most = self.memory.most.load(Relaxed);
        let most_of_client = self.memory.share.load(Relaxed);
        let Some(share) = &mut self.share else {
            return false;
        };
        if !share.grow_to(bytes, most_of_client) {
            return false;
        }
        let grown = self.memory.held.fetch_update(Relaxed, Relaxed, |held| {
            held.checked_add(more).filter(|held| *held <= most)
        });
        if grown.is_err() {
            return false;
        }
        self.bytes += more;
        true
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
        let ten = NonZeroUsize::new(10).unwrap();
        memory.bound(ten, ten);
        let mut first = memory.hold([192, 0, 2, 1].into());
        let mut second = memory.hold([192, 0, 2, 1].into());
        assert!(first.grow_to(6) && first.grow_to(4) && second.grow_to(4));
        assert!(!second.grow_to(5));
        drop(first);
        assert!(second.grow_to(10));
        drop(second);
        assert_eq!(memory.held.load(Relaxed), 0);
    }

    #[test]
    fn one_client_leaves_room_for_others() {
        let memory = Arc::new(BodyMemory::default());
        memory.bound(
            NonZeroUsize::new(80).unwrap(),
            NonZeroUsize::new(4).unwrap(),
        );
        let mut first = memory.hold([192, 0, 2, 1].into());
        let mut second = memory.hold([192, 0, 2, 1].into());
        let mut other = memory.hold([192, 0, 2, 2].into());
        assert!(first.grow_to(6) && second.grow_to(4) && !second.grow_to(5));
        assert!(other.grow_to(10));
        drop(first);
        assert!(second.grow_to(10));
    }
}
