//! Places for compressors: a process has a bounded number of them at a time.
//!
//! Guarantees that clients who do not read their answers cannot make the process hold more memory
//! than that.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Compressors of a process at a time: half a GiB of br, the largest of them.
const MOST: usize = 512;

/// The places of this process.
pub static PLACES: CompressorPlaces = CompressorPlaces::new(MOST);

/// A number of places.
#[derive(Debug)]
pub struct CompressorPlaces {
    most: usize,
    taken: AtomicUsize,
}

/// A place, until it is dropped.
#[derive(Debug)]
pub struct CompressorPlace(&'static CompressorPlaces);

impl CompressorPlaces {
    pub const fn new(most: usize) -> Self {
        Self {
            most,
            taken: AtomicUsize::new(0),
        }
    }

    /// Takes a place. `None`: there is none left.
    pub fn take(&'static self) -> Option<CompressorPlace> {
        let before = self.taken.fetch_add(1, Ordering::Relaxed);
        // The place gives back what it has counted, also one over the bound.
        let place = CompressorPlace(self);
        if before < self.most {
            Some(place)
        } else {
            None
        }
    }
}

impl Drop for CompressorPlace {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}
