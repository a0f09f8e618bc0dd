//! How a limit counts, and the numbers it counts by.

use std::num::NonZeroU64;
use std::sync::Arc;

use crate::config::decode::{At, Slot};
use crate::config::mistake::{Report, Trouble};
use crate::config::raw::{self, Kind};
use crate::rate_limit::algorithm::{Algorithm, Manner, Misfit, QuotaError, WindowRate};
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

    fn manner(&self) -> Manner {
        match self.kind {
            Kind::TokenBucket => Manner::TokenBucket,
            Kind::FixedWindow => Manner::FixedWindow { zone: self.zone.map(|zone| Arc::clone(&zone.value.0)) },
            Kind::SlidingWindow => Manner::SlidingWindow,
        }
    }

    /// The algorithm with a rate and, if it has one, a burst. `None`: said in the report.
    pub fn algorithm(&self, rate: &At<WindowRate>, burst: &Burst, report: &mut Report) -> Option<Algorithm> {
        let said = match burst {
            Slot::Absent => None,
            Slot::Bad => return None,
            Slot::Good(at) => Some(NonZeroU64::new(at.value.0)?),
        };
        let algorithm = match self.manner().algorithm(rate.value.clone(), said) {
            Ok(algorithm) => algorithm,
            Err(misfit) => {
                let (place, hint) = match (misfit, burst) {
                    (Misfit::Burst(_), Slot::Good(at)) => {
                        (&at.place, "leave it out: the rate's tokens are all there are in a window")
                    }
                    (Misfit::Burst(_) | Misfit::Month(_), _) => {
                        (&rate.place, "set \"algorithm: fixed_window\", or write 30d")
                    }
                };
                report.mistake(place, Trouble::new(misfit.to_string()).hint(hint));
                return None;
            }
        };
        let Err(bound) = algorithm.quota() else { return Some(algorithm) };
        self.refuse(&bound, rate, burst, report);
        None
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
