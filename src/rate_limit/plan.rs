//! What some clients have instead of a limit's own rate.
//!
//! Guarantees a look-up that neither waits nor copies, however many plans there are; and that a plan which was read as text
//! is one that a request can pass. Refuses to know who gave a client its plan, and whether the client may say so itself.

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use super::bucket::{MAX_BURST, Shape, ShapeError};
use super::cost::Cost;
use super::key::KeyPart;
use super::policy::Rate;
use crate::units;

/// Rates by a value of the request. A request without it, or with one that has no plan, has the limit's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plans {
    pub by: KeyPart,
    pub source: PlanSource,
}

/// Where plans are looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanSource {
    /// Here, by the value as the key part reads it: addresses by their prefix, hosts in lower case.
    Table(HashMap<Box<[u8]>, Plan>),
    /// In the shared store, by [`KeyPart::field`].
    Hash(PlanHash),
}

/// A hash of the shared store that has plans as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanHash {
    /// The store puts its prefix before it.
    pub name: Arc<str>,
    /// For so long a plan is used without asking again.
    pub cache: Duration,
}

/// A rate, and all that goes with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    rate: Rate,
    shape: Shape,
    cost: Option<Cost>,
}

/// Why a text is no plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAPlan {
    #[error("it is over {LONGEST_TEXT} bytes, or not ASCII")]
    NotText,
    #[error("it does not begin with a rate: {}", units::RATE_FORMS)]
    Rate,
    #[error("behind the rate stand burst=N and cost=N, each at most once, and nothing else")]
    Word,
    #[error("its burst is not a whole number from 1 to {MAX_BURST}")]
    Burst,
    #[error("its cost is not a whole number from 1 to the burst")]
    Cost,
    #[error(transparent)]
    Shape(#[from] ShapeError),
}

/// More than any plan that says each thing once.
pub const LONGEST_TEXT: usize = 128;

impl Plans {
    /// Every plan that is known beforehand, in no order.
    pub fn all(&self) -> impl Iterator<Item = &Plan> {
        let table = match &self.source {
            PlanSource::Table(table) => Some(table.values()),
            PlanSource::Hash(_) => None,
        };
        table.into_iter().flatten()
    }
}

impl Plan {
    /// `burst` tokens in a full bucket; each request takes `cost`, or as many as the limit says.
    ///
    /// # Errors
    /// When the rate or the burst is out of bounds.
    pub fn new(rate: Rate, burst: NonZeroU64, cost: Option<Cost>) -> Result<Self, ShapeError> {
        Ok(Self { rate, shape: Shape::new(rate.tokens, rate.period_us, burst)?, cost })
    }

    /// [`FromStr`], for bytes that anyone may have written.
    ///
    /// # Errors
    /// When they are no plan.
    pub fn parse(text: &[u8]) -> Result<Self, NotAPlan> {
        let text = Some(text).filter(|text| text.len() <= LONGEST_TEXT && text.is_ascii());
        str::from_utf8(text.ok_or(NotAPlan::NotText)?).map_err(|_| NotAPlan::NotText)?.parse()
    }

    pub fn rate(&self) -> Rate {
        self.rate
    }

    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// `None`: the limit's.
    pub fn cost(&self) -> Option<&Cost> {
        self.cost.as_ref()
    }
}

/// `100/s`, `100/s burst=200`, `1000/h burst=50 cost=2`: as in the file, with the words behind the rate in any order.
impl FromStr for Plan {
    type Err = NotAPlan;

    fn from_str(text: &str) -> Result<Self, NotAPlan> {
        let mut words = text.split_ascii_whitespace();
        let (tokens, period_us) = words.next().and_then(units::parse_rate).ok_or(NotAPlan::Rate)?;
        let (mut burst, mut cost) = (None, None);
        for word in words {
            let (slot, number, wrong) = match word.split_once('=') {
                Some(("burst", number)) => (&mut burst, number, NotAPlan::Burst),
                Some(("cost", number)) => (&mut cost, number, NotAPlan::Cost),
                _ => return Err(NotAPlan::Word),
            };
            let number = units::whole(number).and_then(NonZeroU64::new).ok_or(wrong)?;
            if slot.replace(number).is_some() {
                return Err(NotAPlan::Word);
            }
        }
        if burst.is_some_and(|burst| burst.get() > MAX_BURST) {
            return Err(NotAPlan::Burst);
        }
        let burst = burst.unwrap_or(tokens);
        if cost.is_some_and(|cost| cost > burst) {
            return Err(NotAPlan::Cost);
        }
        Ok(Self::new(Rate { tokens, period_us }, burst, cost.map(Cost::Fixed))?)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plan(tokens: u64, seconds: u64, burst: u64, cost: Option<u64>) -> Result<Plan, NotAPlan> {
        let nonzero = |number| NonZeroU64::new(number).unwrap();
        let rate = Rate { tokens: nonzero(tokens), period_us: nonzero(seconds * 1_000_000) };
        Ok(Plan::new(rate, nonzero(burst), cost.map(|cost| Cost::Fixed(nonzero(cost)))).unwrap())
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
            assert_eq!(Plan::parse(text.as_bytes()), read, "{text:?}");
        }
    }

    #[test]
    fn what_is_nearly_a_plan_is_none() {
        for (text, why) in [
            ("", NotAPlan::Rate),
            ("gold", NotAPlan::Rate),
            ("0/s", NotAPlan::Rate),
            ("-1/s", NotAPlan::Rate),
            ("1.5/s", NotAPlan::Rate),
            ("100", NotAPlan::Rate),
            ("100 /s", NotAPlan::Rate),
            ("100/w", NotAPlan::Rate),
            ("burst=200 100/s", NotAPlan::Rate),
            ("18446744073709551616/s", NotAPlan::Rate),
            ("100/s 200", NotAPlan::Word),
            ("100/s, burst=200", NotAPlan::Rate),
            ("100/s burst =200", NotAPlan::Word),
            ("100/s Burst=200", NotAPlan::Word),
            ("100/s brust=200", NotAPlan::Word),
            ("100/s burst=200 burst=200", NotAPlan::Word),
            ("100/s burst=", NotAPlan::Burst),
            ("100/s burst=0", NotAPlan::Burst),
            ("100/s burst=1k", NotAPlan::Burst),
            ("100/s burst=1000000001", NotAPlan::Burst),
            ("100/s cost=0", NotAPlan::Cost),
            ("100/s cost=101", NotAPlan::Cost),
            ("100/s burst=5 cost=6", NotAPlan::Cost),
            ("100/s cost==1", NotAPlan::Cost),
            ("20000000/s", NotAPlan::Shape(ShapeError::TooFast)),
            ("1/d burst=400", NotAPlan::Shape(ShapeError::TooSlow)),
            ("100/s \u{a0}", NotAPlan::NotText),
        ] {
            assert_eq!(Plan::parse(text.as_bytes()), Err(why), "{text:?}");
        }
        assert_eq!(Plan::parse(b"\xff"), Err(NotAPlan::NotText));
        let long = |length| Plan::parse(format!("1/s{}", " ".repeat(length - 3)).as_bytes());
        assert_eq!((long(LONGEST_TEXT).is_ok(), long(LONGEST_TEXT + 1)), (true, Err(NotAPlan::NotText)));
    }

    proptest! {
        #[test]
        fn any_text_is_a_plan_or_none_and_a_plan_lets_a_request_pass(text in "[0-9/smhd a-z=burstco]{0,40}", bytes: Vec<u8>) {
            let _ = Plan::parse(&bytes);
            if let Ok(plan) = Plan::parse(text.as_bytes()) {
                let cost = plan.cost().map_or(1, |cost| cost.largest().get());
                prop_assert!(cost <= plan.shape().burst());
            }
        }
    }
}
