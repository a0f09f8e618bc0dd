//! The bound that the admitted requests of a run are held to, and the judge of each kind.
//!
//! Guarantees that each kind of limit is judged by what docs/exactness.md says of it, with the same
//! types for all.

use crate::judge::in_flight::HeldRequest;
use crate::judge::server_clock::ServerClock;
use crate::judge::{self, AdmittedRequest, Concession, TraceJudgement, in_flight, windows};
use crate::limit::TestedLimit;

/// The bound of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionBound {
    /// Every window of length t admits at most burst + rate · t.
    TokenBucket(TestedLimit),
    /// Every window that begins at a multiple of the period, on the store's clock, admits at most
    /// the quota.
    FixedWindow {
        quota: u64,
        period_us: u64,
        clock: ServerClock,
    },
    /// Every stretch that is shorter than the width admits at most the quota.
    SlidingWindow { quota: u64, width_us: u64 },
    /// At no moment more than `most` are in flight.
    InFlight { most: u64 },
}

impl From<TestedLimit> for AdmissionBound {
    fn from(limit: TestedLimit) -> Self {
        Self::TokenBucket(limit)
    }
}

impl AdmissionBound {
    /// Judges every window of every key, or every moment: by `held`, where requests in flight are
    /// counted.
    pub fn judge(
        &self,
        admissions: &[AdmittedRequest],
        held: &[HeldRequest],
        concessions: &[Concession],
    ) -> TraceJudgement {
        match self {
            Self::InFlight { most } => in_flight::judge_in_flight(held, *most),
            Self::TokenBucket(limit) => judge::judge(admissions, limit, concessions),
            Self::FixedWindow {
                quota,
                period_us,
                clock,
            } => windows::judge_fixed(admissions, *quota, *period_us, *clock, concessions),
            Self::SlidingWindow { quota, width_us } => {
                windows::judge_sliding(admissions, *quota, *width_us, concessions)
            }
        }
    }

    /// The quota of a window, and when a token that is taken at `now_us` is back. `None`: a bucket.
    pub fn window(&self, now_us: u64) -> Option<(u64, u64)> {
        match self {
            Self::TokenBucket(_) | Self::InFlight { .. } => None,
            Self::FixedWindow {
                quota,
                period_us,
                clock,
            } => {
                let end = (windows::window_at(now_us, clock.least_us, *period_us) + 1)
                    * i128::from(*period_us);
                Some((
                    *quota,
                    u64::try_from(end - i128::from(clock.least_us)).unwrap_or(u64::MAX),
                ))
            }
            Self::SlidingWindow { quota, width_us } => {
                Some((*quota, now_us.saturating_add(*width_us)))
            }
        }
    }

    /// The bound of all keys in use together, each over the whole time. `None`: there is none over
    /// a time.
    pub fn total(&self, admissions: &[AdmittedRequest]) -> Option<u64> {
        let first = admissions.iter().map(|one| one.sent_us).min().unwrap_or(0);
        let last = admissions
            .iter()
            .map(|one| one.answered_us)
            .max()
            .unwrap_or(0);
        let mut keys: Vec<u32> = admissions.iter().map(|one| one.key).collect();
        keys.sort_unstable();
        keys.dedup();
        let of_key = match self {
            Self::TokenBucket(limit) => limit.bound(last - first),
            Self::FixedWindow {
                quota,
                period_us,
                clock,
            } => {
                let begin = windows::window_at(first, clock.least_us, *period_us);
                let end = windows::window_at(last, clock.most_us, *period_us);
                let windows = end - begin + 1;
                quota.saturating_mul(u64::try_from(windows).unwrap_or(1))
            }
            Self::SlidingWindow { quota, width_us } => {
                quota.saturating_mul((last - first) / width_us.max(&1) + 1)
            }
            Self::InFlight { .. } => return None,
        };
        Some(of_key.saturating_mul(keys.len() as u64))
    }
}
