//! The side of a hand-over that is taken over: gives its listening sockets to the process that asks for them, and goes on
//! serving until that one says that it serves.
//!
//! Guarantees that a successor which fails to start changes nothing.

#[cfg(test)]
mod tests;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;
use tokio::sync::oneshot;

use super::inherited::SocketGroup;
use super::message::{HandoverMessage, HandoverStream, MOST_DESCRIPTORS, PROMPT, PROTOCOL};
use super::take_over_right::TakeOverRight;
use crate::transport::listening_socket::bind_unix;

/// Pause after a hand-over could not be accepted.
const PAUSE: Duration = Duration::from_millis(100);

/// Where a successor asks, and what it gets.
pub struct HandoverPoint {
    path: PathBuf,
    listener: UnixListener,
    right: TakeOverRight,
}

/// Duplicates of the listening sockets. They stay open while connections are accepted, and no longer.
#[derive(Default)]
pub struct OfferedSockets {
    pub listeners: Vec<SocketGroup>,
    pub admin: Option<(SocketAddr, TcpListener)>,
}

/// The successor, once it serves.
#[derive(Clone, Copy, Debug)]
pub struct Successor {
    /// Unknown, if it did not wait until it was answered.
    pub pid: Option<u32>,
}

/// An offer of which nobody knows yet: a process that takes over is asked for nothing before it has.
pub struct PreparedOffer {
    opening: mpsc::Sender<()>,
    successor: oneshot::Receiver<Successor>,
    offer: HandoverOffer,
}

/// The processes that ask for the sockets. Several may have them at a time, so one that hangs keeps no other from
/// taking over: the first that serves does.
struct HandoverAttempts {
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

/// The sockets on offer. Withdrawn when the gateway stops for another reason.
pub struct HandoverOffer {
    state: Arc<Mutex<OfferState>>,
    path: PathBuf,
}

struct OfferState {
    sockets: Option<Arc<OfferedSockets>>,
    /// The processes that have them, and may begin to serve.
    starting: Vec<u32>,
}

impl HandoverPoint {
    /// Listens at `path`, or goes on with the socket of the predecessor.
    ///
    /// # Errors
    /// When another gateway listens there, or the path cannot be had.
    pub fn open(path: &Path, handed_over: Option<UnixListener>) -> anyhow::Result<Self> {
        let listener = match handed_over {
            Some(listener) => listener,
            None => bind(path).with_context(|| format!("cannot listen at {} for a hand-over", path.display()))?,
        };
        // Another process may accept what this one has heard of.
        listener.set_nonblocking(true)?;
        Ok(Self { path: path.to_owned(), listener, right: TakeOverRight::create()? })
    }

    /// Puts `sockets` on offer, to processes that ask from [`PreparedOffer::open`] on.
    ///
    /// # Errors
    /// When the thread that answers cannot be started.
    pub fn offer(self, sockets: OfferedSockets) -> io::Result<PreparedOffer> {
        let state = OfferState { sockets: Some(Arc::new(sockets)), starting: Vec::new() };
        let state = Arc::new(Mutex::new(state));
        let (listener, right) = (self.listener, self.right);
        let attempts = HandoverAttempts { listener, right, state: state.clone(), processes: Vec::new() };
        let ((opening, opened), (sender, successor)) = (mpsc::channel(), oneshot::channel());
        thread::Builder::new().name("handover".to_owned()).spawn(move || {
            if opened.recv().is_ok() {
                let _ = sender.send(attempts.run());
            }
        })?;
        Ok(PreparedOffer { opening, successor, offer: HandoverOffer { state, path: self.path } })
    }
}

impl PreparedOffer {
    /// Answers successors on a thread of its own, until one serves: that is received then.
    pub fn open(self) -> (oneshot::Receiver<Successor>, HandoverOffer) {
        let _ = self.opening.send(());
        (self.successor, self.offer)
    }
}

impl HandoverAttempts {
    /// Answers processes until one has taken over.
    fn run(mut self) -> Successor {
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
            self.processes.iter().map(|process| PollFd::from_borrowed_fd(process.stream.as_fd(), PollFlags::IN)),
        );
        retry_on_intr(|| poll(&mut sources, None))?;
        let is_ready: Vec<bool> = sources.iter().map(|source| !source.revents().is_empty()).collect();
        // From the last: taking one out leaves those before it where they are.
        for index in (0..self.processes.len()).rev().filter(|index| is_ready[index + 1]) {
            let mut process = self.processes.remove(index);
            match self.answer(&mut process) {
                Ok(HandoverStep::Waits) => self.processes.insert(index, process),
                Ok(HandoverStep::Ended) => {}
                Ok(HandoverStep::TakenOver(successor)) => return Ok(Some(successor)),
                Err(error) => log_failure(&error),
            }
        }
        self.state.lock().starting = self.processes.iter().filter_map(|process| process.pid).collect();
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

    /// Answers a process that has said something. However long another takes to, this one does not wait.
    fn answer(&mut self, process: &mut AskingProcess) -> anyhow::Result<HandoverStep> {
        if !process.stream.read_some()? {
            return Ok(HandoverStep::Waits);
        }
        match (process.pid, process.stream.receive(Some(PROMPT))?) {
            (None, Some(HandoverMessage::TakeOver { protocol, pid })) => {
                process.pid = hand_over(&mut process.stream, (protocol, pid), self)?;
                Ok(if process.pid.is_some() { HandoverStep::Waits } else { HandoverStep::Ended })
            }
            // A gateway that starts looks whether anybody is here.
            (None, None) => Ok(HandoverStep::Ended),
            (None, Some(other)) => anyhow::bail!("it was asked for by {other:?}"),
            (Some(pid), Some(HandoverMessage::Serving)) => self.release(&mut process.stream, pid),
            (Some(_), Some(other)) => anyhow::bail!("the other gateway said {other:?} instead of serving"),
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
        let answer = if successor.is_some() { HandoverMessage::Draining } else { HandoverMessage::Refused { reason } };
        // Nobody asks here any more, once the successor knows.
        let _ = stream.send(&answer, &[]);
        Ok(HandoverStep::TakenOver(Successor { pid: successor }))
    }

    /// Tells those that do not serve yet that they are too late.
    fn refuse_others(&mut self, reason: &str) {
        for mut process in self.processes.drain(..) {
            if let Some(pid) = process.pid {
                tracing::warn!(pid, "a process is too late to take over: end it if it does not end by itself");
            }
            if let Err(error) = process.stream.send(&HandoverMessage::Refused { reason: reason.to_owned() }, &[]) {
                tracing::debug!(%error, pid = process.pid, "a process was not told that it is too late");
            }
        }
    }
}

fn log_failure(error: &anyhow::Error) {
    tracing::warn!(error = %format!("{error:#}"), "a hand-over failed: nothing changes");
}

impl HandoverOffer {
    /// Closes the duplicates: this process accepts nothing any more, and hands nothing over. False: a process has the
    /// sockets already, and clients find it at their paths.
    pub fn withdraw(self) -> bool {
        let mut state = self.state.lock();
        state.sockets = None;
        if !state.starting.is_empty() {
            tracing::warn!(pids = ?state.starting, "processes have the sockets and do not serve yet: end those that hang");
            return false;
        }
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(%error, path = %self.path.display(), "the hand-over socket could not be removed");
        }
        true
    }

    /// Like `withdraw`, and leaves the path to the successor.
    pub fn leave_to_successor(self) {
        self.state.lock().sockets = None;
    }
}

fn bind(path: &Path) -> anyhow::Result<UnixListener> {
    bind_unix(path, 0o600).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => {
            anyhow::anyhow!("another gateway listens there: take over from it with --take-over, or stop it")
        }
        _ => error.into(),
    })
}

/// Gives the sockets to a process that has asked for them. `None`: it does not get them.
fn hand_over(
    stream: &mut HandoverStream,
    (protocol, pid): (u32, u32),
    own: &HandoverAttempts,
) -> anyhow::Result<Option<u32>> {
    if protocol != PROTOCOL {
        let reason = format!("it speaks version {PROTOCOL} of hand-overs, not {protocol}");
        stream.send(&HandoverMessage::Refused { reason: reason.clone() }, &[])?;
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
        stream.send(&HandoverMessage::Refused { reason: "it is stopping".to_owned() }, &[])?;
        return Ok(None);
    };
    tracing::info!(pid, "handing the listening sockets over");
    send_all(stream, own, &sockets)?;
    Ok(Some(pid))
}

fn send_all(stream: &mut HandoverStream, own: &HandoverAttempts, sockets: &OfferedSockets) -> io::Result<()> {
    for SocketGroup { configured, name, sockets } in &sockets.listeners {
        let Some(configured) = configured else { continue };
        for some in sockets.chunks(MOST_DESCRIPTORS) {
            let descriptors: Vec<BorrowedFd<'_>> = some.iter().map(AsFd::as_fd).collect();
            let (configured, name) = (configured.clone(), name.clone());
            let line = HandoverMessage::Listener { configured, name, descriptors: descriptors.len() };
            stream.send(&line, &descriptors)?;
        }
    }
    if let Some((configured, socket)) = &sockets.admin {
        stream.send(&HandoverMessage::Admin { configured: *configured, descriptors: 1 }, &[socket.as_fd()])?;
    }
    let last = [own.listener.as_fd(), own.right.as_fd()];
    stream.send(&HandoverMessage::Handover { pid: std::process::id(), descriptors: last.len() }, &last)
}
