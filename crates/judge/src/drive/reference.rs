//! The reference beside the limiter under test: a bucket or a window for each key, asked without
//! any delay.

use crate::judge::bound::AdmissionBound;
use crate::judge::reference_bucket::ReferenceBucket;
use crate::judge::reference_window::ReferenceWindow;
use crate::limit::TestedLimit;
use crate::plan::RunPlan;

/// Says how many requests a correct limiter admits, key by key.
pub enum Reference {
    /// The least that a correct limiter admits.
    Buckets(TestedLimit, Vec<ReferenceBucket>),
    Windows(AdmissionBound, Vec<ReferenceWindow>),
}

impl Reference {
    pub fn new(plan: &RunPlan, bound: &AdmissionBound) -> Self {
        let keys = 0..plan.keys.get();
        match bound {
            // For requests in flight, the due number is known when all are over.
            AdmissionBound::InFlight { .. } => Self::Buckets(plan.limit, Vec::new()),
            AdmissionBound::TokenBucket(_) => Self::Buckets(
                plan.expected_limit(),
                keys.map(|_| ReferenceBucket::default()).collect(),
            ),
            AdmissionBound::FixedWindow { .. } | AdmissionBound::SlidingWindow { .. } => {
                Self::Windows(*bound, keys.map(|_| ReferenceWindow::default()).collect())
            }
        }
    }

    /// Whether a request for `key` at `now_us` is admitted, which takes its tokens.
    pub fn take(&self, key: u32, cost: u64, now_us: u64) -> bool {
        let at = key as usize;
        match self {
            Self::Buckets(limit, buckets) => buckets
                .get(at)
                .is_some_and(|bucket| bucket.take(limit, cost, now_us)),
            Self::Windows(bound, windows) => {
                windows
                    .get(at)
                    .is_some_and(|window| match bound.window(now_us) {
                        Some((quota, back_us)) => window.take(quota, cost, now_us, back_us),
                        None => false,
                    })
            }
        }
    }
}
