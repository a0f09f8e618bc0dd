//! Claims permits for this node from the fleet's store, renews the claims, and gives permits back.
//!
//! A permit is a place of a limit of requests in flight. A claim tells the store how many permits
//! of a key this node holds until a time: by a new one it takes more, keeps them, or gives some
//! back.
//!
//! Guarantees that requests which need an answer share one call, each waiting no longer than its
//! deadline. A call goes on when nobody waits for it any more: its answer is learned all the same.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::runtime::Handle;
use tokio::time::{sleep, sleep_until, timeout_at};

use crate::algorithm::level::Level;
use crate::clock::{self, Instant};
use crate::decide::store_client::StoreClient;
use crate::limit::key::Key;
use crate::node::permits::upkeep::ClaimsUnderWay;
use crate::node::permits::{ConcurrencyPermit, PermitNeed, PermitTable, PermitWait, SHARDS};

/// The time between two rounds of the upkeep. Permits that no request needed from one round to the
/// next are given back.
const IDLE: Duration = Duration::from_millis(10);

/// The pause before permits that other nodes wait for are given back: requests that end meanwhile
/// free more of them, which go in the same call.
const URGENT: Duration = Duration::from_millis(1);

/// The time between two looks for claims to renew. Each is at one shard of the keys, so that all
/// are looked at every 400 ms: a claim lasts for three seconds.
const RENEWALS: Duration = Duration::from_millis(400 / SHARDS as u64);

/// Keys of one call of the upkeep at most: more would hold up the calls of requests in the store.
const KEYS_OF_A_CALL: usize = 64;

/// Calls of the upkeep at a time at most.
const CALLS_AT_A_TIME: usize = 8;

/// The task that renews claims and returns spare permits. There is one at a time; when it is
/// dropped with its runtime, another may start.
struct Upkeep {
    client: Arc<StoreClient>,
    /// Until [`Self::run`] has ended: dropped before, its runtime has ended, and another may start.
    is_running: bool,
}

/// Takes one of the fleet's permits, if one is free, and says how much of the limit is left.
/// `None`: the store failed, or did not answer by `deadline`.
pub(crate) async fn claim_permit(
    client: &Arc<StoreClient>,
    need: &PermitNeed,
    deadline: Instant,
) -> Option<Result<(ConcurrencyPermit, Level), Level>> {
    let waiting = match client.node.permits.wait(need) {
        PermitWait::Done(outcome) => return Some(outcome),
        PermitWait::Joined(waiting) => waiting,
        PermitWait::Claiming(waiting) => {
            tokio::spawn(claim_for_waiters(client.clone(), need.key.clone()));
            waiting
        }
    };
    keep_claims(client);
    timeout_at(deadline, waiting.outcome()).await.ok()?
}

/// Claims permits of `key` again and again, until a claim has asked for each request that waits.
/// Requests that come before this runs are in the first claim.
async fn claim_for_waiters(client: Arc<StoreClient>, key: Key) {
    while let Some(claims) = client.node.permits.claim_for_waiters(&key) {
        if send_claims(&client, claims).await.is_empty() {
            return;
        }
    }
}

/// Sends claims in one call, all for keys on one server. Returns the keys for which requests still
/// wait.
async fn send_claims(client: &StoreClient, mut claims: ClaimsUnderWay) -> Vec<Key> {
    // A server that is away is not asked. The upkeep claims again later.
    let away = claims
        .first()
        .is_some_and(|claim| client.has_permits_away(&claim.key));
    let granted = if away {
        None
    } else {
        client.claim(claims.send()).await
    };
    claims.end(granted.as_deref())
}

/// Sends claims in as many calls as needed, several at a time.
async fn send_all(client: &Arc<StoreClient>, claims: ClaimsUnderWay) {
    let mut parts = claims.split(KEYS_OF_A_CALL, |claim| {
        client.store.server_of_permits(&claim.key)
    });
    while !parts.is_empty() {
        let batch = parts.split_off(parts.len().saturating_sub(CALLS_AT_A_TIME));
        for key in join_all(batch.into_iter().map(|claims| send_claims(client, claims)))
            .await
            .concat()
        {
            tokio::spawn(claim_for_waiters(client.clone(), key));
        }
    }
}

/// Renews claims and returns spare permits in the background, as long as there are any.
pub(crate) fn keep_claims(client: &Arc<StoreClient>) {
    if let Ok(runtime) = Handle::try_current()
        && client.node.permits.start_upkeep()
    {
        runtime.spawn(
            Upkeep {
                client: client.clone(),
                is_running: true,
            }
            .run(),
        );
    }
}

/// Gives back all permits that no request uses, at the end of the process. Each key is offered
/// once, also to a store that is away; the caller bounds the time.
pub(crate) async fn leave_permits(client: &Arc<StoreClient>) {
    let table = &client.node.permits;
    loop {
        let ended = table.ended_claims().notified();
        tokio::pin!(ended);
        ended.as_mut().enable();
        let (claims, others_under_way) = table.last_claims();
        if claims.is_empty() && !others_under_way {
            return;
        }
        if claims.is_empty() {
            ended.await;
        } else {
            send_all(client, claims).await;
        }
    }
}

impl Upkeep {
    async fn run(mut self) {
        let client = self.client.clone();
        let table = self.client.node.permits.clone();
        let mut shard = 0;
        let mut renews_at = clock::now();
        loop {
            let (claims, again) = table.claims_on_visit();
            send_all(&client, claims).await;
            if clock::now() >= renews_at {
                send_all(&client, table.renewals(shard)).await;
                (shard, renews_at) = ((shard + 1) % SHARDS, renews_at + RENEWALS);
                if table.end_upkeep() {
                    self.is_running = false;
                    return;
                }
            }
            tokio::select! {
                () = table.urgent_visits().notified() => sleep(URGENT).await,
                () = until_next_round(&table, again, renews_at) => {}
            }
        }
    }
}

/// Waits until keys that need a visit have had time to settle, or until renewals are due.
async fn until_next_round(table: &PermitTable, again: bool, renews_at: Instant) {
    if !again {
        tokio::select! {
            () = sleep_until(renews_at) => return,
            () = table.visits().notified() => {}
        }
    }
    sleep(IDLE).await;
}

impl Drop for Upkeep {
    fn drop(&mut self) {
        if self.is_running {
            self.client.node.permits.abandon_upkeep();
        }
    }
}
