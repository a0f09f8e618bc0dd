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

/// A rate, with its burst and cost, checked. A closed plan, such as `0/h`, lets nothing pass.
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
    is_closed: bool,
}

/// A plan as text gives it, for whatever algorithm.
struct PlanText {
    /// Tokens or permits; a single one in a closed plan.
    amount: Amount,
    is_closed: bool,
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
            is_closed: false,
        })
    }

    /// The plan of clients whose requests are all denied. `algorithm` has one token for the period
    /// after which they may ask again, or one permit.
    ///
    /// # Errors
    /// When the algorithm's numbers are out of bounds.
    pub fn closed(algorithm: Algorithm) -> Result<Self, QuotaError> {
        Ok(Self {
            is_closed: true,
            ..Self::new(algorithm, None)?
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
            is_closed,
            burst,
            cost,
        } = text.parse()?;
        let algorithm = match amount {
            Amount::Rate(rate) => kind.with_rate(rate, burst)?,
            Amount::Permits(most) => kind.with_permits(most)?,
        };
        if is_closed {
            return Ok(Self::closed(algorithm)?);
        }
        if cost.is_some_and(|cost| cost > algorithm.burst()) {
            return Err(PlanError::Cost);
        }
        Ok(Self::new(algorithm, cost.map(Cost::Fixed))?)
    }

    /// The algorithm with the plan's numbers.
    pub fn algorithm(&self) -> &Algorithm {
        &self.algorithm
    }

    /// Whether it lets nothing pass.
    pub fn is_closed(&self) -> bool {
        self.is_closed
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
/// words behind the rate in any order. `0/h` and `max_in_flight=0` are closed plans.
impl FromStr for PlanText {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        let mut words = text.split_ascii_whitespace();
        let first = words.next().ok_or(PlanError::Rate)?;
        let opened = opened(first);
        let amount = amount(opened.as_deref().unwrap_or(first)).ok_or(PlanError::Rate)?;
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
                is_closed: opened.is_some(),
                burst: burst.filter(|_| opened.is_none()),
                cost,
            }),
        }
    }
}

/// The word with one token or permit in place of none. `None`: it has some.
fn opened(word: &str) -> Option<String> {
    if let Some(most) = word.strip_prefix("max_in_flight=") {
        return (units::whole(most)? == 0).then(|| "max_in_flight=1".to_owned());
    }
    let (tokens, period) = word.split_once('/')?;
    (units::whole(tokens)? == 0).then(|| format!("1/{period}"))
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
mod tests;
