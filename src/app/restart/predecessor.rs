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

    /// Answers successors on a thread of its own, until one serves: that is received then.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn offer(self, sockets: OfferedSockets) -> io::Result<(oneshot::Receiver<Successor>, HandoverOffer)> {
        let (sender, receiver) = oneshot::channel();
        let state = OfferState { sockets: Some(Arc::new(sockets)), is_handing_over: false };
        let offer = HandoverOffer { state: Arc::new(Mutex::new(state)), path: self.path };
        let (listener, state) = (self.listener, offer.state.clone());
        thread::Builder::new().name("handover".to_owned()).spawn(move || {
            loop {
                let stream = match listener.accept() {
                    Ok((stream, _)) => stream,
                    // Out of descriptors, perhaps: a successor tries again.
                    Err(error) => {
                        tracing::warn!(%error, "a hand-over was not accepted");
                        thread::sleep(PAUSE);
                        continue;
                    }
                };
                let result = hand_over(HandoverStream::new(stream), &listener, &state);
                state.lock().is_handing_over = false;
                match result {
                    Ok(Some(successor)) => {
                        let _ = sender.send(successor);
                        return;
                    }
                    Ok(None) => {}
                    Err(error) => tracing::warn!(error = %format!("{error:#}"), "a hand-over failed: nothing changes"),
                }
            }
        })?;
        Ok((receiver, offer))
    }
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

/// Answers one process. `None`: it has not taken over.
fn hand_over(
    mut stream: HandoverStream,
    own: &UnixListener,
    state: &Mutex<OfferState>,
) -> anyhow::Result<Option<Successor>> {
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
    drop(sockets);
    // However long it takes to start. A process that ends closes its side.
    match stream.receive(None)? {
        Some(HandoverMessage::Serving) => {}
        Some(other) => anyhow::bail!("the other gateway said {other:?} instead of serving"),
        None => anyhow::bail!("the other gateway ended before it served"),
    }
    let _ = stream.send(&HandoverMessage::Draining, &[]);
    Ok(Some(Successor { pid }))
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
