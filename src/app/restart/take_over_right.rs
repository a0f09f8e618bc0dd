//! The right to take over from a process: of all that have its sockets, one gets it.
//!
//! Guarantees that two processes never take over from the same one, whether that one serves, hangs
//! or has ended.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// A socket that a byte waits in, and nothing else ever will. All the processes share it: whichever
/// reads the byte has the right.
#[derive(Debug)]
pub struct TakeOverRight(UnixStream);

impl TakeOverRight {
    /// The right to take over from this process.
    ///
    /// # Errors
    /// When the system has no more descriptors.
    pub fn create() -> io::Result<Self> {
        let (right, mut giver) = UnixStream::pair()?;
        giver.write_all(&[0])?;
        // The other end closes: no read waits.
        Ok(Self(right))
    }

    /// Takes it. False: it was taken before.
    ///
    /// # Errors
    /// When the socket cannot be read.
    pub fn take(&self) -> io::Result<bool> {
        match (&self.0).read_exact(&mut [0]) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl From<OwnedFd> for TakeOverRight {
    fn from(descriptor: OwnedFd) -> Self {
        Self(descriptor.into())
    }
}

impl AsFd for TakeOverRight {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
