//! Opens the listeners: inherited sockets, or new ones, at least one per address and worker.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use anyhow::Context;

use super::files::tls::TlsFiles;
use super::restart::inherited::{InheritedSockets, SocketGroup, share_out};
use tollgate_config::{AdminSpec, Config, ListenerConfig};
use tollgate_server::{self as server, ConnectionLimit, ProcessLimit};
use tollgate_spec::listener::ListenerSpec;
use tollgate_wire::transport::listen_address::ListenAddress;
use tollgate_wire::transport::listening_socket::{ListeningSocket, SocketFile};
use tollgate_wire::transport::tls::server::acceptor::TlsAcceptor;

/// A listener that is bound for one worker.
pub struct BoundListener {
    pub sockets: Vec<ListeningSocket>,
    pub spec: Arc<ListenerSpec>,
    pub limit: ConnectionLimit,
    pub tls: Option<Arc<TlsAcceptor>>,
}

/// Listening sockets that other processes opened.
#[derive(Default)]
pub struct SocketSources {
    /// Opened by systemd, which keeps them when this process ends. There must be no other at their
    /// addresses, whose queue would be lost then.
    pub systemd: InheritedSockets,
    pub predecessor: InheritedSockets,
}

/// The listeners of all workers.
pub struct BoundListeners {
    /// A list of listeners for each worker.
    pub workers: Vec<Vec<BoundListener>>,
    /// The files of Unix sockets, to be removed at the end. The files of systemd stay.
    pub files: Vec<SocketFile>,
    pub reserved: ReservedSockets,
}

/// Sockets beside those of a predecessor, at the same addresses. The kernel sends connections there
/// once they listen, and loses these connections if this process does not take over.
#[derive(Default)]
pub struct ReservedSockets(Vec<ListeningSocket>);

impl ReservedSockets {
    /// Listens. The predecessor's sockets serve the address, should the system refuse.
    pub fn listen(self) {
        for socket in self.0 {
            if let Err(error) = socket.listen() {
                tracing::error!(%error, "cannot listen on one more socket of a listener");
            }
        }
    }
}

/// Opens every address for every worker before any of them runs: an address that can't be bound
/// stops the start.
pub fn bind(
    config: &Config,
    tls: &TlsFiles,
    mut sources: SocketSources,
    process: &ProcessLimit,
) -> anyhow::Result<BoundListeners> {
    let mut files = Vec::new();
    let mut reserved = ReservedSockets::default();
    let mut workers: Vec<Vec<BoundListener>> = Vec::new();
    workers.resize_with(config.workers.get(), Vec::new);
    for (index, ListenerConfig { server: spec, .. }) in config.listeners.iter().enumerate() {
        let mut spec = spec.clone();
        let (shares, origin) = open(&mut spec, workers.len(), &mut sources, &mut reserved)
            .map_err(advise)
            .with_context(|| format!("cannot listen on {}", spec.address))?;
        if let (ListenAddress::Unix(path), "predecessor" | "own") = (&spec.address, origin) {
            files.extend(SocketFile::at(path));
        }
        let limit = ConnectionLimit::new(spec.max_connections).within(process, index);
        let limit = limit.per_client(spec.max_connections_per_client);
        let spec = Arc::new(spec);
        tracing::info!(address = %spec.address, origin, "listening");
        for (listeners, sockets) in workers.iter_mut().zip(shares) {
            listeners.push(BoundListener {
                sockets,
                spec: spec.clone(),
                limit: limit.clone(),
                tls: tls.acceptor(index),
            });
        }
    }
    sources.systemd.close();
    sources.predecessor.close();
    Ok(BoundListeners {
        workers,
        files,
        reserved,
    })
}

/// The error with a way out, where another process has the address.
fn advise(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref::<io::Error>() {
        Some(os) if os.kind() == io::ErrorKind::AddrInUse && os.raw_os_error().is_some() => error.context(
            "another process listens there: stop it, or give this gateway another address in its file",
        ),
        Some(_) | None => error,
    }
}

/// The sockets of each worker, and where they come from.
fn open(
    spec: &mut ListenerSpec,
    workers: usize,
    sources: &mut SocketSources,
    reserved: &mut ReservedSockets,
) -> anyhow::Result<(Vec<Vec<ListeningSocket>>, &'static str)> {
    let name = spec.socket_name.as_deref();
    if let Some(group) = sources.systemd.take(&spec.address, name) {
        return Ok((inherit(spec, group, workers)?, "systemd"));
    }
    if let Some(mut group) = sources.predecessor.take(&spec.address, name) {
        // A predecessor with fewer workers had fewer sockets. More of them spread connections
        // better, where the address lets others in.
        while let (Some(ListenAddress::Tcp(address)), true) =
            (group.address(), group.sockets.len() < workers)
        {
            let Ok(socket) = server::reserve_shared(address).map(ListeningSocket::Tcp) else {
                break;
            };
            reserved.0.push(socket.try_clone()?);
            group.sockets.push(socket);
        }
        return Ok((inherit(spec, group, workers)?, "predecessor"));
    }
    let sockets = server::bind(spec, workers)?;
    learn_address(spec, &sockets);
    Ok((share_out(sockets, workers)?, "own"))
}

fn inherit(
    spec: &mut ListenerSpec,
    group: SocketGroup,
    workers: usize,
) -> anyhow::Result<Vec<Vec<ListeningSocket>>> {
    learn_address(spec, &group.sockets);
    for socket in &group.sockets {
        socket.set_nonblocking()?;
    }
    Ok(share_out(group.sockets, workers)?)
}

/// Port 0 has become a port, and an inherited socket may be at another address.
fn learn_address(spec: &mut ListenerSpec, sockets: &[ListeningSocket]) {
    if let Some(address) = sockets.first().and_then(ListeningSocket::address) {
        spec.address = address;
    }
}

/// Duplicates of the sockets of all `workers`, as the file of `config` names them: to hand them
/// over later.
///
/// # Errors
/// When a descriptor cannot be duplicated.
pub fn duplicate(config: &Config, workers: &[Vec<BoundListener>]) -> io::Result<Vec<SocketGroup>> {
    let mut groups = Vec::new();
    for (index, listener) in config.listeners.iter().enumerate() {
        let mut sockets = Vec::new();
        for listeners in workers {
            for socket in &listeners[index].sockets {
                sockets.push(socket.try_clone()?);
            }
        }
        let server = &listener.server;
        groups.push(SocketGroup {
            configured: Some(server.address.clone()),
            name: server.socket_name.as_ref().map(ToString::to_string),
            sockets,
        });
    }
    Ok(groups)
}

/// The sockets of the admin server. The address of each is what the file says, to hand it over by.
#[derive(Default)]
pub struct AdminSockets {
    pub admin: Option<(SocketAddr, TcpListener)>,
    /// Probes and metrics alone.
    pub probes: Option<(SocketAddr, TcpListener)>,
}

impl AdminSockets {
    /// Opens them, or takes those that were handed over.
    ///
    /// # Errors
    /// When one can't be bound.
    pub fn open(
        admin: Option<&AdminSpec>,
        inherited: &mut InheritedSockets,
    ) -> anyhow::Result<Self> {
        let Some(spec) = admin else {
            return Ok(Self::default());
        };
        let admin = open_tcp(spec.address, inherited, "the admin")?;
        let mut probes = None;
        if let Some(address) = spec.probe_address {
            let socket = open_tcp(address, inherited, "probes and metrics")?;
            probes = Some((address, socket));
        }
        Ok(Self {
            admin: Some((spec.address, admin)),
            probes,
        })
    }

    /// Duplicates, to hand them over later.
    ///
    /// # Errors
    /// When a descriptor cannot be duplicated.
    pub fn duplicate(&self) -> io::Result<Vec<(SocketAddr, TcpListener)>> {
        let mut sockets = Vec::new();
        for (address, socket) in self.admin.iter().chain(&self.probes) {
            sockets.push((*address, socket.try_clone()?));
        }
        Ok(sockets)
    }
}

/// The socket at `address` that was handed over, or else a new one.
fn open_tcp(
    address: SocketAddr,
    inherited: &mut InheritedSockets,
    purpose: &str,
) -> anyhow::Result<TcpListener> {
    let group = inherited.take(&address.into(), None);
    match group.and_then(|mut group| group.sockets.pop()) {
        Some(ListeningSocket::Tcp(socket)) => Ok(socket),
        Some(ListeningSocket::Unix(_)) | None => TcpListener::bind(address)
            .map_err(|error| advise(error.into()))
            .with_context(|| format!("cannot listen on {address} for {purpose}")),
    }
}
