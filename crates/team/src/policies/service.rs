//! Policies as people change them: the database, the check of a draft, and the notice that there is
//! a new revision.

use std::sync::Arc;

use tokio::sync::{Notify, watch};
use tollgate_limiter::limit::key::Key;
use tollgate_limiter::store::inspect::{ChangeNotice, Inspect};
use tollgate_policies::database::PolicyDatabase;
use tollgate_policies::model::{ObjectId, ObjectKind, PolicyState, Position};

use super::candidate::CANDIDATE;
use super::places::{AccountPlace, MOST_CHECKS, MOST_DOCUMENTS, MOST_READINGS, Places};
use tollgate_admin::problem_details::ProblemDetails;
use tollgate_config::Mistakes;

/// Stands for the policies among the buckets that operators changed. `!` starts no limit's name, so
/// no bucket has this key.
const NOTICE_KEY: &str = "!policies";

/// Judges the file of this node together with policies.
pub type PolicyCheck = Arc<dyn Fn(&PolicyState) -> Result<(), Mistakes> + Send + Sync>;

/// The policies of a gateway that has a database of them.
pub struct PolicyService {
    pub database: PolicyDatabase,
    check: PolicyCheck,
    running: watch::Receiver<PolicyState>,
    /// Wakes the follower of this node.
    wake: Arc<Notify>,
    /// `None`: the gateway has no store, and there are no other nodes.
    notices: Option<Arc<dyn Inspect>>,
    documents: Places,
    readings: Places,
    checks: Places,
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
            documents: Places::new(MOST_DOCUMENTS),
            readings: Places::new(MOST_READINGS),
            checks: Places::new(MOST_CHECKS),
        }
    }

    /// Whether this node could run `state`: its whole file together with that, by the code of
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
        let place = self.documents.take(account, is_admin).await;
        place.ok_or_else(ProblemDetails::too_many_changes)
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
        let place = self.readings.take(account, is_admin).await;
        place.ok_or_else(ProblemDetails::too_many_readers)
    }

    /// A place among the changes that are checked at a time, for an account.
    ///
    /// # Errors
    /// At once when another change of the account is checked or waits for that. Later when none
    /// becomes free.
    pub async fn place_for_check(
        &self,
        account: &str,
        is_admin: bool,
    ) -> Result<AccountPlace, ProblemDetails> {
        let Some(own) = self.checks.own(account) else {
            return Err(ProblemDetails::change_under_way(account));
        };
        let place = self.checks.share(own, is_admin).await;
        place.ok_or_else(ProblemDetails::too_many_changes)
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

    /// Tells all nodes that there is a new revision. A node that does not hear of it finds it when
    /// it next asks the database.
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
    if has_part(state, application, strategy, "limit")
        || has_part(state, application, strategy, CANDIDATE)
    {
        return Some(application);
    }
    let tried = strategy.strip_suffix(".candidate")?;
    if has_part(state, application, tried, CANDIDATE) {
        Some(application)
    } else {
        None
    }
}

/// Whether there is a strategy that has a `part`: a limit, or a candidate.
fn has_part(state: &PolicyState, application: &str, strategy: &str, part: &str) -> bool {
    let Ok(id) = ObjectId::new(ObjectKind::Strategy, application, strategy) else {
        return false;
    };
    match state.get(&id) {
        Some(strategy) => strategy.body.get(part).is_some(),
        None => false,
    }
}

/// Whether a notice tells of a new revision.
pub fn tells_of_policies(notice: &ChangeNotice) -> bool {
    notice.key.as_bytes() == NOTICE_KEY.as_bytes()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tollgate_policies::model::{Draft, Expected, ObjectEdit};

    use super::*;

    #[test]
    fn a_strategy_without_a_limit_gives_its_application_no_limit() {
        let limit = json!({"key": "client_ip", "rate": "1/s"});
        let mut edits = Vec::new();
        for (name, body) in [
            ("holds", json!({"limit": limit})),
            (
                "tried",
                json!({"candidate": {"limit": limit, "on": "shadow"}}),
            ),
            ("nothing", json!({"resources": ["all"]})),
        ] {
            edits.push(ObjectEdit {
                id: ObjectId::new(ObjectKind::Strategy, "shop", name).unwrap(),
                expected: Expected::Absent,
                body: Some(body),
            });
        }
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
}
