//! The rate limit fields of an answer: the one place that knows their syntax.
//!
//! `RateLimit-Policy` and `RateLimit` of draft-ietf-httpapi-ratelimit-headers-11, in RFC 9651
//! syntax. Quotas are in requests where all requests cost the same, and name their unit (`qu`)
//! where they do not. Guarantees that a client which makes requests worth `r` more, then waits `t`
//! seconds, is not denied for it.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::limit::cost::quota_unit::QuotaUnit;

/// The policies that applied to a request.
pub const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
/// The rest of them.
pub const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
/// The limit that degraded the answer. A field of our own.
pub const DEGRADED: HeaderName = HeaderName::from_static("tollgate-degraded");

const LEGACY_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const LEGACY_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const LEGACY_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// The rest of one limit for this client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// A full bucket, in the unit of the policy.
    pub quota: u64,
    /// The requests or tokens that would pass now, in the same unit.
    pub remaining: u64,
    /// Seconds until more would: until the next one when there are none, until all of them
    /// otherwise. `None`: once requests in flight have ended.
    pub reset_secs: Option<u64>,
}

/// The fields of one answer, rendered.
#[derive(Clone, Debug, Default)]
pub struct RateLimitFields {
    policy: Option<HeaderValue>,
    limit: Option<HeaderValue>,
    /// Boxed: few answers have them, and the others would carry the room.
    rare: Option<Box<RareFields>>,
}

#[derive(Clone, Debug, Default)]
struct RareFields {
    legacy: Option<Standing>,
    degraded: Option<HeaderValue>,
}

/// A policy: `"per-client";q=20;w=2`, with a unit (`qu`) where that is not requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyItem<'a> {
    pub name: &'a str,
    /// The quota of a window, in the unit: of a bucket, what flows in meanwhile.
    pub quota: u64,
    pub unit: QuotaUnit,
    /// Seconds of the window: of a bucket, those in which it fills, rounded up. `None`: it counts
    /// requests in flight, whatever time they take.
    pub window_secs: Option<u64>,
}

/// The value of `RateLimit-Policy` for these items.
pub fn policy_value<'a>(items: impl Iterator<Item = PolicyItem<'a>>) -> Option<HeaderValue> {
    let mut text = FieldText::new();
    for PolicyItem {
        name,
        quota,
        unit,
        window_secs,
    } in items
    {
        match window_secs {
            Some(window_secs) => {
                text.item(name, [(b";q=", quota), (b";w=", window_secs)]);
                text.unit(unit);
            }
            None => text.item_in_flight(name, quota),
        }
    }
    text.value()
}

/// A number as a field's value: `From<u64>` allocates twice.
pub(crate) fn number(number: u64) -> HeaderValue {
    let mut digits = itoa::Buffer::new();
    HeaderValue::from_str(digits.format(number)).unwrap_or(HeaderValue::from_static("0"))
}

/// A list of items with numbers (RFC 9651 §3.1). Usual ones are put together on the stack.
struct FieldText {
    short: [u8; SHORT],
    length: usize,
    /// All of it, once it is longer.
    long: Vec<u8>,
}

const SHORT: usize = 128;

impl FieldText {
    fn new() -> Self {
        Self {
            short: [0; SHORT],
            length: 0,
            long: Vec::new(),
        }
    }

    #[inline]
    fn push(&mut self, piece: &[u8]) {
        let end = self.length + piece.len();
        match self.short.get_mut(self.length..end) {
            Some(room) => {
                room.copy_from_slice(piece);
                self.length = end;
            }
            None => self.push_long(piece),
        }
    }

    /// From here on the whole text is in `long`, even a piece that would still fit.
    #[cold]
    fn push_long(&mut self, piece: &[u8]) {
        if self.long.is_empty() {
            self.long.extend_from_slice(&self.short[..self.length]);
        }
        self.long.extend_from_slice(piece);
        self.length = SHORT + 1;
    }

    #[inline]
    fn item<const N: usize>(&mut self, name: &str, parameters: [(&[u8; 3], u64); N]) {
        let mut digits = itoa::Buffer::new();
        if self.length > 0 {
            self.push(b", ");
        }
        self.push(b"\"");
        self.push(name.as_bytes());
        self.push(b"\"");
        for (name, number) in parameters {
            self.push(name);
            self.push(digits.format(number).as_bytes());
        }
    }

    /// The quota unit of an item, which is requests where nothing is said (§3.1.2 of the draft).
    /// The registry of the draft has no word for tokens, so `tokens` is ours: a client that does
    /// not know it must not take tokens for requests.
    fn unit(&mut self, unit: QuotaUnit) {
        match unit {
            QuotaUnit::Requests => {}
            QuotaUnit::Tokens => self.push(b";qu=\"tokens\""),
            QuotaUnit::ContentBytes(_) => self.push(b";qu=\"content-bytes\""),
        }
    }

    /// An item of requests in flight.
    fn item_in_flight(&mut self, name: &str, quota: u64) {
        self.item(name, [(b";q=", quota)]);
        self.push(b";qu=\"concurrent-requests\"");
    }

    fn value(&self) -> Option<HeaderValue> {
        let text = if self.long.is_empty() {
            &self.short[..self.length]
        } else {
            &self.long
        };
        HeaderValue::from_bytes(text)
            .ok()
            .filter(|value| !value.is_empty())
    }
}

impl RateLimitFields {
    /// Renders the fields of an answer that these limits judged.
    pub fn render<'a>(
        policy: Option<HeaderValue>,
        standings: impl Iterator<Item = (&'a str, Standing)>,
        legacy: bool,
    ) -> Self {
        let mut text = FieldText::new();
        let mut tightest: Option<Standing> = None;
        standings.for_each(|(name, standing)| {
            match standing.reset_secs {
                Some(reset_secs) => {
                    text.item(name, [(b";r=", standing.remaining), (b";t=", reset_secs)])
                }
                None => text.item(name, [(b";r=", standing.remaining)]),
            }
            if legacy {
                tightest = Some(tightest.map_or(standing, |other| standing.tighter(other)));
            }
        });
        let rare = tightest.map(|tightest| {
            Box::new(RareFields {
                legacy: Some(tightest),
                degraded: None,
            })
        });
        Self {
            policy,
            limit: text.value(),
            rare,
        }
    }

    /// Marks the answer as degraded by the limit called `limit`.
    pub fn mark_degraded(&mut self, limit: &str) {
        self.rare.get_or_insert_default().degraded = HeaderValue::from_str(limit).ok();
    }

    /// Adds the fields to an answer, beside those that an upstream may have sent.
    pub fn apply(self, headers: &mut HeaderMap) {
        if let Some(policy) = self.policy {
            headers.append(RATELIMIT_POLICY, policy);
        }
        if let Some(limit) = self.limit {
            headers.append(RATELIMIT, limit);
        }
        let Some(rare) = self.rare else { return };
        if let Some(limit) = rare.degraded {
            headers.insert(DEGRADED, limit);
        }
        if let Some(Standing {
            quota,
            remaining,
            reset_secs,
        }) = rare.legacy
        {
            headers.insert(LEGACY_LIMIT, number(quota));
            headers.insert(LEGACY_REMAINING, number(remaining));
            headers.insert(LEGACY_RESET, number(reset_secs.unwrap_or(1)));
        }
    }
}

impl Standing {
    /// The standing that denies the client first.
    fn tighter(self, other: Self) -> Self {
        if (self.remaining, std::cmp::Reverse(self.reset_secs))
            < (other.remaining, std::cmp::Reverse(other.reset_secs))
        {
            self
        } else {
            other
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPENT: Standing = Standing {
        quota: 20,
        remaining: 0,
        reset_secs: Some(1),
    };
    const HALF: Standing = Standing {
        quota: 1000,
        remaining: 500,
        reset_secs: Some(1800),
    };

    #[test]
    fn writes_the_fields_of_the_draft() {
        fn item(name: &str, quota: u64, window_secs: Option<u64>) -> PolicyItem<'_> {
            PolicyItem {
                name,
                quota,
                unit: QuotaUnit::Requests,
                window_secs,
            }
        }
        let policy = policy_value(
            [item("per-client", 20, Some(2)), item("t", 1000, Some(3600))].into_iter(),
        );
        let fields = RateLimitFields::render(
            policy,
            [("per-client", SPENT), ("t", HALF)].into_iter(),
            false,
        );
        let mut headers = HeaderMap::new();
        fields.apply(&mut headers);
        assert_eq!(
            headers[RATELIMIT_POLICY],
            "\"per-client\";q=20;w=2, \"t\";q=1000;w=3600"
        );
        assert_eq!(
            headers[RATELIMIT],
            "\"per-client\";r=0;t=1, \"t\";r=500;t=1800"
        );
        assert_eq!(headers.len(), 2);
    }

    #[test]
    fn requests_in_flight_have_a_quota_unit_and_no_time() {
        let policy = policy_value(std::iter::once(PolicyItem {
            name: "slots",
            quota: 5,
            unit: QuotaUnit::Requests,
            window_secs: None,
        }));
        let standing = Standing {
            quota: 5,
            remaining: 2,
            reset_secs: None,
        };
        let fields = RateLimitFields::render(policy, std::iter::once(("slots", standing)), false);
        let mut headers = HeaderMap::new();
        fields.apply(&mut headers);
        assert_eq!(
            headers[RATELIMIT_POLICY],
            "\"slots\";q=5;qu=\"concurrent-requests\""
        );
        assert_eq!(headers[RATELIMIT], "\"slots\";r=2");
    }

    #[test]
    fn a_quota_of_something_else_than_requests_names_its_unit() {
        fn item(name: &str, unit: QuotaUnit) -> PolicyItem<'_> {
            PolicyItem {
                name,
                quota: 20,
                unit,
                window_secs: Some(2),
            }
        }
        let kibibytes = QuotaUnit::ContentBytes(std::num::NonZeroU32::new(1_024).unwrap());
        let policy =
            policy_value([item("llm", QuotaUnit::Tokens), item("uploads", kibibytes)].into_iter());
        assert_eq!(
            policy.unwrap(),
            "\"llm\";q=20;w=2;qu=\"tokens\", \"uploads\";q=20;w=2;qu=\"content-bytes\""
        );
    }

    #[test]
    fn the_legacy_fields_tell_of_the_tightest_limit() {
        let mut headers = HeaderMap::new();
        RateLimitFields::render(None, [("a", HALF), ("b", SPENT)].into_iter(), true)
            .apply(&mut headers);
        assert_eq!(headers[LEGACY_LIMIT], "20");
        assert_eq!(headers[LEGACY_REMAINING], "0");
        assert_eq!(headers[LEGACY_RESET], "1");
    }

    #[test]
    fn says_nothing_where_no_limit_applied() {
        let mut headers = HeaderMap::new();
        RateLimitFields::render(None, std::iter::empty(), true).apply(&mut headers);
        assert!(headers.is_empty());
    }
}
