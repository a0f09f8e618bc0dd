//! Interim responses (RFC 9110 §15.2) on their way from an upstream to the client, before the final
//! response.
//!
//! A codec passes a slot along with each request, and sends what it finds there whenever the
//! handler was polled. Guarantees bounds on how many there are and how large, and costs nothing
//! where there are none.

use std::collections::VecDeque;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use http::{HeaderMap, HeaderName, StatusCode};
use parking_lot::Mutex;

/// Most interim responses that are read for one request. An upstream that sends more never answers.
pub const MOST_READ: u16 = 1000;
/// Most interim responses of one request that the client gets. Further ones are dropped: they are
/// hints.
const MOST: usize = 16;
/// Most bytes of their fields, together.
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
    /// How many wait.
    waiting: AtomicUsize,
    /// In a box: few requests have any, and the others do not carry the room for them.
    responses: Mutex<Option<Box<InterimResponses>>>,
}

#[derive(Debug, Default)]
struct InterimResponses {
    waiting: VecDeque<InterimResponse>,
    /// How many there were, and the bytes of their fields.
    count: usize,
    bytes: usize,
    /// The names of fields that the client does not get.
    withheld: Vec<HeaderName>,
}

impl InterimSlot {
    /// Keeps fields of the responses to come from the client.
    pub fn withhold(&self, names: &[HeaderName]) {
        if !names.is_empty() {
            self.responses
                .lock()
                .get_or_insert_default()
                .withheld
                .extend_from_slice(names);
        }
    }

    /// Leaves a response for the codec. Must be called from within the handler, which the codec
    /// polls.
    pub fn push(&self, status: StatusCode, mut headers: HeaderMap) {
        let mut responses = self.responses.lock();
        let responses = responses.get_or_insert_default();
        for name in &responses.withheld {
            headers.remove(name);
        }
        let bytes = headers
            .iter()
            .map(|(name, value)| name.as_str().len() + value.len())
            .sum::<usize>();
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

    /// Whether the client gets any, or has got one.
    pub fn is_used(&self) -> bool {
        self.responses
            .lock()
            .as_ref()
            .is_some_and(|responses| responses.count > 0)
    }

    /// The next of those that wait, in order.
    pub fn take(&self) -> Option<InterimResponse> {
        if self.waiting.load(Relaxed) == 0 {
            return None;
        }
        let mut responses = self.responses.lock();
        let responses = responses.as_mut()?;
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
        let status = |code| StatusCode::from_u16(code).unwrap();
        slot.push(status(102), HeaderMap::new());
        slot.push(status(103), large);
        slot.push(status(103), small);
        let take_all = || {
            std::iter::from_fn(|| slot.take())
                .map(|one| one.status.as_u16())
                .collect::<Vec<_>>()
        };
        assert_eq!(take_all(), [102, 103]);
        assert!(take_all().is_empty());
        for _ in 0..2 * MOST {
            slot.push(status(103), HeaderMap::new());
        }
        assert_eq!(take_all().len(), MOST - 2);
    }
}
