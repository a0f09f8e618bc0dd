//! The side of a hand-over that takes over: asks a running gateway for its sockets, and tells it
//! once they can be served.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use anyhow::Context as _;

use super::inherited::{InheritedSockets, SocketGroup};
use super::message::{HandoverMessage, HandoverStream, PROMPT, PROTOCOL};
use super::take_over_right::TakeOverRight;
use tollgate_wire::transport::listen_address::ListenAddress;
use tollgate_wire::transport::listening_socket::ListeningSocket;

/// A running gateway that has given its sockets away, and serves them until it hears that this
/// process does.
pub struct Predecessor {
    stream: HandoverStream,
    pid: u32,
    right: TakeOverRight,
}

/// Everything that a predecessor gives.
#[derive(Default)]
pub struct HandedOver {
    pub predecessor: Option<Predecessor>,
    pub listeners: InheritedSockets,
    pub admin: InheritedSockets,
    /// The socket at which the next hand-over is asked for.
    pub handover: Option<UnixListener>,
}

/// Takes the sockets of the gateway that answers at `path`. `None`: no gateway answers there.
///
/// # Errors
/// When a gateway answers there, and does not hand over.
pub fn take_over(path: &Path) -> anyhow::Result<Option<HandedOver>> {
    let stream = match UnixStream::connect(path) {
        Ok(stream) => HandoverStream::new(stream),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
            ) =>
        {
            tracing::info!(path = %path.display(), "no gateway runs that could be taken over: starting afresh");
            return Ok(None);
        }
        Err(error) => {
            return Err(error).with_context(|| format!("cannot take over at {}", path.display()));
        }
    };
    anyhow::ensure!(
        stream.is_of_same_user(),
        "the gateway at {} is another user's",
        path.display()
    );
    receive_all(stream)
        .map_err(explained)
        .with_context(|| format!("cannot take over from the gateway at {}", path.display()))
}

/// A wait for a gateway that hangs ends in an error of the system that names none.
fn explained(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref::<io::Error>().map(io::Error::kind) {
        Some(io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => anyhow::anyhow!(
            "it runs and has not answered for {} s: end it, and start this one again; without it, connections in its queue are lost",
            PROMPT.as_secs()
        ),
        _ => error,
    }
}

fn receive_all(mut stream: HandoverStream) -> anyhow::Result<Option<HandedOver>> {
    stream.send(
        &HandoverMessage::TakeOver {
            protocol: PROTOCOL,
            pid: std::process::id(),
        },
        &[],
    )?;
    let mut all = HandedOver::default();
    loop {
        match stream.receive(Some(PROMPT))? {
            Some(HandoverMessage::Listener {
                configured,
                name,
                descriptors,
            }) => {
                let sockets = listeners(stream.take_descriptors(descriptors)?);
                match all.listeners.groups.last_mut() {
                    // A listener of many workers has several lines.
                    Some(group)
                        if group.configured.as_ref() == Some(&configured)
                            && group.address() == address(&sockets) =>
                    {
                        group.sockets.extend(sockets);
                    }
                    _ => all.listeners.groups.push(SocketGroup {
                        configured: Some(configured),
                        name,
                        sockets,
                    }),
                }
            }
            Some(HandoverMessage::Admin {
                configured,
                descriptors,
            }) => {
                let sockets = listeners(stream.take_descriptors(descriptors)?);
                all.admin.groups.push(SocketGroup {
                    configured: Some(configured.into()),
                    name: None,
                    sockets,
                });
            }
            Some(HandoverMessage::Handover { pid, descriptors }) => {
                let Ok([handover, right]) =
                    <[OwnedFd; 2]>::try_from(stream.take_descriptors(descriptors)?)
                else {
                    anyhow::bail!("it sent {descriptors} descriptors at last, not two");
                };
                all.handover = Some(UnixListener::from(handover));
                let right = TakeOverRight::from(right);
                tracing::info!(
                    pid,
                    listeners = all.listeners.groups.len(),
                    "taking over from a running gateway"
                );
                all.predecessor = Some(Predecessor { stream, pid, right });
                return Ok(Some(all));
            }
            Some(HandoverMessage::Refused { reason }) => {
                tracing::warn!(
                    reason,
                    "the running gateway hands nothing over: starting afresh"
                );
                return Ok(None);
            }
            Some(other) => anyhow::bail!("it said {other:?} before its last socket"),
            None => anyhow::bail!("it went away before its last socket"),
        }
    }
}

fn listeners(descriptors: Vec<OwnedFd>) -> Vec<ListeningSocket> {
    descriptors.into_iter().map(ListeningSocket::from).collect()
}

fn address(sockets: &[ListeningSocket]) -> Option<ListenAddress> {
    sockets.first()?.address()
}

impl Predecessor {
    /// Tells the predecessor that this process serves from now on, and that it is to drain. A
    /// predecessor that has ended meanwhile need not know.
    ///
    /// # Errors
    /// When another process has taken over meanwhile.
    pub fn release(mut self) -> anyhow::Result<()> {
        let told = self.stream.send(&HandoverMessage::Serving, &[]);
        // A predecessor that has ended may have said why before.
        let failure = match self.stream.receive(Some(PROMPT)) {
            Ok(Some(HandoverMessage::Draining)) => {
                tracing::info!(pid = self.pid, "taken over: the other gateway drains");
                return Ok(());
            }
            Ok(Some(HandoverMessage::Refused { reason })) => {
                anyhow::bail!("too late to take over: {reason}")
            }
            Ok(_) => None,
            Err(error) => Some(told.err().unwrap_or(error)),
        };
        let is_first = self
            .right
            .take()
            .context("cannot take over from a gateway that does not answer")?;
        anyhow::ensure!(
            is_first,
            "too late to take over: another process has taken over meanwhile"
        );
        match failure {
            None => tracing::warn!(
                pid = self.pid,
                "taken over from a gateway that has ended meanwhile"
            ),
            Some(error) => {
                tracing::warn!(pid = self.pid, %error, "taken over from a gateway that does not answer")
            }
        }
        Ok(())
    }
}
