//! Binds listening sockets.
//!
//! Guarantees that the workers of one process share a port, and that no other process shares it
//! unnoticed.

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, SockRef, Socket as RawSocket, Type};

use tollgate_spec::listener::ListenerSpec;
use tollgate_wire::transport::listen_address::ListenAddress;
use tollgate_wire::transport::listening_socket::{BACKLOG, ListeningSocket, bind_unix};

/// The listening `sockets` for `spec`, as many as asked for: the kernel spreads connections over
/// TCP sockets (SO_REUSEPORT). There is only one Unix socket. Port 0 is any free port, the same for
/// all.
///
/// # Errors
/// The address cannot be bound, or another process listens there.
pub fn bind(spec: &ListenerSpec, sockets: usize) -> io::Result<Vec<ListeningSocket>> {
    match &spec.address {
        ListenAddress::Unix(path) => Ok(vec![ListeningSocket::Unix(bind_unix(
            path,
            spec.socket_mode,
        )?)]),
        ListenAddress::Tcp(address) => {
            check_free(*address)?;
            let first = bind_shared(*address)?;
            let address = first.local_addr()?;
            let mut bound = vec![ListeningSocket::Tcp(first)];
            for _ in 1..sockets {
                bound.push(ListeningSocket::Tcp(bind_shared(address)?));
            }
            Ok(bound)
        }
    }
}

/// Another socket at `address`, which sockets of this process or of its predecessor may have.
pub fn bind_shared(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = reserve_shared(address)?;
    SockRef::from(&socket).listen(BACKLOG)?;
    Ok(socket)
}

/// Like `bind_shared`, but does not listen yet: no connection comes.
pub fn reserve_shared(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = RawSocket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Checks that no other process listens at `address`. Two processes that share a port, as workers
/// do, would share its connections unnoticed, each with its own configuration.
fn check_free(address: SocketAddr) -> io::Result<()> {
    let socket = RawSocket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    // Connections left by an earlier gateway (TIME_WAIT) are not listeners.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())
}
