//! A file of API keys: a list of clients, each with the hash of its key.

use serde_json::{Value as Json, json};

use crate::config::file::scalar::text::{DefinedName, PlainText};
use crate::config::report::ValueProblem;
use crate::config::yaml::collection::Mapping;
use crate::config::yaml::decode::{Located, Scalar};
use crate::config::yaml::record::record;
use crate::identity::api_key::CredentialHash;

record! {
    /// A key, and the client that has it.
    RawApiKey at location {
        /// The client. Several keys may have one id: the old one and the new one.
        required id: Located<ClientId>,
        /// The SHA-256 of the key, in hexadecimal digits.
        required key_sha256: Located<KeyHash>,
        /// A plan that limits may go by.
        optional plan: Located<DefinedName>,
        /// Further names that limits and header fields may go by.
        optional labels: Mapping<DefinedName, Located<PlainText>>,
    }
}

/// The name of a client, which stands in logs and header fields.
#[derive(Clone)]
pub struct ClientId(pub String);

/// The SHA-256 of a key.
#[derive(Clone)]
pub struct KeyHash(pub CredentialHash);

impl Scalar for ClientId {
    const WHAT: &'static str = "the id of a client";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        if (1..=256).contains(&text.len())
            && !text.contains(char::is_control)
            && text.trim() == text
        {
            return Ok(Self(text.to_owned()));
        }
        Err(ValueProblem::new("this is not the id of a client")
            .hint("1 to 256 bytes, without control characters"))
    }

    fn schema() -> Json {
        json!({ "type": "string" })
    }
}

impl Scalar for KeyHash {
    const WHAT: &'static str = "a SHA-256";

    /// Is not quoted in messages: somebody may have written the key itself.
    fn read(text: &str) -> Result<Self, ValueProblem> {
        let problem = || {
            ValueProblem::new("this is not a SHA-256 in 64 hexadecimal digits").hint(
                "`tollgate key new` makes a key and its entry; of a key that you have: printf %s \"$KEY\" | sha256sum",
            )
        };
        let digits = text.as_bytes().as_chunks::<2>();
        let mut hash = CredentialHash::default();
        if digits.0.len() != hash.len()
            || !digits.1.is_empty()
            || !text.bytes().all(|byte| byte.is_ascii_hexdigit())
        {
            return Err(problem());
        }
        for (byte, pair) in hash.iter_mut().zip(digits.0) {
            let pair = str::from_utf8(pair)
                .ok()
                .and_then(|pair| u8::from_str_radix(pair, 16).ok());
            *byte = pair.ok_or_else(problem)?;
        }
        Ok(Self(hash))
    }

    fn schema() -> Json {
        json!({ "type": "string", "pattern": "[0-9A-Fa-f]{64}" })
    }
}
