//! `/console/explain`: what becomes of a request, and why, asked by a form.
//!
//! The request is sent as a form and not as a query: header fields may hold credentials, which no
//! URL should have.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use tollgate_policies::people::Operation;

use crate::forms::ConsoleForm;
use crate::shell::{Shell, Visitor, page, page_with};
use crate::state::ConsoleState;
use tollgate_admin::pages::explain::find_out;
use tollgate_admin::problem_details::ProblemDetails;
use tollgate_admin::query::Pairs;
use tollgate_admin::views::explain::{ActionView, ExplainView, LimitView, WhyView};
use tollgate_admin::views::words::{show_level, show_policy, show_settled, show_wait};

/// Routes that do not take the request and are shown.
const MOST_ROUTES: usize = 20;

#[derive(Template)]
#[template(path = "explain.html")]
struct ExplainPage {
    shell: Shell,
    form: ExplainForm,
    listeners: usize,
    problem: Option<ProblemDetails>,
    found: Option<ShownExplanation>,
}

/// The form as it was filled in, but for values of header fields.
#[derive(Default)]
struct ExplainForm {
    method: String,
    url: String,
    client_ip: String,
    headers: String,
    identity: String,
    plan: String,
    more: String,
    listener: String,
}

/// An explanation in words.
struct ShownExplanation {
    request: String,
    route: String,
    takes: String,
    /// The other routes that were looked at: name, conditions, and why not.
    passed_over: Vec<(String, String, &'static str)>,
    more_routes: usize,
    limits: Vec<ShownLimit>,
    policy_field: String,
    /// The outcome of the request, and its details.
    outcome: String,
    details: Vec<(&'static str, String)>,
}

struct ShownLimit {
    name: String,
    policy: String,
    facts: Vec<(&'static str, String)>,
    /// The bucket denies such a request now.
    is_empty: bool,
}

/// `GET /console/explain`
pub async fn show(State(console): State<ConsoleState>, visitor: Visitor) -> Response {
    if let Err(problem) = visitor.may(Operation::ViewFleet, "") {
        return console.refuse(&visitor, &problem);
    }
    page(&ExplainPage::new(
        &console,
        &visitor,
        ExplainForm::default(),
    ))
}

/// `POST /console/explain`
pub async fn submit(State(console): State<ConsoleState>, form: ConsoleForm) -> Response {
    if let Err(problem) = form.visitor.may(Operation::ViewFleet, "") {
        return console.refuse(&form.visitor, &problem);
    }
    let mut explained = ExplainPage::new(&console, &form.visitor, ExplainForm::read(&form));
    let found = match explained.form.pairs() {
        Ok(pairs) => find_out(&console.admin, &pairs).await,
        Err(problem) => Err(problem),
    };
    match found {
        Ok(view) => explained.found = Some(ShownExplanation::new(view)),
        Err(problem) => explained.problem = Some(problem),
    }
    page_with(
        &explained,
        explained.problem.as_ref().map(ProblemDetails::head),
    )
}

impl ExplainPage {
    fn new(console: &ConsoleState, visitor: &Visitor, form: ExplainForm) -> Self {
        let listeners = console.admin.gateway.load().listeners();
        let shell = visitor.shell(console, "Explain", "Explain a request");
        Self {
            shell,
            form,
            listeners,
            problem: None,
            found: None,
        }
    }
}

impl ExplainForm {
    fn read(form: &ConsoleForm) -> Self {
        Self {
            method: form.field("method").to_owned(),
            url: form.field("url").to_owned(),
            client_ip: form.field("client_ip").to_owned(),
            headers: form.field("headers").to_owned(),
            identity: form.field("identity").to_owned(),
            plan: form.field("plan").to_owned(),
            more: form.field("more").to_owned(),
            listener: form.field("listener").to_owned(),
        }
    }

    /// The query that `/explain` takes.
    fn pairs(&self) -> Result<Pairs, ProblemDetails> {
        let mut pairs = Pairs::new();
        let url = if self.url.is_empty() || self.url.contains("://") {
            self.url.clone()
        } else {
            format!("http://{}", self.url)
        };
        for (name, value) in [
            ("url", &url),
            ("method", &self.method.to_uppercase()),
            ("client_ip", &self.client_ip),
            ("identity.id", &self.identity),
            ("identity.plan", &self.plan),
            ("listener", &self.listener),
        ] {
            if !value.is_empty() {
                pairs.push((name.to_owned(), value.clone()));
            }
        }
        for line in self.headers.lines().filter(|line| !line.trim().is_empty()) {
            match line.split_once(':') {
                Some((name, value)) if !name.trim().is_empty() => {
                    pairs.push((format!("header.{}", name.trim()), value.trim().to_owned()));
                }
                // The line may hold a credential, and is not repeated.
                Some(_) | None => {
                    let problem =
                        ProblemDetails::bad_request("a line of the header fields has no colon");
                    return Err(problem.hint("one field a line, such as x-tenant: acme"));
                }
            }
        }
        for line in self.more.lines().filter(|line| !line.trim().is_empty()) {
            let Some((name, value)) = line.split_once('=') else {
                let problem =
                    ProblemDetails::bad_request("a line of the other parts has no equals sign");
                let hint = "one part a line, such as claim.sub=ada or body.username=ada";
                return Err(problem.hint(hint));
            };
            pairs.push((name.trim().to_owned(), value.trim().to_owned()));
        }
        Ok(pairs)
    }
}

impl ShownExplanation {
    fn new(view: ExplainView) -> Self {
        let request = &view.request;
        let host = if request.host.is_empty() {
            "(no host)"
        } else {
            &request.host
        };
        let mut takes = String::new();
        let mut passed_over = Vec::new();
        for route in &view.routes {
            match reason(route.why) {
                None => takes.clone_from(&route.takes),
                Some(reason) => {
                    passed_over.push((route.route.clone(), route.takes.clone(), reason))
                }
            }
        }
        let more_routes = passed_over.len().saturating_sub(MOST_ROUTES);
        passed_over.truncate(MOST_ROUTES);
        let (outcome, details) = match (&view.refused, &view.action) {
            (Some(refused), _) => {
                let status = refused.status;
                let answer = format!("Answered {status} ({}) by the gateway", refused.problem);
                (answer, present([("Allow", refused.allow.clone())]))
            }
            (None, Some(action)) => outcome(action),
            (None, None) => ("Nothing".to_owned(), Vec::new()),
        };
        Self {
            request: format!(
                "{} {host}{} from {} through listener {}",
                request.method, request.path, request.client_ip, request.listener
            ),
            route: view.route.clone().unwrap_or_default(),
            takes,
            more_routes,
            passed_over,
            limits: view.limits.iter().map(ShownLimit::new).collect(),
            policy_field: view.ratelimit_policy.unwrap_or_default(),
            outcome,
            details,
        }
    }
}

/// Why a route does not take the request. `None`: it does.
fn reason(why: WhyView) -> Option<&'static str> {
    match why {
        WhyView::Applies => None,
        WhyView::LessSpecific => Some("would take it too, and is less specific"),
        WhyView::OtherMethod => Some("another method"),
        WhyView::OtherHeader => Some("another header field"),
        WhyView::OtherPath => Some("another path"),
        WhyView::OtherHost => Some("another host"),
        WhyView::OtherListener => Some("another listener"),
    }
}

/// The details that have a value.
fn present<const N: usize>(
    details: [(&'static str, Option<String>); N],
) -> Vec<(&'static str, String)> {
    let mut present = Vec::new();
    for (name, value) in details {
        if let Some(value) = value {
            present.push((name, value));
        }
    }
    present
}

fn outcome(action: &ActionView) -> (String, Vec<(&'static str, String)>) {
    match action {
        ActionView::Respond { status } => {
            (format!("Answered {status}, as the route says"), Vec::new())
        }
        ActionView::Redirect { status, to } => {
            (format!("Redirected with {status} to {to}"), Vec::new())
        }
        ActionView::Echo => (
            "Answered with a description of the request".to_owned(),
            Vec::new(),
        ),
        ActionView::Forward {
            upstream,
            endpoints,
            target,
            host,
            timeout,
            max_body,
        } => {
            let details = present([
                ("Endpoints", Some(endpoints.join(", "))),
                ("Target", Some(target.clone())),
                ("Host", Some(host.clone())),
                ("Timeout", timeout.clone()),
                ("Longest body", max_body.clone()),
            ]);
            (format!("Forwarded to {upstream}"), details)
        }
    }
}

impl ShownLimit {
    fn new(limit: &LimitView) -> Self {
        let policy = &limit.policy;
        let level = limit.level.as_ref();
        let cost = policy.cost;
        let mut shown_level = None;
        if let Some(level) = level {
            let wait = show_wait(level, cost);
            shown_level = Some(format!("{}; {wait}", show_level(level, policy.burst)));
        }
        let mut plan = None;
        if let Some(from) = &policy.plan_from {
            plan = Some(format!("from {from}"));
        }
        let mut settled = None;
        if let Some(by) = &policy.settled {
            let by = show_settled(by);
            settled = Some(format!("{cost} are reserved; settled by {by}"));
        }
        let mut counts = None;
        if let Some(counted) = &policy.counted {
            counts = Some(format!("responses with {counted}"));
        }
        let mut lacks = None;
        if let Some(note) = &limit.note {
            lacks = Some(format!("{}: {note}", limit.lacking.join(", ")));
        }
        let facts = present([
            ("Bucket", limit.bucket.clone()),
            ("Level", shown_level),
            ("Plan", plan),
            ("Cost", settled),
            ("Counts", counts),
            ("Acts", limit.enforced.clone()),
            ("Lacks", lacks),
            ("Store", limit.store.clone()),
            ("Over the limit", Some(limit.on_limit.clone())),
            ("Store away", Some(limit.outage.clone())),
        ]);
        Self {
            name: limit.limit.clone(),
            policy: format!("{}, this request costs {cost}", show_policy(policy)),
            facts,
            is_empty: level.is_some_and(|level| level.retry_after > 0.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_becomes_the_query_that_the_command_sends() {
        let form = ExplainForm {
            method: "post".into(),
            url: "api.example.com/a?b=c".into(),
            headers: "x-tenant: acme\r\n\r\nx-time: 1:2".into(),
            more: "claim.sub = ada".into(),
            ..ExplainForm::default()
        };
        let pairs = form.pairs().unwrap();
        let expected = [
            ("url", "http://api.example.com/a?b=c"),
            ("method", "POST"),
            ("header.x-tenant", "acme"),
            ("header.x-time", "1:2"),
            ("claim.sub", "ada"),
        ];
        assert_eq!(
            pairs,
            expected.map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
    }

    #[test]
    fn a_line_that_is_no_field_is_refused_and_not_repeated() {
        let problem = ExplainForm {
            headers: "Bearer sesame".into(),
            ..ExplainForm::default()
        }
        .pairs()
        .unwrap_err();
        assert!(!problem.detail.contains("sesame"), "{problem:?}");
        ExplainForm {
            more: "claim.sub".into(),
            ..ExplainForm::default()
        }
        .pairs()
        .unwrap_err();
    }
}
