//! How a limit counts, and the numbers it counts by.

use std::num::NonZeroU64;
use std::sync::Arc;

use tollgate_limiter::algorithm::concurrency::{MAX_PERMITS, Scope};
use tollgate_limiter::algorithm::token_bucket::{MAX_BURST, MAX_TOKENS_PER_SECOND, TokenBucketError};
use tollgate_limiter::algorithm::window::{MAX_QUOTA, WindowError};
use tollgate_limiter::limit::algorithm_kind::{Algorithm, AlgorithmKind, QuotaError, WindowRate};
use tollgate_limiter::limit::spec::Consistency;

use crate::config::decode::{At, Slot};
use crate::config::mistake::{Report, Trouble};
use crate::config::node::Place;
use crate::config::raw::{self, Kind};

/// What a limit and its plans have in common.
pub(super) struct Counting<'a> {
    kind: Kind,
    zone: Option<&'a At<raw::Text>>,
    scope: Scope,
}

/// What a limit or one of its plans says of how much.
pub(super) struct Numbers<'a> {
    pub rate: &'a Slot<At<WindowRate>>,
    pub burst: &'a Slot<At<raw::Whole<1, MAX_BURST>>>,
    pub max_in_flight: &'a Slot<At<raw::Whole<1, MAX_PERMITS>>>,
    pub place: &'a Place,
}

impl<'a> Counting<'a> {
    /// Of a limit. `None`: said in the report.
    pub fn of(raw: &'a raw::Limit, report: &mut Report) -> Option<Self> {
        let kind = raw.algorithm.value()?;
        let only = |fits: bool, needed: &str| (!fits).then(|| format!("set \"algorithm: {needed}\", or leave it out"));
        let fits = only(kind == Kind::FixedWindow, "fixed_window");
        let zone = of_kind(&raw.time_zone, kind, "knows no time zone", fits, report)?;
        let fits = only(kind == Kind::Concurrency, "concurrency");
        let scope = of_kind(&raw.scope, kind, "knows no scope", fits, report)?;
        let fits = (kind != Kind::TokenBucket && raw.consistency.value() == Some(Consistency::Leased))
            .then(|| "leave \"consistency\" out, or take a token_bucket".to_owned());
        of_kind(&raw.consistency, kind, "cannot be leased", fits, report)?;
        Some(Self { kind, zone, scope: scope.map(|scope| scope.value).unwrap_or_default() })
    }

    fn manner(&self) -> AlgorithmKind {
        match self.kind {
            Kind::TokenBucket => AlgorithmKind::TokenBucket,
            Kind::FixedWindow => AlgorithmKind::FixedWindow { zone: self.zone.map(|zone| Arc::clone(&zone.value.0)) },
            Kind::SlidingWindow => AlgorithmKind::SlidingWindow,
            Kind::Concurrency => AlgorithmKind::Concurrency { scope: self.scope },
        }
    }

    /// The algorithm with its numbers. `None`: said in the report.
    pub fn algorithm(&self, numbers: &Numbers<'_>, report: &mut Report) -> Option<Algorithm> {
        self.check_numbers(numbers, report)?;
        let manner = self.manner();
        if self.kind == Kind::Concurrency {
            let Slot::Good(most) = numbers.max_in_flight else {
                return lacks(numbers, "max_in_flight", "max_in_flight: 100", numbers.max_in_flight.is_bad(), report);
            };
            return manner.slots(NonZeroU64::new(most.value.0)?).ok();
        }
        let Slot::Good(rate) = numbers.rate else {
            return lacks(numbers, "rate", "rate: 10/s", numbers.rate.is_bad(), report);
        };
        let burst = match numbers.burst {
            Slot::Absent => None,
            Slot::Bad => return None,
            Slot::Good(at) => Some(NonZeroU64::new(at.value.0)?),
        };
        let algorithm = match manner.algorithm(rate.value.clone(), burst) {
            Ok(algorithm) => algorithm,
            Err(misfit) => {
                let trouble = Trouble::new(misfit.to_string());
                report.mistake(&rate.place, trouble.hint("set \"algorithm: fixed_window\", or write 30d"));
                return None;
            }
        };
        let Err(bound) = algorithm.compile() else { return Some(algorithm) };
        self.refuse(&bound, rate, numbers, report);
        None
    }

    /// Numbers that this kind of limit does not have.
    fn check_numbers(&self, numbers: &Numbers<'_>, report: &mut Report) -> Option<()> {
        let kind = self.kind;
        let burst = (kind != Kind::TokenBucket).then(|| match kind {
            Kind::Concurrency => "leave it out: max_in_flight is all there is".to_owned(),
            _ => "leave it out: the rate's tokens are all there are in a window".to_owned(),
        });
        let rate = (kind == Kind::Concurrency).then(|| "leave it out: max_in_flight is all there is".to_owned());
        let most = (kind != Kind::Concurrency).then(|| "set \"algorithm: concurrency\", or leave it out".to_owned());
        let burst = of_kind(numbers.burst, kind, "has no burst", burst, report);
        let rate = of_kind(numbers.rate, kind, "has no rate", rate, report);
        let most = of_kind(numbers.max_in_flight, kind, "knows no max_in_flight", most, report);
        (burst.is_some() && rate.is_some() && most.is_some()).then_some(())
    }

    fn refuse(&self, bound: &QuotaError, rate: &At<WindowRate>, numbers: &Numbers<'_>, report: &mut Report) {
        let burst = if let Slot::Good(at) = numbers.burst { &at.place } else { &rate.place };
        let zone = self.zone.map_or(&rate.place, |zone| &zone.place);
        let (place, hint) = match bound {
            QuotaError::Bucket(TokenBucketError::TooFast) => {
                (&rate.place, format!("write at most {MAX_TOKENS_PER_SECOND}/s"))
            }
            QuotaError::Bucket(TokenBucketError::BurstTooLarge) => {
                (burst, format!("set \"burst\" to at most {MAX_BURST}"))
            }
            QuotaError::Bucket(TokenBucketError::TooSlow) => (burst, "lower the burst or raise the rate".to_owned()),
            QuotaError::Window(WindowError::QuotaTooLarge) => {
                (&rate.place, format!("write at most {MAX_QUOTA} tokens"))
            }
            QuotaError::Window(WindowError::TooLong) => (&rate.place, "write a shorter window".to_owned()),
            QuotaError::NoUnit => (&rate.place, "write a rate per m, h, d or month".to_owned()),
            QuotaError::UnknownZone(_) => (zone, "write a name such as Europe/Berlin or UTC".to_owned()),
        };
        report.mistake(place, Trouble::new(bound.to_string()).hint(hint));
    }

    /// What the most that a request may cost is called.
    pub fn most(&self) -> &'static str {
        match self.kind {
            Kind::TokenBucket => "the burst",
            Kind::FixedWindow | Kind::SlidingWindow => "the quota of a window",
            Kind::Concurrency => "max_in_flight",
        }
    }
}

/// What a key says, where it may be said: `misfit` tells how to mend it where not. `None`: said in the report.
fn of_kind<'s, T>(
    slot: &'s Slot<At<T>>,
    kind: Kind,
    lacking: &str,
    misfit: Option<String>,
    report: &mut Report,
) -> Option<Option<&'s At<T>>> {
    match (slot, misfit) {
        (Slot::Absent, _) => Some(None),
        (Slot::Bad, _) => None,
        (Slot::Good(at), None) => Some(Some(at)),
        (Slot::Good(at), Some(hint)) => {
            report.mistake(&at.place, Trouble::new(format!("{} {lacking}", kind.noun())).hint(hint));
            None
        }
    }
}

/// A number that there must be, unless its mistake was told.
fn lacks<T>(numbers: &Numbers<'_>, key: &str, example: &str, told: bool, report: &mut Report) -> Option<T> {
    if !told {
        let trouble = Trouble::new(format!("\"{key}\" is missing"));
        report.mistake(numbers.place, trouble.hint(format!("say how much, such as \"{example}\"")));
    }
    None
}
