//! `basic` of an authenticator: users and their passwords, and how often an attempt may fail.

use std::sync::Arc;

use serde_json::{Value as Json, json};
use tollgate_limiter::algorithm::token_bucket::MAX_BURST;
use tollgate_limiter::limit::algorithm::WindowRate;

use crate::config::file::scalar::number::{BoundedDuration, WholeNumber};
use crate::config::file::scalar::path::FilePath;
use crate::config::report::ValueProblem;
use crate::config::yaml::decode::{Located, Scalar};
use crate::config::yaml::record::record;

record! {
    /// User names and passwords, as in RFC 7617.
    RawBasic {
        /// The file of users, as htpasswd writes it with bcrypt or with Argon2. It is read again
        /// when it changes.
        required users: Located<FilePath>,
        /// The name by which browsers ask for a password.
        default("tollgate") realm: Located<Realm>,
        /// How long a password that was right is not hashed again; 0s: it is hashed for each
        /// request.
        default("5m") remember: Located<BoundedDuration<86_400_000, 0>>,
        /// How often attempts may fail, by client address and by user name. Default: {rate: 10/m,
        /// burst: 10}.
        optional failed_attempts: RawFailedAttempts,
    }
}

record! {
    /// The attempts to authenticate that may fail before further ones are refused unseen.
    RawFailedAttempts {
        /// Failed attempts per period, such as 10/m, of each client address and at each user name.
        default("10/m") rate: Located<WindowRate>,
        /// Failed attempts at once. Default: those of one period of the rate.
        optional burst: Located<WholeNumber<1, MAX_BURST>>,
    }
}

/// The name of what a password is asked for.
#[derive(Clone)]
pub struct Realm(pub Arc<str>);

impl Scalar for Realm {
    const WHAT: &'static str = "a realm";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        let fits = |byte: u8| (b' '..=b'~').contains(&byte) && !matches!(byte, b'"' | b'\\');
        if (1..=128).contains(&text.len()) && text.bytes().all(fits) {
            return Ok(Self(text.into()));
        }
        Err(ValueProblem::new("this is not a realm")
            .hint("1 to 128 characters of ASCII, without quotes and backslashes"))
    }

    fn schema() -> Json {
        json!({ "type": "string" })
    }
}
