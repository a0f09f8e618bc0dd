//! The processes that ask a running gateway for its listening sockets, answered until one of them
//! serves.
//!
//! Guarantees that of several exactly one takes over, and that one which hangs keeps no other from
//! it.

#[cfg(test)]
mod tests;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;

use super::inherited::SocketGroup;
use super::message::{HandoverMessage, HandoverStream, MOST_DESCRIPTORS, PROMPT, PROTOCOL};
use super::take_over_right::TakeOverRight;

/// Pause after a hand-over could not be accepted.
const PAUSE: Duration = Duration::from_millis(100);

/// Duplicates of the listening sockets, open while connections are accepted and no longer.
#[derive(Default)]
pub struct OfferedSockets {
    pub listeners: Vec<SocketGroup>,
    /// The sockets of the admin server, by the addresses that the file has.
    pub admin: Vec<(SocketAddr, TcpListener)>,
}

/// The successor, once it serves.
#[derive(Clone, Copy, Debug)]
pub struct Successor {
    /// `None`: the successor did not wait for an answer.
    pub pid: Option<u32>,
}

/// The sockets on offer, and the processes that have them.
pub struct OfferState {
    pub sockets: Option<Arc<OfferedSockets>>,
    /// The processes that have the sockets, and may begin to serve.
    pub starting: Vec<u32>,
}

/// The processes that ask for the sockets. Several may have them at a time, and the first that
/// serves takes over: a process that hangs keeps no other from it.
pub struct HandoverAttempts {
    listener: UnixListener,
    right: TakeOverRight,
    state: Arc<Mutex<OfferState>>,
    processes: Vec<AskingProcess>,
}

/// A process at the other end of a stream.
struct AskingProcess {
    stream: HandoverStream,
    /// The process that has the sockets, and does not serve yet. `None`: it has not asked for them.
    pid: Option<u32>,
}

/// The result of looking at what a process said.
enum HandoverStep {
    /// The process has more to say.
    Waits,
    Ended,
    TakenOver(Successor),
}

impl HandoverAttempts {
    /// Answers processes that ask at `listener` for what is on offer.
    pub fn new(
        listener: UnixListener,
        right: TakeOverRight,
        state: Arc<Mutex<OfferState>>,
    ) -> Self {
        Self {
            listener,
            right,
            state,
            processes: Vec::new(),
        }
    }

    /// Answers processes until one has taken over.
    pub fn run(mut self) -> Successor {
        loop {
            match self.next() {
                Ok(Some(successor)) => return successor,
                Ok(None) => {}
                // Out of descriptors, perhaps: a successor tries again.
                Err(error) => {
                    tracing::warn!(%error, "a hand-over was not accepted");
                    thread::sleep(PAUSE);
                }
            }
        }
    }

    /// Waits until something comes, and answers it. Returns the process that has taken over.
    fn next(&mut self) -> io::Result<Option<Successor>> {
        let mut sources = vec![PollFd::new(&self.listener, PollFlags::IN)];
        for process in &self.processes {
            let descriptor = process.stream.as_fd();
            sources.push(PollFd::from_borrowed_fd(descriptor, PollFlags::IN));
        }
        retry_on_intr(|| poll(&mut sources, None))?;
        let is_ready: Vec<bool> = sources
            .iter()
            .map(|source| !source.revents().is_empty())
            .collect();
        // From the last: taking one out leaves those before it where they are.
        for index in (0..self.processes.len()).rev() {
            if !is_ready[index + 1] {
                continue;
            }
            let mut process = self.processes.remove(index);
            match self.answer(&mut process) {
                Ok(HandoverStep::Waits) => self.processes.insert(index, process),
                Ok(HandoverStep::Ended) => {}
                Ok(HandoverStep::TakenOver(successor)) => return Ok(Some(successor)),
                Err(error) => log_failure(&error),
            }
        }
        let starting = self.processes.iter().filter_map(|process| process.pid);
        self.state.lock().starting = starting.collect();
        if is_ready[0] {
            match self.listener.accept() {
                Ok((stream, _)) => self.begin(stream)?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    fn begin(&mut self, stream: UnixStream) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        let stream = HandoverStream::new(stream);
        if stream.is_of_same_user() {
            self.processes.push(AskingProcess { stream, pid: None });
        } else {
            log_failure(&anyhow::anyhow!("another user asked for it"));
        }
        Ok(())
    }

    /// Answers a process that has said something. However long another takes to, this one does not
    /// wait.
    fn answer(&mut self, process: &mut AskingProcess) -> anyhow::Result<HandoverStep> {
        if !process.stream.read_some()? {
            return Ok(HandoverStep::Waits);
        }
        match (process.pid, process.stream.receive(Some(PROMPT))?) {
            (None, Some(HandoverMessage::TakeOver { protocol, pid })) => {
                if protocol != PROTOCOL {
                    let reason =
                        format!("it speaks version {PROTOCOL} of hand-overs, not {protocol}");
                    refuse(&mut process.stream, &reason)?;
                    anyhow::bail!(reason);
                }
                if self.hand_over(&mut process.stream, pid)? {
                    process.pid = Some(pid);
                    Ok(HandoverStep::Waits)
                } else {
                    Ok(HandoverStep::Ended)
                }
            }
            // A gateway that starts looks whether anybody is here.
            (None, None) => Ok(HandoverStep::Ended),
            (None, Some(other)) => anyhow::bail!("it was asked for by {other:?}"),
            (Some(pid), Some(HandoverMessage::Serving)) => self.release(&mut process.stream, pid),
            (Some(_), Some(other)) => {
                anyhow::bail!("the other gateway said {other:?} instead of serving")
            }
            (Some(_), None) => anyhow::bail!("the other gateway ended before it served"),
        }
    }

    /// Gives the sockets to the process `pid`. False: this gateway is stopping, and keeps them.
    fn hand_over(&self, stream: &mut HandoverStream, pid: u32) -> io::Result<bool> {
        let sockets = {
            let mut state = self.state.lock();
            if state.sockets.is_some() {
                state.starting.push(pid);
            }
            state.sockets.clone()
        };
        let Some(sockets) = sockets else {
            refuse(stream, "it is stopping")?;
            return Ok(false);
        };
        tracing::info!(pid, "handing the listening sockets over");
        send_all(stream, self, &sockets)?;
        Ok(true)
    }

    /// Leaves the sockets to the process that is the first to serve.
    fn release(&mut self, stream: &mut HandoverStream, pid: u32) -> anyhow::Result<HandoverStep> {
        if self.right.take()? {
            self.refuse_others(&format!("the process {pid} has taken over meanwhile"));
            // Nobody asks here any more, once the successor knows.
            let _ = stream.send(&HandoverMessage::Draining, &[]);
            return Ok(HandoverStep::TakenOver(Successor { pid: Some(pid) }));
        }
        // A process that was not answered in time has taken over.
        let reason = "another process has taken over meanwhile";
        self.refuse_others(reason);
        let _ = refuse(stream, reason);
        Ok(HandoverStep::TakenOver(Successor { pid: None }))
    }

    /// Tells the processes that do not serve yet that they are too late.
    fn refuse_others(&mut self, reason: &str) {
        for mut process in self.processes.drain(..) {
            if let Some(pid) = process.pid {
                tracing::warn!(
                    pid,
                    "a process is too late to take over: end it if it does not end by itself"
                );
            }
            if let Err(error) = refuse(&mut process.stream, reason) {
                tracing::debug!(%error, pid = process.pid, "a process was not told that it is too late");
            }
        }
    }
}

fn log_failure(error: &anyhow::Error) {
    tracing::warn!(error = %format!("{error:#}"), "a hand-over failed: nothing changes");
}

fn refuse(stream: &mut HandoverStream, reason: &str) -> io::Result<()> {
    let reason = reason.to_owned();
    stream.send(&HandoverMessage::Refused { reason }, &[])
}

fn send_all(
    stream: &mut HandoverStream,
    own: &HandoverAttempts,
    sockets: &OfferedSockets,
) -> io::Result<()> {
    for SocketGroup {
        configured,
        name,
        sockets,
    } in &sockets.listeners
    {
        let Some(configured) = configured else {
            continue;
        };
        for some in sockets.chunks(MOST_DESCRIPTORS) {
            let descriptors: Vec<BorrowedFd<'_>> = some.iter().map(AsFd::as_fd).collect();
            let line = HandoverMessage::Listener {
                configured: configured.clone(),
                name: name.clone(),
                descriptors: descriptors.len(),
            };
            stream.send(&line, &descriptors)?;
        }
    }
    for (configured, socket) in &sockets.admin {
        stream.send(
            &HandoverMessage::Admin {
                configured: *configured,
                descriptors: 1,
            },
            &[socket.as_fd()],
        )?;
    }
    let last = [own.listener.as_fd(), own.right.as_fd()];
    stream.send(
        &HandoverMessage::Handover {
            pid: std::process::id(),
            descriptors: last.len(),
        },
        &last,
    )
}
