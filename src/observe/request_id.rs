//! The id of a request: generated, or accepted from a trusted peer. It stands in the response, in the request to the upstream
//! and in the log.

use bytes::Bytes;
use http::HeaderValue;
pub use tollgate_limiter::request::request_id::{REQUEST_ID, accept};

/// A fresh id: 128 random bits in hexadecimal. Unique, not unguessable.
pub fn generate() -> HeaderValue {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = [0; 32];
    for (pair, byte) in text.as_chunks_mut().0.iter_mut().zip(fastrand::u128(..).to_ne_bytes()) {
        *pair = [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
    }
    // A shared buffer from the start: the id is cloned for the upstream and the response, and sharing a copy later
    // would take another allocation.
    HeaderValue::from_maybe_shared(Bytes::from_owner(text)).unwrap_or(HeaderValue::from_static("-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_ids_have_one_form_and_differ() {
        let (one, other) = (generate(), generate());
        assert_ne!(one, other);
        assert!(one.len() == 32 && one.as_bytes().iter().all(u8::is_ascii_hexdigit));
    }

    #[test]
    fn only_an_id_that_may_stand_in_a_log_is_accepted() {
        assert!(accept(&HeaderValue::from_static("abc-123")).is_some());
        for bad in ["", "a b", &"x".repeat(129)] {
            assert!(accept(&HeaderValue::from_str(bad).unwrap()).is_none(), "{bad:?}");
        }
    }
}
