//! A script run on the server that has its keys, whatever the topology.
//!
//! Guarantees that a demoted primary is left, and that each connection is closed on
//! [`Topology::quit`].

use std::sync::Arc;

use fred::clients::Client;
use fred::error::Error;
use fred::interfaces::ClientLike;
use fred::types::{ClusterHash, CustomCommand, FromValue, Value};

use crate::store::redis::connection::address::ServerLocation;
use crate::store::redis::connection::connector::{
    CallLimits, ConnectError, ConnectionEvents, Connector,
};
use crate::store::redis::connection::error;
use crate::store::redis::connection::spec::RedisSpec;
use crate::store::redis::script::{Input, Script};
use crate::store::redis::topology::cluster::Cluster;
use crate::store::redis::topology::sentinel::SentinelWatcher;
use crate::store::redis::topology::server::{CallError, Server};
use crate::store::{ServerId, StoreError};

/// The servers of a store.
pub(crate) enum Topology {
    Single(Arc<Server>),
    /// A primary that the sentinels may replace.
    Sentinel(Arc<Server>, SentinelWatcher),
    Cluster(Cluster),
}

impl Topology {
    /// Starts connecting, in the current runtime, and returns at once.
    pub fn start(
        spec: &RedisSpec,
        limits: CallLimits,
        events: ConnectionEvents,
    ) -> Result<Self, ConnectError> {
        let connector = Connector::new(spec, limits, events)?;
        match connector.location {
            ServerLocation::Cluster(_) => Cluster::start(connector).map(Self::Cluster),
            ServerLocation::Server(_) | ServerLocation::Socket(_) => {
                let server = Server::new(connector.connect()?, limits.timeout);
                Ok(Self::Single(Arc::new(server)))
            }
            ServerLocation::Sentinel {
                ref sentinels,
                ref service,
                ..
            } => {
                let primary = Arc::new(Server::new(connector.connect()?, limits.timeout));
                let watcher =
                    SentinelWatcher::start(&connector, sentinels, service, primary.clone())?;
                Ok(Self::Sentinel(primary, watcher))
            }
        }
    }

    /// Whether each key is on the same server.
    pub fn is_single_server(&self) -> bool {
        !matches!(self, Self::Cluster(_))
    }

    /// The server that has `hash_slot`, as far as is known.
    pub fn server_of(&self, hash_slot: u16) -> ServerId {
        match self {
            Self::Cluster(cluster) => cluster.server_of(hash_slot),
            Self::Single(_) | Self::Sentinel(..) => ServerId::ONLY,
        }
    }

    /// Runs a script on the server that has `hash_slot`, the slot of all its keys. `input` makes
    /// KEYS and ARGV, given the deadline.
    pub async fn run<R: FromValue>(
        &self,
        script: &Script,
        hash_slot: u16,
        input: impl Fn(i64) -> Input,
    ) -> Result<R, CallError> {
        let reply = match self {
            // Boxed, like all that few calls need: the room for it would be moved with every call.
            Self::Cluster(cluster) => Box::pin(cluster.run(script, hash_slot, input)).await?,
            Self::Single(server) | Self::Sentinel(server, _) => {
                server.run(script, &input, false).await.map_err(|error| {
                    server.leave_replica(&error);
                    if error::has_code(error.details(), "CROSSSLOT") {
                        // The server is one of a cluster, or stands before one.
                        return CallError::SlotMoving;
                    }
                    CallError::Store(error::store_error(&error))
                })?
            }
        };
        reply
            .convert()
            .map_err(|_| CallError::Store(StoreError::Protocol))
    }

    /// The connections to the servers that are known.
    pub fn clients(&self) -> Vec<Client> {
        match self {
            Self::Single(server) | Self::Sentinel(server, _) => vec![server.client.clone()],
            Self::Cluster(cluster) => cluster.clients(),
        }
    }

    /// Sends a command that has no keys to the server that has `hash_slot`.
    pub async fn command<R: FromValue>(
        &self,
        hash_slot: u16,
        name: &'static str,
        words: Vec<Value>,
    ) -> Result<R, Error> {
        let server = self.server(hash_slot)?;
        let command = CustomCommand::new_static(name, ClusterHash::FirstKey, false);
        server.client.custom(command, words).await
    }

    /// The port that the server of `hash_slot` is connected to. `None`: there is no connection.
    pub fn port(&self, hash_slot: u16) -> Option<u16> {
        let connected = self.server(hash_slot).ok()?.client.active_connections();
        Some(connected.first()?.port)
    }

    /// The connection to the server that has `hash_slot`, as far as is known.
    pub fn server(&self, hash_slot: u16) -> Result<Arc<Server>, Error> {
        match self {
            Self::Cluster(cluster) => cluster.server(hash_slot),
            Self::Single(server) | Self::Sentinel(server, _) => Ok(server.clone()),
        }
    }

    /// Closes all connections.
    pub async fn quit(&self) {
        match self {
            Self::Cluster(cluster) => cluster.quit().await,
            Self::Single(server) => server.quit().await,
            Self::Sentinel(server, watcher) => drop(tokio::join!(watcher.quit(), server.quit())),
        }
    }
}
