//! The way of the program's own log to standard error.
//!
//! Guarantees that code which logs does not wait for the log's reader: lines go through a bounded
//! queue to a thread of its own. Lines that do not fit, or cannot be written, are counted.

use std::io;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use metrics::{Counter, counter};
use tracing_subscriber::fmt::MakeWriter;

use crate::observe::access_log::output::LogOutput;
use crate::observe::access_log::queue::{LineQueue, WriterDemands};
use crate::observe::logging::line_budget::LineBudget;
use tollgate_spec::access_log::LogDestination;

/// The longest that the end of the process waits for the log's reader.
const FLUSH: Duration = Duration::from_secs(1);

/// The log of this process, once it has one.
static LOG: OnceLock<BackgroundLog> = OnceLock::new();

/// Lines on their way to standard error.
#[derive(Clone)]
pub struct BackgroundLog {
    queue: Arc<LineQueue>,
    lost: Arc<AtomicU64>,
}

/// The end of the log. The drop writes the remaining lines, for a second at most.
#[must_use = "lines that wait are written when it is dropped"]
pub struct LogEnd(());

/// The lines of the program's own log that were lost, as a metric.
pub struct LostLogLines(Counter);

impl BackgroundLog {
    fn new() -> Self {
        let lost = Arc::new(AtomicU64::new(0));
        // The recorder of the metrics is not there yet.
        Self {
            queue: Arc::new(LineQueue::counting(Counter::from_arc(lost.clone()))),
            lost,
        }
    }

    /// The log of the process. Its lines wait until the [writer is started](start_writer).
    pub fn global() -> &'static Self {
        LOG.get_or_init(Self::new)
    }

    fn write_lines(&self, mut output: LogOutput) {
        let mut lines = Vec::new();
        let mut reported = 0;
        loop {
            let WriterDemands {
                flushed, is_last, ..
            } = self.queue.wait(&mut lines);
            if !lines.is_empty() {
                self.queue.lost(output.write(&lines).lost);
                let lost = self.lost.load(Relaxed);
                if lost > reported {
                    tracing::warn!(
                        lines = lost - reported,
                        "lines of this log were lost: its reader is too slow, or was away"
                    );
                    reported = lost;
                }
            }
            for written in flushed {
                let _ = written.try_send(());
            }
            if is_last {
                return;
            }
        }
    }
}

/// Starts the thread that writes the log of this process. Before, lines wait.
///
/// # Errors
/// There is no descriptor or thread left.
pub fn start_writer() -> io::Result<()> {
    let log = BackgroundLog::global();
    let output = LogOutput::open(&LogDestination::Stderr)?;
    thread::Builder::new()
        .name("log".to_owned())
        .spawn(move || log.write_lines(output))?;
    Ok(())
}

impl LogEnd {
    /// The end of the process's log.
    pub fn new() -> Self {
        Self(())
    }
}

impl Default for LogEnd {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for LogEnd {
    fn drop(&mut self) {
        LineBudget::global().report_all();
        let (written, done) = sync_channel(1);
        BackgroundLog::global().queue.flush(written);
        // A reader that is stuck must not keep the process from ending.
        let _ = done.recv_timeout(FLUSH);
    }
}

impl LostLogLines {
    /// The lost lines of the process's log. Resolves the metric.
    pub fn new() -> Self {
        Self(counter!("tollgate_log_dropped_total"))
    }

    /// Brings the metric up to date.
    pub fn record(&self) {
        self.0.absolute(BackgroundLog::global().lost.load(Relaxed));
    }
}

impl Default for LostLogLines {
    fn default() -> Self {
        Self::new()
    }
}

/// Adds lines to the queue. The log writes each line at once, with its end.
impl io::Write for &BackgroundLog {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.queue.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for BackgroundLog {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> &'a Self {
        self
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn lines_that_nobody_takes_are_counted() {
        let log = BackgroundLog::new();
        (&log).write_all(b"one\ntwo\n").unwrap();
        (&log).write_all(&[b'x'; 5 << 20]).unwrap();
        assert_eq!(
            log.lost.load(Relaxed),
            1,
            "there is no room for the last one"
        );
        log.queue.close();
        log.write_lines(LogOutput::open(&LogDestination::File("/dev/full".into())).unwrap());
        assert_eq!(log.lost.load(Relaxed), 3);
    }

    #[test]
    fn lines_are_written_in_order_and_to_the_last_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let log = BackgroundLog::new();
        let text: String = (0..1000).map(|number| format!("{number}\n")).collect();
        text.split_inclusive('\n')
            .for_each(|line| (&log).write_all(line.as_bytes()).unwrap());
        log.queue.close();
        log.write_lines(LogOutput::open(&LogDestination::File(path.clone())).unwrap());
        assert_eq!(std::fs::read_to_string(path).unwrap(), text);
    }
}
