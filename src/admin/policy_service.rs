//! Policies as people change them: the database, the check of a draft, and the notice that there is a new revision.

use std::sync::Arc;

use tokio::sync::{Notify, watch};
use tollgate_limiter::limit::key::Key;
use tollgate_limiter::store::inspect::{ChangeNotice, Inspect};
use tollgate_policies::database::PolicyDatabase;
use tollgate_policies::model::{PolicyState, Position};

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
