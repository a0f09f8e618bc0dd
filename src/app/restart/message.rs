//! The messages of a hand-over: lines of JSON over a Unix socket, with descriptors beside some of
//! them.
//!
//! Guarantees that each descriptor belongs to the line it was sent with, and that neither side
//! waits for ever for a line that the other owes it at once.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut, Write as _};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};

use tollgate_wire::transport::listen_address::ListenAddress;

/// Descriptors of one line. Linux takes 253 (SCM_MAX_FD); a listener of more workers has several
/// lines.
pub const MOST_DESCRIPTORS: usize = 64;

/// The longest that an answer without work takes.
pub const PROMPT: Duration = Duration::from_secs(10);

/// The most bytes of a line.
const LONGEST_LINE: usize = 64 * 1024;

/// A line of a hand-over, in the order in which they are said.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HandoverMessage {
    /// The successor asks for the sockets.
    TakeOver { protocol: u32, pid: u32 },
    /// The predecessor ends, cannot hand anything over, or has handed over to another process.
    Refused { reason: String },
    /// Sockets of the listener at this address; this many descriptors come with the line.
    Listener {
        configured: ListenAddress,
        name: Option<String>,
        descriptors: usize,
    },
    /// A socket of the admin server.
    Admin {
        configured: SocketAddr,
        descriptors: usize,
    },
    /// The socket that hand-overs are asked for at, and the right to take over. The last of the
    /// sockets.
    Handover { pid: u32, descriptors: usize },
    /// The successor can serve, and takes over.
    Serving,
    /// The predecessor accepts no connections any more: the successor does.
    Draining,
}

/// Version of these messages.
pub const PROTOCOL: u32 = 1;

/// An end of a hand-over.
#[derive(Debug)]
pub struct HandoverStream {
    stream: UnixStream,
    received: Vec<u8>,
    descriptors: VecDeque<OwnedFd>,
}

impl AsFd for HandoverStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl HandoverStream {
    pub fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            received: Vec::new(),
            descriptors: VecDeque::new(),
        }
    }

    /// Whether the other end is a process of this user, or of root.
    pub fn is_of_same_user(&self) -> bool {
        #[cfg(target_os = "linux")]
        {
            let own = rustix::process::geteuid();
            rustix::net::sockopt::socket_peercred(&self.stream)
                .is_ok_and(|peer| peer.uid == own || peer.uid == rustix::process::Uid::ROOT)
        }
        #[cfg(not(target_os = "linux"))]
        true
    }

    /// Sends a line, with `descriptors` beside it.
    pub fn send(
        &mut self,
        message: &HandoverMessage,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        self.stream.set_write_timeout(Some(PROMPT))?;
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "too many descriptors for a line",
            ));
        }
        let sent = retry_on_intr(|| {
            sendmsg(
                self.stream.as_fd(),
                &[IoSlice::new(&line)],
                &mut control,
                SendFlags::NOSIGNAL,
            )
        })?;
        // The descriptors went with the first byte.
        self.stream.write_all(&line[sent..])
    }

    /// The next line. `None`: the other end is closed.
    ///
    /// # Errors
    /// When none comes within `patience`, if there is one, or it is no message.
    pub fn receive(&mut self, patience: Option<Duration>) -> io::Result<Option<HandoverMessage>> {
        self.stream.set_read_timeout(patience)?;
        loop {
            if let Some(end) = self.received.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.received.drain(..=end).collect();
                return Ok(Some(serde_json::from_slice(&line)?));
            }
            if self.received.len() > LONGEST_LINE {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "a line without end",
                ));
            }
            if self.fill()? == 0 {
                return Ok(None);
            }
        }
    }

    /// Reads what has come. True: a line is whole, or none will be, and `receive` does not wait.
    pub fn read_some(&mut self) -> io::Result<bool> {
        let is_end = self.fill()? == 0;
        Ok(is_end || self.received.contains(&b'\n') || self.received.len() > LONGEST_LINE)
    }

    /// The descriptors that came with the line that was received last, which says that they are
    /// `count`.
    pub fn take_descriptors(&mut self, count: usize) -> io::Result<Vec<OwnedFd>> {
        if count > self.descriptors.len() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a line came without its descriptors",
            ));
        }
        Ok(self.descriptors.drain(..count).collect())
    }

    fn fill(&mut self) -> io::Result<usize> {
        let mut bytes = [0; 4096];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        // A process that this one starts must not have them.
        let flags = RecvFlags::CMSG_CLOEXEC;
        // A process that is stopped and continued meanwhile has been interrupted, and nothing more.
        let read = retry_on_intr(|| {
            recvmsg(
                self.stream.as_fd(),
                &mut [IoSliceMut::new(&mut bytes)],
                &mut control,
                flags,
            )
        })?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.descriptors.extend(descriptors);
            }
        }
        self.received.extend_from_slice(&bytes[..read.bytes]);
        Ok(read.bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn addresses(sockets: &[TcpListener]) -> Vec<SocketAddr> {
        let addresses = sockets.iter().map(|socket| socket.local_addr().unwrap());
        addresses.collect()
    }

    #[test]
    fn descriptors_arrive_with_their_lines() {
        let (near, far) = UnixStream::pair().unwrap();
        let mut near = HandoverStream::new(near);
        let mut far = HandoverStream::new(far);
        let open: Vec<_> = (0..MOST_DESCRIPTORS + 3)
            .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
            .collect();
        let address = open[0].local_addr().unwrap();
        for some in open.chunks(MOST_DESCRIPTORS) {
            let descriptors: Vec<_> = some.iter().map(|socket| socket.as_fd()).collect();
            let line = HandoverMessage::Admin {
                configured: address,
                descriptors: some.len(),
            };
            near.send(&line, &descriptors).unwrap();
        }
        near.send(&HandoverMessage::Serving, &[]).unwrap();
        drop(near);
        let mut received = Vec::new();
        while let Some(HandoverMessage::Admin { descriptors, .. }) =
            far.receive(Some(PROMPT)).unwrap()
        {
            received.extend(
                far.take_descriptors(descriptors)
                    .unwrap()
                    .into_iter()
                    .map(TcpListener::from),
            );
        }
        assert_eq!(addresses(&received), addresses(&open));
        assert_eq!(far.receive(Some(PROMPT)).unwrap(), None);
    }

    #[test]
    fn a_line_that_lacks_its_descriptors_is_an_error() {
        let (near, far) = UnixStream::pair().unwrap();
        let mut near = HandoverStream::new(near);
        let mut far = HandoverStream::new(far);
        near.send(
            &HandoverMessage::Handover {
                pid: 1,
                descriptors: 1,
            },
            &[],
        )
        .unwrap();
        assert!(matches!(
            far.receive(Some(PROMPT)),
            Ok(Some(HandoverMessage::Handover { .. }))
        ));
        assert!(far.take_descriptors(1).is_err());
        near.send(&HandoverMessage::Serving, &[]).unwrap();
        drop(near);
        assert_eq!(far.receive(None).unwrap(), Some(HandoverMessage::Serving));
    }
}
