//! Long answers: what a caller reads of policies.
//!
//! Guarantees that few are made at a time, each on a thread of its own.

use std::sync::Arc;

use axum::response::Response;
use tollgate_policies::model::{ObjectChange, PolicyState};

use super::request::{service, visible, visible_changes};
use crate::Team;
use crate::apart::apart;
use crate::caller::Caller;
use crate::database_problem::database_problem;
use crate::policies::places::AccountPlace;
use crate::policies::service::PolicyService;
use tollgate_admin::problem_details::ProblemDetails;
use tollgate_admin::server::answers::count_until_sent;

/// The policies, as a caller reads them.
pub struct PolicyReader {
    pub policies: Arc<PolicyService>,
    pub caller: Caller,
}

impl PolicyReader {
    /// # Errors
    /// When the gateway has no policies.
    pub fn new(team: &Team, caller: &Caller) -> Result<Self, ProblemDetails> {
        Ok(Self {
            policies: Arc::clone(service(team)?),
            caller: caller.clone(),
        })
    }

    /// All policies at a revision, without one at the newest. Whether the caller may look at what
    /// is shown of them, the page asks.
    ///
    /// # Errors
    /// When there is no such revision, or the database is away.
    pub async fn state(&self, at: Option<u64>) -> Result<PolicyState, ProblemDetails> {
        let found = self.policies.database.state(at).await;
        found.map_err(database_problem)
    }

    /// The number of the newest revision.
    ///
    /// # Errors
    /// When the database is away.
    pub async fn head(&self) -> Result<u64, ProblemDetails> {
        let head = self.policies.database.head().await;
        Ok(head.map_err(database_problem)?.revision)
    }

    /// The policies that the caller may look at.
    ///
    /// # Errors
    /// Like [`state`](Self::state).
    pub async fn visible(&self, at: Option<u64>) -> Result<PolicyState, ProblemDetails> {
        Ok(visible(&self.caller, &self.state(at).await?))
    }

    /// The differences between two revisions that the caller may look at.
    ///
    /// # Errors
    /// Like [`state`](Self::state).
    pub async fn changes(&self, from: u64, to: u64) -> Result<Vec<ObjectChange>, ProblemDetails> {
        let changes = self.policies.database.diff(from, to).await;
        Ok(visible_changes(
            &self.caller,
            changes.map_err(database_problem)?,
        ))
    }

    /// A place among the long answers that are made at a time.
    ///
    /// # Errors
    /// When others read for too long.
    pub async fn place(&self) -> Result<AccountPlace, ProblemDetails> {
        let Self { policies, caller } = self;
        let is_admin = caller.rights.is_admin();
        policies.place_for_reading(&caller.name, is_admin).await
    }

    /// Waits for a place and makes an answer, which has the place until it has left.
    ///
    /// # Errors
    /// When others read for too long, and the refusal by `make`.
    pub async fn answer(
        self,
        make: impl AsyncFnOnce(&Self) -> Result<Response, ProblemDetails> + Send + 'static,
    ) -> Result<Response, ProblemDetails> {
        let place = self.place().await?;
        apart("the answer", async move || {
            Ok(count_until_sent(make(&self).await?, place))
        })
        .await
    }
}
