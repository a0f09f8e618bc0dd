//! Places for compressors: a process has a bounded number of them at a time, and so has a client.
//!
//! Guarantees that clients who do not read their answers cannot make the process hold more memory
//! than that, and that one of them leaves places to the others.

use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use tollgate_wire::address_shares::{AddressShare, AddressShares};

/// Compressors of a process at a time: half a GiB of br, the largest of them.
const MOST: usize = 512;

/// The part of all places that one client address may take is one of so many.
const PARTS: usize = 8;

/// The places of this process.
pub static PLACES: CompressorPlaces = CompressorPlaces::new(MOST);

/// A number of places.
#[derive(Debug)]
pub struct CompressorPlaces {
    most: usize,
    taken: AtomicUsize,
    by_client: LazyLock<Arc<AddressShares>>,
}

/// A place, until it is dropped.
#[derive(Debug)]
pub struct CompressorPlace {
    places: &'static CompressorPlaces,
    _share: AddressShare,
}

impl CompressorPlaces {
    pub const fn new(most: usize) -> Self {
        Self {
            most,
            taken: AtomicUsize::new(0),
            by_client: LazyLock::new(Arc::default),
        }
    }

    /// Takes a place for the client at `ip`. `None`: there is none left, or none for this client.
    pub fn take(&'static self, ip: IpAddr) -> Option<CompressorPlace> {
        let share = self.by_client.take(ip, 1, self.most.div_ceil(PARTS))?;
        let before = self.taken.fetch_add(1, Ordering::Relaxed);
        // The place gives back what it has counted, also one over the bound.
        let place = CompressorPlace {
            places: self,
            _share: share,
        };
        if before < self.most {
            Some(place)
        } else {
            None
        }
    }
}

impl Drop for CompressorPlace {
    fn drop(&mut self) {
        self.places.taken.fetch_sub(1, Ordering::Relaxed);
    }
}
