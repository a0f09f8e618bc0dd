//! A Redis Cluster: which server has which hash slot, also while slots move.
//!
//! Guarantees that redirections are followed within the caller's time, each command on the
//! connection of the server it is for, and that the map of slots is renewed when it proves wrong or
//! a server fails.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use fred::clients::Client;
use fred::error::{Error, ErrorKind};
use fred::interfaces::ClientLike;
use fred::types::{ClusterHash, CustomCommand, Value};
use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::store::redis::connection::address::{Host, ServerLocation};
use crate::store::redis::connection::connector::{ConnectError, Connector};
use crate::store::redis::connection::error;
use crate::store::redis::script::{Input, Script};
use crate::store::redis::topology::server::{CallError, Server};
use crate::store::{ServerId, StoreError};

/// Hash slots of a cluster, by its specification.
const HASH_SLOTS: usize = 16_384;

/// Redirections of one call: a map that is out of date costs one, a slot that is moving another.
const HOPS: u32 = 4;

/// The map is renewed this often when nothing proves it wrong.
const RENEWAL: Duration = Duration::from_secs(5);
/// The least pause between two renewals, when something proves the map wrong.
const PAUSE: Duration = Duration::from_millis(100);

/// For a server's answer to `CLUSTER SLOTS`. No request waits for it.
const SLOTS_TIMEOUT: Duration = Duration::from_millis(500);

/// The connections of a cluster. The map is no longer renewed once this is dropped.
pub(crate) struct Cluster {
    servers: Arc<ClusterServers>,
    renewal: AbortHandle,
}

struct ClusterServers {
    connector: Connector,
    seeds: Vec<Host>,
    /// The worker's runtime, where all of its connections live.
    runtime: Handle,
    map: Mutex<SlotMap>,
    outdated: Notify,
}

struct SlotMap {
    connected: HashMap<Host, Arc<Server>>,
    /// By hash slot. `None`: not known yet.
    owners: Vec<Option<Host>>,
}

/// The answer of a server that does not have the slot, or not all of it.
#[derive(Debug, PartialEq, Eq)]
enum Redirect {
    Moved(Host),
    /// For this call only: the slot is about to move there.
    Ask(Host),
    TryAgain,
}

impl Cluster {
    /// Starts connecting, in the current runtime.
    pub fn start(connector: Connector) -> Result<Self, ConnectError> {
        let seeds = match &connector.location {
            ServerLocation::Cluster(seeds) => seeds.clone(),
            _ => return Err(ConnectError::Client),
        };
        let map = Mutex::new(SlotMap {
            connected: HashMap::new(),
            owners: vec![None; HASH_SLOTS],
        });
        let servers = Arc::new(ClusterServers {
            connector,
            seeds,
            runtime: Handle::current(),
            map,
            outdated: Notify::new(),
        });
        for seed in &servers.seeds {
            servers.server(seed)?;
        }
        let renewal = tokio::spawn(renew(servers.clone())).abort_handle();
        Ok(Self { servers, renewal })
    }

    /// Runs a script on the server that has `slot`.
    pub async fn run(
        &self,
        script: &Script,
        slot: u16,
        input: impl Fn(i64) -> Input,
    ) -> Result<Value, CallError> {
        let mut host = self.servers.owner(slot);
        let mut asking = false;
        for _ in 0..=HOPS {
            let server = self
                .servers
                .server(&host)
                .map_err(|_| CallError::Store(StoreError::Io))?;
            let error = match server.run(script, &input, asking).await {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            match Redirect::read(&error, &host) {
                Some(Redirect::Moved(to)) => {
                    self.servers.learn(slot, &to);
                    (host, asking) = (to, false);
                }
                Some(Redirect::Ask(to)) => (host, asking) = (to, true),
                Some(Redirect::TryAgain) => return Err(CallError::SlotMoving),
                None => {
                    self.servers.outdated.notify_one();
                    return Err(CallError::Store(error::store_error(&error)));
                }
            }
        }
        Err(CallError::Store(StoreError::Moved))
    }

    /// The server that has `slot`, as far as is known.
    pub fn server_of(&self, slot: u16) -> ServerId {
        ServerId::from_name(&self.servers.owner(slot).to_string())
    }

    /// The connection of the server that has `slot`, as far as is known.
    pub fn server(&self, slot: u16) -> Result<Arc<Server>, Error> {
        let server = self.servers.server(&self.servers.owner(slot));
        server.map_err(|_| Error::new(ErrorKind::IO, "no connection"))
    }

    /// The name of a server that is in the map.
    pub fn server_name(&self, server: ServerId) -> Option<String> {
        let map = self.servers.map.lock();
        map.connected
            .keys()
            .map(Host::to_string)
            .find(|name| ServerId::from_name(name) == server)
    }

    /// The connections to the servers that are known.
    pub fn clients(&self) -> Vec<Client> {
        let map = self.servers.map.lock();
        map.connected
            .values()
            .map(|server| server.client.clone())
            .collect()
    }

    pub async fn quit(&self) {
        self.renewal.abort();
        let connected: Vec<_> = self
            .servers
            .map
            .lock()
            .connected
            .drain()
            .map(|(_, server)| server)
            .collect();
        join_all(connected.iter().map(|server| server.quit())).await;
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.renewal.abort();
    }
}

impl ClusterServers {
    /// The server that has `slot`. While that is not known, any server: its redirection names the
    /// right one.
    fn owner(&self, slot: u16) -> Host {
        let map = self.map.lock();
        let known = map.owners.get(usize::from(slot)).and_then(Option::as_ref);
        known
            .or_else(|| self.seeds.first())
            .cloned()
            .unwrap_or_else(|| Host {
                name: "".into(),
                port: 0,
            })
    }

    fn server(&self, host: &Host) -> Result<Arc<Server>, ConnectError> {
        let mut map = self.map.lock();
        if let Some(server) = map.connected.get(host) {
            return Ok(server.clone());
        }
        let _entered = self.runtime.enter();
        let server = Arc::new(Server::new(
            self.connector.connect_node(host)?,
            self.connector.limits.timeout,
        ));
        map.connected.insert(host.clone(), server.clone());
        Ok(server)
    }

    fn learn(&self, slot: u16, owner: &Host) {
        if let Some(known) = self.map.lock().owners.get_mut(usize::from(slot)) {
            *known = Some(owner.clone());
        }
        self.outdated.notify_one();
    }

    /// Takes over the map of the first server that answers. Connects to servers that are new in it
    /// and closes the connections of those that left.
    async fn renew(&self) {
        let known: Vec<_> = self
            .map
            .lock()
            .connected
            .iter()
            .map(|(host, server)| (host.clone(), server.clone()))
            .collect();
        for (host, server) in known {
            let answer = tokio::time::timeout(SLOTS_TIMEOUT, slots(&server.client)).await;
            if let Ok(Ok(ranges)) = answer {
                let ranges: Vec<_> = ranges
                    .iter()
                    .filter_map(|range| range_of(range, &host))
                    .collect();
                if !ranges.is_empty() {
                    return self.adopt(&ranges).await;
                }
            }
        }
    }

    async fn adopt(&self, ranges: &[(usize, usize, Host)]) {
        let gone: Vec<_> = {
            let mut map = self.map.lock();
            for (first, last, host) in ranges {
                if let Some(owners) = map.owners.get_mut(*first..=*last) {
                    owners.fill(Some(host.clone()));
                }
            }
            let gone: Vec<_> = map
                .connected
                .keys()
                .filter(|host| {
                    !self.seeds.contains(host) && ranges.iter().all(|(_, _, known)| known != *host)
                })
                .cloned()
                .collect();
            gone.iter()
                .filter_map(|host| map.connected.remove(host))
                .collect()
        };
        for (_, _, host) in ranges {
            // When that fails, the next call for its slots tries again.
            drop(self.server(host));
        }
        join_all(gone.iter().map(|server| server.quit())).await;
    }
}

impl Redirect {
    /// Reads the redirection of the server at `sender`, which leaves out its own name when it does
    /// not know it.
    fn read(error: &Error, sender: &Host) -> Option<Self> {
        let mut words = error.details().split_ascii_whitespace();
        let code = words.next()?;
        let _slot = words.next();
        let address = words.next();
        match code {
            "MOVED" => address_of(address?, sender).map(Self::Moved),
            "ASK" => address_of(address?, sender).map(Self::Ask),
            "TRYAGAIN" => Some(Self::TryAgain),
            _ => None,
        }
    }
}

async fn renew(servers: Arc<ClusterServers>) {
    loop {
        servers.renew().await;
        tokio::time::sleep(PAUSE).await;
        let _ = tokio::time::timeout(RENEWAL, servers.outdated.notified()).await;
    }
}

async fn slots(client: &Client) -> Result<Vec<Value>, Error> {
    let command = CustomCommand::new_static("CLUSTER", ClusterHash::FirstKey, false);
    let reply: Value = client.custom(command, vec!["SLOTS"]).await?;
    Ok(reply.into_array())
}

/// First and last hash slot of a range, and the primary that has them.
fn range_of(range: &Value, sender: &Host) -> Option<(usize, usize, Host)> {
    let Value::Array(parts) = range else {
        return None;
    };
    let [first, last, Value::Array(primary), ..] = parts.as_slice() else {
        return None;
    };
    let [name, port, ..] = primary.as_slice() else {
        return None;
    };
    let port = u16::try_from(port.as_u64()?).ok()?;
    let name = name
        .as_string()
        .filter(|name| !name.is_empty() && name != "?");
    let name = name.map_or_else(|| sender.name.clone(), Into::into);
    Some((slot_of(first)?, slot_of(last)?, Host { name, port }))
}

/// How many ranges a reply of CLUSTER SLOTS has that can be read.
pub(crate) fn ranges_of(reply: &Value) -> usize {
    let sender = Host {
        name: "sender".into(),
        port: 6379,
    };
    let ranges = reply.clone().into_array();
    let read = ranges.iter().filter_map(|range| range_of(range, &sender));
    read.count()
}

fn slot_of(value: &Value) -> Option<usize> {
    let slot = usize::try_from(value.as_u64()?).ok()?;
    (slot < HASH_SLOTS).then_some(slot)
}

/// Reads `host:port` of a redirection. The port is behind the last colon; IPv6 comes without
/// brackets.
fn address_of(text: &str, sender: &Host) -> Option<Host> {
    let (name, port) = text.rsplit_once(':')?;
    let name = name.trim_start_matches('[').trim_end_matches(']');
    let name = if name.is_empty() || name == "?" {
        sender.name.clone()
    } else {
        name.into()
    };
    Some(Host {
        name,
        port: port.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, port: u16) -> Host {
        Host {
            name: name.into(),
            port,
        }
    }

    #[test]
    fn redirections_name_the_server_to_ask() {
        fn read(text: &'static str) -> Option<Redirect> {
            Redirect::read(&Error::new(ErrorKind::Cluster, text), &host("h", 1))
        }
        assert_eq!(
            read("MOVED 3999 10.0.0.1:6381"),
            Some(Redirect::Moved(host("10.0.0.1", 6381)))
        );
        assert_eq!(
            read("MOVED 3999 :6381"),
            Some(Redirect::Moved(host("h", 6381)))
        );
        assert_eq!(
            read("ASK 3999 fd00::1:6381"),
            Some(Redirect::Ask(host("fd00::1", 6381)))
        );
        assert_eq!(
            read("TRYAGAIN Multiple keys request during rehashing of slot"),
            Some(Redirect::TryAgain)
        );
        assert_eq!(read("CLUSTERDOWN The cluster is down"), None);
    }
}
