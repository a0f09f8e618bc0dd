//! Replaces the content of an error by a page of the route.
//!
//! Guarantees that what the error says in its fields stays: when to come back, how to sign in,
//! which limit it was.

use std::sync::Arc;

use http::Response;
use http::header::{
    ACCEPT, ACCEPT_RANGES, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH,
    CONTENT_LOCATION, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue,
    LAST_MODIFIED, RETRY_AFTER, TRAILER,
};
use smallvec::SmallVec;

use super::page_syntax::PageSyntax;
use tollgate_spec::route::error_pages::{ErrorFact, ErrorPage, ErrorPages};
use tollgate_wire::body::Body;
use tollgate_wire::http::preferences::{stated, vary_on};
use tollgate_wire::http::response_rules::DIGESTS;

/// Fields that describe the content which is replaced.
const OF_CONTENT: [HeaderName; 10] = [
    ACCEPT_RANGES,
    CONTENT_DISPOSITION,
    CONTENT_ENCODING,
    CONTENT_LANGUAGE,
    CONTENT_LENGTH,
    CONTENT_LOCATION,
    CONTENT_RANGE,
    ETAG,
    LAST_MODIFIED,
    TRAILER,
];

/// The pages of a route, and the types of content that the client of a request asks for.
pub struct AcceptedPages {
    pages: Arc<ErrorPages>,
    /// The values of `Accept`. Nearly all clients send one.
    accept: SmallVec<[HeaderValue; 1]>,
}

impl AcceptedPages {
    /// For a request with these `headers`.
    pub fn new(pages: &Arc<ErrorPages>, headers: &HeaderMap) -> Self {
        Self {
            pages: pages.clone(),
            accept: headers.get_all(ACCEPT).iter().cloned().collect(),
        }
    }

    /// Replaces the content of an error of the request with this id. `of_upstream`: the error is
    /// not the gateway's own.
    pub fn apply(
        &self,
        response: &mut Response<Body>,
        request_id: &HeaderValue,
        of_upstream: bool,
    ) {
        let status = response.status();
        if !self.pages.has(status, of_upstream) {
            return;
        }
        // Another client gets another page, or none: caches must keep them apart (RFC 9110
        // §12.5.5).
        vary_on(response.headers_mut(), &ACCEPT);
        let Some(page) = self
            .pages
            .find(status, of_upstream, |value| self.weight(value))
        else {
            return;
        };
        let syntax = PageSyntax::new(&page.content_type);
        let headers = response.headers();
        let content = page.text.render(|fact, page| {
            let value = match fact {
                ErrorFact::Status => status.as_str().as_bytes(),
                ErrorFact::Reason => status.canonical_reason().unwrap_or_default().as_bytes(),
                ErrorFact::RequestId => request_id.as_bytes(),
                ErrorFact::RetryAfter => retry_after_seconds(headers),
            };
            syntax.write(value, page);
        });
        *response.body_mut() = content.into();
        let ErrorPage { content_type, .. } = page;
        let headers = response.headers_mut();
        for field in OF_CONTENT.into_iter().chain(DIGESTS) {
            headers.remove(field);
        }
        headers.insert(CONTENT_TYPE, content_type.clone());
    }

    /// How much the client likes this type, where it names it or its kind (RFC 9110 §12.5.1), in
    /// thousandths.
    fn weight(&self, content_type: &HeaderValue) -> u16 {
        let essence = content_type
            .to_str()
            .unwrap_or_default()
            .split(';')
            .next()
            .unwrap_or_default()
            .trim();
        let kind = essence.split('/').next().unwrap_or_default();
        let mut of_kind = 0;
        for (range, weight) in stated(&self.accept) {
            if range.eq_ignore_ascii_case(essence) {
                return weight;
            }
            if range
                .strip_suffix("/*")
                .is_some_and(|named| named.eq_ignore_ascii_case(kind))
            {
                of_kind = weight;
            }
        }
        of_kind
    }
}

/// The seconds of `Retry-After`. The upstream's may be a date, which is left out.
fn retry_after_seconds(headers: &HeaderMap) -> &[u8] {
    match headers.get(RETRY_AFTER) {
        Some(value) if value.as_bytes().iter().all(u8::is_ascii_digit) => value.as_bytes(),
        Some(_) | None => b"",
    }
}
