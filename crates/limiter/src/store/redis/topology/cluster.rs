//! A Redis Cluster: which server has which slot, also while slots move.
//!
//! Guarantees that redirections are followed within the caller's time, each command on the connection of the server it is
//! for, and that the map is renewed when it proves wrong or a server fails. Refuses to know keys.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use fred::clients::Client;
use fred::error::Error;
use fred::interfaces::ClientLike;
use fred::types::{ClusterHash, CustomCommand, Value};
use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::store::StoreError;
use crate::store::redis::address::{Host, ServerLocation};
use crate::store::redis::client::{ConnectError, Dial};
use crate::store::redis::error;
use crate::store::redis::script::{Input, Script};
use crate::store::redis::topology::link::{CallError, Server};

/// Slots of a cluster, by its specification.
const SLOTS: usize = 16_384;

/// Redirections of one call: a map that is behind costs one, a slot on the move another.
const HOPS: u32 = 4;

/// The map is renewed this often also when nothing proves it wrong, and not more often than that when something does.
const RENEWAL: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(100);

/// To tell the map. No request waits for it.
const PATIENCE: Duration = Duration::from_millis(500);

/// Closed when dropped.
pub(crate) struct Cluster {
    nodes: Arc<Nodes>,
    renewal: AbortHandle,
}

struct Nodes {
    dial: Dial,
    seeds: Vec<Host>,
    /// Of the worker, where all of its connections live.
    runtime: Handle,
    map: Mutex<Map>,
    doubt: Notify,
}

struct Map {
    peers: HashMap<Host, Arc<Server>>,
    /// By slot. Empty: nobody said yet.
    owners: Vec<Option<Host>>,
}

/// From a server that does not have the slot, or not all of it.
#[derive(Debug, PartialEq, Eq)]
enum Redirect {
    Moved(Host),
    BucketCharge(Host),
    Apart,
}

impl Cluster {
    /// Starts connecting, in the current runtime.
    pub fn start(dial: Dial) -> Result<Self, ConnectError> {
        let seeds = match &dial.place {
            ServerLocation::Cluster(seeds) => seeds.clone(),
            _ => return Err(ConnectError::Client),
        };
        let map = Mutex::new(Map { peers: HashMap::new(), owners: vec![None; SLOTS] });
        let nodes = Arc::new(Nodes { dial, seeds, runtime: Handle::current(), map, doubt: Notify::new() });
        for seed in &nodes.seeds {
            nodes.peer(seed)?;
        }
        let renewal = tokio::spawn(renew(nodes.clone())).abort_handle();
        Ok(Self { nodes, renewal })
    }

    /// Runs a script on whoever has `slot`.
    pub async fn run(&self, script: &Script, slot: u16, input: impl Fn(i64) -> Input) -> Result<Value, CallError> {
        let refused = |_| CallError::Store(StoreError::Io);
        let mut host = self.nodes.owner(slot);
        let mut asking = false;
        for _ in 0..=HOPS {
            let peer = self.nodes.peer(&host).map_err(refused)?;
            let error = match peer.run(script, &input, asking).await {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            match Redirect::read(&error, &host) {
                Some(Redirect::Moved(to)) => {
                    self.nodes.learn(slot, &to);
                    (host, asking) = (to, false);
                }
                Some(Redirect::BucketCharge(to)) => (host, asking) = (to, true),
                Some(Redirect::Apart) => return Err(CallError::Apart),
                None => {
                    self.nodes.doubt.notify_one();
                    return Err(CallError::Store(error::store_error(&error)));
                }
            }
        }
        Err(CallError::Store(StoreError::Moved))
    }

    pub async fn quit(&self) {
        self.renewal.abort();
        let peers: Vec<_> = self.nodes.map.lock().peers.drain().map(|(_, peer)| peer).collect();
        join_all(peers.iter().map(|peer| peer.quit())).await;
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.renewal.abort();
    }
}

impl Nodes {
    /// Anyone, as long as nobody is known: who is asked will say.
    fn owner(&self, slot: u16) -> Host {
        let map = self.map.lock();
        let known = map.owners.get(usize::from(slot)).and_then(Option::as_ref);
        known.or_else(|| self.seeds.first()).cloned().unwrap_or_else(|| Host { name: "".into(), port: 0 })
    }

    fn peer(&self, host: &Host) -> Result<Arc<Server>, ConnectError> {
        let mut map = self.map.lock();
        if let Some(peer) = map.peers.get(host) {
            return Ok(peer.clone());
        }
        let _inside = self.runtime.enter();
        let peer = Arc::new(Server::new(self.dial.start_node(host)?, self.dial.timeout));
        map.peers.insert(host.clone(), peer.clone());
        Ok(peer)
    }

    fn learn(&self, slot: u16, owner: &Host) {
        if let Some(known) = self.map.lock().owners.get_mut(usize::from(slot)) {
            *known = Some(owner.clone());
        }
        self.doubt.notify_one();
    }

    /// The map as some server has it; connects to those that are new in it and lets go of those that left.
    async fn renew(&self) {
        let asked: Vec<_> = self.map.lock().peers.iter().map(|(host, peer)| (host.clone(), peer.clone())).collect();
        for (host, peer) in asked {
            let answer = tokio::time::timeout(PATIENCE, slots(&peer.client)).await;
            if let Ok(Ok(ranges)) = answer {
                let ranges: Vec<_> = ranges.iter().filter_map(|range| range_of(range, &host)).collect();
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
            let stays = |host: &Host| self.seeds.contains(host) || ranges.iter().any(|(_, _, known)| known == host);
            let gone: Vec<_> = map.peers.keys().filter(|host| !stays(host)).cloned().collect();
            gone.iter().filter_map(|host| map.peers.remove(host)).collect()
        };
        for (_, _, host) in ranges {
            // Without it, who asks for it starts it.
            drop(self.peer(host));
        }
        join_all(gone.iter().map(|peer| peer.quit())).await;
    }
}

impl Redirect {
    /// A server that does not know its own name leaves it out: then it is the one that `asked` was reached by.
    fn read(error: &Error, asked: &Host) -> Option<Self> {
        let mut words = error.details().split_ascii_whitespace();
        let (code, _slot, address) = (words.next()?, words.next(), words.next());
        let to = || address_of(address?, asked);
        match code {
            "MOVED" => to().map(Self::Moved),
            "ASK" => to().map(Self::BucketCharge),
            "TRYAGAIN" => Some(Self::Apart),
            _ => None,
        }
    }
}

async fn renew(nodes: Arc<Nodes>) {
    loop {
        nodes.renew().await;
        tokio::time::sleep(PAUSE).await;
        let _ = tokio::time::timeout(RENEWAL, nodes.doubt.notified()).await;
    }
}

async fn slots(client: &Client) -> Result<Vec<Value>, Error> {
    let command = CustomCommand::new_static("CLUSTER", ClusterHash::FirstKey, false);
    let reply: Value = client.custom(command, vec!["SLOTS"]).await?;
    Ok(reply.into_array())
}

/// First and last slot, and the primary that has them.
fn range_of(range: &Value, asked: &Host) -> Option<(usize, usize, Host)> {
    let Value::Array(parts) = range else { return None };
    let [first, last, Value::Array(primary), ..] = parts.as_slice() else { return None };
    let [name, port, ..] = primary.as_slice() else { return None };
    let slot = |value: &Value| usize::try_from(value.as_u64()?).ok().filter(|slot| *slot < SLOTS);
    let port = u16::try_from(port.as_u64()?).ok()?;
    let name = name.as_string().filter(|name| !name.is_empty() && name != "?");
    let name = name.map_or_else(|| asked.name.clone(), Into::into);
    Some((slot(first)?, slot(last)?, Host { name, port }))
}

/// `host:port` of a redirection: the port is behind the last colon, IPv6 without brackets.
fn address_of(text: &str, asked: &Host) -> Option<Host> {
    let (name, port) = text.rsplit_once(':')?;
    let name = name.trim_start_matches('[').trim_end_matches(']');
    let name = if name.is_empty() || name == "?" { asked.name.clone() } else { name.into() };
    Some(Host { name, port: port.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use fred::error::ErrorKind;

    use super::*;

    fn host(name: &str, port: u16) -> Host {
        Host { name: name.into(), port }
    }

    #[test]
    fn redirections_name_who_is_to_be_asked() {
        let read = |text: &'static str| Redirect::read(&Error::new(ErrorKind::Cluster, text), &host("h", 1));
        assert_eq!(read("MOVED 3999 10.0.0.1:6381"), Some(Redirect::Moved(host("10.0.0.1", 6381))));
        assert_eq!(read("MOVED 3999 :6381"), Some(Redirect::Moved(host("h", 6381))));
        assert_eq!(read("ASK 3999 fd00::1:6381"), Some(Redirect::BucketCharge(host("fd00::1", 6381))));
        assert_eq!(read("TRYAGAIN Multiple keys request during rehashing of slot"), Some(Redirect::Apart));
        assert_eq!(read("CLUSTERDOWN The cluster is down"), None);
    }
}
