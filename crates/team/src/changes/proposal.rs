//! Proposals: a change of policies becomes a revision if its author may make it and it passes all
//! checks.

use crate::changes::refusal::commit_problem;
use crate::database_problem::database_problem;
use std::sync::Arc;

use tollgate_policies::model::{
    Draft, Expected, Object, ObjectChange, ObjectEdit, ObjectId, ObjectKind, PolicyState, Revision,
};
use tollgate_policies::people::{Operation, PeopleError};

use super::refusal::mistakes_problem;
use super::revoked_keys::{spell_hashes, undoable};
use crate::accounts::{problems, show_entry};
use crate::apart::apart;
use crate::caller::Caller;
use crate::policies::service::PolicyService;
use crate::views::policies::{PolicyChangeView, RevisionChangesView};
use tollgate_admin::problem_details::ProblemDetails;

/// Edits with the reason for them.
#[derive(Clone, Debug)]
pub struct Proposal {
    pub edits: Vec<ObjectEdit>,
    pub reason: String,
    /// Whether the proposal only shows what it would change.
    pub dry_run: bool,
}

/// The result of a proposal.
#[derive(Clone, Debug)]
pub struct AcceptedProposal {
    /// `None`: it was a dry run.
    pub revision: Option<Revision>,
    pub changes: Vec<ObjectChange>,
}

impl Proposal {
    /// Makes a revision of the proposal, or only checks it.
    ///
    /// # Errors
    /// When the caller may not make one of the edits, when somebody else was faster, when a check
    /// fails, and when the database is away: then nothing has changed.
    pub async fn submit(
        self,
        policies: &Arc<PolicyService>,
        caller: &Caller,
    ) -> Result<AcceptedProposal, ProblemDetails> {
        let place = policies
            .place_for_check(&caller.name, caller.rights.is_admin())
            .await?;
        // A body, and the wait for the place, have taken a while. The commit asks once more.
        let caller = caller.anew().await?;
        permit(&caller, &self.edits)?;
        let policies = Arc::clone(policies);
        // The check reads the whole configuration. A proposal that has begun goes on without a
        // client that has gone away, so the place is kept and the change recorded here.
        apart("the check", async move || {
            let _place = place;
            self.carry_out(&policies, &caller).await
        })
        .await
    }

    async fn carry_out(
        self,
        policies: &PolicyService,
        caller: &Caller,
    ) -> Result<AcceptedProposal, ProblemDetails> {
        let mut draft = Draft {
            edits: self.edits,
            author: caller.name.clone(),
            reason: self.reason,
        };
        spell_hashes(&mut draft.edits);
        if self.dry_run {
            return preview(policies, draft, caller).await;
        }
        let revision = commit(policies, &draft, caller).await?;
        let number = revision.number;
        policies.announce().await;
        // The revision was made, whether it can be shown or not.
        let changes = match policies.database.diff(number - 1, number).await {
            Ok(changes) => changes,
            Err(error) => {
                tracing::warn!(%error, revision = number, "cannot show what the revision has changed");
                Vec::new()
            }
        };
        Ok(AcceptedProposal {
            revision: Some(revision),
            changes,
        })
    }
}

impl From<AcceptedProposal> for RevisionChangesView {
    fn from(accepted: AcceptedProposal) -> Self {
        let AcceptedProposal { revision, changes } = accepted;
        Self {
            revision: revision.map(Into::into),
            changes: changes.iter().map(PolicyChangeView::new).collect(),
        }
    }
}

/// Whether a caller may make these edits.
fn permit(caller: &Caller, edits: &[ObjectEdit]) -> Result<(), ProblemDetails> {
    for edit in edits {
        caller.may(Operation::new(edit), edit.id.belongs_to())?;
    }
    Ok(())
}

/// Whether an application has objects besides its own.
fn has_objects(state: &PolicyState, application: &str) -> bool {
    for kind in ObjectKind::ALL {
        if state.of(kind, application).next().is_some() {
            return true;
        }
    }
    false
}

fn has_application(state: &PolicyState, name: &str) -> bool {
    match ObjectId::of_application(name) {
        Ok(id) => state.get(&id).is_some(),
        Err(_) => false,
    }
}

async fn preview(
    policies: &PolicyService,
    mut draft: Draft,
    caller: &Caller,
) -> Result<AcceptedProposal, ProblemDetails> {
    // A commit alone needs an author and a reason.
    if draft.author.trim().is_empty() {
        "somebody".clone_into(&mut draft.author);
    }
    if draft.reason.trim().is_empty() {
        "a trial".clone_into(&mut draft.reason);
    }
    if draft.edits.is_empty() {
        return Ok(AcceptedProposal {
            revision: None,
            changes: Vec::new(),
        });
    }
    let preview = policies
        .database
        .preview::<ProblemDetails>(&draft)
        .await
        .map_err(commit_problem)?;
    check(policies, &draft, &preview.state, caller)?;
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
    let database = &policies.database;
    let revision = match caller.author() {
        Some(author) => {
            database
                .commit_by(
                    draft,
                    &author,
                    |rights| match rights {
                        Some(rights) => permit(&caller.with(rights), &draft.edits),
                        None => Err(problems::people(&PeopleError::SignedOut)),
                    },
                    |state| check(policies, draft, state, caller),
                )
                .await
        }
        None => database
            .commit(draft, |state| check(policies, draft, state, caller))
            .await
            .map(|revision| (revision, Vec::new())),
    };
    let (revision, entries) = revision.map_err(commit_problem)?;
    entries.iter().for_each(show_entry);
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
    draft: &Draft,
    state: &PolicyState,
    caller: &Caller,
) -> Result<(), ProblemDetails> {
    // Plans, clients and keys that are left would be those of another application that comes to
    // have the name.
    let mut removed = draft.removed_applications();
    if let Some(left) = removed.find(|removed| has_objects(state, removed)) {
        let left = format!("application {left} would be gone, and some of its objects are left");
        return Err(ProblemDetails::unusable_policies(left).hint(
            "take them away first, or all at once: tollgate policy import --replace, with a document that lacks it",
        ));
    }
    // Nobody lists objects without an application, and a later one of the name would have them.
    for edit in &draft.edits {
        let name = edit.id.belongs_to();
        if edit.body.is_some() && !has_application(state, name) {
            let absent = format!("there is no application {}", name.escape_debug());
            return Err(ProblemDetails::unusable_policies(absent)
                .hint("make it first, or along with what it has"));
        }
    }
    policies
        .check(state)
        .map_err(|mistakes| mistakes_problem(&mistakes, caller))
}

/// The edits that make the newest state what it was at `target`. API keys stay as they are, unless
/// their application goes.
pub fn reverting(newest: &PolicyState, target: &PolicyState) -> Vec<ObjectEdit> {
    let remaining = target.applications();
    let mut edits = Vec::new();
    for change in newest.differences(target) {
        let goes = change.after.is_none() && !remaining.contains(change.id.belongs_to());
        if goes || change.id.kind() != ObjectKind::ApiKey {
            edits.push(edit_to(
                &change.id,
                change.before.as_deref(),
                change.after.as_deref(),
            ));
        }
    }
    edits
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
    policies
        .database
        .revision(number)
        .await
        .map_err(database_problem)?;
    let changes = policies
        .database
        .diff(number.saturating_sub(1), number)
        .await
        .map_err(database_problem)?;
    let mut edits = Vec::new();
    for change in undoable(changes) {
        edits.push(edit_to(
            &change.id,
            change.after.as_deref(),
            change.before.as_deref(),
        ));
    }
    if edits.is_empty() {
        let what = format!(
            "revision {number} took API keys away or renamed them, and changed nothing else: they stay as they are"
        );
        return Err(ProblemDetails::unusable_policies(what).hint("make a new key"));
    }
    Ok(edits)
}

/// The edit that makes an object, as it stands `now`, what it is `then`.
fn edit_to(id: &ObjectId, now: Option<&Object>, then: Option<&Object>) -> ObjectEdit {
    ObjectEdit {
        id: id.clone(),
        expected: match now {
            Some(object) => Expected::Revision(object.since),
            None => Expected::Absent,
        },
        body: then.map(|object| object.body.as_ref().clone()),
    }
}
