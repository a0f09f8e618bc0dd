//! The side of a hand-over that is taken over: gives its listening sockets to the process that asks for them, and goes on
//! serving until that one says that it serves.
//!
//! Guarantees that a successor which fails to start changes nothing.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;
use tokio::sync::oneshot;

use super::inherited::SocketGroup;
use super::message::{HandoverMessage, HandoverStream, MOST_DESCRIPTORS, PROMPT, PROTOCOL};
use crate::transport::listening_socket::bind_unix;

/// Pause after a hand-over could not be accepted.
const PAUSE: Duration = Duration::from_millis(100);

/// Where a successor asks, and what it gets.
pub struct HandoverPoint {
    path: PathBuf,
    listener: UnixListener,
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
    pub pid: u32,
}

/// An offer of which nobody knows yet: a process that takes over is asked for nothing before it has.
pub struct PreparedOffer {
    listener: UnixListener,
    offer: HandoverOffer,
}

/// The processes that ask for the sockets. Several may have them at a time, so one that hangs keeps no other from
/// taking over: the first that serves does.
struct HandoverAttempts {
    listener: UnixListener,
    state: Arc<Mutex<OfferState>>,
    starting: Vec<StartingProcess>,
}

/// A process that has the sockets, and does not serve yet.
struct StartingProcess {
    pid: u32,
    stream: HandoverStream,
}

/// The sockets on offer. Withdrawn when the gateway stops for another reason.
pub struct HandoverOffer {
    state: Arc<Mutex<OfferState>>,
    path: PathBuf,
}

struct OfferState {
    sockets: Option<Arc<OfferedSockets>>,
    /// A process has them, and may begin to serve.
    is_handing_over: bool,
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
        listener.set_nonblocking(false)?;
        Ok(Self { path: path.to_owned(), listener })
    }

    /// Puts `sockets` on offer, to processes that ask from [`PreparedOffer::open`] on.
    pub fn offer(self, sockets: OfferedSockets) -> PreparedOffer {
        let state = OfferState { sockets: Some(Arc::new(sockets)), is_handing_over: false };
        PreparedOffer {
            listener: self.listener,
            offer: HandoverOffer { state: Arc::new(Mutex::new(state)), path: self.path },
        }
    }
}

impl PreparedOffer {
    /// Answers successors on a thread of its own, until one serves: that is received then.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn open(self) -> io::Result<(oneshot::Receiver<Successor>, HandoverOffer)> {
        let (sender, receiver) = oneshot::channel();
        let Self { listener, offer } = self;
        let mut attempts = HandoverAttempts { listener, state: offer.state.clone(), starting: Vec::new() };
        thread::Builder::new().name("handover".to_owned()).spawn(move || {
            loop {
                match attempts.next() {
                    Ok(Some(successor)) => {
                        let _ = sender.send(successor);
                        return;
                    }
                    Ok(None) => {}
                    // Out of descriptors, perhaps: a successor tries again.
                    Err(error) => {
                        tracing::warn!(%error, "a hand-over was not accepted");
                        thread::sleep(PAUSE);
                    }
                }
            }
        })?;
        Ok((receiver, offer))
    }
}

impl HandoverAttempts {
    /// Waits for what comes next, and answers it. Returns the process that has taken over.
    fn next(&mut self) -> io::Result<Option<Successor>> {
        let mut sources = vec![PollFd::new(&self.listener, PollFlags::IN)];
        sources.extend(
            self.starting.iter().map(|process| PollFd::from_borrowed_fd(process.stream.as_fd(), PollFlags::IN)),
        );
        retry_on_intr(|| poll(&mut sources, None))?;
        let is_ready: Vec<bool> = sources.iter().map(|source| !source.revents().is_empty()).collect();
        // From the last: taking one out leaves those before it where they are.
        for index in (0..self.starting.len()).rev().filter(|index| is_ready[index + 1]) {
            let mut process = self.starting.remove(index);
            match process.await_serving() {
                Ok(()) => {
                    self.refuse_others(process.pid);
                    // Nobody asks here any more, once the successor knows.
                    let _ = process.stream.send(&HandoverMessage::Draining, &[]);
                    return Ok(Some(Successor { pid: process.pid }));
                }
                Err(error) => log_failure(&error),
            }
        }
        if is_ready[0] {
            let (stream, _) = self.listener.accept()?;
            match hand_over(HandoverStream::new(stream), &self.listener, &self.state) {
                Ok(process) => self.starting.extend(process),
                Err(error) => log_failure(&error),
            }
        }
        self.state.lock().is_handing_over = !self.starting.is_empty();
        Ok(None)
    }

    /// Tells those that have the sockets and do not serve yet that they are too late.
    fn refuse_others(&mut self, successor: u32) {
        for mut process in self.starting.drain(..) {
            let reason = format!("the process {successor} has taken over meanwhile");
            if let Err(error) = process.stream.send(&HandoverMessage::Refused { reason }, &[]) {
                tracing::debug!(%error, pid = process.pid, "a process was not told that it is too late");
            }
        }
    }
}

impl StartingProcess {
    /// However long it takes to start, others are answered meanwhile. A process that ends closes its side.
    fn await_serving(&mut self) -> anyhow::Result<()> {
        match self.stream.receive(Some(PROMPT))? {
            Some(HandoverMessage::Serving) => Ok(()),
            Some(other) => anyhow::bail!("the other gateway said {other:?} instead of serving"),
            None => anyhow::bail!("the other gateway ended before it served"),
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
        if state.is_handing_over {
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

/// Answers one process. `None`: it does not take over.
fn hand_over(
    mut stream: HandoverStream,
    own: &UnixListener,
    state: &Mutex<OfferState>,
) -> anyhow::Result<Option<StartingProcess>> {
    if !stream.is_of_same_user() {
        anyhow::bail!("another user asked for it");
    }
    let pid = match stream.receive(Some(PROMPT))? {
        Some(HandoverMessage::TakeOver { protocol: PROTOCOL, pid }) => pid,
        Some(HandoverMessage::TakeOver { protocol, .. }) => {
            let reason = format!("it speaks version {PROTOCOL} of hand-overs, not {protocol}");
            stream.send(&HandoverMessage::Refused { reason: reason.clone() }, &[])?;
            anyhow::bail!(reason);
        }
        // A gateway that starts looks whether anybody is here.
        None => return Ok(None),
        Some(other) => anyhow::bail!("it was asked for by {other:?}"),
    };
    let sockets = {
        let mut state = state.lock();
        state.is_handing_over = state.sockets.is_some();
        state.sockets.clone()
    };
    let Some(sockets) = sockets else {
        stream.send(&HandoverMessage::Refused { reason: "it is stopping".to_owned() }, &[])?;
        return Ok(None);
    };
    tracing::info!(pid, "handing the listening sockets over");
    send_all(&mut stream, own, &sockets)?;
    Ok(Some(StartingProcess { pid, stream }))
}

fn send_all(stream: &mut HandoverStream, own: &UnixListener, sockets: &OfferedSockets) -> io::Result<()> {
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
    stream.send(&HandoverMessage::Handover { pid: std::process::id(), descriptors: 1 }, &[own.as_fd()])
}
