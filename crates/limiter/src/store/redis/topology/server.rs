//! A Redis server, and a script run on it.
//!
//! Guarantees that a call carries a deadline in the time of the server that runs it, past which
//! that server refuses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fred::clients::Client;
use fred::error::{Error, ErrorKind};
use fred::interfaces::ClientLike;
use fred::types::Value;

use crate::clock;
use crate::store::StoreError;
use crate::store::redis::connection::error;
use crate::store::redis::script::{Input, Script, integer_of};
use crate::store::redis::topology::server_time::ServerTime;

/// A connection to a server, and an estimate of its clock.
pub(crate) struct Server {
    pub client: Client,
    time: ServerTime,
    timeout: Duration,
    reconnecting: AtomicBool,
}

/// Why there is no reply.
#[derive(Clone, Debug)]
pub(crate) enum CallError {
    /// The hash slot is moving between servers, and the keys are not all on one of them. A call for
    /// one key works.
    SlotMoving,
    /// The group is outside of the fixed window that it was sent, by the server's clock, which is
    /// known by now.
    Outside,
    Store(StoreError),
}

/// The first two numbers of a timed script's reply.
pub(crate) fn reply_head(reply: &Value) -> Option<(i64, i64)> {
    let Value::Array(parts) = reply else {
        return None;
    };
    let [done, now, ..] = parts.as_slice() else {
        return None;
    };
    Some((integer_of(done)?, integer_of(now)?))
}

impl CallError {
    /// The error of a call that nothing is left to be tried for. A key cannot be on two servers: a
    /// server that says so is wrong. One whose time is never that of the window is too slow.
    pub fn for_one_key(self) -> StoreError {
        match self {
            Self::SlotMoving => StoreError::Moved,
            Self::Outside => StoreError::Timeout,
            Self::Store(error) => error,
        }
    }
}

impl Server {
    pub fn new(client: Client, timeout: Duration) -> Self {
        Self {
            client,
            time: ServerTime::default(),
            timeout,
            reconnecting: AtomicBool::new(false),
        }
    }

    /// Runs a script. The client library bounds each try. A second one is needed only for a server
    /// that was not asked before, or has forgotten the script, and none begins when the time limit
    /// has passed.
    pub async fn run(
        &self,
        script: &Script,
        input: impl Fn(i64) -> Input,
        asking: bool,
    ) -> Result<Value, Error> {
        let sent_us = clock::monotonic_micros();
        let timeout = script.time_limit(self.timeout);
        let reply = script
            .run(
                &self.client,
                input(self.time.after(sent_us, timeout)),
                asking,
                self.timeout,
            )
            .await;
        if let Some(answer) = self.result(script, sent_us, reply) {
            return answer;
        }
        Box::pin(self.run_again(script, input, asking, sent_us)).await
    }

    /// Runs a script by its text, for a server that has forgotten it. Twice, since it may be a new
    /// server, whose time has to be learned first.
    async fn run_again(
        &self,
        script: &Script,
        input: impl Fn(i64) -> Input,
        asking: bool,
        since_us: u64,
    ) -> Result<Value, Error> {
        for _ in 0..2 {
            let sent_us = clock::monotonic_micros();
            let limit = script.time_limit(self.timeout);
            if Duration::from_micros(sent_us.saturating_sub(since_us)) >= limit {
                break;
            }
            let reply = script
                .run_text(&self.client, input(self.time.after(sent_us, limit)), asking)
                .await;
            if let Some(answer) = self.result(script, sent_us, reply) {
                return answer;
            }
        }
        Err(Error::new(ErrorKind::Timeout, "late"))
    }

    /// The result of a try. `None`: the call changed nothing and is to be repeated, because the
    /// server does not have the script, or refuses a late call. A late call is rightly refused when
    /// nobody waits for it any more. A call that is still awaited was refused because this node did
    /// not know the server's time, or no longer did; by now it does.
    fn result(
        &self,
        script: &Script,
        sent_us: u64,
        reply: Result<Value, Error>,
    ) -> Option<Result<Value, Error>> {
        match &reply {
            Err(error) if error.details().starts_with("NOSCRIPT") => return None,
            Ok(value) if script.timed => {
                let Some((done, now)) = reply_head(value) else {
                    return Some(Err(Error::new(
                        ErrorKind::Protocol,
                        "a reply without its head",
                    )));
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

    /// Reconnects when `error` says that the server is a replica now. A demoted server keeps its
    /// connections for as long as they are used. A new connection finds the primary, by its name or
    /// by the sentinels.
    pub fn leave_replica(self: &Arc<Self>, error: &Error) {
        if error::has_code(error.details(), "READONLY") {
            self.reconnect();
        }
    }

    /// Reconnects in the background, unless it is reconnecting already.
    pub fn reconnect(self: &Arc<Self>) {
        if !self.reconnecting.swap(true, Ordering::AcqRel) {
            let server = self.clone();
            tokio::spawn(async move {
                let _ = server.client.force_reconnection().await;
                server.reconnecting.store(false, Ordering::Release);
            });
        }
    }
}
