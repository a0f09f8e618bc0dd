//! Forms of the console.
//!
//! A form is taken only if it comes from a page of this console, which no page of another origin
//! can read: its browser must not say otherwise, and it must carry a token.

use axum::extract::{Form, FromRequest, Request};
use axum::http::HeaderMap;
use axum::http::header::{ORIGIN, SET_COOKIE};
use axum::response::{IntoResponse, Redirect, Response};
use tokio::time::timeout;

use super::shell::{THEME_COOKIE, Theme, Visitor};
use super::state::ConsoleState;
use super::tokens::FormToken;
use tollgate_admin::browser_guard::OwnOrigins;
use tollgate_admin::problem_details::ProblemDetails;
use tollgate_admin::query::Pairs;
use tollgate_team::api::extract::{BODY_TIMEOUT, unreadable_body};

/// The name of a form's field with its token.
pub const TOKEN: &str = "token";

/// The fields of a form with a token.
pub struct ConsoleForm {
    pub visitor: Visitor,
    pub fields: Pairs,
    pub token: FormToken,
}

/// The values of a form that was refused: the page shows them again, but for passwords.
#[derive(Default)]
pub struct WrittenForm(Pairs);

impl From<&ConsoleForm> for WrittenForm {
    fn from(form: &ConsoleForm) -> Self {
        Self(form.fields.clone())
    }
}

impl WrittenForm {
    /// The value of a field. Empty without it.
    pub fn field(&self, name: &str) -> &str {
        value_of(&self.0, name)
    }
}

impl ConsoleForm {
    /// The value of a field. Empty without it.
    pub fn field(&self, name: &str) -> &str {
        self.exact_field(name).trim()
    }

    /// The value of a field with the spaces at its ends, which passwords may have.
    pub fn exact_field(&self, name: &str) -> &str {
        value_of(&self.fields, name)
    }

    /// The fields whose names begin with `prefix`, without it.
    pub fn below(&self, prefix: &str) -> Pairs {
        let mut below = Pairs::new();
        for (name, value) in &self.fields {
            if let Some(name) = name.strip_prefix(prefix) {
                below.push((name.to_owned(), value.clone()));
            }
        }
        below
    }
}

/// The value of a field. Empty without it.
fn value_of<'a>(fields: &'a Pairs, name: &str) -> &'a str {
    match fields.iter().find(|(known, _)| known == name) {
        Some((_, value)) => value,
        None => "",
    }
}

impl FromRequest<ConsoleState> for ConsoleForm {
    type Rejection = Response;

    async fn from_request(request: Request, console: &ConsoleState) -> Result<Self, Response> {
        let mut visitor = Visitor::new(request.headers(), request.uri(), request.extensions());
        match read(console, &mut visitor, request).await {
            Ok((fields, token)) => Ok(Self {
                visitor,
                fields,
                token,
            }),
            Err(problem) => Err(console.refuse(&visitor, &problem)),
        }
    }
}

/// The fields of a form and its token, which is checked. The visitor's caller is looked up anew.
async fn read(
    console: &ConsoleState,
    visitor: &mut Visitor,
    request: Request,
) -> Result<(Pairs, FormToken), ProblemDetails> {
    check_origin(&console.admin.origins, request.headers())?;
    let form = timeout(BODY_TIMEOUT, Form::<Pairs>::from_request(request, &())).await;
    let Ok(form) = form else {
        return Err(ProblemDetails::body_too_slow());
    };
    let Form(fields) = form.map_err(|error| unreadable_body(error.status(), error.body_text()))?;
    let token = value_of(&fields, TOKEN);
    let token = console
        .tokens
        .check(token, visitor.session(), visitor.account_name())?;
    if let Some(caller) = &visitor.caller {
        let anew = caller.anew().await?;
        visitor.caller = Some(anew);
    }
    Ok((fields, token))
}

/// Refuses a form that does not say that it is from this console.
fn check_origin(origins: &OwnOrigins, headers: &HeaderMap) -> Result<(), ProblemDetails> {
    if !headers.contains_key(ORIGIN) && !headers.contains_key("sec-fetch-site") {
        return Err(ProblemDetails::cross_site(
            "a form must say by Origin or Sec-Fetch-Site where it is from",
        )
        .hint("programs use /buckets, which docs/operating.md has"));
    }
    origins.check_site(headers)
}

/// `POST /console/theme`
pub async fn choose_theme(form: ConsoleForm) -> Response {
    let theme = Theme::new(form.field("theme")).unwrap_or_default().name();
    // The cookie lasts a year. This process alone reads it, and it says nothing of anybody.
    let cookie = format!(
        "{THEME_COOKIE}={theme}; Path=/console; Max-Age=31536000; SameSite=Strict; HttpOnly"
    );
    (
        [(SET_COOKIE, cookie)],
        Redirect::to(&page_of_console(form.field("page"))),
    )
        .into_response()
}

/// The `page`, if that is one of the console; otherwise the first one.
pub fn page_of_console(page: &str) -> String {
    if is_page_of_console(page) {
        page.to_owned()
    } else {
        "/console".to_owned()
    }
}

fn is_page_of_console(page: &str) -> bool {
    if page.bytes().any(|byte| !byte.is_ascii_graphic()) || page.contains(['\\', '"', '<']) {
        return false;
    }
    let path = match page.split_once('?') {
        Some((path, _)) => path,
        None => page,
    };
    let Some(below) = path.strip_prefix("/console") else {
        return false;
    };
    if !below.is_empty() && !below.starts_with('/') {
        return false;
    }
    // Browsers leave the folder by these segments.
    let path = path.to_ascii_lowercase().replace("%2e", ".");
    let mut segments = path.split('/');
    !segments.any(|segment| segment == "." || segment == "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_sent_out_of_the_console() {
        for own in [
            "/console",
            "/console/limits?q=a&page=2",
            "/console?x",
            "/console/limits/shop%2Efew",
            "/console?a=/../",
        ] {
            assert_eq!(page_of_console(own), own);
        }
        for foreign in [
            "",
            "//evil.example",
            "/consoles",
            "https://evil.example",
            "/console\r\nx: y",
            "/",
            "/console/\\e",
        ] {
            assert_eq!(page_of_console(foreign), "/console", "{foreign}");
        }
    }

    /// Whether a form with these fields is taken.
    fn from(fields: &[(&'static str, &str)]) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert("host", "127.0.0.1:9901".parse().unwrap());
        for (name, value) in fields {
            headers.insert(*name, value.parse().unwrap());
        }
        check_origin(&OwnOrigins::default(), &headers).is_ok()
    }

    #[test]
    fn a_form_must_say_where_it_is_from() {
        assert!(from(&[("origin", "http://127.0.0.1:9901")]));
        assert!(from(&[("sec-fetch-site", "same-origin")]));
        assert!(!from(&[]));
        for origin in [
            "null",
            "http://evil.example",
            "http://127.0.0.1:8080",
            "https://127.0.0.1:9901",
        ] {
            assert!(!from(&[("origin", origin)]), "{origin}");
        }
        assert!(!from(&[
            ("origin", "http://127.0.0.1:9901"),
            ("sec-fetch-site", "cross-site")
        ]));
    }
}
