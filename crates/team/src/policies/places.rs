//! The places of work that takes much of the machine: each account has one at a time, so that no
//! account keeps the others waiting, and admins never wait for the others.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Documents that are read at a time: each takes many times its length while it is read.
pub const MOST_DOCUMENTS: usize = 2;

/// Long answers that are made, or wait to be taken: each may have all of the policies.
pub const MOST_READINGS: usize = 4;

/// Checks at a time: each reads all of the configuration.
pub const MOST_CHECKS: usize = 1;

/// How long an account waits for a place.
const PATIENCE: Duration = Duration::from_secs(10);

/// The places of one kind of work.
pub struct Places {
    shared: Arc<Semaphore>,
    /// The places of admins, who put right what others did.
    admins: Arc<Semaphore>,
    /// The place of each account that has one.
    accounts: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// The only place of an account.
pub struct OwnPlace {
    _permit: OwnedSemaphorePermit,
}

/// A place among those of all accounts, and the only one of its account.
pub struct AccountPlace {
    _own: OwnPlace,
    _shared: OwnedSemaphorePermit,
}

impl Places {
    /// Places for `most` accounts, and as many for admins.
    pub fn new(most: usize) -> Self {
        Self {
            shared: Arc::new(Semaphore::new(most)),
            admins: Arc::new(Semaphore::new(most)),
            accounts: Mutex::default(),
        }
    }

    /// Waits for a place of an account. `None`: none becomes free.
    pub async fn take(&self, account: &str, is_admin: bool) -> Option<AccountPlace> {
        let own = OwnPlace {
            _permit: acquired(self.of_account(account)).await?,
        };
        self.share(own, is_admin).await
    }

    /// The only place of an account. `None`: the account has it already.
    pub fn own(&self, account: &str) -> Option<OwnPlace> {
        let permit = self.of_account(account).try_acquire_owned().ok()?;
        Some(OwnPlace { _permit: permit })
    }

    /// Waits for a place among those of all accounts. `None`: none becomes free.
    pub async fn share(&self, own: OwnPlace, is_admin: bool) -> Option<AccountPlace> {
        let places = if is_admin { &self.admins } else { &self.shared };
        Some(AccountPlace {
            _own: own,
            _shared: acquired(places.clone()).await?,
        })
    }

    fn of_account(&self, account: &str) -> Arc<Semaphore> {
        let mut places = self.accounts.lock();
        places.retain(|_, place| Arc::strong_count(place) > 1);
        places
            .entry(account.to_owned())
            .or_insert_with(|| Arc::new(Semaphore::new(1)))
            .clone()
    }
}

async fn acquired(places: Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    timeout(PATIENCE, places.acquire_owned()).await.ok()?.ok()
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_account_that_takes_its_answer_slowly_keeps_nobody_else_waiting() {
        let places = Places::new(MOST_READINGS);
        let slow = places.take("ed", false).await.unwrap();
        assert!(places.take("ed", false).await.is_none());
        let others = ["ada", "bo", "cy"]
            .map(|account| places.take(account, false).now_or_never().unwrap().unwrap());
        assert!(
            places.take("di", false).await.is_none(),
            "so many at a time"
        );
        assert!(
            places.take("ada2", true).now_or_never().unwrap().is_some(),
            "admins have places of their own"
        );
        drop((slow, others));
        assert!(places.take("ed", false).now_or_never().unwrap().is_some());
    }

    #[tokio::test]
    async fn an_account_has_one_check_at_a_time_and_admins_do_not_wait_for_others() {
        let places = Places::new(MOST_CHECKS);
        let first = places.take("ed", false).now_or_never().unwrap().unwrap();
        assert!(places.own("ed").is_none(), "no wait for itself");
        let own = places.own("bo").unwrap();
        let mut waiting = Box::pin(places.share(own, false));
        assert!(
            waiting.as_mut().now_or_never().is_none(),
            "one check at a time"
        );
        assert!(places.own("bo").is_none(), "its place in the line is taken");
        let admin = places.take("ada", true).now_or_never();
        assert!(
            admin.expect("admins have a place of their own").is_some(),
            "admins do not wait"
        );
        drop(first);
        assert!(waiting.await.is_some());
        assert!(places.take("ed", false).now_or_never().unwrap().is_some());
    }
}
