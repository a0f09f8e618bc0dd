//! Claims permits for this node from the fleet's store, and renews the claims.
//!
//! Guarantees that requests which need an answer share one call, and that none waits beyond its deadline.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{sleep, timeout_at};

use crate::algorithm::concurrency::LEASE_US;
use crate::algorithm::level::Level;
use crate::clock::{self, Instant};
use crate::decide::store_client::StoreClient;
use crate::node::permits::{ConcurrencyPermit, PermitNeed, PermitStep, PermitTable, RENEW_US, UpkeepPace};

/// Permits that were not needed for so long are given back.
const IDLE: Duration = Duration::from_millis(10);

/// Keys of one call of the upkeep.
const KEYS_OF_A_CALL: usize = 64;

/// The task that renews claims and returns spare permits. There is one at a time; when it is dropped with its runtime,
/// another may start.
struct Upkeep(Option<Arc<PermitTable>>);

/// Takes one of the fleet's permits, if there is one. `None`: the store did not answer by `deadline`.
pub(crate) async fn claim_permit(
    client: &Arc<StoreClient>,
    need: &PermitNeed,
    deadline: Instant,
) -> Option<Result<(ConcurrencyPermit, Level), Level>> {
    let table = &client.node.permits;
    let _waiting = table.wait(need);
    keep_claims(client);
    loop {
        match table.next_step(need) {
            PermitStep::Done(outcome) => return Some(outcome),
            PermitStep::Wait(answered) => {
                timeout_at(deadline, answered).await.ok()?;
            }
            PermitStep::Claim(claim) => {
                let claim_guard = table.begin_claim(&need.key);
                let sent_us = clock::monotonic_micros();
                let granted = client.claim_by(std::slice::from_ref(&claim), deadline).await;
                table.learn(&claim, granted?.first().copied()?, sent_us);
                drop(claim_guard);
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
            let (mut claims, pace) = table.claims_to_make(clock::monotonic_micros());
            // While their server is away, the next upkeep claims again.
            claims.retain(|claim| !client.has_permits_away(&claim.key));
            for claims in claims.chunks(KEYS_OF_A_CALL) {
                let sent_us = clock::monotonic_micros();
                let granted = client.claim(claims).await;
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
