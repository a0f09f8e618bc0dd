//! Interim responses (RFC 9110 §15.2) on their way from an upstream to the client, before the final
//! response.
//!
//! A codec passes a slot along with each request, and sends what it finds there whenever the
//! handler was polled. Guarantees bounds on how many there are and how large, and costs nothing
//! where there are none.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use http::{HeaderMap, HeaderName, StatusCode};
use parking_lot::Mutex;

/// Most interim responses that are read for one request. An upstream that sends more never answers.
pub const MOST_READ: u16 = 1000;
/// Most interim responses of one request that the client gets. Further ones are dropped: they are
/// hints.
const MOST: usize = 16;
/// Most bytes of the fields of these responses, together.
const MOST_BYTES: usize = 16 * 1024;

/// An interim response, other than a 100 or a 101.
#[derive(Debug, PartialEq, Eq)]
pub struct InterimResponse {
    pub status: StatusCode,
    pub headers: HeaderMap,
}

/// Holds the interim responses of one request until its codec sends them.
#[derive(Debug, Default)]
pub struct InterimSlot {
    /// The number of responses that wait.
    waiting: AtomicUsize,
    held: Mutex<HeldResponses>,
}

#[derive(Debug, Default)]
struct HeldResponses {
    /// The names of fields that the client does not get.
    withheld: Option<Arc<[HeaderName]>>,
    /// A box, since few requests have interim responses: the others do not carry the room for them.
    responses: Option<Box<InterimResponses>>,
}

#[derive(Debug, Default)]
struct InterimResponses {
    waiting: VecDeque<InterimResponse>,
    /// Responses so far, those that were sent included.
    count: usize,
    /// Bytes of the fields of these responses.
    bytes: usize,
}

impl InterimSlot {
    /// Keeps fields of the responses to come from the client.
    pub fn withhold(&self, names: Arc<[HeaderName]>) {
        if names.is_empty() {
            return;
        }
        let mut held = self.held.lock();
        held.withheld = Some(match held.withheld.take() {
            None => names,
            Some(known) => known.iter().chain(&*names).cloned().collect(),
        });
    }

    /// Leaves a response for the codec. Must be called from within the handler, which the codec
    /// polls.
    pub fn push(&self, status: StatusCode, mut headers: HeaderMap) {
        let mut held = self.held.lock();
        for name in held.withheld.iter().flat_map(|names| names.iter()) {
            headers.remove(name);
        }
        let responses = held.responses.get_or_insert_default();
        let mut bytes = 0;
        for (name, value) in &headers {
            bytes += name.as_str().len() + value.len();
        }
        if responses.count >= MOST || responses.bytes.saturating_add(bytes) > MOST_BYTES {
            return tracing::debug!(%status, "an interim response over the bounds was dropped");
        }
        responses.count += 1;
        responses.bytes += bytes;
        responses
            .waiting
            .push_back(InterimResponse { status, headers });
        self.waiting.store(responses.waiting.len(), Relaxed);
    }

    /// Whether the client gets an interim response, or has got one.
    pub fn is_used(&self) -> bool {
        match &self.held.lock().responses {
            Some(responses) => responses.count > 0,
            None => false,
        }
    }

    /// The next response that waits, in order.
    pub fn take(&self) -> Option<InterimResponse> {
        if self.waiting.load(Relaxed) == 0 {
            return None;
        }
        let mut held = self.held.lock();
        let responses = held.responses.as_mut()?;
        let next = responses.waiting.pop_front();
        self.waiting.store(responses.waiting.len(), Relaxed);
        next
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http::header::LINK;

    use super::*;

    #[test]
    fn what_is_left_is_taken_once_in_order_and_within_bounds() {
        let slot = InterimSlot::default();
        let small = HeaderMap::from_iter([(LINK, HeaderValue::from_static("</a>"))]);
        let large = HeaderMap::from_iter([(
            LINK,
            HeaderValue::from_maybe_shared("x".repeat(MOST_BYTES)).unwrap(),
        )]);
        slot.push(StatusCode::PROCESSING, HeaderMap::new());
        slot.push(StatusCode::EARLY_HINTS, large);
        slot.push(StatusCode::EARLY_HINTS, small);
        assert_eq!(
            take_all(&slot),
            [StatusCode::PROCESSING, StatusCode::EARLY_HINTS]
        );
        assert!(take_all(&slot).is_empty());
        for _ in 0..2 * MOST {
            slot.push(StatusCode::EARLY_HINTS, HeaderMap::new());
        }
        assert_eq!(take_all(&slot).len(), MOST - 2);
    }

    fn take_all(slot: &InterimSlot) -> Vec<StatusCode> {
        let mut statuses = Vec::new();
        while let Some(response) = slot.take() {
            statuses.push(response.status);
        }
        statuses
    }
}
