//! The frame around each page with its navigation and colours, and the page that says why another
//! cannot be shown.

use askama::Template;
use axum::extract::FromRequestParts;
use axum::http::header::{CONTENT_TYPE, COOKIE};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
use tollgate_policies::people::Operation;

use super::assets;
use super::state::ConsoleState;
use tollgate_admin::caller::{AdminOperation, Authorizer as _};
use tollgate_admin::problem_details::{ProblemDetails, RefusalHead};
use tollgate_team::caller::{Caller, CallerProof};

/// The cookie with the colours that somebody has chosen.
pub const THEME_COOKIE: &str = "tollgate_theme";

/// The visitor of a page, as far as pages differ by it.
#[derive(Clone)]
pub struct Visitor {
    theme: Theme,
    /// The page, with its query.
    page: String,
    /// `None`: nobody has signed in.
    pub caller: Option<Caller>,
}

/// The colours of pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Theme {
    /// The colours of the visitor's system.
    #[default]
    Auto,
    Light,
    Dark,
}

/// The frame of one page.
pub struct Shell {
    pub title: String,
    /// The entry of the navigation that the page belongs to.
    pub section: &'static str,
    pub theme: &'static str,
    /// The page to come back to from a change of colours.
    pub page: String,
    pub token: String,
    /// Where the page gets live data. Empty: it has none.
    pub live: String,
    /// The account that is signed in. Empty: nobody is, or there are no accounts.
    pub account: String,
    sections: Vec<(&'static str, &'static str)>,
    pub assets: &'static str,
    pub version: &'static str,
    /// Whether people edit policies beside the file.
    pub has_policies: bool,
}

/// The entries of the navigation: path and name.
pub const SECTIONS: [(&str, &str); 8] = [
    ("/console", "Overview"),
    ("/console/routes", "Routes"),
    ("/console/limits", "Limits"),
    ("/console/applications", "Applications"),
    ("/console/revisions", "History"),
    ("/console/explain", "Explain"),
    ("/console/upstreams", "Upstreams"),
    ("/console/nodes", "Nodes"),
];

/// Entries of a gateway that has policies.
const OF_POLICIES: [&str; 2] = ["Applications", "History"];

/// The page in place of one that cannot be shown.
#[derive(Template)]
#[template(path = "problem.html")]
struct ProblemPage<'a> {
    shell: Shell,
    problem: &'a ProblemDetails,
}

impl Theme {
    pub fn new(name: &str) -> Option<Self> {
        match name {
            "auto" => Some(Self::Auto),
            "light" => Some(Self::Light),
            "dark" => Some(Self::Dark),
            _ => None,
        }
    }

    /// The colours that a cookie of the request names.
    fn of_cookie(headers: &HeaderMap) -> Option<Self> {
        for value in headers.get_all(COOKIE) {
            for pair in value.to_str().unwrap_or_default().split(';') {
                if let Some((THEME_COOKIE, theme)) = pair.trim().split_once('=') {
                    return Self::new(theme);
                }
            }
        }
        None
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }
}

impl Visitor {
    pub fn new(headers: &HeaderMap, uri: &Uri, extensions: &Extensions) -> Self {
        let page = match uri.path_and_query() {
            Some(page) => page.as_str(),
            None => "/console",
        };
        Self {
            theme: Theme::of_cookie(headers).unwrap_or_default(),
            page: page.to_owned(),
            caller: extensions.get::<Caller>().cloned(),
        }
    }

    /// The visitor on another page.
    pub fn at(self, page: &str) -> Self {
        Self {
            page: page.to_owned(),
            ..self
        }
    }

    /// The page, with its query.
    pub fn page(&self) -> &str {
        &self.page
    }

    /// The caller that this visitor is.
    ///
    /// # Errors
    /// When nobody has signed in.
    pub fn caller(&self) -> Result<&Caller, ProblemDetails> {
        self.caller
            .as_ref()
            .ok_or_else(|| ProblemDetails::unauthenticated("this needs an account"))
    }

    /// Whether this visitor may do `operation` in `application`.
    ///
    /// # Errors
    /// When not.
    pub fn may(&self, operation: Operation, application: &str) -> Result<(), ProblemDetails> {
        self.caller()?.may(operation, application)
    }

    /// Whether this visitor may look at buckets of a limit.
    ///
    /// # Errors
    /// When not.
    pub fn may_look_at(&self, limit: &str) -> Result<(), ProblemDetails> {
        self.caller()?.authorize(AdminOperation::ViewBuckets(limit))
    }

    /// Whether this visitor may change buckets of a limit.
    pub fn may_change(&self, limit: &str) -> bool {
        match &self.caller {
            Some(caller) => caller
                .authorize(AdminOperation::ChangeBuckets(limit))
                .is_ok(),
            None => false,
        }
    }

    /// The session that forms of this visitor's pages are bound to.
    pub fn session(&self) -> &str {
        self.caller.as_ref().map_or("", Caller::session)
    }

    /// The name of the account that has signed in. Empty without one.
    pub fn account_name(&self) -> &str {
        self.account().map_or("", |caller| &caller.name)
    }

    /// The caller, if signed in.
    fn account(&self) -> Option<&Caller> {
        match &self.caller {
            Some(caller) if caller.by == CallerProof::Session => Some(caller),
            Some(_) | None => None,
        }
    }

    /// The navigation, of pages that this visitor may see.
    fn sections(&self) -> Vec<(&'static str, &'static str)> {
        let Some(caller) = &self.caller else {
            return Vec::new();
        };
        let views_fleet = caller.may(Operation::ViewFleet, "").is_ok();
        let mut sections = SECTIONS.to_vec();
        if !views_fleet {
            sections.retain(|(_, name)| *name != "Explain");
        }
        if self.account().is_some() {
            let mut applications = caller.rights.applications.keys();
            if views_fleet
                || applications.any(|name| caller.may(Operation::ManageRights, name).is_ok())
            {
                sections.push(("/console/people", "People"));
            }
            if views_fleet {
                sections.push(("/console/audit", "Audit log"));
            }
        }
        sections
    }

    /// The frame of a page with this title.
    pub fn shell(&self, console: &ConsoleState, section: &'static str, title: &str) -> Shell {
        Shell {
            title: title.to_owned(),
            section,
            theme: self.theme.name(),
            page: self.page.clone(),
            token: console.tokens.issue(self.session()),
            live: String::new(),
            account: self.account_name().to_owned(),
            sections: self.sections(),
            assets: &assets::VERSION,
            version: env!("CARGO_PKG_VERSION"),
            has_policies: console.team.policies.is_some(),
        }
    }
}

impl Shell {
    /// The frame of a page that gets live data of the view with this query.
    pub fn live(self, view: &str) -> Self {
        Self {
            live: format!("/console/data?{view}"),
            ..self
        }
    }

    /// For the navigation, in a template.
    pub fn sections(&self) -> impl Iterator<Item = &(&'static str, &'static str)> {
        self.sections
            .iter()
            .filter(|(_, name)| self.has_policies || !OF_POLICIES.contains(name))
    }
}

impl ConsoleState {
    /// The page that says why another cannot be shown.
    pub fn refuse(&self, visitor: &Visitor, problem: &ProblemDetails) -> Response {
        let shell = visitor.shell(self, "", &problem.title);
        page_with(&ProblemPage { shell, problem }, Some(problem.head()))
    }
}

impl FromRequestParts<ConsoleState> for Visitor {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(
        parts: &mut Parts,
        _: &ConsoleState,
    ) -> Result<Self, Self::Rejection> {
        Ok(Self::new(&parts.headers, &parts.uri, &parts.extensions))
    }
}

/// An answer with a page.
pub fn page(template: &impl Template) -> Response {
    match template.render() {
        Ok(text) => ([(CONTENT_TYPE, "text/html; charset=utf-8")], text).into_response(),
        // Nothing that pages show can fail to be shown.
        Err(error) => ProblemDetails::bad_request(format!("the page cannot be shown: {error}"))
            .into_response(),
    }
}

/// An answer with a page that shows a refusal, perhaps.
pub fn page_with(template: &impl Template, refused: Option<RefusalHead>) -> Response {
    let mut response = page(template);
    if let Some(head) = refused {
        head.put_on(&mut response);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_those_of_the_cookie() {
        for (cookie, theme) in [
            ("a=b; tollgate_theme=dark", Theme::Dark),
            ("tollgate_theme=<script>", Theme::Auto),
            ("theme=dark", Theme::Auto),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(COOKIE, cookie.parse().unwrap());
            let visitor = Visitor::new(&headers, &Uri::from_static("/console"), &Extensions::new());
            assert_eq!(visitor.theme, theme, "{cookie}");
        }
    }
}
