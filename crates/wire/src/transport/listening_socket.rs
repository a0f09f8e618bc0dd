//! Listening sockets of both kinds, TCP and Unix.
//!
//! Guarantees that the file of a Unix socket never takes the place of another file, or of a socket
//! that is served.

use std::fs::{self, File, Permissions};
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::task::{Context, Poll};

use socket2::{Domain, SockAddr, SockRef, Socket as RawSocket, Type};

use super::clear_stream::ClearStream;
use super::listen_address::ListenAddress;
use super::peer::PeerAddress;

/// Connections that wait in the kernel's queue while none is accepted; the kernel may cap this
/// (`net.core.somaxconn`).
pub const BACKLOG: i32 = 4096;

/// A listening socket that no runtime watches.
#[derive(Debug)]
pub enum ListeningSocket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A listening socket of the runtime.
#[derive(Debug)]
pub enum AcceptingSocket {
    Tcp(tokio::net::TcpListener),
    Unix(tokio::net::UnixListener),
}

/// The file by which clients find a Unix socket.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// The file's device and number: another file may have taken its place.
    id: (u64, u64),
}

impl ListeningSocket {
    /// The address. `None`: a Unix socket without a path, or one that is not bound.
    pub fn address(&self) -> Option<ListenAddress> {
        match self {
            Self::Tcp(tcp) => tcp.local_addr().ok().map(ListenAddress::Tcp),
            Self::Unix(unix) => Some(ListenAddress::Unix(
                unix.local_addr().ok()?.as_pathname()?.into(),
            )),
        }
    }

    /// A duplicate, which accepts from the same queue.
    pub fn try_clone(&self) -> io::Result<Self> {
        match self {
            Self::Tcp(tcp) => tcp.try_clone().map(Self::Tcp),
            Self::Unix(unix) => unix.try_clone().map(Self::Unix),
        }
    }

    /// Lets connections come.
    ///
    /// # Errors
    /// The system refuses.
    pub fn listen(&self) -> io::Result<()> {
        SockRef::from(self).listen(BACKLOG)
    }

    pub fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Tcp(tcp) => tcp.set_nonblocking(true),
            Self::Unix(unix) => unix.set_nonblocking(true),
        }
    }
}

impl AsFd for ListeningSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(tcp) => tcp.as_fd(),
            Self::Unix(unix) => unix.as_fd(),
        }
    }
}

impl From<OwnedFd> for ListeningSocket {
    fn from(descriptor: OwnedFd) -> Self {
        if SockRef::from(&descriptor)
            .local_addr()
            .is_ok_and(|address| address.is_unix())
        {
            Self::Unix(descriptor.into())
        } else {
            Self::Tcp(descriptor.into())
        }
    }
}

impl AcceptingSocket {
    /// The next connection, and its peer.
    pub fn poll_accept(
        &self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<(ClearStream, PeerAddress)>> {
        match self {
            Self::Tcp(tcp) => tcp
                .poll_accept(cx)
                .map_ok(|(stream, peer)| (ClearStream::Tcp(stream), PeerAddress::from(peer))),
            Self::Unix(unix) => unix
                .poll_accept(cx)
                .map_ok(|(stream, _)| (ClearStream::Unix(stream), PeerAddress::Unix)),
        }
    }
}

impl TryFrom<ListeningSocket> for AcceptingSocket {
    type Error = io::Error;

    /// # Errors
    /// The runtime cannot watch the socket.
    fn try_from(socket: ListeningSocket) -> io::Result<Self> {
        match socket {
            ListeningSocket::Tcp(tcp) => tokio::net::TcpListener::from_std(tcp).map(Self::Tcp),
            ListeningSocket::Unix(unix) => tokio::net::UnixListener::from_std(unix).map(Self::Unix),
        }
    }
}

impl From<tokio::net::TcpListener> for AcceptingSocket {
    fn from(tcp: tokio::net::TcpListener) -> Self {
        Self::Tcp(tcp)
    }
}

impl SocketFile {
    /// The file at `path`, where a socket of this process is.
    pub fn at(path: &Path) -> io::Result<Self> {
        let metadata = fs::symlink_metadata(path)?;
        Ok(Self {
            path: path.to_owned(),
            id: (metadata.dev(), metadata.ino()),
        })
    }

    /// Removes the file, unless another one has taken its place.
    pub fn remove(self) {
        let removed = match Self::at(&self.path) {
            Ok(present) if present.id == self.id => fs::remove_file(&self.path),
            Ok(_) => return,
            Err(error) => Err(error),
        };
        if let Err(error) = removed {
            tracing::debug!(%error, path = %self.path.display(), "the file of a socket could not be removed");
        }
    }
}

/// A Unix socket that listens at `path`, for processes that `mode` lets in. Takes the place of a
/// socket that nobody listens on.
///
/// # Errors
/// `AddrInUse` when a process listens there, `AlreadyExists` when the file there is no socket, and
/// other errors of the system.
pub fn bind_unix(path: &Path, mode: u32) -> io::Result<UnixListener> {
    remove_stale(path)?;
    let socket = RawSocket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    // On Linux the file gets this mode less the umask: other processes are kept out at all times.
    File::from(OwnedFd::from(socket.try_clone()?)).set_permissions(Permissions::from_mode(mode))?;
    socket.bind(&SockAddr::unix(path)?)?;
    fs::set_permissions(path, Permissions::from_mode(mode))?;
    socket.listen(BACKLOG)?;
    Ok(OwnedFd::from(socket).into())
}

/// Removes a socket that no process listens on: a process that was killed leaves its socket.
fn remove_stale(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.file_type().is_socket() => {}
        Ok(_) => {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "the file there is no socket",
            ));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    }
    let client = RawSocket::new(Domain::UNIX, Type::STREAM, None)?;
    // Nonblocking: a process may listen whose queue is full.
    client.set_nonblocking(true)?;
    match client.connect(&SockAddr::unix(path)?) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        _ => Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            "another process listens there",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn a_socket_takes_the_place_of_one_that_nobody_listens_on_and_of_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("http.sock");
        let first = bind_unix(&path, 0o600).unwrap();
        assert_eq!(mode(&path), 0o600);
        assert_eq!(
            bind_unix(&path, 0o600).unwrap_err().kind(),
            io::ErrorKind::AddrInUse
        );
        drop(first);
        let _second = bind_unix(&path, 0o666).unwrap();
        assert_eq!(mode(&path), 0o666);
        let file = folder.path().join("notes");
        fs::write(&file, "kept").unwrap();
        assert_eq!(
            bind_unix(&file, 0o600).unwrap_err().kind(),
            io::ErrorKind::AlreadyExists
        );
        assert_eq!(fs::read_to_string(&file).unwrap(), "kept");
    }

    #[test]
    fn a_file_that_took_the_place_of_a_socket_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("http.sock");
        let first = bind_unix(&path, 0o600).unwrap();
        let old = SocketFile::at(&path).unwrap();
        let old_again = SocketFile::at(&path).unwrap();
        // The number of a file that is gone may be given to the next one.
        fs::rename(&path, folder.path().join("kept")).unwrap();
        drop(first);
        let _second = bind_unix(&path, 0o600).unwrap();
        old.remove();
        assert!(path.exists());
        fs::rename(folder.path().join("kept"), &path).unwrap();
        old_again.remove();
        assert!(!path.exists());
    }
}
