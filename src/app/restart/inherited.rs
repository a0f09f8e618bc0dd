//! Listening sockets that this process did not open, until a listener takes them.
//!
//! Guarantees that each worker has a socket to accept from, and that no socket is left without a
//! worker: its queue would never be served.

use std::io;

use tollgate_wire::transport::listen_address::ListenAddress;
use tollgate_wire::transport::listening_socket::ListeningSocket;

/// The listening sockets of one listener.
#[derive(Debug)]
pub struct SocketGroup {
    /// The address in the file of the process that handed it over: port 0 is not the port of the
    /// sockets.
    pub configured: Option<ListenAddress>,
    /// The name that systemd gives it.
    pub name: Option<String>,
    pub sockets: Vec<ListeningSocket>,
}

/// Listening sockets that no listener has taken yet.
#[derive(Debug, Default)]
pub struct InheritedSockets {
    pub groups: Vec<SocketGroup>,
}

impl SocketGroup {
    /// The address of its sockets.
    pub fn address(&self) -> Option<ListenAddress> {
        self.sockets.first()?.address()
    }

    fn is_for(&self, address: &ListenAddress, name: Option<&str>) -> bool {
        match (name, self.name.as_deref()) {
            (Some(wanted), Some(given)) => wanted == given,
            // A socket that has a name was made for the listener of that name, unless systemd made
            // it up.
            _ => {
                self.configured.as_ref() == Some(address)
                    || self.address().as_ref() == Some(address)
            }
        }
    }
}

impl InheritedSockets {
    /// Takes the sockets for the listener at `address`, or of this `name`.
    pub fn take(&mut self, address: &ListenAddress, name: Option<&str>) -> Option<SocketGroup> {
        let mut groups = self.groups.iter();
        let named = groups.position(|group| name.is_some() && group.name.as_deref() == name);
        let found = match named {
            Some(named) => named,
            None => {
                let mut groups = self.groups.iter();
                groups.position(|group| group.is_for(address, name))?
            }
        };
        Some(self.groups.remove(found))
    }

    /// Closes the sockets that no listener has taken, and says so: connections in their queues are
    /// lost.
    pub fn close(self) {
        for group in self.groups {
            let address = group.address();
            let address = address.map_or_else(String::new, |address| address.to_string());
            let name = group.name.unwrap_or_default();
            tracing::warn!(%address, name, "an inherited socket is no listener's: closed");
        }
    }
}

/// Shares `sockets` out to `workers`: each gets at least one, and each socket has at least one
/// worker.
///
/// # Errors
/// When a descriptor cannot be duplicated.
pub fn share_out(
    sockets: Vec<ListeningSocket>,
    workers: usize,
) -> io::Result<Vec<Vec<ListeningSocket>>> {
    let mut shares: Vec<Vec<ListeningSocket>> = Vec::new();
    shares.resize_with(workers, Vec::new);
    for (index, share) in shares.iter_mut().enumerate().skip(sockets.len()) {
        // All workers of one socket wait for its connections, and the first takes each.
        share.push(sockets[index % sockets.len()].try_clone()?);
    }
    for (index, socket) in sockets.into_iter().enumerate() {
        shares[index % workers].push(socket);
    }
    Ok(shares)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn open() -> ListeningSocket {
        ListeningSocket::Tcp(TcpListener::bind("127.0.0.1:0").unwrap())
    }

    fn group(name: Option<&str>) -> SocketGroup {
        SocketGroup {
            configured: None,
            name: name.map(str::to_owned),
            sockets: vec![open()],
        }
    }

    #[test]
    fn each_worker_has_a_socket_and_each_socket_a_worker() {
        for (sockets, workers) in [(1, 1), (1, 4), (3, 4), (4, 3), (5, 2), (2, 2)] {
            let open: Vec<_> = (0..sockets).map(|_| open()).collect();
            let mut addresses: Vec<_> = open
                .iter()
                .map(|socket| socket.address().unwrap())
                .collect();
            let shares = share_out(open, workers).unwrap();
            assert_eq!(shares.len(), workers);
            assert!(
                shares.iter().all(|share| !share.is_empty()),
                "{sockets} sockets, {workers} workers"
            );
            let mut shared: Vec<_> = shares
                .iter()
                .flatten()
                .map(|socket| socket.address().unwrap())
                .collect();
            shared.sort();
            shared.dedup();
            addresses.sort();
            assert_eq!(shared, addresses, "{sockets} sockets, {workers} workers");
        }
    }

    #[test]
    fn a_listener_takes_the_socket_of_its_name_or_else_of_its_address() {
        let mut inherited = InheritedSockets {
            groups: vec![group(Some("api")), group(Some("unknown")), group(None)],
        };
        let unknown = inherited.groups[1].address().unwrap();
        let unnamed = inherited.groups[2].address().unwrap();
        let elsewhere = &"127.0.0.1:1".parse().unwrap();
        assert_eq!(
            inherited
                .take(elsewhere, Some("api"))
                .unwrap()
                .name
                .as_deref(),
            Some("api")
        );
        assert!(inherited.take(elsewhere, Some("api")).is_none());
        assert!(inherited.take(elsewhere, None).is_none());
        assert!(inherited.take(&unknown, None).is_some());
        assert!(inherited.take(&unnamed, Some("web")).is_some());
        assert!(inherited.groups.is_empty());
    }
}
