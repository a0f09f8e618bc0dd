//! The servers of a store, and which of them to ask.
//!
//! Guarantees that a call carries a deadline in the time of the server that runs it, past which that server refuses. Refuses
//! to know what the scripts do, but for the head that the replies of timed ones share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fred::clients::Client;
use fred::error::{Error, ErrorKind};
use fred::interfaces::ClientLike;
use fred::types::{FromValue, Value};

use crate::clock;
use crate::store::StoreError;
use crate::store::redis::address::ServerLocation;
use crate::store::redis::client::{ConnectError, Dial, Voice};
use crate::store::redis::error;
use crate::store::redis::script::{Input, Script};
use crate::store::redis::spec::RedisSpec;
use crate::store::redis::time::ServerTime;
use crate::store::redis::topology::cluster::Cluster;
use crate::store::redis::topology::sentinel::{self, Watch};

/// One server, whichever it is by now, or a cluster of them.
pub(crate) enum Topology {
    One(Arc<Server>),
    Watched(Arc<Server>, Watch),
    Cluster(Cluster),
}

/// A server, and what is known of its clock.
pub(crate) struct Server {
    pub client: Client,
    time: ServerTime,
    timeout: Duration,
    moving: AtomicBool,
}

/// Why there is no reply.
#[derive(Debug)]
pub(crate) enum CallError {
    /// The keys share a slot, but just now not a server: one at a time they can be had.
    Apart,
    Store(StoreError),
}

impl Topology {
    pub fn start(spec: &RedisSpec, timeout: Duration, voice: Voice) -> Result<Self, ConnectError> {
        let dial = Dial::new(spec, timeout, voice)?;
        match dial.place {
            ServerLocation::Cluster(_) => Cluster::start(dial).map(Self::Cluster),
            ServerLocation::Server(_) | ServerLocation::Socket(_) => Ok(Self::One(dial_one(&dial)?)),
            ServerLocation::Sentinel { ref sentinels, ref service, .. } => {
                let peer = dial_one(&dial)?;
                let watch = sentinel::watch(&dial, sentinels, service, peer.clone())?;
                Ok(Self::Watched(peer, watch))
            }
        }
    }

    /// Every key has the same server.
    pub fn is_one(&self) -> bool {
        !matches!(self, Self::Cluster(_))
    }

    /// Runs a script on the server that has `slot`, the one of all its keys. `input` makes KEYS and ARGV, given the
    /// deadline.
    pub async fn run<R: FromValue>(
        &self,
        script: &Script,
        slot: u16,
        input: impl Fn(i64) -> Input,
    ) -> Result<R, CallError> {
        let reply = match self {
            // Boxed, like all that few calls need: the room for it would be moved with every call.
            Self::Cluster(cluster) => Box::pin(cluster.run(script, slot, input)).await?,
            Self::One(peer) | Self::Watched(peer, _) => peer.run(script, &input, false).await.map_err(|error| {
                peer.leave_replica(&error);
                CallError::Store(error::store_error(&error))
            })?,
        };
        reply.convert().map_err(|_| CallError::Store(StoreError::Protocol))
    }

    /// Closes all connections.
    pub async fn quit(&self) {
        match self {
            Self::Cluster(cluster) => cluster.quit().await,
            Self::One(peer) => peer.quit().await,
            Self::Watched(peer, watch) => drop(tokio::join!(watch.quit(), peer.quit())),
        }
    }
}

/// Of a timed script's reply.
fn head(reply: &Value) -> Option<(i64, i64)> {
    let Value::Array(parts) = reply else { return None };
    let [done, now, ..] = parts.as_slice() else { return None };
    Some((done.as_i64()?, now.as_i64()?))
}

fn dial_one(dial: &Dial) -> Result<Arc<Server>, ConnectError> {
    Ok(Arc::new(Server::new(dial.start()?, dial.timeout)))
}

impl CallError {
    /// One key is not apart from itself, unless its server says so in error.
    pub fn of_one_key(self) -> StoreError {
        match self {
            Self::Apart => StoreError::Moved,
            Self::Store(error) => error,
        }
    }
}

impl Server {
    pub fn new(client: Client, timeout: Duration) -> Self {
        Self { client, time: ServerTime::default(), timeout, moving: AtomicBool::new(false) }
    }

    /// Ends within the time limit: the client library sees to the first try, which is the only one but for those servers that
    /// were not asked before, or forgot.
    pub async fn run(&self, script: &Script, input: impl Fn(i64) -> Input, asking: bool) -> Result<Value, Error> {
        let sent_us = clock::monotonic_micros();
        let reply = script.run(&self.client, input(self.deadline(sent_us)), asking).await;
        if let Some(answer) = self.judge(script, sent_us, reply) {
            return answer;
        }
        let spent = Duration::from_micros(clock::monotonic_micros().saturating_sub(sent_us));
        let again = Box::pin(self.run_again(script, input, asking));
        let answer = tokio::time::timeout(self.timeout.saturating_sub(spent), again).await;
        answer.unwrap_or_else(|_| Err(Error::new(ErrorKind::Timeout, "no time to repeat")))
    }

    /// By its text, for a server that has forgotten the script; twice, for it may be a new one, with a time of its own.
    async fn run_again(&self, script: &Script, input: impl Fn(i64) -> Input, asking: bool) -> Result<Value, Error> {
        for _ in 0..2 {
            let sent_us = clock::monotonic_micros();
            let reply = script.run_text(&self.client, input(self.deadline(sent_us)), asking).await;
            if let Some(answer) = self.judge(script, sent_us, reply) {
                return answer;
            }
        }
        Err(Error::new(ErrorKind::Timeout, "late"))
    }

    fn deadline(&self, sent_us: u64) -> i64 {
        self.time.after(sent_us, self.timeout)
    }

    /// `None`: it changed nothing, and is to be repeated. The server does not have the script, or refuses a call for being late,
    /// which is right for one that nobody waits for any more. For one that is still awaited it means that this node does not
    /// know the server's time, or no longer: by then it does.
    fn judge(&self, script: &Script, sent_us: u64, reply: Result<Value, Error>) -> Option<Result<Value, Error>> {
        match &reply {
            Err(error) if error.details().starts_with("NOSCRIPT") => return None,
            Ok(value) if script.timed => {
                let Some((done, now)) = head(value) else {
                    return Some(Err(Error::new(ErrorKind::Protocol, "a reply without its head")));
                };
                self.time.learn(sent_us, now);
                if done < 0 {
                    return None;
                }
            }
            _ => {}
        }
        Some(reply)
    }

    pub async fn quit(&self) {
        // A connection that cannot even be closed is gone already.
        let _ = tokio::time::timeout(self.timeout, self.client.quit()).await;
    }

    /// A server that was demoted keeps its connections, for as long as they are used. Connecting anew finds the primary,
    /// where a name or the sentinels tell it.
    fn leave_replica(self: &Arc<Self>, error: &Error) {
        if error::has_code(error.details(), "READONLY") {
            self.connect_anew();
        }
    }

    /// At once, unless it does so already.
    pub fn connect_anew(self: &Arc<Self>) {
        if !self.moving.swap(true, Ordering::AcqRel) {
            let peer = self.clone();
            tokio::spawn(async move {
                let _ = peer.client.force_reconnection().await;
                peer.moving.store(false, Ordering::Release);
            });
        }
    }
}
