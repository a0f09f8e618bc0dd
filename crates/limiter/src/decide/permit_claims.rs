//! Claims of permits: how this node asks the fleet's store for permits and keeps the store told of what it holds.
//!
//! Guarantees that requests which need an answer wait for one call together, each no longer than the store's time limit.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{sleep, timeout_at};

use crate::algorithm::concurrency::LEASE_US;
use crate::algorithm::level::Level;
use crate::clock;
use crate::decide::store_client::StoreClient;
use crate::node::permits::{ConcurrencyPermit, PermitNeed, PermitTable, RENEW_US, Step, UpkeepPace};

/// Permits that were not needed for so long are given back.
const IDLE: Duration = Duration::from_millis(10);

/// Keys of one call of the upkeep.
const KEYS_OF_A_CALL: usize = 64;

/// The task that renews claims and returns spare permits, of which there is one at a time. Dropped with its runtime: another
/// may start.
struct Upkeep(Option<Arc<PermitTable>>);

/// Takes one of the fleet's permits, if there is one. `None`: the store did not answer in time.
pub(crate) async fn claim_permit(
    client: &Arc<StoreClient>,
    need: &PermitNeed,
) -> Option<Result<(ConcurrencyPermit, Level), Level>> {
    let table = &client.node.permits;
    let deadline = clock::now() + client.patience();
    let _waiting = table.wait(need);
    keep_claims(client);
    let mut waited = false;
    loop {
        match table.next_step(need) {
            Step::Done(outcome) => return Some(outcome),
            Step::Wait(answered) => {
                timeout_at(deadline, answered).await.ok()?;
                waited = true;
            }
            Step::Claim(claim) => {
                let under_way = table.begin_claim(&need.key);
                let sent_us = clock::monotonic_micros();
                let call = client.claim(std::slice::from_ref(&claim));
                // A call has a time limit of its own, and one that reaches it must be heard of. Who waited has less.
                let granted = if waited { timeout_at(deadline, call).await.ok()? } else { call.await };
                table.learn(&claim, granted?.first().copied()?, sent_us);
                drop(under_way);
                return Some(table.take_after_claim(need));
            }
        }
    }
}

/// Renews claims and returns spare permits in the background, as long as there are any.
pub(crate) fn keep_claims(client: &Arc<StoreClient>) {
    if let Ok(runtime) = Handle::try_current()
        && client.node.permits.start_upkeep()
    {
        let upkeep = Upkeep(Some(client.node.permits.clone()));
        runtime.spawn(upkeep.run(client.clone()));
    }
}

impl Upkeep {
    async fn run(mut self, client: Arc<StoreClient>) {
        while let Some(table) = self.0.clone() {
            let (claims, pace) = table.due_claims(clock::monotonic_micros());
            for claims in claims.chunks(KEYS_OF_A_CALL) {
                let sent_us = clock::monotonic_micros();
                // While the store is away, the next upkeep claims again.
                let granted = if client.node.breaker.is_open() { None } else { client.claim(claims).await };
                for (claim, granted) in claims.iter().zip(granted.into_iter().flatten()) {
                    table.learn(claim, granted, sent_us);
                }
            }
            match pace {
                UpkeepPace::Done => self.end(),
                UpkeepPace::Soon => sleep(IDLE).await,
                UpkeepPace::Later => tokio::select! {
                    () = table.until_returned() => sleep(IDLE).await,
                    () = sleep(Duration::from_micros(LEASE_US - RENEW_US)) => {}
                },
            }
        }
    }

    fn end(&mut self) {
        self.0 = self.0.take().filter(|table| table.end_upkeep());
    }
}

impl Drop for Upkeep {
    fn drop(&mut self) {
        if let Some(table) = self.0.take() {
            table.abandon_upkeep();
        }
    }
}
