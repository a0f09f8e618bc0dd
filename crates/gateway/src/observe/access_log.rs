//! The access log: lines of requests, on their way to a stream, a file or a socket. `spec` has the
//! format and the destination, `queue` holds lines and `output` writes them: to a file as a
//! `line_stream`, by `connection` over TCP or by datagrams to a `syslog`. `receiver` finds
//! addresses by names. `timestamp` has the forms of the time.
//!
//! Guarantees that no request waits for the log: lines go through a bounded queue to a thread of
//! its own. A line that does not fit or cannot be written is dropped and counted.

mod connection;
mod line_stream;
pub(super) mod output;
pub(super) mod queue;
mod receiver;
mod syslog;
pub mod timestamp;

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use self::line_stream::WriteOutcome;
use self::output::LogOutput;
use self::queue::{LineQueue, WriterDemands};
use tollgate_spec::access_log::AccessLogSpec;

/// The longest that the end of the process waits for the log's reader.
const FLUSH: Duration = Duration::from_secs(1);

/// Bytes of room that a thread keeps for its next line.
const KEPT_LINE: usize = 4096;

/// A handle of the access log.
#[derive(Clone)]
pub struct AccessLog(Arc<RunningLog>);

struct RunningLog {
    spec: AccessLogSpec,
    writer: Arc<LogWriter>,
}

/// The thread that writes. Ends once this is dropped and all lines are written.
struct LogWriter(Arc<LineQueue>);

thread_local! {
    /// The line that this thread is writing.
    static LINE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl AccessLog {
    /// The log that `spec` describes. A `running` log with the same destination goes on.
    ///
    /// # Errors
    /// The file cannot be opened, or the thread cannot be started.
    pub fn start(spec: &AccessLogSpec, running: Option<&Self>) -> io::Result<Self> {
        let writer = match running {
            Some(running) if running.0.spec.to == spec.to => running.0.writer.clone(),
            Some(_) | None => Arc::new(LogWriter::start(spec)?),
        };
        Ok(Self(Arc::new(RunningLog {
            spec: spec.clone(),
            writer,
        })))
    }

    pub fn spec(&self) -> &AccessLogSpec {
        &self.0.spec
    }

    /// Records the line that `write` writes, without its end.
    pub fn record(&self, write: impl FnOnce(&mut Vec<u8>)) {
        let queue = &self.0.writer.0;
        let written = LINE.try_with(|line| {
            let mut line = line.borrow_mut();
            line.clear();
            write(&mut line);
            line.push(b'\n');
            queue.push(&line);
            if line.capacity() > KEPT_LINE {
                *line = Vec::new();
            }
        });
        // A thread that ends has no line any more.
        if written.is_err() {
            queue.lost(1);
        }
    }

    /// Opens the file anew: the former one was moved away.
    pub fn reopen(&self) {
        self.0.writer.0.reopen();
    }

    /// Waits until every recorded line is written, for a second at most.
    pub fn flush(&self) {
        let (written, done) = sync_channel(1);
        self.0.writer.0.flush(written);
        // A reader of our output that is gone or stuck must not keep the process from ending.
        let _ = done.recv_timeout(FLUSH);
    }
}

impl LogWriter {
    fn start(spec: &AccessLogSpec) -> io::Result<Self> {
        let queue = Arc::new(LineQueue::new());
        let output = LogOutput::open(&spec.to)?;
        let lines = queue.clone();
        let to = spec.to.to_string();
        thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || write_lines(&lines, output, &to))?;
        Ok(Self(queue))
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Writes until the queue is closed and empty.
fn write_lines(queue: &LineQueue, mut output: LogOutput, to: &str) {
    let mut lines = Vec::new();
    let mut is_failing = false;
    loop {
        let WriterDemands {
            reopen,
            flushed,
            is_last,
        } = queue.wait(&mut lines);
        if reopen {
            output.reopen();
        }
        if !lines.is_empty() {
            let WriteOutcome { lost, error } = output.write(&lines);
            queue.lost(lost);
            if let Some(error) = &error
                && !is_failing
            {
                tracing::error!(to, %error, "the access log cannot be written: lines are lost");
            }
            if error.is_none() && is_failing {
                tracing::info!(to, "the access log is written again");
            }
            is_failing = error.is_some();
        }
        for written in flushed {
            let _ = written.try_send(());
        }
        if is_last {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use tollgate_limiter::limit::rollout::Rollout;

    use super::*;
    use tollgate_spec::access_log::{AccessLogFormat, LogDestination};

    fn spec(to: LogDestination) -> AccessLogSpec {
        AccessLogSpec {
            format: AccessLogFormat::Json,
            to,
            sample: Rollout::ALL,
        }
    }

    fn record(log: &AccessLog, text: &str) {
        log.record(|line| line.extend_from_slice(text.as_bytes()));
    }

    #[test]
    fn a_file_gets_every_line_and_is_opened_anew_on_demand() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let moved = folder.path().join("access.log.1");
        let log = AccessLog::start(&spec(LogDestination::File(path.clone())), None).unwrap();
        record(&log, "one");
        log.flush();
        std::fs::rename(&path, &moved).unwrap();
        record(&log, "two");
        log.flush();
        log.reopen();
        record(&log, "three");
        log.flush();
        assert_eq!(std::fs::read_to_string(moved).unwrap(), "one\ntwo\n");
        assert_eq!(std::fs::read_to_string(path).unwrap(), "three\n");
    }

    #[test]
    fn a_log_to_another_destination_writes_what_it_has_and_ends() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let first = AccessLog::start(&spec(LogDestination::File(path.clone())), None).unwrap();
        record(&first, "one");
        let other = spec(LogDestination::File(folder.path().join("b")));
        let second = AccessLog::start(&other, Some(&first)).unwrap();
        let same = AccessLog::start(&other, Some(&second)).unwrap();
        assert!(Arc::ptr_eq(&second.0.writer, &same.0.writer));
        let queue = Arc::downgrade(&first.0.writer.0);
        drop(first);
        while queue.upgrade().is_some() {
            thread::yield_now();
        }
        assert_eq!(std::fs::read(path).unwrap(), b"one\n");
    }
}
