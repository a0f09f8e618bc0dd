//! A change that somebody asks for: may they, does it check, and then it is a revision.

use std::sync::Arc;

use tollgate_policies::model::{
    Draft, Expected, ObjectChange, ObjectEdit, ObjectId, ObjectKind, PolicyState, Revision,
};
use tollgate_policies::people::{AuditOutcome, Operation};

use super::refusal::mistakes_problem;
use super::revoked_keys::{spell_hashes, undoable};
use crate::admin::problem_details::ProblemDetails;
use crate::team::caller::Caller;
use crate::team::policies::service::PolicyService;
use crate::team::views::policies::{PolicyChangeView, RevisionChangesView};

/// Edits with the reason for them.
#[derive(Clone, Debug)]
pub struct Proposal {
    pub edits: Vec<ObjectEdit>,
    pub reason: String,
    /// Says what would change, and changes nothing.
    pub dry_run: bool,
}

/// The result of a proposal.
#[derive(Clone, Debug)]
pub struct AcceptedProposal {
    /// `None`: nothing was changed, as was asked.
    pub revision: Option<Revision>,
    pub changes: Vec<ObjectChange>,
}

impl Proposal {
    /// Makes a revision of it, or only checks it.
    ///
    /// # Errors
    /// When the caller may not do one of the edits, when somebody else was faster, when it does not
    /// check, and when the database is away: then nothing has changed.
    pub async fn submit(
        self,
        policies: &Arc<PolicyService>,
        caller: &Caller,
    ) -> Result<AcceptedProposal, ProblemDetails> {
        let place = policies
            .checks
            .take(&caller.name, caller.rights.is_admin())
            .await?;
        // A body, and the wait for the place, have taken a while.
        let caller = caller.anew().await?;
        self.edits
            .iter()
            .try_for_each(|edit| caller.may(Operation::of(edit), edit.id.belongs_to()))?;
        let (reason, dry_run) = (self.reason, self.dry_run);
        let mut draft = Draft {
            edits: self.edits,
            author: caller.name.clone(),
            reason,
        };
        let policies = Arc::clone(policies);
        // The check reads the whole configuration: the control plane goes on meanwhile. What has
        // begun goes on without a client that has gone away, so the place is kept and the change
        // recorded here.
        let runtime = tokio::runtime::Handle::current();
        let work = move || {
            let _place = place;
            runtime.block_on(async {
                spell_hashes(&mut draft.edits);
                if dry_run {
                    return preview(&policies, draft, &caller).await;
                }
                let revision = commit(&policies, &draft, &caller).await?;
                let object = format!("revision {}", revision.number);
                caller.record("policies.changed", &object, AuditOutcome::Done, &revision.reason).await;
                policies.announce().await;
                for application in removed_applications(&draft.edits) {
                    caller.forget_application(application).await;
                }
                // It was made, whether it can be shown or not.
                let changes = policies.database.diff(revision.number - 1, revision.number).await;
                let changes = changes.unwrap_or_else(|error| {
                    tracing::warn!(%error, revision = revision.number, "cannot show what the revision has changed");
                    Vec::new()
                });
                Ok(AcceptedProposal { revision: Some(revision), changes })
            })
        };
        let done = tokio::task::spawn_blocking(work).await;
        done.unwrap_or_else(|broken| {
            tracing::error!(%broken, "a check of policies broke off: this is a defect of the gateway");
            Err(ProblemDetails::policies_away("the check broke off"))
        })
    }
}

impl From<AcceptedProposal> for RevisionChangesView {
    fn from(accepted: AcceptedProposal) -> Self {
        let AcceptedProposal { revision, changes } = accepted;
        Self {
            revision: revision.map(Into::into),
            changes: changes.iter().map(PolicyChangeView::of).collect(),
        }
    }
}

/// The applications that edits take away.
fn removed_applications(edits: &[ObjectEdit]) -> impl Iterator<Item = &str> {
    let removals = edits
        .iter()
        .filter(|edit| edit.id.kind() == ObjectKind::Application && edit.body.is_none());
    removals.map(|edit| edit.id.name())
}

/// Whether an application has objects besides its own.
fn has_objects(state: &PolicyState, application: &str) -> bool {
    ObjectKind::ALL
        .into_iter()
        .any(|kind| state.of(kind, application).next().is_some())
}

fn has_application(state: &PolicyState, name: &str) -> bool {
    ObjectId::of_application(name).is_ok_and(|id| state.get(&id).is_some())
}

async fn preview(
    policies: &PolicyService,
    mut draft: Draft,
    caller: &Caller,
) -> Result<AcceptedProposal, ProblemDetails> {
    // Needed by a commit alone.
    for (text, stand_in) in [
        (&mut draft.author, "somebody"),
        (&mut draft.reason, "a trial"),
    ] {
        if text.trim().is_empty() {
            stand_in.clone_into(text);
        }
    }
    if draft.edits.is_empty() {
        return Ok(AcceptedProposal {
            revision: None,
            changes: Vec::new(),
        });
    }
    let preview = policies.database.preview::<ProblemDetails>(&draft).await?;
    check(policies, &draft.edits, &preview.state, caller)?;
    Ok(AcceptedProposal {
        revision: None,
        changes: preview.changes,
    })
}

async fn commit(
    policies: &PolicyService,
    draft: &Draft,
    caller: &Caller,
) -> Result<Revision, ProblemDetails> {
    let revision = policies
        .database
        .commit(draft, |state| check(policies, &draft.edits, state, caller))
        .await?;
    tracing::info!(
        revision = revision.number,
        author = revision.author,
        reason = revision.reason,
        edits = revision.edits,
        "policies were changed"
    );
    Ok(revision)
}

fn check(
    policies: &PolicyService,
    edits: &[ObjectEdit],
    state: &PolicyState,
    caller: &Caller,
) -> Result<(), ProblemDetails> {
    // Its plans, clients and keys would be those of another application that comes to have its
    // name.
    if let Some(left) = removed_applications(edits).find(|removed| has_objects(state, removed)) {
        let left = format!("application {left} would be gone, and some of its objects are left");
        return Err(ProblemDetails::unusable_policies(left).hint(
            "take them away first, or all at once: tollgate policy import --replace, with a document that lacks it",
        ));
    }
    // Nobody lists them, and whoever makes the application later would have them in it.
    let mut made = edits
        .iter()
        .filter(|edit| edit.body.is_some())
        .map(|edit| edit.id.belongs_to());
    if let Some(absent) = made.find(|name| !has_application(state, name)) {
        let absent = format!("there is no application {}", absent.escape_debug());
        return Err(ProblemDetails::unusable_policies(absent)
            .hint("make it first, or along with what it has"));
    }
    policies
        .check(state)
        .map_err(|mistakes| mistakes_problem(&mistakes, caller))
}

/// The edits that make the newest state what it was at `target`. API keys stay as they are, unless
/// their application goes.
pub fn reverting(newest: &PolicyState, target: &PolicyState) -> Vec<ObjectEdit> {
    let remaining = target.applications();
    let is_meant = |change: &ObjectChange| {
        let goes = change.after.is_none() && !remaining.contains(change.id.belongs_to());
        goes || change.id.kind() != ObjectKind::ApiKey
    };
    let changes = newest.differences(target).into_iter().filter(is_meant);
    let edits = changes.map(|change| ObjectEdit {
        expected: change
            .before
            .map_or(Expected::Absent, |object| Expected::Revision(object.since)),
        body: change.after.map(|object| object.body.as_ref().clone()),
        id: change.id,
    });
    edits.collect()
}

/// The edits that take back what revision `number` changed, but for API keys that it took away or
/// renamed. An object that was changed since is a conflict.
///
/// # Errors
/// When there is nothing to take back, and when the database is away.
pub async fn undoing(
    policies: &PolicyService,
    number: u64,
) -> Result<Vec<ObjectEdit>, ProblemDetails> {
    policies.database.revision(number).await?;
    let changes = policies
        .database
        .diff(number.saturating_sub(1), number)
        .await?;
    let edits: Vec<_> = undoable(changes).into_iter().map(undoing_one).collect();
    if edits.is_empty() {
        let what = format!(
            "revision {number} took API keys away or renamed them, and changed nothing else: they stay as they are"
        );
        return Err(ProblemDetails::unusable_policies(what).hint("make a new key"));
    }
    Ok(edits)
}

fn undoing_one(change: ObjectChange) -> ObjectEdit {
    ObjectEdit {
        expected: change
            .after
            .map_or(Expected::Absent, |object| Expected::Revision(object.since)),
        body: change.before.map(|object| object.body.as_ref().clone()),
        id: change.id,
    }
}
