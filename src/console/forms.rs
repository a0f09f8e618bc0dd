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
use crate::admin::browser_guard::OwnOrigins;
use crate::admin::problem_details::ProblemDetails;
use crate::admin::query::Pairs;
use crate::team::api::extract::{BODY_TIMEOUT, unreadable_body};

/// The name of a form's field with its token.
pub const TOKEN: &str = "token";

/// The fields of a form with a token.
pub struct ConsoleForm {
    pub visitor: Visitor,
    pub fields: Pairs,
    pub token: FormToken,
}

impl ConsoleForm {
    /// The value of a field. Empty without it.
    pub fn field(&self, name: &str) -> &str {
        self.fields
            .iter()
            .find(|(known, _)| known == name)
            .map_or("", |(_, value)| value.trim())
    }

    /// The value of a field with the spaces at its ends, which passwords may have.
    pub fn exact_field(&self, name: &str) -> &str {
        self.fields
            .iter()
            .find(|(known, _)| known == name)
            .map_or("", |(_, value)| value)
    }

    /// The fields whose names begin with `prefix`, without it.
    pub fn below(&self, prefix: &str) -> Pairs {
        let fields = self.fields.iter();
        fields
            .filter_map(|(name, value)| {
                Some((name.strip_prefix(prefix)?.to_owned(), value.clone()))
            })
            .collect()
    }
}

impl FromRequest<ConsoleState> for ConsoleForm {
    type Rejection = Response;

    async fn from_request(request: Request, console: &ConsoleState) -> Result<Self, Response> {
        let mut visitor = Visitor::of(request.headers(), request.uri(), request.extensions());
        let refuse = |problem: ProblemDetails| console.refuse(&visitor, &problem);
        check_origin(&console.admin.origins, request.headers()).map_err(refuse)?;
        let form = timeout(BODY_TIMEOUT, Form::<Pairs>::from_request(request, &())).await;
        let form = form.map_err(|_| refuse(ProblemDetails::body_too_slow()))?;
        let Form(fields) =
            form.map_err(|error| refuse(unreadable_body(error.status(), error.body_text())))?;
        let token = fields
            .iter()
            .find(|(name, _)| name == TOKEN)
            .map_or("", |(_, token)| token);
        let token = console
            .tokens
            .check(token, (visitor.session(), visitor.account_name()))
            .map_err(refuse)?;
        if let Some(caller) = &visitor.caller {
            let anew = caller.anew().await.map_err(refuse)?;
            visitor.caller = Some(anew);
        }
        Ok(Self {
            visitor,
            fields,
            token,
        })
    }
}

/// A form that a browser sends says where it is from.
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
    let theme = Theme::of(form.field("theme")).unwrap_or_default().name();
    // A year. It is read by this process alone, and says nothing of anybody.
    let cookie = format!(
        "{THEME_COOKIE}={theme}; Path=/console; Max-Age=31536000; SameSite=Strict; HttpOnly"
    );
    (
        [(SET_COOKIE, cookie)],
        Redirect::to(&page_of_console(form.field("page"))),
    )
        .into_response()
}

/// A path of the console, whatever was asked for.
pub fn page_of_console(asked: &str) -> String {
    let plain =
        asked.bytes().all(|byte| byte.is_ascii_graphic()) && !asked.contains(['\\', '"', '<']);
    let below = asked
        .strip_prefix("/console")
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?']));
    // Browsers go up by these.
    let path = asked
        .split('?')
        .next()
        .unwrap_or_default()
        .to_ascii_lowercase()
        .replace("%2e", ".");
    let stays = path
        .split('/')
        .all(|segment| ![".", ".."].contains(&segment));
    if plain && below && stays {
        asked.to_owned()
    } else {
        "/console".to_owned()
    }
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

    #[test]
    fn a_form_must_say_where_it_is_from() {
        let from = |fields: &[(&'static str, &str)]| {
            let mut headers = HeaderMap::new();
            headers.insert("host", "127.0.0.1:9901".parse().unwrap());
            fields
                .iter()
                .for_each(|(name, value)| drop(headers.insert(*name, value.parse().unwrap())));
            check_origin(&OwnOrigins::default(), &headers).is_ok()
        };
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
