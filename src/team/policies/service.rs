//! Policies as people change them: the database, the check of a draft, and the notice that there is
//! a new revision.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;
use tollgate_limiter::limit::key::Key;
use tollgate_limiter::store::inspect::{ChangeNotice, Inspect};
use tollgate_policies::database::PolicyDatabase;
use tollgate_policies::model::{ObjectId, ObjectKind, PolicyState, Position};

use crate::admin::problem_details::ProblemDetails;
use crate::config::Mistakes;

/// Stands for the policies among the buckets that operators changed. `!` starts no limit's name, so
/// no bucket has this key.
const NOTICE_KEY: &str = "!policies";

/// A document takes many times its length while it is read: more of them at a time would take what
/// requests need.
const MOST_DOCUMENTS: usize = 2;
/// Long answers that are made, or wait to be taken: each may have all of the policies.
const MOST_READINGS: usize = 4;

/// How long a change waits for others.
const PATIENCE: Duration = Duration::from_secs(10);

/// A check reads all of the configuration: more of them at a time would take what requests need.
const MOST_CHECKS: usize = 1;

/// Judges the file of this node with policies laid over it.
pub type PolicyCheck = Arc<dyn Fn(&PolicyState) -> Result<(), Mistakes> + Send + Sync>;

/// The policies of a gateway that has a database of them.
pub struct PolicyService {
    pub database: PolicyDatabase,
    check: PolicyCheck,
    running: watch::Receiver<PolicyState>,
    /// Wakes the follower of this node.
    wake: Arc<Notify>,
    /// Of a gateway with a store.
    notices: Option<Arc<dyn Inspect>>,
    /// Documents that are read, and long answers that are made, at a time.
    documents: Arc<Semaphore>,
    documents_of_admins: Arc<Semaphore>,
    readings: ReadingPlaces,
    /// Accounts whose documents are read.
    account_places: AccountPlaces,
    /// Changes that are checked at a time.
    pub checks: CheckPlaces,
}

/// A place among those of all accounts, and the only one of its account.
pub struct AccountPlace {
    _own: OwnedSemaphorePermit,
    _shared: OwnedSemaphorePermit,
}

/// A place for each account that changes something.
#[derive(Default)]
struct AccountPlaces(Mutex<HashMap<String, Arc<Semaphore>>>);

/// The places of changes that are checked: no account keeps the others waiting by more than one,
/// and admins never wait for the others.
pub struct CheckPlaces {
    shared: Arc<Semaphore>,
    /// Of those who put right what others did.
    admins: Arc<Semaphore>,
    accounts: AccountPlaces,
}

/// The places of long answers: each account has one at a time, so that none that takes its answer
/// slowly keeps all.
struct ReadingPlaces {
    shared: Arc<Semaphore>,
    /// Of those who put right what others did.
    admins: Arc<Semaphore>,
    accounts: AccountPlaces,
}

impl AccountPlaces {
    fn of(&self, account: &str) -> Arc<Semaphore> {
        let mut places = self.0.lock();
        places.retain(|_, place| Arc::strong_count(place) > 1);
        places
            .entry(account.to_owned())
            .or_insert_with(|| Arc::new(Semaphore::new(1)))
            .clone()
    }
}

impl Default for CheckPlaces {
    fn default() -> Self {
        let places = || Arc::new(Semaphore::new(MOST_CHECKS));
        Self {
            shared: places(),
            admins: places(),
            accounts: AccountPlaces::default(),
        }
    }
}

impl CheckPlaces {
    /// A place for a change of an account.
    ///
    /// # Errors
    /// At once when another change of the account is checked or waits for that. Later when none
    /// becomes free.
    pub async fn take(
        &self,
        account: &str,
        is_admin: bool,
    ) -> Result<AccountPlace, ProblemDetails> {
        let own = self.accounts.of(account).try_acquire_owned();
        let own = own.map_err(|_| ProblemDetails::change_under_way(account))?;
        let shared = if is_admin { &self.admins } else { &self.shared };
        Ok(AccountPlace {
            _own: own,
            _shared: owned_place(shared.clone()).await?,
        })
    }
}

impl Default for ReadingPlaces {
    fn default() -> Self {
        let places = || Arc::new(Semaphore::new(MOST_READINGS));
        Self {
            shared: places(),
            admins: places(),
            accounts: AccountPlaces::default(),
        }
    }
}

impl ReadingPlaces {
    async fn take(&self, account: &str, is_admin: bool) -> Result<AccountPlace, ProblemDetails> {
        let busy = |_| ProblemDetails::too_many_readers();
        let own = owned_place(self.accounts.of(account)).await.map_err(busy)?;
        let shared = if is_admin { &self.admins } else { &self.shared };
        Ok(AccountPlace {
            _own: own,
            _shared: owned_place(shared.clone()).await.map_err(busy)?,
        })
    }
}

impl PolicyService {
    pub fn new(
        database: PolicyDatabase,
        check: PolicyCheck,
        running: watch::Receiver<PolicyState>,
        wake: Arc<Notify>,
        notices: Option<Arc<dyn Inspect>>,
    ) -> Self {
        Self {
            database,
            check,
            running,
            wake,
            notices,
            documents: Arc::new(Semaphore::new(MOST_DOCUMENTS)),
            documents_of_admins: Arc::new(Semaphore::new(MOST_DOCUMENTS)),
            readings: ReadingPlaces::default(),
            account_places: AccountPlaces::default(),
            checks: CheckPlaces::default(),
        }
    }

    /// Whether this node could run `state`: its whole file with that laid over it, by the code of
    /// `tollgate check`.
    ///
    /// # Errors
    /// Every mistake, each at its place.
    pub fn check(&self, state: &PolicyState) -> Result<(), Mistakes> {
        (self.check)(state)
    }

    /// A place among the documents that are read at a time, for an account. Admins have places of
    /// their own.
    ///
    /// # Errors
    /// When none becomes free, or the account goes on having one.
    pub async fn place_for_document(
        &self,
        account: &str,
        is_admin: bool,
    ) -> Result<AccountPlace, ProblemDetails> {
        let own = owned_place(self.account_places.of(account)).await?;
        let shared = if is_admin {
            &self.documents_of_admins
        } else {
            &self.documents
        };
        Ok(AccountPlace {
            _own: own,
            _shared: owned_place(shared.clone()).await?,
        })
    }

    /// A place among the long answers that are made at a time, for an account. Admins have places
    /// of their own.
    ///
    /// # Errors
    /// When none becomes free.
    pub async fn place_for_reading(
        &self,
        account: &str,
        is_admin: bool,
    ) -> Result<AccountPlace, ProblemDetails> {
        self.readings.take(account, is_admin).await
    }

    /// The revision that this node runs.
    pub fn running(&self) -> Position {
        self.running.borrow().position()
    }

    /// The application that has `limit` as one of its strategies, or as the candidate of one. A
    /// limit of the file belongs to none, however it is called.
    pub fn application_of<'a>(&self, limit: &'a str) -> Option<&'a str> {
        application_of(&self.running.borrow(), limit)
    }

    /// Tells all nodes that there is a new revision. One that does not hear of it finds it when it
    /// next asks the database.
    pub async fn announce(&self) {
        self.wake.notify_one();
        if let Some(notices) = &self.notices {
            let notice = ChangeNotice {
                key: Key::from(NOTICE_KEY),
                full_in_us: 0,
            };
            if let Err(error) = notices.publish(&notice).await {
                tracing::debug!(%error, "the other nodes were not told of a revision: they look for it each second");
            }
        }
    }
}

fn application_of<'a>(state: &PolicyState, limit: &'a str) -> Option<&'a str> {
    let (application, strategy) = limit.split_once('.')?;
    let has = |name: &str, key: &str| {
        let strategy = ObjectId::new(ObjectKind::Strategy, application, name)
            .ok()
            .and_then(|id| state.get(&id));
        strategy.is_some_and(|strategy| strategy.body.get(key).is_some())
    };
    let is_limit = has(strategy, "limit") || has(strategy, "candidate");
    let tries_it = || {
        strategy
            .strip_suffix(".candidate")
            .is_some_and(|strategy| has(strategy, "candidate"))
    };
    (is_limit || tries_it()).then_some(application)
}

async fn owned_place(places: Arc<Semaphore>) -> Result<OwnedSemaphorePermit, ProblemDetails> {
    timeout(PATIENCE, places.acquire_owned())
        .await
        .ok()
        .and_then(Result::ok)
        .ok_or_else(ProblemDetails::too_many_changes)
}

/// Whether a notice tells of a new revision.
pub fn tells_of_policies(notice: &ChangeNotice) -> bool {
    notice.key.as_bytes() == NOTICE_KEY.as_bytes()
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;
    use axum::response::IntoResponse;
    use futures_util::FutureExt;
    use serde_json::{Value as Json, json};
    use tollgate_policies::model::{Draft, Expected, ObjectEdit};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_account_that_takes_its_answer_slowly_keeps_nobody_else_waiting() {
        let places = ReadingPlaces::default();
        let slow = places.take("ed", false).await.ok().unwrap();
        let refused = places.take("ed", false).await.err().unwrap();
        assert_eq!(
            refused.into_response().status(),
            StatusCode::SERVICE_UNAVAILABLE
        );
        let others = ["ada", "bo", "cy"].map(|account| {
            places
                .take(account, false)
                .now_or_never()
                .unwrap()
                .ok()
                .unwrap()
        });
        assert!(places.take("di", false).await.is_err(), "so many at a time");
        assert!(
            places.take("ada2", true).now_or_never().unwrap().is_ok(),
            "admins have places of their own"
        );
        drop((slow, others));
        assert!(places.take("ed", false).now_or_never().unwrap().is_ok());
    }

    #[test]
    fn a_strategy_without_a_limit_gives_its_application_no_limit() {
        let edit = |name: &str, body: Json| ObjectEdit {
            id: ObjectId::new(ObjectKind::Strategy, "shop", name).unwrap(),
            expected: Expected::Absent,
            body: Some(body),
        };
        let limit = json!({"key": "client_ip", "rate": "1/s"});
        let edits = vec![
            edit("holds", json!({"limit": limit})),
            edit(
                "tried",
                json!({"candidate": {"limit": limit, "on": "shadow"}}),
            ),
            edit("nothing", json!({"resources": ["all"]})),
        ];
        let draft = Draft {
            edits,
            author: "ada".into(),
            reason: "a test".into(),
        };
        let state = PolicyState::empty().preview(&draft).unwrap().state;
        for limit in ["shop.holds", "shop.tried", "shop.tried.candidate"] {
            assert_eq!(application_of(&state, limit), Some("shop"), "{limit}");
        }
        for limit in [
            "shop.nothing",
            "shop.nothing.candidate",
            "shop.holds.candidate",
            "shop.other",
            "holds",
        ] {
            assert_eq!(application_of(&state, limit), None, "{limit}");
        }
    }

    #[tokio::test]
    async fn an_account_has_one_check_at_a_time_and_admins_do_not_wait_for_others() {
        let places = CheckPlaces::default();
        let first = places
            .take("ed", false)
            .now_or_never()
            .unwrap()
            .ok()
            .unwrap();
        let second = places
            .take("ed", false)
            .now_or_never()
            .expect("no wait for itself")
            .err()
            .unwrap();
        assert_eq!(
            second.into_response().status(),
            StatusCode::TOO_MANY_REQUESTS
        );
        let mut waiting = Box::pin(places.take("bo", false));
        assert!(
            waiting.as_mut().now_or_never().is_none(),
            "one check at a time"
        );
        assert!(
            places
                .take("bo", false)
                .now_or_never()
                .expect("its place in the line is taken")
                .is_err()
        );
        let admin = places
            .take("ada", true)
            .now_or_never()
            .expect("admins have a place of their own");
        assert!(admin.is_ok());
        drop(first);
        assert!(waiting.await.is_ok());
        assert!(places.take("ed", false).now_or_never().unwrap().is_ok());
    }
}
