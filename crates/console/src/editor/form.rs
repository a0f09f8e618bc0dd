//! `/console/edit`: an object in a form. A change takes two steps: what it would do, and then, with
//! a reason, that it is done.

use askama::Template;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Redirect, Response};
use serde::Deserialize;
use serde_json::Value as Json;
use tollgate_policies::model::{Expected, ObjectChange, ObjectEdit, ObjectId, ObjectKind};
use tollgate_policies::people::Operation;
use tollgate_team::database_problem::database_problem;

use super::choices::offer;
use super::fields::{self, ShownField};
use super::shown::{ShownChanges, service};
use crate::forms::ConsoleForm;
use crate::pages::list::encode;
use crate::shell::{Shell, Visitor, page, page_with};
use crate::state::ConsoleState;
use tollgate_admin::problem_details::{MistakeView, ProblemDetails};
use tollgate_identity::api_key::NewApiKey;
use tollgate_team::api::request::may_see;
use tollgate_team::caller::Caller;
use tollgate_team::changes::document::place_of;
use tollgate_team::changes::proposal::Proposal;
use tollgate_team::policies::candidate::{CANDIDATE, CandidateEnd};

#[derive(Template)]
#[template(path = "object_form.html")]
struct ObjectFormPage {
    shell: Shell,
    title: String,
    application: String,
    application_path: String,
    kind: &'static str,
    kind_words: String,
    name: String,
    is_new: bool,
    expected: String,
    problem: Option<ProblemDetails>,
    /// The name of the first field with a mistake. Empty: none has one.
    first_mistake: String,
    /// The page of the limit that a strategy is.
    limit_path: String,
    /// Mistakes that are of no field.
    mistakes: Vec<MistakeView>,
    fields: Vec<ShownField>,
    may_change: bool,
    may_delete: bool,
    /// Whether a candidate can be ended.
    is_tried: bool,
}

#[derive(Template)]
#[template(path = "object_review.html")]
struct ReviewPage {
    shell: Shell,
    title: String,
    changes: ShownChanges,
    /// An API key that was made for it.
    key: Option<String>,
    /// The fields of the form that makes the change.
    hidden: Vec<(&'static str, String)>,
    back: String,
    is_deletion: bool,
}

/// The object that a page is about.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct EditQuery {
    application: String,
    kind: String,
    name: String,
}

/// An object, and what a form says of it.
struct EditTarget {
    application: String,
    kind: ObjectKind,
    name: String,
    expected: String,
    is_deletion: bool,
}

/// `GET /console/edit`
pub async fn show(
    State(console): State<ConsoleState>,
    visitor: Visitor,
    caller: Caller,
    Query(query): Query<EditQuery>,
) -> Response {
    match open(&console, &visitor, &caller, query).await {
        Ok(found) => page(&found),
        Err(problem) => console.refuse(&visitor, &problem),
    }
}

/// `POST /console/edit`
pub async fn submit(
    State(console): State<ConsoleState>,
    caller: Caller,
    form: ConsoleForm,
) -> Response {
    match change(&console, &caller, &form).await {
        Ok(response) => response,
        Err(problem) => console.refuse(&form.visitor, &problem),
    }
}

async fn open(
    console: &ConsoleState,
    visitor: &Visitor,
    caller: &Caller,
    query: EditQuery,
) -> Result<ObjectFormPage, ProblemDetails> {
    let mut target = EditTarget::new(query.application, &query.kind, query.name, String::new())?;
    let policies = service(console)?;
    if target.name.is_empty() {
        caller.may(Operation::Change(target.kind), &target.application)?;
        let mut fields = fields::of_body(target.kind, &Json::Object(serde_json::Map::new()));
        offer(
            console,
            &policies
                .database
                .state(None)
                .await
                .map_err(database_problem)?,
            target.owner(),
            &mut fields,
        );
        target.expected = "absent".to_owned();
        return Ok(ObjectFormPage::new(console, visitor, target, fields));
    }
    let id = target.id()?;
    may_see(caller, target.kind, id.belongs_to())?;
    let state = policies
        .database
        .state(None)
        .await
        .map_err(database_problem)?;
    let object = state
        .get(&id)
        .ok_or_else(|| ProblemDetails::unknown_policy(format!("there is no {id}")))?;
    let mut fields = fields::of_body(target.kind, &object.body);
    offer(console, &state, target.owner(), &mut fields);
    target.expected = object.version();
    Ok(ObjectFormPage::new(console, visitor, target, fields))
}

async fn change(
    console: &ConsoleState,
    caller: &Caller,
    form: &ConsoleForm,
) -> Result<Response, ProblemDetails> {
    let mut target = EditTarget::new(
        form.field("application").to_owned(),
        form.field("kind"),
        form.field("name").to_owned(),
        form.field("expected").to_owned(),
    )?;
    let belongs_to = if target.kind == ObjectKind::Application {
        &target.name
    } else {
        &target.application
    };
    // Before anything of the form is read.
    caller.may_change_policies(Some(belongs_to))?;
    target.is_deletion = form.field("action") == "delete";
    let is_saving = form.field("step") == "save";
    let end = match form.field("action") {
        "promote" => Some(CandidateEnd::Promoted),
        "abort" => Some(CandidateEnd::Aborted),
        _ => None,
    };
    let mut fields = if let Some(end) = end {
        fields::of_body(target.kind, &ended(console, caller, &target, end).await?)
    } else if is_saving && !target.is_deletion {
        let body = serde_json::from_str(form.field("body"));
        fields::of_body(
            target.kind,
            &body.map_err(|_| ProblemDetails::bad_request("the form's body is no JSON"))?,
        )
    } else {
        fields::of_form(target.kind, &form.fields)
    };
    let mut body = if target.is_deletion {
        None
    } else {
        fields::body(target.kind, &mut fields)
    };
    let mut key = None;
    if let Some(body) = &mut body
        && target.kind == ObjectKind::ApiKey
        && !is_saving
    {
        key = make_key(body);
    }
    if body.is_none() && !target.is_deletion {
        let page = ObjectFormPage::new(console, &form.visitor, target, fields);
        return Ok(page_with(
            &page,
            Some(ProblemDetails::unusable_policies("").head()),
        ));
    }
    let id = match target.id() {
        Ok(id) => id,
        Err(problem) => return Ok(refused(console, &form.visitor, target, fields, problem)),
    };
    let edit = ObjectEdit {
        id: id.clone(),
        expected: target.expected()?,
        body: body.clone(),
    };
    let proposal = Proposal {
        edits: vec![edit],
        reason: form.field("reason").to_owned(),
        dry_run: !is_saving,
    };
    if is_saving && proposal.reason.is_empty() {
        return Err(
            ProblemDetails::bad_request("a change wants a reason").hint("go back, and say why")
        );
    }
    if is_saving {
        console.tokens.spend(form.token)?;
    }
    match proposal.submit(service(console)?, caller).await {
        Ok(accepted) => Ok(match accepted.revision {
            Some(revision) => Redirect::to(&format!("/console/revisions/{}?done", revision.number))
                .into_response(),
            None => {
                let review =
                    ReviewPage::new(console, &form.visitor, &target, &accepted.changes, body);
                page(&ReviewPage { key, ..review })
            }
        }),
        Err(problem) if problem.status == 403 => Err(problem),
        Err(problem) => {
            // Without the database the form has no choices, and still all that was written.
            let state = service(console)?.database.state(None).await;
            if let Ok(state) = &state {
                offer(console, state, target.owner(), &mut fields);
            }
            if !problem.conflicts.is_empty() {
                // The next form is made upon the change of the others, and shown as such.
                target.expected = state
                    .map_err(database_problem)?
                    .get(&id)
                    .map_or_else(|| "absent".to_owned(), |object| object.version());
            }
            Ok(refused(console, &form.visitor, target, fields, problem))
        }
    }
}

/// Makes an API key for a body that has none. The key is on the page to review alone: its hash goes
/// on from there.
fn make_key(body: &mut Json) -> Option<String> {
    let body = body.as_object_mut()?;
    if body.contains_key("key_sha256") {
        return None;
    }
    // Without random bytes the check says that there is no hash.
    let NewApiKey { key, key_sha256 } = NewApiKey::generate()?;
    body.insert("key_sha256".to_owned(), key_sha256.into());
    Some(key)
}

/// A strategy without its candidate, or with that as its limit.
async fn ended(
    console: &ConsoleState,
    caller: &Caller,
    target: &EditTarget,
    end: CandidateEnd,
) -> Result<Json, ProblemDetails> {
    let id = target.id()?;
    caller.may(Operation::View, id.belongs_to())?;
    let state = service(console)?
        .database
        .state(None)
        .await
        .map_err(database_problem)?;
    let body = state.get(&id).and_then(|object| end.of(&object.body));
    body.ok_or_else(|| ProblemDetails::unknown_policy(format!("{id} has no candidate any more")))
}

/// The form again, with why it was not taken.
fn refused(
    console: &ConsoleState,
    visitor: &Visitor,
    target: EditTarget,
    mut fields: Vec<ShownField>,
    mut problem: ProblemDetails,
) -> Response {
    let place = target.id().map(|id| place_of(&id)).unwrap_or_default();
    let mistakes = fields::place_mistakes(
        &mut fields,
        &place,
        std::mem::take(&mut problem.mistakes).into_vec(),
    );
    let mut shown = ObjectFormPage::new(console, visitor, target, fields);
    shown.mistakes = mistakes;
    shown.problem = Some(problem.clone());
    page_with(&shown, Some(problem.head()))
}

impl EditTarget {
    fn new(
        application: String,
        kind: &str,
        name: String,
        expected: String,
    ) -> Result<Self, ProblemDetails> {
        let kind: ObjectKind = kind
            .parse()
            .map_err(|problem| ProblemDetails::bad_request(format!("{problem}")))?;
        Ok(Self {
            application,
            kind,
            name,
            expected,
            is_deletion: false,
        })
    }

    fn id(&self) -> Result<ObjectId, ProblemDetails> {
        let application = if self.kind == ObjectKind::Application {
            ""
        } else {
            &self.application
        };
        ObjectId::new(self.kind, application, &self.name)
            .map_err(|problem| ProblemDetails::bad_request(problem.to_string()))
    }

    fn expected(&self) -> Result<Expected, ProblemDetails> {
        match self.expected.as_str() {
            "absent" => Ok(Expected::Absent),
            version => Expected::of_version(version).ok_or_else(ProblemDetails::unconditional),
        }
    }

    /// The application that it is, or is of.
    fn owner(&self) -> &str {
        if self.kind == ObjectKind::Application {
            &self.name
        } else {
            &self.application
        }
    }

    fn words(&self) -> String {
        format!("the {} {}", kind_words(self.kind), self.name)
    }
}

fn kind_words(kind: ObjectKind) -> &'static str {
    match kind {
        ObjectKind::Application => "application",
        ObjectKind::Resource => "resource",
        ObjectKind::Strategy => "strategy",
        ObjectKind::Plan => "plan",
        ObjectKind::Assignment => "client",
        ObjectKind::ApiKey => "API key",
    }
}

impl ObjectFormPage {
    fn new(
        console: &ConsoleState,
        visitor: &Visitor,
        target: EditTarget,
        fields: Vec<ShownField>,
    ) -> Self {
        let is_new = target.expected == "absent";
        let words = kind_words(target.kind);
        let title = if is_new {
            format!("A new {words}")
        } else {
            target.name.clone()
        };
        let change = Operation::Change(target.kind);
        let delete = Operation::Delete(target.kind);
        let may_change = visitor.may(change, target.owner()).is_ok();
        let may_delete = !is_new && visitor.may(delete, target.owner()).is_ok();
        let is_limit = target.kind == ObjectKind::Strategy && !is_new;
        let limit_path = format!(
            "/console/limits/{}",
            encode(&format!("{}.{}", target.application, target.name))
        );
        let first_mistake = fields.iter().find(|field| !field.mistakes.is_empty());
        Self {
            first_mistake: first_mistake.map_or_else(String::new, |field| field.name.clone()),
            limit_path: if is_limit { limit_path } else { String::new() },
            may_change,
            may_delete,
            shell: visitor.shell(console, "Applications", &title),
            title,
            application_path: format!("/console/applications/{}", encode(&target.application)),
            application: target.application,
            kind: target.kind.word(),
            kind_words: words.to_owned(),
            name: target.name,
            is_new,
            expected: target.expected,
            is_tried: fields
                .iter()
                .any(|field| field.name == CANDIDATE && !field.value.is_empty()),
            problem: None,
            mistakes: Vec::new(),
            fields,
        }
    }
}

impl ReviewPage {
    fn new(
        console: &ConsoleState,
        visitor: &Visitor,
        target: &EditTarget,
        changes: &[ObjectChange],
        body: Option<Json>,
    ) -> Self {
        let title = if target.is_deletion {
            format!("Delete {}?", target.words())
        } else {
            format!("Save {}?", target.words())
        };
        let hidden = vec![
            ("application", target.application.clone()),
            ("kind", target.kind.word().to_owned()),
            ("name", target.name.clone()),
            ("expected", target.expected.clone()),
            (
                "action",
                if target.is_deletion {
                    "delete"
                } else {
                    "write"
                }
                .to_owned(),
            ),
            (
                "body",
                body.map_or_else(String::new, |body| body.to_string()),
            ),
        ];
        Self {
            shell: visitor.shell(console, "Applications", &title),
            title,
            changes: changes.into(),
            key: None,
            hidden,
            back: format!("/console/applications/{}", encode(&target.application)),
            is_deletion: target.is_deletion,
        }
    }
}
