//! The access log, on standard output.
//!
//! Guarantees that no request waits for it: lines go through a bounded queue to a thread of its own. A line that does not fit
//! is dropped and counted.

use std::io::{self, BufWriter, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use metrics::{Counter, counter};
use serde::Serialize;

/// The most lines that wait for the writer.
const QUEUE: usize = 8192;

/// The longest that the end of the process waits for the log's reader.
const FLUSH: Duration = Duration::from_secs(1);

/// A handle of the access log.
#[derive(Clone)]
pub struct AccessLog {
    lines: SyncSender<AccessLogEntry>,
    dropped: Counter,
}

/// A message to the writer.
enum AccessLogEntry {
    Line(Vec<u8>),
    /// To be answered once all lines before it are written.
    Flush(SyncSender<()>),
}

impl AccessLog {
    /// Starts the thread that writes lines to standard output.
    pub fn start() -> io::Result<Self> {
        let (lines, queue) = sync_channel(QUEUE);
        thread::Builder::new().name("access-log".to_owned()).spawn(move || write_lines(&queue, io::stdout().lock()))?;
        Ok(Self { lines, dropped: counter!("tollgate_access_log_dropped_total") })
    }

    /// Hands one record over, or counts it as dropped.
    pub fn record(&self, record: &impl Serialize) {
        let sent = serde_json::to_vec(record).is_ok_and(|line| self.lines.try_send(AccessLogEntry::Line(line)).is_ok());
        if !sent {
            self.dropped.increment(1);
        }
    }

    /// Waits until every recorded line is written, for a second at most.
    pub fn flush(&self) {
        let (written, done) = sync_channel(1);
        // A reader of our output that is gone or stuck must not keep the process from ending.
        if self.lines.try_send(AccessLogEntry::Flush(written)).is_ok() {
            let _ = done.recv_timeout(FLUSH);
        }
    }
}

/// Writes until every sender is gone; flushes whenever the queue runs dry.
fn write_lines(queue: &Receiver<AccessLogEntry>, out: impl Write) {
    let mut out = BufWriter::with_capacity(64 * 1024, out);
    while let Ok(first) = queue.recv() {
        let mut written = write_entry(&mut out, first);
        while let Ok(entry) = queue.try_recv() {
            written = written.and_then(|()| write_entry(&mut out, entry));
        }
        if written.and_then(|()| out.flush()).is_err() {
            return;
        }
    }
}

fn write_entry(out: &mut impl Write, entry: AccessLogEntry) -> io::Result<()> {
    match entry {
        AccessLogEntry::Line(mut line) => {
            line.push(b'\n');
            out.write_all(&line)
        }
        AccessLogEntry::Flush(written) => {
            out.flush()?;
            let _ = written.try_send(());
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_one_line_a_record() {
        let (lines, queue) = sync_channel(2);
        lines.send(AccessLogEntry::Line(b"{}".to_vec())).unwrap();
        lines.send(AccessLogEntry::Line(b"[]".to_vec())).unwrap();
        drop(lines);
        let mut out = Vec::new();
        write_lines(&queue, &mut out);
        assert_eq!(out, b"{}\n[]\n");
    }

    #[test]
    fn a_flush_is_answered_once_the_lines_before_it_are_written() {
        let (lines, queue) = sync_channel(2);
        let (written, done) = sync_channel(1);
        lines.send(AccessLogEntry::Line(b"{}".to_vec())).unwrap();
        lines.send(AccessLogEntry::Flush(written)).unwrap();
        drop(lines);
        let mut out = Vec::new();
        write_lines(&queue, &mut out);
        assert_eq!((out.as_slice(), done.try_recv()), (b"{}\n".as_slice(), Ok(())));
    }
}
