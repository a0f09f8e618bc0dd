//! Leaves a primary that the sentinels no longer name.
//!
//! The client library asks the sentinels only when it connects. A primary may lose a failover while
//! it is up, because only the sentinels could not reach it, or an operator moved it. It then takes
//! writes for seconds more, and all of them are lost with it. Guarantees that a node follows the
//! sentinels within about a second.

use std::sync::Arc;
use std::time::Duration;

use fred::clients::Client;
use fred::interfaces::ClientLike;
use fred::types::{ClusterHash, CustomCommand};
use futures_util::future::join_all;
use tokio::task::AbortHandle;

use crate::store::redis::connection::address::Host;
use crate::store::redis::connection::connector::{ConnectError, Connector};
use crate::store::redis::topology::server::Server;

/// Between two questions, each one command to one sentinel.
const INTERVAL: Duration = Duration::from_millis(500);

/// For a sentinel's answer. No request waits for it.
const TIMEOUT: Duration = Duration::from_millis(500);

/// Asks the sentinels for the primary, until it is dropped.
pub(crate) struct SentinelWatcher {
    sentinels: Arc<[Client]>,
    task: AbortHandle,
}

impl SentinelWatcher {
    /// Watches over the connection of `server`, in the current runtime.
    pub fn start(
        connector: &Connector,
        sentinels: &[Host],
        service: &str,
        server: Arc<Server>,
    ) -> Result<Self, ConnectError> {
        let sentinels: Arc<[Client]> = sentinels
            .iter()
            .map(|host| connector.connect_sentinel(host))
            .collect::<Result<_, _>>()?;
        let task =
            tokio::spawn(watch(sentinels.clone(), service.to_owned(), server)).abort_handle();
        Ok(Self { sentinels, task })
    }

    /// Stops watching and closes its connections.
    pub async fn quit(&self) {
        self.task.abort();
        let quits = self
            .sentinels
            .iter()
            .map(|sentinel| tokio::time::timeout(TIMEOUT, sentinel.quit()));
        join_all(quits).await;
    }
}

impl Drop for SentinelWatcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn watch(sentinels: Arc<[Client]>, service: String, server: Arc<Server>) {
    let mut last = None;
    loop {
        tokio::time::sleep(INTERVAL).await;
        let Some(primary) = primary(&sentinels, &service).await else {
            continue;
        };
        let connected = server.client.active_connections();
        let elsewhere = !connected.is_empty()
            && !connected
                .iter()
                .any(|known| known.host == primary.0 && known.port == primary.1);
        if elsewhere || last.as_ref().is_some_and(|last| *last != primary) {
            tracing::info!(primary = %format_args!("{}:{}", primary.0, primary.1), "the sentinels name another primary");
            server.reconnect();
        }
        last = Some(primary);
    }
}

/// The primary, as the first sentinel that answers names it.
async fn primary(sentinels: &[Client], service: &str) -> Option<(String, u16)> {
    for sentinel in sentinels {
        let command = CustomCommand::new_static("SENTINEL", ClusterHash::FirstKey, false);
        let call = sentinel
            .custom::<Option<(String, u16)>, _>(command, vec!["GET-MASTER-ADDR-BY-NAME", service]);
        if let Ok(Ok(Some(primary))) = tokio::time::timeout(TIMEOUT, call).await {
            return Some(primary);
        }
    }
    None
}
