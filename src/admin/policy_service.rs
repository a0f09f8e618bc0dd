//! Policies as people change them: the database, the check of a draft, and the notice that there is a new revision.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, SemaphorePermit, watch};
use tokio::time::timeout;
use tollgate_limiter::limit::key::Key;
use tollgate_limiter::store::inspect::{ChangeNotice, Inspect};
use tollgate_policies::database::PolicyDatabase;
use tollgate_policies::model::{ObjectId, ObjectKind, PolicyState, Position};

use super::problem_details::ProblemDetails;
use crate::config::Mistakes;

/// Stands for the policies among the buckets that operators changed. `!` starts no limit's name, so no bucket has this key.
const NOTICE_KEY: &str = "!policies";

/// A document takes many times its length while it is read, and a check reads all of the configuration: more of them at a time
/// would take what requests need.
const MOST_DOCUMENTS: usize = 2;
const MOST_CHECKS: usize = 1;
/// So are those that read what is long.
const MOST_READINGS: usize = 2;

/// How long a change waits for others.
const PATIENCE: Duration = Duration::from_secs(10);

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
    /// Documents that are read, changes that are checked, and long answers that are made, at a time.
    documents: Arc<Semaphore>,
    checks: Arc<Semaphore>,
    readings: Semaphore,
    /// The place of each account that changes something: it has one at a time, and leaves the others to others.
    places: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// A place among the documents that are read at a time, and the only one of its account.
pub struct DocumentPlace {
    _own: OwnedSemaphorePermit,
    _shared: OwnedSemaphorePermit,
}

impl PolicyService {
    pub fn new(
        database: PolicyDatabase,
        check: PolicyCheck,
        running: watch::Receiver<PolicyState>,
        wake: Arc<Notify>,
        notices: Option<Arc<dyn Inspect>>,
    ) -> Self {
        let (documents, checks) = (Arc::new(Semaphore::new(MOST_DOCUMENTS)), Arc::new(Semaphore::new(MOST_CHECKS)));
        let (readings, places) = (Semaphore::new(MOST_READINGS), Mutex::default());
        Self { database, check, running, wake, notices, documents, checks, readings, places }
    }

    /// Whether this node could run `state`: its whole file with that laid over it, by the code of `tollgate check`.
    ///
    /// # Errors
    /// Every mistake, each at its place.
    pub fn check(&self, state: &PolicyState) -> Result<(), Mistakes> {
        (self.check)(state)
    }

    /// A place among the documents that are read at a time, for an account.
    ///
    /// # Errors
    /// When none becomes free, or the account goes on having one.
    pub async fn place_for_document(&self, account: &str) -> Result<DocumentPlace, ProblemDetails> {
        let own = {
            let mut places = self.places.lock();
            places.retain(|_, place| Arc::strong_count(place) > 1);
            places.entry(account.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(1))).clone()
        };
        let own = owned_place(own).await?;
        Ok(DocumentPlace { _own: own, _shared: owned_place(self.documents.clone()).await? })
    }

    /// A place among the long answers that are made at a time.
    ///
    /// # Errors
    /// When none becomes free.
    pub async fn place_for_reading(&self) -> Result<SemaphorePermit<'_>, ProblemDetails> {
        timeout(PATIENCE, self.readings.acquire())
            .await
            .ok()
            .and_then(Result::ok)
            .ok_or_else(ProblemDetails::too_many_readers)
    }

    /// A place among the changes that are checked at a time.
    ///
    /// # Errors
    /// When none becomes free.
    pub async fn place_for_check(&self) -> Result<OwnedSemaphorePermit, ProblemDetails> {
        owned_place(self.checks.clone()).await
    }

    /// The policies at a revision, or the newest. Those of old are read one at a time: that is all of them.
    ///
    /// # Errors
    /// When the database cannot be asked, or others read for too long.
    pub async fn state_at(&self, at: Option<u64>) -> Result<PolicyState, ProblemDetails> {
        let _place = if at.is_some() { Some(self.place_for_reading().await?) } else { None };
        Ok(self.database.state(at).await?)
    }

    /// The revision that this node runs.
    pub fn running(&self) -> Position {
        self.running.borrow().position()
    }

    /// The application that has `limit` as one of its strategies, or as the candidate of one. A limit of the file belongs to
    /// none, however it is called.
    pub fn application_of<'a>(&self, limit: &'a str) -> Option<&'a str> {
        let (application, strategy) = limit.split_once('.')?;
        let running = self.running.borrow();
        let find = |name| running.get(&ObjectId::new(ObjectKind::Strategy, application, name).ok()?);
        let tries_it = || find(strategy.strip_suffix(".candidate")?)?.body.get("candidate");
        (find(strategy).is_some() || tries_it().is_some()).then_some(application)
    }

    /// Tells all nodes that there is a new revision. One that does not hear of it finds it when it next asks the database.
    pub async fn announce(&self) {
        self.wake.notify_one();
        if let Some(notices) = &self.notices {
            let notice = ChangeNotice { key: Key::from(NOTICE_KEY), full_in_us: 0 };
            if let Err(error) = notices.publish(&notice).await {
                tracing::debug!(%error, "the other nodes were not told of a revision: they look for it each second");
            }
        }
    }
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
