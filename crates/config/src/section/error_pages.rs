//! `error_pages`: pages in place of errors, by status and by the type of content that a client asks
//! for.

use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;

use http::{HeaderValue, StatusCode};
use tollgate_limiter::limit::status_set::{StatusRange, StatusSet};
use tollgate_limiter::limit::units::show_size;

use crate::report::{Location, Report, ValueProblem, quote};
use crate::scalar::address::IncludedPath;
use crate::scalar::media_type::media_type;
use crate::scalar::text::PlainText;
use crate::yaml::collection::NonEmptyList;
use crate::yaml::decode::{Located, Setting};
use crate::yaml::record::record;
use crate::yaml::words::words;
use tollgate_spec::route::error_pages::{ErrorPage, ErrorPages, PageText};
use tollgate_wire::regular_file;

/// Bytes of a page at most: it is sent whenever something fails.
const MAX_PAGE: u64 = 1 << 20;

record! {
    /// A page in place of errors: a file or a body.
    RawErrorPage at location {
        /// Status codes of errors such as 404, or classes of them such as 5xx.
        required status: NonEmptyList<Located<StatusRange>>,
        /// The type of its content, such as text/html. Clients that ask for it get the page.
        required r#type: Located<HeaderValue>,
        /// The file that has the page. A relative path begins at the folder of this file.
        optional file: Located<IncludedPath>,
        /// The page itself.
        optional body: Located<PlainText>,
        /// Whether clients that ask for no type by name get it too.
        default(false) fallback: Located<bool>,
        /// Which errors it replaces: those of the gateway, or all, which are those of the upstream
        /// too.
        default("gateway") of: Located<ErrorOrigin>,
    }
}

/// The errors that a page replaces, by who made them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ErrorOrigin {
    Gateway,
    All,
}

words! {
    ErrorOrigin: "whose errors" { "gateway" => Gateway, "all" => All }
}

/// The pages. `None`: a mistake was reported.
pub fn error_pages(
    raws: &NonEmptyList<RawErrorPage>,
    report: &mut Report,
) -> Option<Arc<ErrorPages>> {
    let mut pages = Vec::with_capacity(raws.0.len());
    for raw in &raws.0 {
        pages.extend(raw.build(report));
    }
    if pages.len() < raws.0.len() {
        return None;
    }
    Some(Arc::new(ErrorPages(pages)))
}

impl RawErrorPage {
    fn build(&self, report: &mut Report) -> Option<ErrorPage> {
        let statuses = self
            .status
            .valid()
            .and_then(|ranges| statuses(ranges, report));
        let content_type = self.r#type.valid().and_then(|at| content_type(at, report));
        let text = page_text(&self.location, &self.file, &self.body, report);
        Some(ErrorPage {
            statuses: statuses?,
            content_type: content_type?,
            fallback: self.fallback.value()?,
            of_upstream: self.of.value()? == ErrorOrigin::All,
            text: text?,
        })
    }
}

/// The page in a file or in a body. `None`: a mistake was reported.
pub fn page_text(
    location: &Location,
    file: &Setting<Located<IncludedPath>>,
    body: &Setting<Located<PlainText>>,
    report: &mut Report,
) -> Option<PageText> {
    match (file.valid(), body.valid()) {
        (None, None) if file.is_present() || body.is_present() => None,
        (Some(file), None) => read(file, report),
        (None, Some(body)) => Some(PageText::parse(&body.value.0)),
        (both, _) => {
            let which = if both.is_some() {
                "a page has a file or a body, not both"
            } else {
                "the page is missing"
            };
            report.mistake(
                location,
                ValueProblem::new(which).hint("write \"file\" or \"body\""),
            );
            None
        }
    }
}

fn statuses(ranges: &NonEmptyList<Located<StatusRange>>, report: &mut Report) -> Option<StatusSet> {
    for range in &ranges.0 {
        let set = StatusSet::new([range.value.clone()]).ok()?;
        let has_success = (200..400)
            .filter_map(|code| StatusCode::from_u16(code).ok())
            .any(|status| set.contains(status));
        if has_success {
            let problem = ValueProblem::new("an answer with this status is no error");
            report.mistake(
                &range.location,
                problem.hint("list codes from 400 to 599, or 4xx or 5xx"),
            );
            return None;
        }
    }
    StatusSet::new(ranges.0.iter().map(|at| at.value.clone())).ok()
}

/// The type of a page. `None`: a mistake was reported.
pub fn content_type(at: &Located<HeaderValue>, report: &mut Report) -> Option<HeaderValue> {
    let text = at.value.to_str().unwrap_or_default();
    if media_type(text).is_some() {
        return Some(at.value.clone());
    }
    let problem = ValueProblem::new(format!("{} is not a type of content", quote(text)));
    report.mistake(
        &at.location,
        problem.hint("write text/html; charset=utf-8 or application/json"),
    );
    None
}

fn read(file: &Located<IncludedPath>, report: &mut Report) -> Option<PageText> {
    let path = Path::new(&**file.location.file())
        .parent()
        .unwrap_or(Path::new(""))
        .join(&file.value.0);
    let mut bytes = Vec::new();
    let read =
        regular_file::open(&path).and_then(|file| file.take(MAX_PAGE + 1).read_to_end(&mut bytes));
    let problem = match (read, String::from_utf8(bytes)) {
        (Err(error), _) => {
            let hint = match error.kind() {
                io::ErrorKind::NotFound => "paths begin at the folder of the file that names them",
                _ => "the gateway must be able to read it",
            };
            ValueProblem::new(format!(
                "cannot read {}: {error}",
                quote(&path.to_string_lossy())
            ))
            .hint(hint)
        }
        (Ok(_), Ok(text)) if text.len() as u64 <= MAX_PAGE => return Some(PageText::parse(&text)),
        (Ok(_), Ok(_)) => ValueProblem::new(format!("the page is over {}", show_size(MAX_PAGE)))
            .hint("a page is sent whenever something fails: keep it small, and link to pictures"),
        (Ok(_), Err(_)) => ValueProblem::new("the page is not UTF-8").hint("save it as UTF-8"),
    };
    report.mistake(&file.location, problem);
    None
}
