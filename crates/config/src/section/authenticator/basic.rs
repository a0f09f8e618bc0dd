//! `basic` of an authenticator: users and their passwords, and how often an attempt may fail.

use std::num::NonZeroU64;
use std::sync::Arc;

use serde_json::{Value as Json, json};
use tollgate_limiter::algorithm::token_bucket::{MAX_BURST, TokenBucket};
use tollgate_limiter::limit::algorithm::{WindowLength, WindowRate};

use crate::report::{Report, ValueProblem};
use crate::scalar::number::{BoundedDuration, WholeNumber};
use crate::scalar::path::FilePath;
use crate::yaml::decode::{Located, Scalar, Setting};
use crate::yaml::record::record;
use tollgate_identity::password::spec::BasicSpec;

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

/// The realm of a password (RFC 9110 §11.5).
#[derive(Clone)]
pub struct Realm(pub Arc<str>);

impl Scalar for Realm {
    const WHAT: &'static str = "a realm";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        let is_quotable = text
            .bytes()
            .all(|byte| (b' '..=b'~').contains(&byte) && !matches!(byte, b'"' | b'\\'));
        if is_quotable && (1..=128).contains(&text.len()) {
            return Ok(Self(text.into()));
        }
        Err(ValueProblem::new("this is not a realm")
            .hint("1 to 128 characters of ASCII, without quotes and backslashes"))
    }

    fn schema() -> Json {
        json!({ "type": "string" })
    }
}

/// Failed attempts per minute, and at once, where nothing is written.
const FAILED_PER_MINUTE: u64 = 10;

const MINUTE_US: u64 = 60_000_000;

/// Users and passwords. `None`: a mistake was reported.
pub fn basic(raw: &RawBasic, report: &mut Report) -> Option<BasicSpec> {
    let failed_attempts = failed_attempts(&raw.failed_attempts, report);
    Some(BasicSpec {
        users: raw.users.value()?.0,
        realm: raw.realm.value()?.0,
        remember: raw.remember.value()?.0,
        failed_attempts: failed_attempts?,
    })
}

/// The attempts that may fail. `None`: a mistake was reported.
pub fn failed_attempts(
    raw: &Setting<RawFailedAttempts>,
    report: &mut Report,
) -> Option<TokenBucket> {
    let written = raw.build(|raw| {
        let rate = raw.rate.valid()?;
        let burst = raw.burst.build(|burst| NonZeroU64::new(burst.value.0))?;
        let tokens = rate.value.tokens;
        let WindowLength::Micros(period_us) = rate.value.per else {
            let problem = ValueProblem::new("failed attempts are not counted by the month");
            report.mistake(
                &rate.location,
                problem.hint("write a rate such as 10/m or 100/h"),
            );
            return None;
        };
        match TokenBucket::new(tokens, period_us, burst.unwrap_or(tokens)) {
            Ok(bucket) => Some(bucket),
            Err(error) => {
                let problem = ValueProblem::new(error.to_string());
                report.mistake(
                    &rate.location,
                    problem.hint("lower the burst or raise the rate, up to 10000000/s"),
                );
                None
            }
        }
    });
    match written? {
        Some(bucket) => Some(bucket),
        None => {
            let attempts = NonZeroU64::new(FAILED_PER_MINUTE)?;
            TokenBucket::new(attempts, NonZeroU64::new(MINUTE_US)?, attempts).ok()
        }
    }
}
