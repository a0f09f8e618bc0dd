//! The bytes of a body that are kept, to be sent again.
//!
//! Guarantees that the kept bytes of all requests with `keep_body` are bounded together, whatever
//! clients send.

use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::sync::{Arc, LazyLock};

use metrics::{Counter, counter};

use tollgate_wire::body_memory::{BodyMemory, MemoryReservation};

/// Bytes that are kept in all. A client has an eighth of them.
const MOST_IN_ALL: NonZeroUsize = NonZeroUsize::MIN.saturating_add((64 << 20) - 1);

/// Bytes that are reserved at first.
const FIRST: usize = 4 * 1024;

/// The memory of all routes, which outlives reloads as the bodies do.
static MEMORY: LazyLock<Arc<ReplayMemory>> =
    LazyLock::new(|| Arc::new(ReplayMemory::new(MOST_IN_ALL)));

/// The memory for bodies that routes keep.
pub struct ReplayMemory {
    memory: Arc<BodyMemory>,
    /// Bodies for which there was no room.
    refused: Counter,
}

/// The bytes of a body that were kept.
pub struct KeptBytes {
    bytes: Vec<u8>,
    most: usize,
    /// `None`: the bytes are bounded otherwise.
    reservation: Option<ReplayReservation>,
}

/// The part of the memory that is reserved for one body.
struct ReplayReservation {
    bytes: MemoryReservation,
    memory: Arc<ReplayMemory>,
}

impl ReplayMemory {
    fn new(most: NonZeroUsize) -> Self {
        let memory = Arc::new(BodyMemory::default());
        memory.bound(most, NonZeroUsize::MIN);
        let refused = counter!("tollgate_bodies_not_kept_total");
        refused.increment(0);
        Self { memory, refused }
    }

    /// Registers the metric of the memory.
    pub fn prepare() {
        LazyLock::force(&MEMORY);
    }
}

impl KeptBytes {
    /// Room for `most` bytes.
    pub fn new(most: usize) -> Self {
        Self {
            bytes: Vec::new(),
            most,
            reservation: None,
        }
    }

    /// Room for `most` bytes of the client at `ip`, as long as there is memory.
    pub fn for_client(most: usize, ip: IpAddr) -> Self {
        Self::within(&MEMORY, most, ip)
    }

    fn within(memory: &Arc<ReplayMemory>, most: usize, ip: IpAddr) -> Self {
        Self {
            reservation: Some(ReplayReservation {
                bytes: memory.memory.reserve(ip),
                memory: memory.clone(),
            }),
            ..Self::new(most)
        }
    }

    /// Adds a piece. Returns whether there is room for it.
    pub fn push(&mut self, piece: &[u8]) -> bool {
        let fits = self.grow_to(self.bytes.len() + piece.len());
        if fits {
            self.bytes.extend_from_slice(piece);
        }
        fits
    }

    fn grow_to(&mut self, length: usize) -> bool {
        if length <= self.bytes.capacity() || length > self.most {
            return length <= self.most;
        }
        // Room doubles each time, so that a long body is not moved with each piece.
        let room = length
            .max(self.bytes.capacity() * 2)
            .max(FIRST)
            .min(self.most);
        if let Some(reservation) = &mut self.reservation
            && !reservation.bytes.grow_to(room)
        {
            reservation.memory.refused.increment(1);
            return false;
        }
        self.bytes.reserve_exact(room - self.bytes.len());
        true
    }

    /// The bytes from `at` on.
    pub fn starting_at(&self, at: usize) -> &[u8] {
        self.bytes.get(at..).unwrap_or_default()
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Gives all memory back, and keeps nothing from now on.
    pub fn clear(&mut self) {
        *self = Self::new(0);
    }

    #[cfg(test)]
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECE: [u8; 1_024] = [b'a'; 1_024];

    fn push_all(kept: &mut KeptBytes, pieces: usize) -> bool {
        (0..pieces).all(|_| kept.push(&PIECE))
    }

    fn kept_for(client: u8, memory: &Arc<ReplayMemory>) -> KeptBytes {
        KeptBytes::within(memory, 64 << 10, [192, 0, 2, client].into())
    }

    #[test]
    fn all_bodies_share_a_memory_and_a_client_has_an_eighth_of_it() {
        let memory = Arc::new(ReplayMemory::new(NonZeroUsize::new(1 << 20).unwrap()));
        let mut first = kept_for(1, &memory);
        let mut second = kept_for(1, &memory);
        let mut third = kept_for(1, &memory);
        assert!(
            push_all(&mut first, 64) && push_all(&mut second, 64),
            "an eighth"
        );
        assert!(!third.push(&PIECE), "the client has its share");
        first.clear();
        assert!(push_all(&mut third, 64), "what was forgotten is given back");
        let mut others: Vec<KeptBytes> = (2..9)
            .flat_map(|client| [kept_for(client, &memory), kept_for(client, &memory)])
            .collect();
        assert!(others.iter_mut().all(|other| push_all(other, 64)));
        assert!(!kept_for(9, &memory).push(&PIECE), "all of it is reserved");
        others.pop();
        assert!(kept_for(9, &memory).push(&PIECE));
    }

    #[test]
    fn bytes_take_no_more_memory_than_is_reserved_for_them() {
        let mut kept = KeptBytes::new(10_000);
        assert!((0..10_000).all(|_| kept.push(b"a")) && !kept.push(b"a"));
        assert!(
            (kept.len(), kept.capacity()) == (10_000, 10_000),
            "{}",
            kept.capacity()
        );
    }
}
