//! Leaves a primary that the sentinels no longer name.
//!
//! The client library asks the sentinels only when it connects. A primary that lost a failover while it was up, because
//! only the sentinels could not reach it or an operator moved it away, takes writes for seconds more, and whatever it is
//! told is lost with it. Guarantees that a node follows the sentinels' word within about a second.

use std::sync::Arc;
use std::time::Duration;

use fred::clients::Client;
use fred::interfaces::ClientLike;
use fred::types::{ClusterHash, CustomCommand};
use futures_util::future::join_all;
use tokio::task::AbortHandle;

use crate::store::redis::address::Host;
use crate::store::redis::client::{ConnectError, Dial};
use crate::store::redis::topology::link::Server;

/// Between two looks, each one command to one sentinel.
const LOOK: Duration = Duration::from_millis(500);

/// To answer. No request waits for it.
const PATIENCE: Duration = Duration::from_millis(500);

/// Ends when dropped.
pub(crate) struct Watch {
    sentinels: Arc<[Client]>,
    task: AbortHandle,
}

/// Watches over `peer`'s connection, in the current runtime.
pub(crate) fn watch(dial: &Dial, sentinels: &[Host], service: &str, peer: Arc<Server>) -> Result<Watch, ConnectError> {
    let sentinels: Arc<[Client]> = sentinels.iter().map(|host| dial.start_sentinel(host)).collect::<Result<_, _>>()?;
    let (service, clients) = (service.to_owned(), sentinels.clone());
    let task = tokio::spawn(async move {
        let mut last = None;
        loop {
            tokio::time::sleep(LOOK).await;
            let Some(primary) = ask(&clients, &service).await else { continue };
            let connected = peer.client.active_connections();
            let elsewhere = !connected.is_empty()
                && !connected.iter().any(|server| server.host == primary.0 && server.port == primary.1);
            if elsewhere || last.as_ref().is_some_and(|last| *last != primary) {
                tracing::info!(primary = %format_args!("{}:{}", primary.0, primary.1), "the sentinels name another primary");
                peer.connect_anew();
            }
            last = Some(primary);
        }
    });
    Ok(Watch { sentinels, task: task.abort_handle() })
}

impl Watch {
    /// Stops watching and closes its connections.
    pub async fn quit(&self) {
        self.task.abort();
        let quits = self.sentinels.iter().map(|sentinel| tokio::time::timeout(PATIENCE, sentinel.quit()));
        join_all(quits).await;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The first sentinel that answers.
async fn ask(sentinels: &[Client], service: &str) -> Option<(String, u16)> {
    for sentinel in sentinels {
        let command = CustomCommand::new_static("SENTINEL", ClusterHash::FirstKey, false);
        let asked = sentinel.custom::<Option<(String, u16)>, _>(command, vec!["GET-MASTER-ADDR-BY-NAME", service]);
        if let Ok(Ok(Some(primary))) = tokio::time::timeout(PATIENCE, asked).await {
            return Some(primary);
        }
    }
    None
}
