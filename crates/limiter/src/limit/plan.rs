//! Plans: other rates for some clients, instead of a limit's own.
//!
//! Guarantees a look-up that neither waits nor copies, however many plans there are, and that a
//! plan read from text lets a request pass.

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::algorithm::concurrency::MAX_PERMITS;
use crate::algorithm::token_bucket::MAX_BURST;
use crate::limit::algorithm::{
    Algorithm, AlgorithmKind, CompiledAlgorithm, QuotaError, Unsupported, WindowLength, WindowRate,
};
use crate::limit::cost::Cost;
use crate::limit::key::KeyPart;
use crate::limit::units;

/// Rates by a value of the request. A request without that value, or whose value has no plan, has
/// the limit's own rate.
///
/// In Redis: [`PlanHash`]. In a table of the program:
///
/// ```
/// use tollgate_limiter::limit::algorithm::AlgorithmKind;
/// use tollgate_limiter::limit::definition::Limit;
/// use tollgate_limiter::limit::plan::{Plan, PlanSource, Plans};
/// use tollgate_limiter::host;
///
/// let gold = Plan::read(b"100/s", &AlgorithmKind::TokenBucket)?;
/// let table = PlanSource::Table([(Box::from(&b"gold.example.com"[..]), gold)].into());
/// let limit = Limit::per_second("per-host", 10).key(host()).build()?.limit;
/// let limit = Limit { plans: Some(Plans { by: host(), source: table }), ..(*limit).clone() };
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plans {
    /// The part of a request that has the client's name.
    pub by: KeyPart,
    pub source: PlanSource,
}

/// Where plans are looked up. See [`Plans`] for an example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanSource {
    /// Here, by the value as the key part reads it: addresses by their prefix, hosts in lower case.
    Table(HashMap<Box<[u8]>, Plan>),
    /// In the shared store, by [`KeyPart::field`].
    Hash(PlanHash),
    /// Here, by the plan that a client is assigned to. Limits share the assignments.
    Assigned(AssignedPlans),
}

/// The plan of each client by name, and what each plan is for one limit. Limits share the clients,
/// however many there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssignedPlans {
    /// The name of a client's plan, by the value as the key part reads it.
    pub clients: Arc<HashMap<Box<[u8]>, Arc<str>>>,
    pub plans: HashMap<Arc<str>, Plan>,
}

/// A hash of the shared store that has plans as text.
///
/// Written with `redis-cli HSET tollgate:plans acme "100/s burst=200"`, where `tollgate:` is the
/// store's `key_prefix`. A change shows within `cache`, and never admits more than the larger plan
/// does. [`KeyPart::field`] says how a secret or a long value is spelt.
///
/// ```
/// use http::HeaderName;
/// use tollgate_limiter::limit::plan::PlanHash;
/// use tollgate_limiter::{Limit, header};
///
/// let tenant = || header(HeaderName::from_static("x-tenant"));
/// let limit = Limit::per_second("per-tenant", 10).key(tenant()).plans(tenant(), PlanHash::new("plans"));
/// # limit.build()?;
/// # Ok::<(), tollgate_limiter::LimitError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanHash {
    /// The store puts its prefix before it.
    pub name: Arc<str>,
    /// A plan is used for so long before it is read again.
    pub cache: Duration,
}

/// A rate, with its burst and cost, checked.
///
/// ```
/// use tollgate_limiter::limit::algorithm::AlgorithmKind;
/// use tollgate_limiter::limit::plan::{Plan, PlanError};
///
/// let plan = Plan::read(b"100/s burst=200", &AlgorithmKind::TokenBucket)?;
/// assert_eq!(plan.algorithm().burst().get(), 200);
/// # Ok::<(), PlanError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    algorithm: Algorithm,
    compiled: CompiledAlgorithm,
    cost: Option<Cost>,
}

/// A plan as text gives it, for whatever algorithm.
struct PlanText {
    amount: Amount,
    burst: Option<NonZeroU64>,
    cost: Option<NonZeroU64>,
}

/// Tokens in a period, or requests in flight.
enum Amount {
    Rate(WindowRate),
    Permits(NonZeroU64),
}

/// Why a text is not a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error("it is over {LONGEST_TEXT} bytes, or not ASCII")]
    NotText,
    #[error(
        "it does not begin with a rate: {}; for a fixed_window also 1000/month, for concurrency max_in_flight=50",
        units::RATE_FORMS
    )]
    Rate,
    #[error("behind the rate stand burst=N and cost=N, each at most once, and nothing else")]
    Word,
    #[error("its burst is not a whole number from 1 to {MAX_BURST}")]
    Burst,
    #[error("its cost is not a whole number from 1 to the burst, or to the tokens of a window")]
    Cost,
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    #[error(transparent)]
    Quota(#[from] QuotaError),
}

/// More than any plan that says each thing once.
pub const LONGEST_TEXT: usize = 128;

impl PlanHash {
    /// The hash called `name`, whose plans are used for 5 s before they are read again.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self {
            name: name.into(),
            cache: Duration::from_secs(5),
        }
    }
}

impl Plans {
    /// Every plan that is known beforehand, in no order.
    pub fn all(&self) -> impl Iterator<Item = &Plan> {
        let (table, assigned) = match &self.source {
            PlanSource::Table(table) => (Some(table.values()), None),
            PlanSource::Assigned(assigned) => (None, Some(assigned.plans.values())),
            PlanSource::Hash(_) => (None, None),
        };
        table
            .into_iter()
            .flatten()
            .chain(assigned.into_iter().flatten())
    }
}

impl AssignedPlans {
    /// The plan of a client, if it has one that says something of this limit.
    pub fn find(&self, client: &[u8]) -> Option<&Plan> {
        self.plans.get(self.clients.get(client)?)
    }
}

impl Plan {
    /// Counts by `algorithm`; each request takes `cost`, or as many tokens as the limit says.
    ///
    /// # Errors
    /// When the algorithm's numbers are out of bounds.
    pub fn new(algorithm: Algorithm, cost: Option<Cost>) -> Result<Self, QuotaError> {
        Ok(Self {
            compiled: algorithm.compile()?,
            algorithm,
            cost,
        })
    }

    /// The plan that `text` is for limits that count by this kind of algorithm. Anyone may have
    /// written it.
    ///
    /// # Errors
    /// When it is not a plan, or one of another algorithm.
    pub fn read(text: &[u8], kind: &AlgorithmKind) -> Result<Self, PlanError> {
        let text = Some(text).filter(|text| text.len() <= LONGEST_TEXT && text.is_ascii());
        let text =
            str::from_utf8(text.ok_or(PlanError::NotText)?).map_err(|_| PlanError::NotText)?;
        let PlanText {
            amount,
            burst,
            cost,
        } = text.parse()?;
        let algorithm = match amount {
            Amount::Rate(rate) => kind.with_rate(rate, burst)?,
            Amount::Permits(most) => kind.with_permits(most)?,
        };
        if cost.is_some_and(|cost| cost > algorithm.burst()) {
            return Err(PlanError::Cost);
        }
        Ok(Self::new(algorithm, cost.map(Cost::Fixed))?)
    }

    /// The algorithm with the plan's numbers.
    pub fn algorithm(&self) -> &Algorithm {
        &self.algorithm
    }

    /// The numbers as the limiter counts by them.
    #[inline]
    pub fn compiled(&self) -> CompiledAlgorithm {
        self.compiled
    }

    /// The cost of a request under this plan. `None`: the limit's.
    pub fn cost(&self) -> Option<&Cost> {
        self.cost.as_ref()
    }
}

/// `100/s`, `100/s burst=200`, `1000/month cost=2`, `max_in_flight=50`: as in the file, with the
/// words behind the rate in any order.
impl FromStr for PlanText {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        let mut words = text.split_ascii_whitespace();
        let amount = words.next().and_then(amount).ok_or(PlanError::Rate)?;
        let mut burst = None;
        let mut cost = None;
        for word in words {
            let (slot, number, wrong) = match word.split_once('=') {
                Some(("burst", number)) => (&mut burst, number, PlanError::Burst),
                Some(("cost", number)) => (&mut cost, number, PlanError::Cost),
                _ => return Err(PlanError::Word),
            };
            let number = units::whole(number)
                .and_then(NonZeroU64::new)
                .ok_or(wrong)?;
            if slot.replace(number).is_some() {
                return Err(PlanError::Word);
            }
        }
        if burst.is_some_and(|burst| burst.get() > MAX_BURST) {
            return Err(PlanError::Burst);
        }
        match amount {
            Amount::Permits(_) if burst.is_some() => Err(PlanError::Word),
            amount => Ok(Self {
                amount,
                burst,
                cost,
            }),
        }
    }
}

fn amount(word: &str) -> Option<Amount> {
    if let Some(most) = word.strip_prefix("max_in_flight=") {
        let most = units::whole(most).and_then(NonZeroU64::new)?;
        return (most.get() <= MAX_PERMITS).then_some(Amount::Permits(most));
    }
    let (tokens, period_us) = units::parse_window_rate(word)?;
    Some(Amount::Rate(WindowRate {
        tokens,
        per: period_us.map_or(WindowLength::Month, WindowLength::Micros),
    }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::algorithm::concurrency::Scope;
    use crate::algorithm::token_bucket::TokenBucketError;
    use crate::algorithm::window::WindowError;
    use crate::limit::algorithm::Rate;

    const BUCKET: AlgorithmKind = AlgorithmKind::TokenBucket;
    const SLIDING: AlgorithmKind = AlgorithmKind::SlidingWindow;

    fn nonzero(number: u64) -> NonZeroU64 {
        NonZeroU64::new(number).unwrap()
    }

    fn fixed(zone: Option<&str>) -> AlgorithmKind {
        AlgorithmKind::FixedWindow {
            zone: zone.map(Into::into),
        }
    }

    fn steady(tokens: u64, seconds: u64) -> Rate {
        Rate {
            tokens: nonzero(tokens),
            period_us: nonzero(seconds * 1_000_000),
        }
    }

    fn with_cost(algorithm: Algorithm, cost: Option<u64>) -> Result<Plan, PlanError> {
        Ok(Plan::new(algorithm, cost.map(|cost| Cost::Fixed(nonzero(cost)))).unwrap())
    }

    fn plan(tokens: u64, seconds: u64, burst: u64, cost: Option<u64>) -> Result<Plan, PlanError> {
        with_cost(
            Algorithm::TokenBucket {
                rate: steady(tokens, seconds),
                burst: nonzero(burst),
            },
            cost,
        )
    }

    #[test]
    fn requests_in_flight_have_plans_of_their_own() {
        let kind = AlgorithmKind::Concurrency { scope: Scope::Node };
        let most = Algorithm::Concurrency {
            most: nonzero(50),
            scope: Scope::Node,
        };
        assert_eq!(
            Plan::read(b"max_in_flight=50 cost=2", &kind),
            with_cost(most, Some(2))
        );
        assert_eq!(
            Plan::read(b"100/s", &kind),
            Err(PlanError::Unsupported(Unsupported::Rate("concurrency")))
        );
        assert_eq!(
            Plan::read(b"max_in_flight=50", &BUCKET),
            Err(PlanError::Unsupported(Unsupported::Permits("token_bucket")))
        );
        assert_eq!(
            Plan::read(b"max_in_flight=50 burst=2", &kind),
            Err(PlanError::Word)
        );
        assert_eq!(Plan::read(b"max_in_flight=0", &kind), Err(PlanError::Rate));
        assert_eq!(
            Plan::read(b"max_in_flight=50 cost=51", &kind),
            Err(PlanError::Cost)
        );
    }

    #[test]
    fn a_plan_is_written_as_in_the_file() {
        for (text, read) in [
            ("100/s", plan(100, 1, 100, None)),
            ("3/90s", plan(3, 90, 3, None)),
            ("100/s burst=200", plan(100, 1, 200, None)),
            ("1000/h cost=2 burst=50", plan(1_000, 3_600, 50, Some(2))),
            (" 5/d  burst=007 \n", plan(5, 86_400, 7, None)),
            ("10/s cost=10", plan(10, 1, 10, Some(10))),
        ] {
            assert_eq!(Plan::read(text.as_bytes(), &BUCKET), read, "{text:?}");
        }
    }

    #[cfg(feature = "calendar")]
    #[test]
    fn a_plan_counts_as_its_limit_does() {
        let sliding = with_cost(
            Algorithm::SlidingWindow {
                rate: steady(5, 90),
            },
            Some(5),
        );
        assert_eq!(Plan::read(b"5/90s cost=5", &SLIDING), sliding);
        for zone in [None, Some("Europe/Berlin")] {
            let hourly = Algorithm::FixedWindow {
                rate: WindowRate {
                    tokens: nonzero(100),
                    per: WindowLength::Micros(nonzero(3_600_000_000)),
                },
                zone: zone.map(Into::into),
            };
            assert_eq!(Plan::read(b"100/h", &fixed(zone)), with_cost(hourly, None));
            let monthly = Algorithm::FixedWindow {
                rate: WindowRate {
                    tokens: nonzero(1_000),
                    per: WindowLength::Month,
                },
                zone: zone.map(Into::into),
            };
            assert_eq!(
                Plan::read(b"1000/month cost=2", &fixed(zone)),
                with_cost(monthly, Some(2))
            );
        }
    }

    #[test]
    fn what_another_algorithm_counts_by_is_no_plan() {
        let berlin = fixed(Some("Europe/Berlin"));
        let too_large = QuotaError::Window(WindowError::QuotaTooLarge);
        for (text, kind, why) in [
            (
                "100/s burst=100",
                &SLIDING,
                PlanError::Unsupported(Unsupported::Burst("sliding_window")),
            ),
            (
                "100/s burst=200",
                &fixed(None),
                PlanError::Unsupported(Unsupported::Burst("fixed_window")),
            ),
            (
                "1000/month",
                &SLIDING,
                PlanError::Unsupported(Unsupported::Month("sliding_window")),
            ),
            (
                "1000/month burst=5",
                &BUCKET,
                PlanError::Unsupported(Unsupported::Month("token_bucket")),
            ),
            ("1000/2month", &fixed(None), PlanError::Rate),
            ("100/s cost=101", &SLIDING, PlanError::Cost),
            ("100/month cost=101", &fixed(None), PlanError::Cost),
            ("5/90s", &berlin, PlanError::Quota(QuotaError::NoUnit)),
            ("1000000001/s", &SLIDING, PlanError::Quota(too_large)),
            (
                "1/367d",
                &fixed(None),
                PlanError::Quota(QuotaError::Window(WindowError::TooLong)),
            ),
        ] {
            assert_eq!(
                Plan::read(text.as_bytes(), kind),
                Err(why),
                "{text:?} {kind:?}"
            );
        }
    }

    #[test]
    fn what_is_nearly_a_plan_is_none() {
        for (text, why) in [
            ("", PlanError::Rate),
            ("gold", PlanError::Rate),
            ("0/s", PlanError::Rate),
            ("-1/s", PlanError::Rate),
            ("1.5/s", PlanError::Rate),
            ("100", PlanError::Rate),
            ("100 /s", PlanError::Rate),
            ("100/w", PlanError::Rate),
            ("burst=200 100/s", PlanError::Rate),
            ("18446744073709551616/s", PlanError::Rate),
            ("100/s 200", PlanError::Word),
            ("100/s, burst=200", PlanError::Rate),
            ("100/s burst =200", PlanError::Word),
            ("100/s Burst=200", PlanError::Word),
            ("100/s brust=200", PlanError::Word),
            ("100/s burst=200 burst=200", PlanError::Word),
            ("100/s burst=", PlanError::Burst),
            ("100/s burst=0", PlanError::Burst),
            ("100/s burst=1k", PlanError::Burst),
            ("100/s burst=1000000001", PlanError::Burst),
            ("100/s cost=0", PlanError::Cost),
            ("100/s cost=101", PlanError::Cost),
            ("100/s burst=5 cost=6", PlanError::Cost),
            ("100/s cost==1", PlanError::Cost),
            (
                "20000000/s",
                PlanError::Quota(TokenBucketError::TooFast.into()),
            ),
            (
                "1/d burst=400",
                PlanError::Quota(TokenBucketError::TooSlow.into()),
            ),
            ("100/s \u{a0}", PlanError::NotText),
        ] {
            assert_eq!(Plan::read(text.as_bytes(), &BUCKET), Err(why), "{text:?}");
        }
        assert_eq!(Plan::read(b"\xff", &BUCKET), Err(PlanError::NotText));
        let longest = format!("1/s{}", " ".repeat(LONGEST_TEXT - 3));
        assert!(Plan::read(longest.as_bytes(), &BUCKET).is_ok());
        let too_long = longest + " ";
        assert_eq!(
            Plan::read(too_long.as_bytes(), &BUCKET),
            Err(PlanError::NotText)
        );
    }

    proptest! {
        #[test]
        fn any_text_is_a_plan_or_none_and_a_plan_lets_a_request_pass(text in "[0-9]{1,9}/[0-9]{0,2}(s|m|h|d|month)( (burst|cost)=[0-9]{1,9}){0,2}|[0-9/smhd a-z=burstco]{0,40}", bytes: Vec<u8>) {
            for kind in [BUCKET, SLIDING, fixed(None), fixed(Some("Europe/Berlin"))] {
                let _ = Plan::read(&bytes, &kind);
                if let Ok(plan) = Plan::read(text.as_bytes(), &kind) {
                    let cost = plan.cost().map_or(1, |cost| cost.largest().get());
                    prop_assert!(plan.compiled().holds(cost) && plan.algorithm().kind() == kind);
                }
            }
        }
    }
}
