//! The side of a hand-over that is taken over: gives its listening sockets to the process that asks
//! for them, and goes on serving until that process says that it serves.
//!
//! Guarantees that a successor which fails to start changes nothing.

use std::io;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;

use anyhow::Context as _;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::attempts::{HandoverAttempts, OfferState, OfferedSockets, Successor};
use super::take_over_right::TakeOverRight;
use tollgate_wire::transport::listening_socket::bind_unix;

/// The socket where a successor asks, and the right that it gets.
pub struct HandoverPoint {
    path: PathBuf,
    listener: UnixListener,
    right: TakeOverRight,
}

/// An offer that is not answered yet: a process that takes over answers no successor before it
/// serves.
pub struct PreparedOffer {
    opening: mpsc::Sender<()>,
    successor: oneshot::Receiver<Successor>,
    offer: HandoverOffer,
}

/// The sockets on offer. Withdrawn when the gateway stops for another reason.
pub struct HandoverOffer {
    state: Arc<Mutex<OfferState>>,
    path: PathBuf,
}

impl HandoverPoint {
    /// Listens at `path`, or goes on with the socket of the predecessor.
    ///
    /// # Errors
    /// When another gateway listens there, or the path cannot be had.
    pub fn open(path: &Path, handed_over: Option<UnixListener>) -> anyhow::Result<Self> {
        let listener = match handed_over {
            Some(listener) => listener,
            None => bind(path)
                .with_context(|| format!("cannot listen at {} for a hand-over", path.display()))?,
        };
        // Another process may accept what this one has heard of.
        listener.set_nonblocking(true)?;
        Ok(Self {
            path: path.to_owned(),
            listener,
            right: TakeOverRight::create()?,
        })
    }

    /// Puts `sockets` on offer, to processes that ask from [`PreparedOffer::open`] on.
    ///
    /// # Errors
    /// When the thread that answers cannot be started.
    pub fn offer(self, sockets: OfferedSockets) -> io::Result<PreparedOffer> {
        let state = OfferState {
            sockets: Some(Arc::new(sockets)),
            starting: Vec::new(),
        };
        let state = Arc::new(Mutex::new(state));
        let attempts = HandoverAttempts::new(self.listener, self.right, state.clone());
        let (opening, opened) = mpsc::channel();
        let (sender, successor) = oneshot::channel();
        thread::Builder::new()
            .name("handover".to_owned())
            .spawn(move || {
                if opened.recv().is_ok() {
                    let _ = sender.send(attempts.run());
                }
            })?;
        Ok(PreparedOffer {
            opening,
            successor,
            offer: HandoverOffer {
                state,
                path: self.path,
            },
        })
    }
}

impl PreparedOffer {
    /// Answers successors on a thread of its own, until one serves: that is received then.
    pub fn open(self) -> (oneshot::Receiver<Successor>, HandoverOffer) {
        let _ = self.opening.send(());
        (self.successor, self.offer)
    }
}

impl HandoverOffer {
    /// Closes the duplicates: this process accepts nothing any more, and hands nothing over. False:
    /// a process has the sockets already, and clients find it at their paths.
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
            anyhow::anyhow!(
                "another gateway listens there: take over from it with --take-over, or stop it"
            )
        }
        _ => error.into(),
    })
}
