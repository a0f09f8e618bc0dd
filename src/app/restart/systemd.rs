//! systemd: the sockets of a socket unit (sd_listen_fds(3)), and the state of this process
//! (sd_notify(3)).
//!
//! Nothing here does anything for a process that systemd did not start.

use std::env;
use std::io;
use std::os::unix::net::UnixDatagram;

use listenfd::ListenFd;

use super::inherited::{InheritedSockets, SocketGroup};
use tollgate_wire::transport::listening_socket::ListeningSocket;

/// How far this process is.
#[derive(Clone, Copy, Debug)]
pub enum ServiceState {
    Ready,
    Reloading,
    Stopping,
}

/// The sockets that systemd has opened for this process. Sockets with the same address are one
/// group.
pub fn inherited_sockets() -> InheritedSockets {
    let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':').map(str::to_owned);
    // Takes the variables away: a process that this one starts must not believe that they are for
    // it.
    let mut given = ListenFd::from_env();
    let mut inherited = InheritedSockets::default();
    for index in 0..given.len() {
        let name = names.next().filter(|name| !name.is_empty());
        let tcp = given
            .take_tcp_listener(index)
            .map(|socket| socket.map(ListeningSocket::Tcp));
        match tcp.or_else(|_| {
            given
                .take_unix_listener(index)
                .map(|socket| socket.map(ListeningSocket::Unix))
        }) {
            Ok(Some(socket)) => add(&mut inherited, name, socket),
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(%error, "systemd gave a descriptor that is no listening socket: left alone")
            }
        }
    }
    inherited
}

fn add(inherited: &mut InheritedSockets, name: Option<String>, socket: ListeningSocket) {
    let address = socket.address();
    match inherited
        .groups
        .iter_mut()
        .find(|group| group.address() == address && group.name == name)
    {
        Some(group) => group.sockets.push(socket),
        None => inherited.groups.push(SocketGroup {
            configured: None,
            name,
            sockets: vec![socket],
        }),
    }
}

/// Tells the service manager, if there is one.
pub fn notify(state: ServiceState) {
    let Some(path) = env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let text = match state {
        ServiceState::Ready => "READY=1\nSTATUS=serving",
        ServiceState::Reloading => "RELOADING=1\nSTATUS=reloading",
        ServiceState::Stopping => "STOPPING=1\nSTATUS=draining",
    };
    if let Err(error) = send(path.as_encoded_bytes(), text) {
        tracing::warn!(%error, "the service manager could not be told: {}", text.replace('\n', ", "));
    }
}

fn send(path: &[u8], text: &str) -> io::Result<()> {
    use std::os::unix::ffi::OsStrExt as _;
    let socket = UnixDatagram::unbound()?;
    match path.split_first() {
        #[cfg(target_os = "linux")]
        Some((b'@', name)) => {
            use std::os::linux::net::SocketAddrExt as _;
            let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
            socket.send_to_addr(text.as_bytes(), &address)
        }
        _ => socket.send_to(text.as_bytes(), std::ffi::OsStr::from_bytes(path)),
    }?;
    Ok(())
}
