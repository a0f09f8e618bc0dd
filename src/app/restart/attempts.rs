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

/// Duplicates of the listening sockets. They stay open while connections are accepted, and no
/// longer.
#[derive(Default)]
pub struct OfferedSockets {
    pub listeners: Vec<SocketGroup>,
    /// Each of the admin server, by the address that the file has.
    pub admin: Vec<(SocketAddr, TcpListener)>,
}

/// The successor, once it serves.
#[derive(Clone, Copy, Debug)]
pub struct Successor {
    /// Unknown, if it did not wait until it was answered.
    pub pid: Option<u32>,
}

/// The sockets on offer, and the processes that have them.
pub struct OfferState {
    pub sockets: Option<Arc<OfferedSockets>>,
    /// The processes that have them, and may begin to serve.
    pub starting: Vec<u32>,
}

/// The processes that ask for the sockets. Several may have them at a time, so one that hangs keeps
/// no other from taking over: the first that serves does.
pub struct HandoverAttempts {
    listener: UnixListener,
    right: TakeOverRight,
    state: Arc<Mutex<OfferState>>,
    processes: Vec<AskingProcess>,
}

/// A process at the other end of a stream.
struct AskingProcess {
    stream: HandoverStream,
    /// Of one that has asked for the sockets. It has them, and does not serve yet.
    pid: Option<u32>,
}

/// The result of looking at what a process said.
enum HandoverStep {
    /// It has more to say.
    Waits,
    Ended,
    TakenOver(Successor),
}

impl HandoverAttempts {
    /// Answers those who ask at `listener` for what is on offer.
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
        sources.extend(
            self.processes
                .iter()
                .map(|process| PollFd::from_borrowed_fd(process.stream.as_fd(), PollFlags::IN)),
        );
        retry_on_intr(|| poll(&mut sources, None))?;
        let is_ready: Vec<bool> = sources
            .iter()
            .map(|source| !source.revents().is_empty())
            .collect();
        // From the last: taking one out leaves those before it where they are.
        for index in (0..self.processes.len())
            .rev()
            .filter(|index| is_ready[index + 1])
        {
            let mut process = self.processes.remove(index);
            match self.answer(&mut process) {
                Ok(HandoverStep::Waits) => self.processes.insert(index, process),
                Ok(HandoverStep::Ended) => {}
                Ok(HandoverStep::TakenOver(successor)) => return Ok(Some(successor)),
                Err(error) => log_failure(&error),
            }
        }
        self.state.lock().starting = self
            .processes
            .iter()
            .filter_map(|process| process.pid)
            .collect();
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
                process.pid = hand_over(&mut process.stream, (protocol, pid), self)?;
                Ok(if process.pid.is_some() {
                    HandoverStep::Waits
                } else {
                    HandoverStep::Ended
                })
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

    /// Leaves the sockets to the process that is the first to serve.
    fn release(&mut self, stream: &mut HandoverStream, pid: u32) -> anyhow::Result<HandoverStep> {
        let successor = self.right.take()?.then_some(pid);
        let reason = match successor {
            Some(pid) => format!("the process {pid} has taken over meanwhile"),
            // It was not answered in time.
            None => "another process has taken over meanwhile".to_owned(),
        };
        self.refuse_others(&reason);
        let answer = if successor.is_some() {
            HandoverMessage::Draining
        } else {
            HandoverMessage::Refused { reason }
        };
        // Nobody asks here any more, once the successor knows.
        let _ = stream.send(&answer, &[]);
        Ok(HandoverStep::TakenOver(Successor { pid: successor }))
    }

    /// Tells those that do not serve yet that they are too late.
    fn refuse_others(&mut self, reason: &str) {
        for mut process in self.processes.drain(..) {
            if let Some(pid) = process.pid {
                tracing::warn!(
                    pid,
                    "a process is too late to take over: end it if it does not end by itself"
                );
            }
            if let Err(error) = process.stream.send(
                &HandoverMessage::Refused {
                    reason: reason.to_owned(),
                },
                &[],
            ) {
                tracing::debug!(%error, pid = process.pid, "a process was not told that it is too late");
            }
        }
    }
}

fn log_failure(error: &anyhow::Error) {
    tracing::warn!(error = %format!("{error:#}"), "a hand-over failed: nothing changes");
}

/// Gives the sockets to a process that has asked for them. `None`: it does not get them.
fn hand_over(
    stream: &mut HandoverStream,
    (protocol, pid): (u32, u32),
    own: &HandoverAttempts,
) -> anyhow::Result<Option<u32>> {
    if protocol != PROTOCOL {
        let reason = format!("it speaks version {PROTOCOL} of hand-overs, not {protocol}");
        stream.send(
            &HandoverMessage::Refused {
                reason: reason.clone(),
            },
            &[],
        )?;
        anyhow::bail!(reason);
    }
    let sockets = {
        let mut state = own.state.lock();
        if state.sockets.is_some() {
            state.starting.push(pid);
        }
        state.sockets.clone()
    };
    let Some(sockets) = sockets else {
        stream.send(
            &HandoverMessage::Refused {
                reason: "it is stopping".to_owned(),
            },
            &[],
        )?;
        return Ok(None);
    };
    tracing::info!(pid, "handing the listening sockets over");
    send_all(stream, own, &sockets)?;
    Ok(Some(pid))
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
            let (configured, name) = (configured.clone(), name.clone());
            let line = HandoverMessage::Listener {
                configured,
                name,
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
