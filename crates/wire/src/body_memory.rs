//! The memory for bodies that are kept, such as bodies that are read ahead, of all routes together.
//!
//! Guarantees a bound in sum, and that no client takes all of it.

use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use crate::address_shares::{AddressShare, AddressShares};

/// The part of all memory that one client address may reserve is one of so many.
const PARTS: usize = 8;

/// The count of bytes that are reserved. Outlives reloads, as the bodies do.
#[derive(Debug, Default)]
pub struct BodyMemory {
    reserved: AtomicUsize,
    most: AtomicUsize,
    by_client: Arc<AddressShares>,
    /// Most bytes of one client.
    share: AtomicUsize,
}

/// Reserved bytes. Dropping the reservation gives them back.
#[derive(Debug)]
pub struct MemoryReservation {
    memory: Arc<BodyMemory>,
    share: Option<AddressShare>,
    bytes: usize,
}

impl BodyMemory {
    /// Reserves no more than `most` bytes from now on, and for one client no more than an eighth,
    /// or one body of `body` bytes.
    pub fn bound(&self, most: NonZeroUsize, body: NonZeroUsize) {
        self.most.store(most.get(), Relaxed);
        self.share
            .store((most.get() / PARTS).max(body.get()), Relaxed);
    }

    /// A reservation of no bytes yet, for the client at `ip`.
    pub fn reserve(self: &Arc<Self>, ip: IpAddr) -> MemoryReservation {
        MemoryReservation {
            memory: self.clone(),
            share: self.by_client.take(ip, 0, usize::MAX),
            bytes: 0,
        }
    }
}

impl MemoryReservation {
    /// Reserves `bytes` in all. Returns whether there was room for them.
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
        let grown = self
            .memory
            .reserved
            .fetch_update(Relaxed, Relaxed, |reserved| {
                reserved.checked_add(more).filter(|total| *total <= most)
            });
        if grown.is_err() {
            return false;
        }
        self.bytes += more;
        true
    }
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        self.memory.reserved.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_bytes_stay_within_the_bound_and_come_back() {
        let memory = Arc::new(BodyMemory::default());
        let ten = NonZeroUsize::new(10).unwrap();
        memory.bound(ten, ten);
        let mut first = memory.reserve([192, 0, 2, 1].into());
        let mut second = memory.reserve([192, 0, 2, 1].into());
        assert!(first.grow_to(6) && first.grow_to(4) && second.grow_to(4));
        assert!(!second.grow_to(5));
        drop(first);
        assert!(second.grow_to(10));
        drop(second);
        assert_eq!(memory.reserved.load(Relaxed), 0);
    }

    #[test]
    fn one_client_leaves_room_for_others() {
        let memory = Arc::new(BodyMemory::default());
        memory.bound(
            NonZeroUsize::new(80).unwrap(),
            NonZeroUsize::new(4).unwrap(),
        );
        let mut first = memory.reserve([192, 0, 2, 1].into());
        let mut second = memory.reserve([192, 0, 2, 1].into());
        let mut other = memory.reserve([192, 0, 2, 2].into());
        assert!(first.grow_to(6) && second.grow_to(4) && !second.grow_to(5));
        assert!(other.grow_to(10));
        drop(first);
        assert!(second.grow_to(10));
    }
}
