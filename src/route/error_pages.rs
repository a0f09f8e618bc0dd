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
    /// It is also for clients that name no type they prefer.
    pub fallback: bool,
    /// It also replaces errors of the upstream. Otherwise those of the gateway only.
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
        let fits = |page: &&ErrorPage| page.fits(status, of_upstream);
        let weighed = self
            .0
            .iter()
            .filter(fits)
            .map(|page| (weight(&page.content_type), page));
        // The first of the heaviest: `max_by_key` takes the last.
        let named = weighed
            .rev()
            .filter(|(weight, _)| *weight > 0)
            .max_by_key(|(weight, _)| *weight);
        named
            .map(|(_, page)| page)
            .or_else(|| self.0.iter().filter(fits).find(|page| page.fallback))
    }
}

impl ErrorPage {
    fn fits(&self, status: StatusCode, of_upstream: bool) -> bool {
        self.statuses.contains(status) && (self.of_upstream || !of_upstream)
    }
}

impl PageText {
    pub fn parse(text: &str) -> Self {
        let (mut pieces, mut rest) = (Vec::new(), text);
        let next = |rest: &str| {
            let found = ERROR_FACTS
                .iter()
                .filter_map(|(name, fact)| Some((rest.find(name)?, *name, *fact)));
            found.min_by_key(|(at, ..)| *at)
        };
        while let Some((at, name, fact)) = next(rest) {
            if at > 0 {
                pieces.push(PagePiece::Text(Bytes::copy_from_slice(
                    &rest.as_bytes()[..at],
                )));
            }
            pieces.push(PagePiece::Fact(fact));
            rest = &rest[at + name.len()..];
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
        let show = |fact| match fact {
            ErrorFact::Status => "503",
            ErrorFact::Reason => "Service Unavailable",
            ErrorFact::RequestId => "r1",
            ErrorFact::RetryAfter => "",
        };
        let shown = page.render(|fact, page| page.extend_from_slice(show(fact).as_bytes()));
        assert_eq!(
            shown,
            "p {color: red} 503 Service Unavailable: {statu} {r1}"
        );
    }

    #[test]
    fn the_first_of_the_pages_that_a_client_likes_best_is_taken() {
        let page = |status: &str, content_type: &'static str, fallback, of_upstream| ErrorPage {
            statuses: StatusSet::new([StatusRange::parse(status).unwrap()]).unwrap(),
            content_type: HeaderValue::from_static(content_type),
            fallback,
            of_upstream,
            text: PageText::parse(content_type),
        };
        let pages = ErrorPages(vec![
            page("503", "text/html", false, false),
            page("5xx", "text/html; charset=utf-8", false, true),
            page("5xx", "application/json", true, false),
        ]);
        let find = |status: u16, of_upstream, liked: &str| {
            let weight =
                |value: &HeaderValue| u16::from(value.to_str().unwrap().starts_with(liked));
            let found = pages.find(StatusCode::from_u16(status).unwrap(), of_upstream, weight);
            found.map(|page| page.content_type.to_str().unwrap())
        };
        assert_eq!(find(503, false, "text/html"), Some("text/html"));
        assert_eq!(
            find(503, true, "text/html"),
            Some("text/html; charset=utf-8")
        );
        assert_eq!(
            find(500, false, "text/html"),
            Some("text/html; charset=utf-8")
        );
        assert_eq!(find(500, false, "image/png"), Some("application/json"));
        assert_eq!(find(500, true, "image/png"), None);
        assert_eq!(find(404, false, "text/html"), None);
    }
}
