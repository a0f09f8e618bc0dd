//! The pages that a route answers with in place of bare errors, by status and by the type of
//! content that a client asks for.

use bytes::{Bytes, BytesMut};
use http::{HeaderValue, StatusCode};
use tollgate_limiter::limit::status_set::StatusSet;

/// The pages of a route, in the order of the file: the first that fits is taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorPages(pub Vec<ErrorPage>);

/// A page in place of an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorPage {
    pub statuses: StatusSet,
    pub content_type: HeaderValue,
    /// Whether the page is also for clients that name no type they prefer.
    pub fallback: bool,
    /// Whether the page also replaces errors of the upstream, not only those of the gateway.
    pub of_upstream: bool,
    pub text: PageText,
}

/// A text with places for facts of the error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageText(Vec<PagePiece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum PagePiece {
    Text(Bytes),
    Fact(ErrorFact),
}

/// A fact of an error that a page may show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorFact {
    Status,
    /// The usual name of the status.
    Reason,
    RequestId,
    /// Seconds until the client may come back, or nothing.
    RetryAfter,
}

/// The facts as a page names them. Any other brace is text, such as those of style sheets.
pub const ERROR_FACTS: [(&str, ErrorFact); 4] = [
    ("{status}", ErrorFact::Status),
    ("{reason}", ErrorFact::Reason),
    ("{request_id}", ErrorFact::RequestId),
    ("{retry_after}", ErrorFact::RetryAfter),
];

impl ErrorPages {
    /// Whether there is a page for this status, whatever its type.
    pub fn has(&self, status: StatusCode, of_upstream: bool) -> bool {
        self.0.iter().any(|page| page.fits(status, of_upstream))
    }

    /// The page for an error with this status that `weight` likes best. `weight`: how much the
    /// client likes a page's type. `None`: it asks for none of those types by name, and none is the
    /// fallback.
    pub fn find(
        &self,
        status: StatusCode,
        of_upstream: bool,
        weight: impl Fn(&HeaderValue) -> u16,
    ) -> Option<&ErrorPage> {
        let mut best = None;
        let mut best_weight = 0;
        let mut fallback = None;
        for page in &self.0 {
            if !page.fits(status, of_upstream) {
                continue;
            }
            let weight = weight(&page.content_type);
            if weight > best_weight {
                best = Some(page);
                best_weight = weight;
            }
            if page.fallback {
                fallback = fallback.or(Some(page));
            }
        }
        best.or(fallback)
    }
}

impl ErrorPage {
    fn fits(&self, status: StatusCode, of_upstream: bool) -> bool {
        self.statuses.contains(status) && (self.of_upstream || !of_upstream)
    }
}

/// A fact that a text names.
struct FoundFact {
    begin: usize,
    end: usize,
    fact: ErrorFact,
}

impl FoundFact {
    fn first(text: &str) -> Option<Self> {
        let mut first: Option<Self> = None;
        for (name, fact) in ERROR_FACTS {
            if let Some(begin) = text.find(name)
                && first.as_ref().is_none_or(|first| begin < first.begin)
            {
                first = Some(Self {
                    begin,
                    end: begin + name.len(),
                    fact,
                });
            }
        }
        first
    }
}

impl PageText {
    pub fn parse(text: &str) -> Self {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(found) = FoundFact::first(rest) {
            let before = &rest.as_bytes()[..found.begin];
            if !before.is_empty() {
                pieces.push(PagePiece::Text(Bytes::copy_from_slice(before)));
            }
            pieces.push(PagePiece::Fact(found.fact));
            rest = &rest[found.end..];
        }
        if !rest.is_empty() {
            pieces.push(PagePiece::Text(Bytes::copy_from_slice(rest.as_bytes())));
        }
        Self(pieces)
    }

    /// The page, where `write` tells the facts.
    pub fn render(&self, write: impl Fn(ErrorFact, &mut BytesMut)) -> Bytes {
        if let [PagePiece::Text(text)] = &*self.0 {
            return text.clone();
        }
        let mut page = BytesMut::new();
        for piece in &self.0 {
            match piece {
                PagePiece::Text(text) => page.extend_from_slice(text),
                PagePiece::Fact(fact) => write(*fact, &mut page),
            }
        }
        page.freeze()
    }
}

#[cfg(test)]
mod tests {
    use tollgate_limiter::limit::status_set::StatusRange;

    use super::*;

    #[test]
    fn a_page_shows_facts_and_leaves_other_braces_alone() {
        let page = PageText::parse("p {color: red} {status} {reason}: {statu} {{request_id}}");
        let shown = page.render(|fact, page| {
            page.extend_from_slice(match fact {
                ErrorFact::Status => b"503",
                ErrorFact::Reason => b"Service Unavailable",
                ErrorFact::RequestId => b"r1",
                ErrorFact::RetryAfter => b"",
            });
        });
        assert_eq!(
            shown,
            "p {color: red} 503 Service Unavailable: {statu} {r1}"
        );
    }

    #[test]
    fn the_first_of_the_pages_that_a_client_likes_best_is_taken() {
        fn page(status: &str, content_type: &'static str) -> ErrorPage {
            ErrorPage {
                statuses: StatusSet::new([StatusRange::parse(status).unwrap()]).unwrap(),
                content_type: HeaderValue::from_static(content_type),
                fallback: false,
                of_upstream: false,
                text: PageText::parse(content_type),
            }
        }
        let pages = ErrorPages(vec![
            page("503", "text/html"),
            ErrorPage {
                of_upstream: true,
                ..page("5xx", "text/html; charset=utf-8")
            },
            ErrorPage {
                fallback: true,
                ..page("5xx", "application/json")
            },
        ]);
        for (status, of_upstream, liked, found) in [
            (503, false, "text/html", Some("text/html")),
            (503, true, "text/html", Some("text/html; charset=utf-8")),
            (500, false, "text/html", Some("text/html; charset=utf-8")),
            (500, false, "image/png", Some("application/json")),
            (500, true, "image/png", None),
            (404, false, "text/html", None),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            let page = pages.find(status, of_upstream, |value| {
                u16::from(value.to_str().unwrap().starts_with(liked))
            });
            let content_type = page.map(|page| page.content_type.to_str().unwrap());
            assert_eq!(content_type, found, "{status} {of_upstream} {liked}");
        }
    }
}
