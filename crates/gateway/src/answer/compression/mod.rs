//! Compresses the content of an answer, where its client takes that and it is worth it.
//!
//! Guarantees that an answer whose content differs from coding to coding says so (`Vary`), and that
//! its validators and lengths are not those of the content that was compressed.

mod compressed_body;
mod encoder;
mod idle;
mod place;

use std::net::IpAddr;
use std::sync::Arc;

use http::header::{
    ACCEPT_ENCODING, ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_TYPE, ETAG, IF_NONE_MATCH,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use http_body::Body as _;
use metrics::{Counter, counter};
use smallvec::SmallVec;
use tollgate_limiter::request::permit::Permit;

use self::compressed_body::{CompressedBody, CompressedSizes};
use self::place::{CompressorPlaces, PLACES};
use tollgate_limiter::clock::Instant;
use tollgate_spec::route::compression::{CompressionRules, ContentCoding};
use tollgate_wire::body::{Body, BodyObserver};
use tollgate_wire::http::preferences::{stated, vary_on, weight_of_coding};
use tollgate_wire::http::response_rules::{self, DIGESTS};

/// The type of a stream whose events are small, and must arrive as they come.
const EVENT_STREAM: &str = "text/event-stream";

/// The compression of one route's answers.
#[derive(Clone)]
pub struct Compression {
    rules: Arc<CompressionRules>,
    sizes: CompressedSizes,
    /// Answers that were sent as they are for want of a place.
    skipped: Counter,
    places: &'static CompressorPlaces,
}

/// The coding that the client of a request takes, if any, and the rules of its route.
pub struct AcceptedCoding {
    compression: Compression,
    coding: Option<ContentCoding>,
    client: IpAddr,
    is_head: bool,
    /// The validators of the answers that its client has.
    known_tags: SmallVec<[HeaderValue; 1]>,
}

/// Settles a request's limits by content that is compressed afterwards.
struct PermitReader(Permit);

impl Compression {
    /// For the answers of `route`.
    pub fn new(rules: &Arc<CompressionRules>, route: &Arc<str>) -> Self {
        let sizes = CompressedSizes {
            original: counter!("tollgate_compression_original_bytes_total", "route" => route.to_string()),
            compressed: counter!("tollgate_compression_compressed_bytes_total", "route" => route.to_string()),
        };
        let skipped = counter!("tollgate_compression_skipped_total", "route" => route.to_string());
        Self {
            rules: rules.clone(),
            sizes,
            skipped,
            places: &PLACES,
        }
    }

    /// The coding for a `request` of a client: the one that it likes best, and of several such the
    /// best of the route.
    pub fn accepted<B>(&self, request: &Request<B>, client: IpAddr) -> AcceptedCoding {
        let headers = request.headers();
        let identity = stated(headers.get_all(ACCEPT_ENCODING))
            .find(|(name, _)| name.eq_ignore_ascii_case("identity"));
        let least = identity.map_or(1, |(_, weight)| weight.max(1));
        let weighed = self
            .rules
            .codings
            .iter()
            .map(|coding| (weight_of_coding(headers, coding.name()), *coding));
        // The first of the heaviest: `max_by_key` takes the last.
        let best = weighed
            .rev()
            .filter(|(weight, _)| *weight >= least)
            .max_by_key(|(weight, _)| *weight);
        let known_tags = headers.get_all(IF_NONE_MATCH).iter().cloned().collect();
        AcceptedCoding {
            compression: self.clone(),
            coding: best.map(|(_, coding)| coding),
            client,
            is_head: request.method() == Method::HEAD,
            known_tags,
        }
    }
}

impl AcceptedCoding {
    /// Compresses the answer, unless it should stay as it is. Then `permit` reads what is
    /// compressed.
    pub fn apply(self, response: &mut Response<Body>, permit: &mut Permit) {
        if response_rules::has_length_of_another(response.status()) {
            return self.apply_to_unchanged(response.headers_mut());
        }
        if !self.is_worth_it(response) {
            return;
        }
        let is_part = response_rules::is_part(response.status());
        let headers = response.headers_mut();
        vary_on(headers, &ACCEPT_ENCODING);
        // A part of what is compressed as a whole stays as it is: its bytes are those of the rest.
        if is_part {
            return;
        }
        let Some(coding) = self.coding else { return };
        // The answer to a HEAD has no content to compress.
        let place = if self.is_head {
            None
        } else {
            self.compression.places.take(self.client)
        };
        if place.is_none() && !self.is_head {
            return self.compression.skipped.increment(1);
        }
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
        headers.remove(CONTENT_LENGTH);
        // A range would be one of the compressed content, which is never the same twice.
        headers.remove(ACCEPT_RANGES);
        for digest in DIGESTS {
            headers.remove(digest);
        }
        if let Some(weak) = weakened_etag(headers) {
            headers.insert(ETAG, weak);
        }
        let mut body = std::mem::replace(response.body_mut(), Body::empty());
        // The answer to a HEAD has no content to read.
        if !self.is_head {
            body.observe(Box::new(PermitReader(std::mem::take(permit))));
        }
        let sizes = self.compression.sizes;
        *response.body_mut() = Body::boxed(CompressedBody::new(body, coding, place, sizes));
    }

    /// Lets an answer that says that nothing has changed say it of the answer that its client has
    /// (RFC 9110 §15.4.5).
    fn apply_to_unchanged(&self, headers: &mut HeaderMap) {
        vary_on(headers, &ACCEPT_ENCODING);
        // No tag has a quote in it, so it is found nowhere but as a whole.
        if let Some(weak) = weakened_etag(headers)
            && self.known_tags.iter().any(|tags| contains(tags, &weak))
        {
            headers.insert(ETAG, weak);
        }
    }

    fn is_worth_it(&self, response: &Response<Body>) -> bool {
        let headers = response.headers();
        let rules = &self.compression.rules;
        let content_type = headers
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        let is_part = response_rules::is_part(response.status());
        response_rules::has_content(response.status())
            && !headers.contains_key(CONTENT_ENCODING)
            && (is_part || !headers.contains_key(CONTENT_RANGE))
            && !is_event_stream(content_type)
            && rules.types.iter().any(|range| range.contains(content_type))
            && self
                .length(response)
                .is_none_or(|length| length >= rules.min_size)
            && !forbids_transformation(headers)
    }

    /// The length of the content, where it is known. That of an answer to HEAD has a length and no
    /// content.
    fn length(&self, response: &Response<Body>) -> Option<u64> {
        // The whole may be larger.
        if response_rules::is_part(response.status()) {
            return None;
        }
        if let Some(value) = response.headers().get(CONTENT_LENGTH)
            && let Ok(text) = value.to_str()
            && let Ok(length) = text.parse()
        {
            return Some(length);
        }
        match response.body().size_hint().exact() {
            Some(0) if self.is_head => None,
            length => length,
        }
    }
}

impl BodyObserver for PermitReader {
    fn on_data(&mut self, data: &[u8]) {
        self.0.saw(data);
    }

    fn on_trailers(&mut self, _: &HeaderMap) {}

    fn on_end(mut self: Box<Self>, _: u64, complete: bool, _: Option<Instant>) {
        self.0.ended(complete);
    }
}

fn is_event_stream(content_type: &str) -> bool {
    match content_type.trim_start().get(..EVENT_STREAM.len()) {
        Some(essence) => essence.eq_ignore_ascii_case(EVENT_STREAM),
        None => false,
    }
}

/// Whether the content must stay as it is (RFC 9111 §5.2.2.6).
fn forbids_transformation(headers: &HeaderMap) -> bool {
    stated(headers.get_all(CACHE_CONTROL))
        .any(|(directive, _)| directive.eq_ignore_ascii_case("no-transform"))
}

/// The weak validator in place of a strong one, which is for one sequence of bytes (RFC 9110
/// §8.8.1). The compressed content is another.
fn weakened_etag(headers: &HeaderMap) -> Option<HeaderValue> {
    let tag = headers.get(ETAG)?.as_bytes();
    if tag.starts_with(b"W/") {
        return None;
    }
    HeaderValue::from_bytes(&[b"W/", tag].concat()).ok()
}

fn contains(tags: &HeaderValue, tag: &HeaderValue) -> bool {
    // A search whose time is the sum of both lengths: client and upstream choose one each.
    memchr::memmem::find(tags.as_bytes(), tag.as_bytes()).is_some()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU8, Ordering};

    use http_body_util::BodyExt as _;

    use super::*;
    use tollgate_spec::route::compression::{CODINGS, MIN_SIZE, MediaRange};

    static TWO: CompressorPlaces = CompressorPlaces::new(2);

    static SIXTEEN: CompressorPlaces = CompressorPlaces::new(16);

    /// An answer to the client with an address that ends in `client`.
    fn answer_to(client: u8, compression: &Compression) -> Response<Body> {
        let asked = Request::get("/").header(ACCEPT_ENCODING, "gzip");
        let asked = asked.body(()).unwrap();
        let mut response = Response::new(Body::from(bytes::Bytes::from("text ".repeat(1000))));
        response
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        compression
            .accepted(&asked, [192, 0, 2, client].into())
            .apply(&mut response, &mut Permit::default());
        response
    }

    /// An answer to another client each time.
    fn answer(compression: &Compression) -> Response<Body> {
        static CLIENT: AtomicU8 = AtomicU8::new(1);
        answer_to(CLIENT.fetch_add(1, Ordering::Relaxed), compression)
    }

    fn with_places(places: &'static CompressorPlaces) -> Compression {
        let types = vec![MediaRange::parse("text/*").unwrap()];
        let rules = CompressionRules {
            codings: CODINGS.to_vec(),
            min_size: MIN_SIZE,
            types,
        };
        Compression {
            places,
            ..Compression::new(&Arc::new(rules), &"all".into())
        }
    }

    fn is_coded(response: &Response<Body>) -> bool {
        response.headers().contains_key(CONTENT_ENCODING)
    }

    #[test]
    fn a_client_that_reads_nothing_leaves_compressors_to_others() {
        let compression = with_places(&SIXTEEN);
        let mut unread = Vec::new();
        for _ in 0..20 {
            unread.push(answer_to(200, &compression));
        }
        let coded = unread.iter().filter(|response| is_coded(response)).count();
        assert_eq!(coded, 2, "an eighth");
        for client in 201..208 {
            let others = [0, 1].map(|_| answer_to(client, &compression));
            assert!(others.iter().all(is_coded));
            unread.extend(others);
        }
        assert!(!is_coded(&answer_to(208, &compression)), "all are taken");
        unread.clear();
        assert!(is_coded(&answer_to(200, &compression)));
    }

    #[tokio::test]
    async fn answers_over_the_bound_on_compressors_are_sent_as_they_are() {
        let compression = with_places(&TWO);
        let one = answer(&compression);
        let other = answer(&compression);
        assert!(is_coded(&one) && is_coded(&other));
        let third = answer(&compression);
        assert!(!is_coded(&third));
        assert_eq!(third.headers()["vary"], "accept-encoding");
        assert_eq!(
            third.into_body().collect().await.unwrap().to_bytes(),
            "text ".repeat(1000)
        );
        // The end of an answer makes room, though it is still held, and so does a client that is
        // gone.
        let mut read = one.into_body();
        while read.frame().await.is_some() {}
        let fourth = answer(&compression);
        assert!(is_coded(&fourth));
        assert!(!is_coded(&answer(&compression)));
        drop(other);
        assert!(is_coded(&answer(&compression)));
    }
}
