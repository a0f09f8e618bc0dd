//! The streams of a connection in numbers, from which a GOAWAY is understood.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The streams of a connection so far.
pub struct StreamCounts {
    begun: AtomicUsize,
    /// Streams that the upstream has not processed, since it was about to close the connection.
    unprocessed: AtomicUsize,
    /// Streams that the upstream has refused one by one.
    refused: AtomicUsize,
    /// Streams before the first unprocessed one.
    processed: AtomicUsize,
}

impl Default for StreamCounts {
    fn default() -> Self {
        Self {
            begun: AtomicUsize::new(0),
            unprocessed: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
            processed: AtomicUsize::new(usize::MAX),
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

    /// Counts a stream that was not processed, with `before` streams in front of it. Returns how
    /// many were processed, as far as is known.
    pub fn count_unprocessed(&self, before: usize) -> usize {
        self.unprocessed.fetch_add(1, Ordering::Relaxed);
        self.processed
            .fetch_min(before, Ordering::Relaxed)
            .min(before)
    }

    pub fn count_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether the upstream has processed no stream.
    pub fn are_in_vain(&self) -> bool {
        self.unprocessed.load(Ordering::Relaxed) + self.refused.load(Ordering::Relaxed)
            >= self.begun()
    }
}
