//! Builds an authenticator by password: the attempts that may fail make a token bucket.

use std::num::NonZeroU64;

use tollgate_limiter::algorithm::token_bucket::{TokenBucket, TokenBucketError};
use tollgate_limiter::limit::algorithm::WindowLength;

use crate::config::file::identity::basic::{RawBasic, RawFailedAttempts};
use crate::config::report::{Report, ValueProblem};
use crate::config::yaml::decode::Setting;
use crate::identity::password::spec::BasicSpec;

/// Failed attempts per minute, and at once, where nothing is written.
const FAILED_PER_MINUTE: u64 = 10;

const MINUTE_US: u64 = 60_000_000;

/// Users and passwords. `None`: a mistake was reported.
pub fn basic(raw: &RawBasic, report: &mut Report) -> Option<BasicSpec> {
    let (users, realm, remember) = (raw.users.value(), raw.realm.value(), raw.remember.value());
    let failed_attempts = failed_attempts(&raw.failed_attempts, report);
    Some(BasicSpec {
        users: users?.0,
        realm: realm?.0,
        remember: remember?.0,
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
        let bucket = TokenBucket::new(tokens, period_us, burst.unwrap_or(tokens));
        let refused = |error: &TokenBucketError| {
            ValueProblem::new(error.to_string())
                .hint("lower the burst or raise the rate, up to 10000000/s")
        };
        bucket
            .inspect_err(|error| report.mistake(&rate.location, refused(error)))
            .ok()
    });
    let default = || {
        let number = |number| NonZeroU64::new(number).unwrap_or(NonZeroU64::MIN);
        TokenBucket::new(
            number(FAILED_PER_MINUTE),
            number(MINUTE_US),
            number(FAILED_PER_MINUTE),
        )
        .ok()
    };
    written?.or_else(default)
}
