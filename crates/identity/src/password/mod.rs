//! Authentication by user name and password (RFC 7617): `authenticator` checks a request, `hash`
//! the hash of a password, `user_table` has the users of a file, and `checks` runs what takes long.

pub mod authenticator;
mod checks;
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

/// A user name and a password as a client sends them.
#[derive(Debug, PartialEq, Eq)]
struct SentPassword {
    name: String,
    password: Vec<u8>,
}

/// The user name and the password of `Authorization: Basic`. `None`: the credential has none that
/// could be right.
fn read(credential: &[u8]) -> Option<SentPassword> {
    if credential.len() > MAX_CREDENTIAL {
        return None;
    }
    let mut pair = BASE64.decode(credential).ok()?;
    let colon = pair.iter().position(|byte| *byte == b':')?;
    let password = pair.split_off(colon + 1);
    pair.truncate(colon);
    let name = String::from_utf8(pair).ok()?;
    if name.is_empty() || name.contains(char::is_control) {
        return None;
    }
    Some(SentPassword { name, password })
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    fn sent(name: &str, password: &[u8]) -> SentPassword {
        SentPassword {
            name: name.to_owned(),
            password: password.to_vec(),
        }
    }

    #[test]
    fn a_name_ends_at_the_first_colon_and_a_password_may_be_any_bytes() {
        fn read_pair(pair: &[u8]) -> Option<SentPassword> {
            read(STANDARD.encode(pair).as_bytes())
        }
        assert_eq!(read_pair(b"ada:a:b"), Some(sent("ada", b"a:b")));
        assert_eq!(
            read_pair("ada l\u{f6}we:\u{f6}".as_bytes()).unwrap().name,
            "ada l\u{f6}we"
        );
        assert_eq!(read_pair(b"ada:"), Some(sent("ada", b"")));
        for wrong in [&b"ada"[..], b":secret", b"a\nb:c", b"a\0:c", b"\xff:c", b""] {
            assert_eq!(read_pair(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn what_is_no_base64_or_far_too_long_is_no_credential() {
        assert_eq!(
            read(b"YWRhOng"),
            Some(sent("ada", b"x")),
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
