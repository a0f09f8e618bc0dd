//! Binds listening sockets.
//!
//! Guarantees that the workers of one process share a port, and that no other process shares it unnoticed.

use std::io;
use std::net::TcpListener;

use socket2::{Domain, Protocol, Socket as RawSocket, Type};

use crate::server::spec::ListenerSpec;

/// Connections that wait in the kernel's queue while none is accepted; the kernel may cap this (`net.core.somaxconn`).
const BACKLOG: i32 = 4096;

/// A listening socket for `spec`. Called once per worker: the kernel spreads connections over the sockets
/// (SO_REUSEPORT). Port 0 picks a new port each time: the other workers must bind the address of the first worker's
/// socket.
pub fn bind(spec: &ListenerSpec) -> io::Result<TcpListener> {
    let socket = RawSocket::new(Domain::for_address(spec.address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&spec.address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Checks that no other process listens on the address of `spec`. Two processes that share a port, as workers do, would
/// share its connections unnoticed, each with its own configuration.
pub fn check_free(spec: &ListenerSpec) -> io::Result<()> {
    let socket = RawSocket::new(Domain::for_address(spec.address), Type::STREAM, Some(Protocol::TCP))?;
    // Connections left by an earlier gateway (TIME_WAIT) are not listeners.
    socket.set_reuse_address(true)?;
    socket.bind(&spec.address.into())
}
