//! The id of a request: generated, or accepted from a trusted peer. The response, the request to
//! the upstream and the log have it.

use bytes::Bytes;
use http::HeaderValue;
pub use tollgate_limiter::request::request_id::{REQUEST_ID, accept};

/// A fresh id: 128 random bits in hexadecimal. Unique, not unguessable.
pub fn generate() -> HeaderValue {
    let mut text = [0; 32];
    for (pair, byte) in text
        .as_chunks_mut()
        .0
        .iter_mut()
        .zip(fastrand::u128(..).to_ne_bytes())
    {
        *pair = [digit(byte >> 4), digit(byte & 15)];
    }
    // A shared buffer from the start: the id is cloned for the upstream and the response, and
    // sharing a copy later would take another allocation.
    HeaderValue::from_maybe_shared(Bytes::from_owner(text)).unwrap_or(HeaderValue::from_static("-"))
}

/// A hexadecimal digit, by arithmetic: the compiler makes many digits at once, unlike with a
/// look-up.
fn digit(nibble: u8) -> u8 {
    nibble + if nibble < 10 { b'0' } else { b'a' - 10 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_ids_have_one_form_and_differ() {
        let id = generate();
        assert_ne!(id, generate());
        assert!(id.len() == 32 && id.as_bytes().iter().all(u8::is_ascii_hexdigit));
    }

    #[test]
    fn digits_are_those_of_lower_case_hexadecimal() {
        let digits: Vec<u8> = (0..16).map(digit).collect();
        assert_eq!(digits, b"0123456789abcdef");
    }

    #[test]
    fn only_an_id_that_may_stand_in_a_log_and_a_page_is_accepted() {
        for good in [
            "abc-123",
            "Root=1-67891233-abcdef012345678912345678",
            "a.b_c:d/e+f=@G",
            &"x".repeat(128),
        ] {
            assert!(
                accept(&HeaderValue::from_str(good).unwrap()).is_some(),
                "{good:?}"
            );
        }
        for bad in [
            "",
            "a b",
            "<b>",
            "a\"",
            "a'",
            "a&b",
            "a\\",
            "{a}",
            "a,b",
            "a;b",
            "$(a)",
            "`a`",
            &"x".repeat(129),
        ] {
            assert!(
                accept(&HeaderValue::from_str(bad).unwrap()).is_none(),
                "{bad:?}"
            );
        }
    }
}
