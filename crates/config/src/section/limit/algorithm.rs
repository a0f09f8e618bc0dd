//! How a limit counts: the name of each algorithm, its keys, and the [`Algorithm`] that they
//! describe.
//!
//! All that the configuration knows of an algorithm is here. A new one is a variant of
//! [`AlgorithmName`], a row for each key that it has, and an arm in [`AlgorithmChoice::build`].

use std::num::NonZeroU64;
use std::sync::Arc;

use serde_json::{Value as Json, json};
use tollgate_limiter::algorithm::concurrency::{MAX_PERMITS, Scope};
use tollgate_limiter::algorithm::token_bucket::{
    MAX_BURST, MAX_TOKENS_PER_SECOND, TokenBucketError,
};
use tollgate_limiter::algorithm::window::{MAX_QUOTA, WindowError};
use tollgate_limiter::limit::algorithm::{
    Algorithm, AlgorithmKind, QuotaError, WindowLength, WindowRate,
};
use tollgate_limiter::limit::definition::Consistency;
use tollgate_limiter::limit::units::{self, RATE_FORMS};

use crate::report::{Location, Report, ValueProblem, quote};
use crate::scalar::number::WholeNumber;
use crate::scalar::text::PlainText;
use crate::yaml::decode::{Located, Scalar, Setting};
use crate::yaml::record::record;
use crate::yaml::schema::or_variable;
use crate::yaml::words::words;

record! {
    /// The algorithm of a limit with all of its keys.
    RawAlgorithm {
        /// How tokens come back: one by one, at the end of a window of the clock, when they are a
        /// window old, or when their request has ended.
        default("token_bucket") algorithm: Located<AlgorithmName>,
        /// The limit's own quota.
        group quota: RawQuota,
        /// Whether the requests of all nodes count together, or each node's alone, with
        /// concurrency. Default: fleet.
        optional scope: Located<Scope>,
        /// Where a fixed window's minutes, hours, days and months are, such as Europe/Berlin.
        /// Default: UTC.
        optional time_zone: Located<PlainText>,
    }
}

record! {
    /// The numbers that an algorithm counts by: a limit's, or a plan's.
    RawQuota at location {
        /// Tokens per period, such as 10/s, 1000/h or 3/90s; of a fixed window also 1000/month,
        /// and of a plan 0/h for nothing. Required except for concurrency.
        optional rate: Located<RawRate>,
        /// Requests in flight at most, to the end of their responses' bodies; of a plan also 0.
        /// With concurrency alone.
        optional max_in_flight: Located<WholeNumber<0, MAX_PERMITS>>,
        /// Tokens in a full bucket. Default: the tokens of one period of the rate.
        optional burst: Located<WholeNumber<1, MAX_BURST>>,
    }
}

/// A rate, or none at all.
pub struct RawRate {
    /// The rate; in place of none, one token in its period.
    rate: WindowRate,
    is_nothing: bool,
}

/// The name of an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlgorithmName {
    TokenBucket,
    FixedWindow,
    SlidingWindow,
    Concurrency,
}

/// The algorithm of a limit, which its plans share.
pub struct AlgorithmChoice<'a> {
    name: AlgorithmName,
    time_zone: Option<&'a Located<PlainText>>,
    scope: Scope,
}

words! {
    AlgorithmName: "an algorithm" {
        "token_bucket" => TokenBucket,
        "fixed_window" => FixedWindow,
        "sliding_window" => SlidingWindow,
        "concurrency" => Concurrency,
    }
    Scope: "fleet or node" { "fleet" => Fleet, "node" => Node }
}

impl AlgorithmName {
    /// In a sentence.
    fn noun(self) -> &'static str {
        match self {
            Self::TokenBucket => "a token_bucket",
            Self::FixedWindow => "a fixed_window",
            Self::SlidingWindow => "a sliding_window",
            Self::Concurrency => "concurrency",
        }
    }

    /// The keys that it has.
    fn keys(self) -> AlgorithmKeys {
        match self {
            Self::TokenBucket => AlgorithmKeys {
                rate: true,
                burst: true,
                leased: true,
                ..AlgorithmKeys::NONE
            },
            Self::FixedWindow => AlgorithmKeys {
                rate: true,
                time_zone: true,
                ..AlgorithmKeys::NONE
            },
            Self::SlidingWindow => AlgorithmKeys {
                rate: true,
                ..AlgorithmKeys::NONE
            },
            Self::Concurrency => AlgorithmKeys {
                max_in_flight: true,
                scope: true,
                ..AlgorithmKeys::NONE
            },
        }
    }

    /// The numbers that it has in place of others, for messages.
    fn numbers(self) -> &'static str {
        match self {
            Self::TokenBucket => "leave it out: a rate and a burst are all there is",
            Self::FixedWindow | Self::SlidingWindow => {
                "leave it out: the rate's tokens are all there are in a window"
            }
            Self::Concurrency => "leave it out: max_in_flight is all there is",
        }
    }

    /// The problem with a key that this algorithm lacks. `lacks` completes the sentence
    /// "a token_bucket …".
    fn unsupported(self, lacks: &str, hint: &str) -> ValueProblem {
        ValueProblem::new(format!("{} {lacks}", self.noun())).hint(hint)
    }
}

/// The keys that only some algorithms have.
struct AlgorithmKeys {
    rate: bool,
    burst: bool,
    max_in_flight: bool,
    time_zone: bool,
    scope: bool,
    /// Whether nodes may take tokens ahead: `consistency: leased`.
    leased: bool,
}

impl AlgorithmKeys {
    const NONE: Self = Self {
        rate: false,
        burst: false,
        max_in_flight: false,
        time_zone: false,
        scope: false,
        leased: false,
    };
}

impl RawAlgorithm {
    /// The algorithm, without its numbers. `None`: a mistake was reported.
    pub fn choose(
        &self,
        consistency: &Setting<Located<Consistency>>,
        report: &mut Report,
    ) -> Option<AlgorithmChoice<'_>> {
        let name = self.algorithm.value()?;
        let keys = name.keys();
        let hint = "set \"algorithm: fixed_window\", or leave it out";
        let time_zone = supported(
            &self.time_zone,
            keys.time_zone,
            || name.unsupported("has no time_zone", hint),
            report,
        )?;
        let hint = "set \"algorithm: concurrency\", or leave it out";
        let scope = supported(
            &self.scope,
            keys.scope,
            || name.unsupported("has no scope", hint),
            report,
        )?;
        let is_exact = consistency.value() != Some(Consistency::Leased);
        let hint = "leave \"consistency\" out, or take a token_bucket";
        supported(
            consistency,
            keys.leased || is_exact,
            || name.unsupported("cannot be leased", hint),
            report,
        )?;
        Some(AlgorithmChoice {
            name,
            time_zone,
            scope: scope.map(|scope| scope.value).unwrap_or_default(),
        })
    }
}

impl RawQuota {
    /// The place that says that nothing may pass.
    pub fn nothing(&self) -> Option<&Location> {
        let no_rate = self.rate.valid().filter(|rate| rate.value.is_nothing);
        let no_permits = self.max_in_flight.valid().filter(|most| most.value.0 == 0);
        no_rate
            .map(|rate| &rate.location)
            .or(no_permits.map(|most| &most.location))
    }
}

impl AlgorithmChoice<'_> {
    /// The algorithm with the numbers of a limit's `quota`. `None`: a mistake was reported.
    pub fn of_limit(&self, quota: &RawQuota, report: &mut Report) -> Option<Algorithm> {
        if let Some(location) = quota.nothing() {
            let problem = ValueProblem::new("a limit of 0 lets nothing pass");
            let hint = "to refuse requests, give them a route that responds with an error";
            report.mistake(location, problem.hint(hint));
            return None;
        }
        self.of_plan(quota, report)
    }

    /// The algorithm with the numbers of `quota`; of nothing, with one token or permit. `None`: a
    /// mistake was reported.
    pub fn of_plan(&self, quota: &RawQuota, report: &mut Report) -> Option<Algorithm> {
        self.check_keys(quota, report)?;
        match self.name {
            AlgorithmName::TokenBucket => self.by_rate(&AlgorithmKind::TokenBucket, quota, report),
            AlgorithmName::FixedWindow => {
                let zone = self.time_zone.map(|zone| Arc::clone(&zone.value.0));
                self.by_rate(&AlgorithmKind::FixedWindow { zone }, quota, report)
            }
            AlgorithmName::SlidingWindow => {
                self.by_rate(&AlgorithmKind::SlidingWindow, quota, report)
            }
            AlgorithmName::Concurrency => {
                let most = required(
                    &quota.max_in_flight,
                    "max_in_flight",
                    "max_in_flight: 100",
                    &quota.location,
                    report,
                )?;
                AlgorithmKind::Concurrency { scope: self.scope }
                    .with_permits(NonZeroU64::new(most.value.0).unwrap_or(NonZeroU64::MIN))
                    .ok()
            }
        }
    }

    /// Reports the numbers that this algorithm does not have.
    fn check_keys(&self, quota: &RawQuota, report: &mut Report) -> Option<()> {
        let name = self.name;
        let keys = name.keys();
        let burst = supported(
            &quota.burst,
            keys.burst,
            || name.unsupported("has no burst", name.numbers()),
            report,
        );
        let rate = supported(
            &quota.rate,
            keys.rate,
            || name.unsupported("has no rate", name.numbers()),
            report,
        );
        let hint = "set \"algorithm: concurrency\", or leave it out";
        let max_in_flight = supported(
            &quota.max_in_flight,
            keys.max_in_flight,
            || name.unsupported("has no max_in_flight", hint),
            report,
        );
        (burst.is_some() && rate.is_some() && max_in_flight.is_some()).then_some(())
    }

    fn by_rate(
        &self,
        kind: &AlgorithmKind,
        quota: &RawQuota,
        report: &mut Report,
    ) -> Option<Algorithm> {
        let rate = required(&quota.rate, "rate", "rate: 10/s", &quota.location, report)?;
        let burst = quota.burst.build(|at| NonZeroU64::new(at.value.0))?;
        let algorithm = match kind.with_rate(rate.value.rate.clone(), burst) {
            Ok(algorithm) => algorithm,
            Err(unsupported) => {
                let problem = ValueProblem::new(unsupported.to_string());
                report.mistake(
                    &rate.location,
                    problem.hint("set \"algorithm: fixed_window\", or write 30d"),
                );
                return None;
            }
        };
        match algorithm.compile() {
            Ok(_) => Some(algorithm),
            Err(bound) => {
                self.refuse(&bound, rate, quota, report);
                None
            }
        }
    }

    /// Reports numbers beyond the bounds of the arithmetic.
    fn refuse(
        &self,
        bound: &QuotaError,
        rate: &Located<RawRate>,
        quota: &RawQuota,
        report: &mut Report,
    ) {
        let burst = quota.burst.location_or(&rate.location);
        let zone = self.time_zone.map_or(&rate.location, |zone| &zone.location);
        let (location, hint) = match bound {
            QuotaError::TokenBucket(TokenBucketError::TooFast) => (
                &rate.location,
                format!("write at most {MAX_TOKENS_PER_SECOND}/s"),
            ),
            QuotaError::TokenBucket(TokenBucketError::BurstTooLarge) => {
                (burst, format!("set \"burst\" to at most {MAX_BURST}"))
            }
            QuotaError::TokenBucket(TokenBucketError::TooSlow) => {
                (burst, "lower the burst or raise the rate".to_owned())
            }
            QuotaError::Window(WindowError::QuotaTooLarge) => {
                (&rate.location, format!("write at most {MAX_QUOTA} tokens"))
            }
            QuotaError::Window(WindowError::TooLong) => {
                (&rate.location, "write a shorter window".to_owned())
            }
            QuotaError::NoUnit => (
                &rate.location,
                "write a rate per m, h, d or month".to_owned(),
            ),
            QuotaError::NoCalendar => (zone, "build with the feature \"calendar\"".to_owned()),
            QuotaError::UnknownZone(_) => {
                (zone, "write a name such as Europe/Berlin or UTC".to_owned())
            }
        };
        report.mistake(location, ValueProblem::new(bound.to_string()).hint(hint));
    }

    /// The name of the largest cost that a request may have, for messages.
    pub fn capacity(&self) -> &'static str {
        match self.name {
            AlgorithmName::TokenBucket => "the burst",
            AlgorithmName::FixedWindow | AlgorithmName::SlidingWindow => "the quota of a window",
            AlgorithmName::Concurrency => "max_in_flight",
        }
    }
}

/// The value of a key, if the algorithm has it. A value of any other key is reported as
/// `unsupported`. `None`: a mistake was reported.
fn supported<'s, T>(
    setting: &'s Setting<Located<T>>,
    has_key: bool,
    unsupported: impl FnOnce() -> ValueProblem,
    report: &mut Report,
) -> Option<Option<&'s Located<T>>> {
    match setting {
        Setting::Absent => Some(None),
        Setting::Invalid => None,
        Setting::Valid(value) if has_key => Some(Some(value)),
        Setting::Valid(value) => {
            report.mistake(&value.location, unsupported());
            None
        }
    }
}

/// A number without which the algorithm cannot count. `None`: a mistake was reported.
fn required<'s, T>(
    setting: &'s Setting<Located<T>>,
    key: &str,
    example: &str,
    location: &Location,
    report: &mut Report,
) -> Option<&'s Located<T>> {
    if !setting.is_present() {
        let problem = ValueProblem::new(format!("\"{key}\" is missing"));
        report.mistake(
            location,
            problem.hint(format!("say how much, such as \"{example}\"")),
        );
    }
    setting.valid()
}

impl Scalar for RawRate {
    const WHAT: &'static str = WindowRate::WHAT;

    fn read(text: &str) -> Result<Self, ValueProblem> {
        let is_nothing = text.starts_with("0/");
        let rate = if is_nothing {
            WindowRate::read(&format!("1{}", &text[1..]))?
        } else {
            WindowRate::read(text)?
        };
        Ok(Self { rate, is_nothing })
    }

    fn schema() -> Json {
        WindowRate::schema()
    }
}

impl Scalar for WindowRate {
    const WHAT: &'static str = "a rate";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        if text.starts_with("0/") {
            let problem = ValueProblem::new(format!("{} lets nothing pass", quote(text)));
            return Err(
                problem.hint("to refuse requests, give them a route that responds with an error")
            );
        }
        let (tokens, period_us) = units::parse_window_rate(text).ok_or_else(|| {
            ValueProblem::new(format!("{} is not a rate", quote(text)))
                .hint(format!("write {RATE_FORMS}"))
        })?;
        Ok(Self {
            tokens,
            per: period_us.map_or(WindowLength::Month, WindowLength::Micros),
        })
    }

    fn schema() -> Json {
        json!({ "type": "string", "pattern": or_variable("[0-9]+/([0-9]*(s|m|h|d)|month)") })
    }
}
