//! User names and passwords (RFC 7617): `hash` reads and checks the hash of a password,
//! `user_table` has the users of a file, and `checks` runs what takes long.

pub mod checks;
pub mod hash;
pub mod spec;
pub mod user_table;

use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};

/// Bytes of a user name and a password, as they are sent.
const MAX_CREDENTIAL: usize = 4_096;

/// Some clients leave the padding out.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The user name and the password of `Authorization: Basic`. `None`: it has none that could be
/// right.
pub fn read(credential: &[u8]) -> Option<(String, Vec<u8>)> {
    let short = Some(credential).filter(|credential| credential.len() <= MAX_CREDENTIAL);
    let mut pair = BASE64.decode(short?).ok()?;
    let colon = pair.iter().position(|byte| *byte == b':')?;
    let password = pair.split_off(colon + 1);
    pair.truncate(colon);
    let name = String::from_utf8(pair).ok()?;
    (!name.is_empty() && !name.contains(char::is_control)).then_some((name, password))
}

/// The challenge of a `realm`, which has neither quotes nor backslashes.
pub fn challenge(realm: &str) -> String {
    format!("Basic realm=\"{realm}\", charset=\"UTF-8\"")
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    #[test]
    fn a_name_ends_at_the_first_colon_and_a_password_may_be_any_bytes() {
        let read = |pair: &[u8]| read(STANDARD.encode(pair).as_bytes());
        assert_eq!(read(b"ada:a:b"), Some(("ada".to_owned(), b"a:b".to_vec())));
        assert_eq!(
            read("ada l\u{f6}we:\u{f6}".as_bytes()).unwrap().0,
            "ada l\u{f6}we"
        );
        assert_eq!(read(b"ada:"), Some(("ada".to_owned(), Vec::new())));
        for wrong in [&b"ada"[..], b":secret", b"a\nb:c", b"a\0:c", b"\xff:c", b""] {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn what_is_no_base64_or_far_too_long_is_no_credential() {
        assert_eq!(
            read(b"YWRhOng"),
            Some(("ada".to_owned(), b"x".to_vec())),
            "without its padding"
        );
        let long = STANDARD.encode(format!("ada:{}", "x".repeat(MAX_CREDENTIAL)));
        for wrong in [
            &b"YWRhOng=="[..],
            b"YWRh Ong=",
            b"YWRhOng\xff",
            long.as_bytes(),
        ] {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
    }
}
