//! How a limit counts, and the numbers it counts by.

use std::num::NonZeroU64;
use std::sync::Arc;

use crate::config::decode::{At, Slot};
use crate::config::mistake::{Report, Trouble};
use crate::config::raw::{self, Kind};
use crate::rate_limit::algorithm::{Algorithm, Per, QuotaError, Rate, WindowRate};
use crate::rate_limit::bucket::{MAX_BURST, MAX_TOKENS_PER_SECOND, ShapeError};
use crate::rate_limit::window::{MAX_QUOTA, WindowError};

type Burst = Slot<At<raw::Whole<1, MAX_BURST>>>;

/// What a limit and its plans have in common.
pub(super) struct Counting<'a> {
    pub kind: Kind,
    pub zone: Option<&'a At<raw::Text>>,
}

impl<'a> Counting<'a> {
    /// Of a limit. `None`: said in the report.
    pub fn of(raw: &'a raw::Limit, report: &mut Report) -> Option<Self> {
        let kind = raw.algorithm.value()?;
        let zone = match &raw.time_zone {
            Slot::Absent => None,
            Slot::Bad => return None,
            Slot::Good(zone) if kind != Kind::FixedWindow => {
                let trouble = Trouble::new(format!("a {} knows no time zone", kind.name()));
                report.mistake(&zone.place, trouble.hint("set \"algorithm: fixed_window\", or leave it out"));
                return None;
            }
            Slot::Good(zone) => Some(zone),
        };
        Some(Self { kind, zone })
    }

    /// The algorithm with a rate and, if it has one, a burst. `None`: said in the report.
    pub fn algorithm(&self, rate: &At<WindowRate>, burst: &Burst, report: &mut Report) -> Option<Algorithm> {
        let WindowRate { tokens, per } = rate.value;
        let algorithm = match self.kind {
            Kind::TokenBucket => {
                let burst = match burst {
                    Slot::Absent => tokens,
                    Slot::Bad => return None,
                    Slot::Good(at) => NonZeroU64::new(at.value.0)?,
                };
                Algorithm::TokenBucket { rate: self.steady(rate, report)?, burst }
            }
            Kind::FixedWindow => {
                let zone = self.zone.map(|zone| Arc::clone(&zone.value.0));
                Algorithm::FixedWindow { rate: WindowRate { tokens, per }, zone }
            }
            Kind::SlidingWindow => Algorithm::SlidingWindow { rate: self.steady(rate, report)? },
        };
        if let (Slot::Good(at), false) = (burst, self.kind == Kind::TokenBucket) {
            let trouble = Trouble::new(format!("a {} has no burst", self.kind.name()));
            report.mistake(&at.place, trouble.hint("leave it out: the rate's tokens are all there are in a window"));
            return None;
        }
        let Err(bound) = algorithm.quota() else { return Some(algorithm) };
        self.refuse(&bound, rate, burst, report);
        None
    }

    /// A rate of so many tokens in a fixed time.
    fn steady(&self, rate: &At<WindowRate>, report: &mut Report) -> Option<Rate> {
        match rate.value.per {
            Per::Micros(period_us) => Some(Rate { tokens: rate.value.tokens, period_us }),
            Per::Month => {
                let trouble = Trouble::new(format!("a {} counts no months, which differ in length", self.kind.name()));
                report.mistake(&rate.place, trouble.hint("set \"algorithm: fixed_window\", or write 30d"));
                None
            }
        }
    }

    fn refuse(&self, bound: &QuotaError, rate: &At<WindowRate>, burst: &Burst, report: &mut Report) {
        let burst = if let Slot::Good(at) = burst { &at.place } else { &rate.place };
        let zone = self.zone.map_or(&rate.place, |zone| &zone.place);
        let (place, hint) = match bound {
            QuotaError::Bucket(ShapeError::TooFast) => {
                (&rate.place, format!("write at most {MAX_TOKENS_PER_SECOND}/s"))
            }
            QuotaError::Bucket(ShapeError::BurstTooLarge) => (burst, format!("set \"burst\" to at most {MAX_BURST}")),
            QuotaError::Bucket(ShapeError::TooSlow) => (burst, "lower the burst or raise the rate".to_owned()),
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
        }
    }
}
