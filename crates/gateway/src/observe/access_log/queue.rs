//! The lines of a log that wait for its writer.
//!
//! Guarantees that a thread which adds a line does not wait, and seldom makes a system call: the
//! first line after a pause wakes the writer, which gathers the next ones by itself.

use std::sync::mpsc::SyncSender;
use std::time::Duration;

use metrics::{Counter, counter};
use parking_lot::{Condvar, Mutex};

/// The most bytes that wait.
const MOST: usize = 4 << 20;

/// Bytes of room that are kept for the next lines.
const KEPT: usize = 1 << 20;

/// The time in which the writer gathers lines after it has written some.
const GATHER: Duration = Duration::from_millis(10);

/// A queue of lines, bounded by bytes.
pub struct LineQueue {
    waiting: Mutex<WaitingLines>,
    changed: Condvar,
    dropped: Counter,
}

#[derive(Default)]
struct WaitingLines {
    lines: Vec<u8>,
    reopen: bool,
    /// Senders to notify once all lines before are written.
    flushed: Vec<SyncSender<()>>,
    is_closed: bool,
    /// The next line has to wake the writer.
    writer_sleeps: bool,
}

/// The demands that came with a batch of lines.
pub struct WriterDemands {
    pub reopen: bool,
    pub flushed: Vec<SyncSender<()>>,
    /// No line comes any more.
    pub is_last: bool,
}

impl LineQueue {
    /// An empty queue. Resolves the metric.
    pub fn new() -> Self {
        let dropped = counter!("tollgate_access_log_dropped_total");
        dropped.increment(0);
        Self::counting(dropped)
    }

    /// An empty queue, which counts lost lines in `dropped`.
    pub fn counting(dropped: Counter) -> Self {
        Self {
            waiting: Mutex::default(),
            changed: Condvar::new(),
            dropped,
        }
    }

    /// Adds a line, or counts it as dropped.
    pub fn push(&self, line: &[u8]) {
        let mut waiting = self.waiting.lock();
        if waiting.lines.len() + line.len() > MOST {
            drop(waiting);
            return self.lost(1);
        }
        waiting.lines.extend_from_slice(line);
        let wakes = std::mem::take(&mut waiting.writer_sleeps);
        drop(waiting);
        if wakes {
            self.changed.notify_one();
        }
    }

    /// Lets the writer open the destination anew.
    pub fn reopen(&self) {
        self.waiting.lock().reopen = true;
        self.changed.notify_one();
    }

    /// Notifies `written` once all present lines are written.
    pub fn flush(&self, written: SyncSender<()>) {
        self.waiting.lock().flushed.push(written);
        self.changed.notify_one();
    }

    /// Lets the writer end: no line comes any more.
    pub fn close(&self) {
        self.waiting.lock().is_closed = true;
        self.changed.notify_one();
    }

    /// Counts lines that could not be written.
    pub fn lost(&self, lines: u64) {
        if lines > 0 {
            self.dropped.increment(lines);
        }
    }

    /// Waits for lines or a demand. Leaves the lines in `lines`, whose room is used for the next.
    pub fn wait(&self, lines: &mut Vec<u8>) -> WriterDemands {
        lines.clear();
        lines.shrink_to(KEPT);
        let mut waiting = self.waiting.lock();
        if !waiting.is_demanded() {
            // No line wakes the writer meanwhile.
            self.changed.wait_for(&mut waiting, GATHER);
        }
        while waiting.lines.is_empty() && !waiting.is_demanded() {
            waiting.writer_sleeps = true;
            self.changed.wait(&mut waiting);
        }
        waiting.writer_sleeps = false;
        std::mem::swap(&mut waiting.lines, lines);
        let flushed = std::mem::take(&mut waiting.flushed);
        WriterDemands {
            reopen: std::mem::take(&mut waiting.reopen),
            flushed,
            is_last: waiting.is_closed,
        }
    }
}

impl WaitingLines {
    fn is_demanded(&self) -> bool {
        self.reopen || self.is_closed || !self.flushed.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    #[test]
    fn lines_wait_up_to_a_bound_and_come_in_order() {
        let queue = LineQueue::new();
        queue.push(b"a\n");
        queue.push(&vec![b'b'; MOST]);
        queue.push(b"c\n");
        let (written, _done) = sync_channel(1);
        queue.flush(written);
        queue.close();
        let mut lines = b"former".to_vec();
        let demands = queue.wait(&mut lines);
        assert_eq!(lines, b"a\nc\n");
        assert_eq!(
            (demands.flushed.len(), demands.is_last, demands.reopen),
            (1, true, false)
        );
    }

    #[test]
    fn a_line_wakes_a_writer_that_sleeps() {
        let queue = std::sync::Arc::new(LineQueue::new());
        let writer = std::thread::spawn({
            let queue = queue.clone();
            move || {
                let mut lines = Vec::new();
                queue.wait(&mut lines);
                lines
            }
        });
        while !queue.waiting.lock().writer_sleeps {
            std::thread::yield_now();
        }
        queue.push(b"a\n");
        assert_eq!(writer.join().unwrap(), b"a\n");
    }
}
