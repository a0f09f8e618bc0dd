//! The streams of a connection in numbers: what a GOAWAY tells about the connection, and about
//! later ones.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The streams of a connection so far.
pub struct StreamCounts {
    begun: AtomicUsize,
    /// Those of them that the upstream has not processed, since it was about to close the
    /// connection.
    unprocessed: AtomicUsize,
    /// Those that it has refused one by one.
    refused: AtomicUsize,
    /// Those before the first of the unprocessed ones.
    processed: AtomicUsize,
}

impl Default for StreamCounts {
    fn default() -> Self {
        let processed = AtomicUsize::new(usize::MAX);
        Self {
            begun: AtomicUsize::new(0),
            unprocessed: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
            processed,
        }
    }
}

impl StreamCounts {
    pub fn begin(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of streams that were begun.
    pub fn begun(&self) -> usize {
        self.begun.load(Ordering::Relaxed)
    }

    /// A stream was not processed, with `before` streams in front of it. Returns how many were
    /// processed, as far as is known.
    pub fn count_unprocessed(&self, before: usize) -> usize {
        self.unprocessed.fetch_add(1, Ordering::Relaxed);
        self.processed
            .fetch_min(before, Ordering::Relaxed)
            .min(before)
    }

    pub fn count_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether the upstream has processed none of them.
    pub fn are_in_vain(&self) -> bool {
        self.unprocessed.load(Ordering::Relaxed) + self.refused.load(Ordering::Relaxed)
            >= self.begun()
    }
}
