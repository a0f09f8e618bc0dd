//! The endpoints that are far slower than the others of their upstream.
//!
//! Guarantees that none is found where most are slow, or where there is nothing to compare with.

use std::time::Duration;

pub use crate::upstream::spec::health::LatencyRule;

/// An endpoint that is far slower than the others.
#[derive(Debug, PartialEq, Eq)]
pub struct LatencyOutlier {
    /// The endpoint's place in the list.
    pub place: usize,
    pub median: Duration,
    /// The median of the medians of the others.
    pub others: Duration,
}

/// The outliers by the medians of endpoints in microseconds, the slowest first. `None`: an endpoint
/// is not judged.
pub fn outliers(rule: &LatencyRule, medians: &[Option<u64>]) -> Vec<LatencyOutlier> {
    let mut sorted = Vec::new();
    for (place, median) in medians.iter().enumerate() {
        if let Some(median) = median {
            sorted.push((Duration::from_micros(*median), place));
        }
    }
    sorted.sort_unstable();
    if sorted.len() < 2 {
        return Vec::new();
    }
    // The higher one of an even number: an endpoint that is as slow as half of the others is not
    // alone.
    let middle = (sorted.len() - 1) / 2;
    let mut outliers = Vec::new();
    for (rank, (median, place)) in sorted.iter().enumerate().rev() {
        let middle_of_others = if rank <= middle { middle + 1 } else { middle };
        let Some((others, _)) = sorted.get(middle_of_others) else {
            continue;
        };
        if *median > rule.above && *median > others.saturating_mul(rule.factor) {
            outliers.push(LatencyOutlier {
                place: *place,
                median: *median,
                others: *others,
            });
        }
    }
    outliers
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rule() -> LatencyRule {
        let [above, window] = [Duration::from_millis(100), Duration::from_secs(10)];
        LatencyRule {
            above,
            factor: 3,
            requests: 20,
            window,
        }
    }

    /// The places of outliers by the medians of endpoints in milliseconds. 0: it is not judged.
    fn outliers(millis: &[u64]) -> Vec<usize> {
        let medians: Vec<_> = millis
            .iter()
            .map(|millis| Some(millis * 1_000).filter(|median| *median > 0))
            .collect();
        super::outliers(&rule(), &medians)
            .iter()
            .map(|outlier| outlier.place)
            .collect()
    }

    #[test]
    fn an_endpoint_that_is_far_slower_than_the_others_is_found() {
        assert_eq!(outliers(&[10, 400, 12]), [1]);
        assert_eq!(outliers(&[400, 10]), [0]);
        assert_eq!(outliers(&[10, 400, 10, 900, 10, 10]), [3, 1]);
    }

    #[test]
    fn none_is_found_where_as_many_are_slow() {
        assert!(outliers(&[400, 400, 400]).is_empty());
        assert!(outliers(&[10, 400, 400]).is_empty());
        assert!(outliers(&[10, 10, 400, 400, 400]).is_empty());
        assert_eq!(
            outliers(&[10, 10, 400, 400]).len(),
            2,
            "the others of each are two fast ones and one slow one"
        );
    }

    #[test]
    fn none_is_found_below_the_floor_or_within_the_factor() {
        assert!(outliers(&[1, 100, 1]).is_empty());
        assert_eq!(outliers(&[1, 101, 1]), [1]);
        assert!(outliers(&[100, 300, 100]).is_empty());
        assert_eq!(outliers(&[100, 301, 100]), [1]);
    }

    #[test]
    fn an_endpoint_that_is_not_judged_is_no_measure_of_others() {
        assert!(outliers(&[]).is_empty());
        assert!(outliers(&[400]).is_empty());
        assert!(outliers(&[0, 400, 0]).is_empty());
        assert_eq!(outliers(&[0, 400, 10]), [1]);
    }

    proptest! {
        #[test]
        fn fewer_than_a_half_are_found_and_each_is_slower_by_the_factor(
            millis in prop::collection::vec(0_u64..2_000, 0..12),
        ) {
            let found = outliers(&millis);
            let judged = millis.iter().filter(|millis| **millis > 0).count();
            prop_assert!(2 * found.len() <= judged);
            for place in found {
                let faster = millis.iter().filter(|other| **other > 0 && *other * 3 < millis[place]).count();
                prop_assert!(2 * faster >= judged - 1, "{millis:?}");
            }
        }
    }
}
