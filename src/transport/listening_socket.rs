//! Listening sockets of both kinds, TCP and Unix.
//!
//! Guarantees that the file of a Unix socket never takes the place of another file, or of a socket
//! that is served.

use std::fmt;
use std::fs::{self, File, Permissions};
use std::io;
use std::net::{AddrParseError, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::task::{Context, Poll};

use serde::{Deserialize, Serialize};
use socket2::{Domain, SockAddr, SockRef, Socket as RawSocket, Type};

use super::clear_stream::ClearStream;
use super::peer::PeerAddress;

/// Stands before the path of a Unix socket.
pub const UNIX_PREFIX: &str = "unix:";

/// Connections that wait in the kernel's queue while none is accepted; the kernel may cap this
/// (`net.core.somaxconn`).
pub const BACKLOG: i32 = 4096;

/// Where a listener listens. As text, an address and port, or `unix:` and a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum ListenAddress {
    Tcp(SocketAddr),
    Unix(Arc<Path>),
}

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
    /// Its device and number: another file may have taken its place.
    id: (u64, u64),
}

impl ListenAddress {
    /// `None`: a Unix socket.
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "{UNIX_PREFIX}{}", path.display()),
        }
    }
}

impl FromStr for ListenAddress {
    type Err = AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix(UNIX_PREFIX) {
            Some(path) => Ok(Self::Unix(Path::new(path).into())),
            None => text.parse().map(Self::Tcp),
        }
    }
}

impl TryFrom<String> for ListenAddress {
    type Error = AddrParseError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<ListenAddress> for String {
    fn from(address: ListenAddress) -> Self {
        address.to_string()
    }
}

impl From<SocketAddr> for ListenAddress {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

impl ListeningSocket {
    /// `None`: a Unix socket without a path, or one that is not bound.
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
    /// When the system refuses.
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
    /// The next connection, and where it comes from.
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
    /// When the runtime cannot watch it.
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

    /// Removes it, unless another file has taken its place.
    pub fn remove(self) {
        let removed = match Self::at(&self.path) {
            Ok(there) if there.id == self.id => fs::remove_file(&self.path),
            Ok(_) => return,
            Err(error) => Err(error),
        };
        if let Err(error) = removed {
            tracing::debug!(%error, path = %self.path.display(), "the file of a socket could not be removed");
        }
    }
}

/// A Unix socket that listens at `path`, for whom `mode` lets in. Takes the place of one that
/// nobody listens on.
///
/// # Errors
/// `AddrInUse` when a process listens there, `AlreadyExists` when the file there is no socket, and
/// any other.
pub fn bind_unix(path: &Path, mode: u32) -> io::Result<UnixListener> {
    remove_stale(path)?;
    let socket = RawSocket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    // On Linux the file gets this mode less the umask: at no time does it let others in.
    File::from(OwnedFd::from(socket.try_clone()?)).set_permissions(Permissions::from_mode(mode))?;
    socket.bind(&SockAddr::unix(path)?)?;
    fs::set_permissions(path, Permissions::from_mode(mode))?;
    socket.listen(BACKLOG)?;
    Ok(OwnedFd::from(socket).into())
}

/// Removes the socket that a process left which was killed.
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
    // Does not wait for a process whose queue is full.
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
        let (old, old_again) = (
            SocketFile::at(&path).unwrap(),
            SocketFile::at(&path).unwrap(),
        );
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

    #[test]
    fn an_address_is_read_as_it_is_written() {
        for text in ["127.0.0.1:80", "[::1]:80", "unix:/run/http.sock"] {
            let address: ListenAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
            assert_eq!(
                serde_json::to_string(&address).unwrap(),
                format!("{text:?}")
            );
        }
        assert!("run/http.sock".parse::<ListenAddress>().is_err());
    }
}
