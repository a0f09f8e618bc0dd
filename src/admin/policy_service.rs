//! Policies as people change them: the database, the check of a draft, and the notice that there is a new revision.

use std::sync::Arc;

use tokio::sync::{Notify, watch};
use tollgate_limiter::limit::key::Key;
use tollgate_limiter::store::inspect::{ChangeNotice, Inspect};
use tollgate_policies::database::PolicyDatabase;
use tollgate_policies::model::{ObjectId, ObjectKind, PolicyState, Position};

use crate::config::Mistakes;

/// Stands for the policies among the buckets that operators changed. `!` starts no limit's name, so no bucket has this key.
const NOTICE_KEY: &str = "!policies";

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
}

impl PolicyService {
    pub fn new(
        database: PolicyDatabase,
        check: PolicyCheck,
        running: watch::Receiver<PolicyState>,
        wake: Arc<Notify>,
        notices: Option<Arc<dyn Inspect>>,
    ) -> Self {
        Self { database, check, running, wake, notices }
    }

    /// Whether this node could run `state`: its whole file with that laid over it, by the code of `tollgate check`.
    ///
    /// # Errors
    /// Every mistake, each at its place.
    pub fn check(&self, state: &PolicyState) -> Result<(), Mistakes> {
        (self.check)(state)
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

/// Whether a notice tells of a new revision.
pub fn tells_of_policies(notice: &ChangeNotice) -> bool {
    notice.key.as_bytes() == NOTICE_KEY.as_bytes()
}
