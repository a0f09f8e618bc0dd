//! Logs: the program's own on standard error, the access log on standard output.
//!
//! The access log never makes a request wait: lines go to a thread of its own through a bounded queue, and are counted
//! when they do not fit.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use metrics::{Counter, counter};
use serde::Serialize;
use tracing_subscriber::EnvFilter;

/// How the program's own log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Lines that wait for the writer at most.
const QUEUE: usize = 8192;

/// Where access log lines go.
#[derive(Clone)]
pub struct AccessLog {
    lines: SyncSender<Vec<u8>>,
    dropped: Counter,
}

/// Starts the program's own log. `filter` is a level or a list such as `info,tollgate::proxy=debug`.
pub fn install(format: LogFormat, filter: &str) -> anyhow::Result<()> {
    let builder = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::try_new(filter)?)
        .with_ansi(io::stderr().is_terminal())
        .with_writer(io::stderr);
    let installed = match format {
        LogFormat::Text => builder.with_target(false).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    installed.map_err(|error| anyhow::anyhow!("cannot start the log: {error}"))
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
        let sent = serde_json::to_vec(record).is_ok_and(|line| self.lines.try_send(line).is_ok());
        if !sent {
            self.dropped.increment(1);
        }
    }
}

/// Writes until every sender is gone; flushes whenever the queue runs dry.
fn write_lines(queue: &Receiver<Vec<u8>>, out: impl Write) {
    let mut out = BufWriter::with_capacity(64 * 1024, out);
    while let Ok(first) = queue.recv() {
        let mut written = write_line(&mut out, first);
        while let Ok(line) = queue.try_recv() {
            written = written.and_then(|()| write_line(&mut out, line));
        }
        if written.and_then(|()| out.flush()).is_err() {
            return;
        }
    }
}

fn write_line(out: &mut impl Write, mut line: Vec<u8>) -> io::Result<()> {
    line.push(b'\n');
    out.write_all(&line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_one_line_a_record() {
        let (lines, queue) = sync_channel(2);
        lines.send(b"{}".to_vec()).unwrap();
        lines.send(b"[]".to_vec()).unwrap();
        drop(lines);
        let mut out = Vec::new();
        write_lines(&queue, &mut out);
        assert_eq!(out, b"{}\n[]\n");
    }
}
