//! Quantiles of a latency, from the counts of a histogram.

use super::metrics::REQUEST_BUCKETS;

/// Buckets of a latency: one for each bound, and one for what is over all of them.
pub const BUCKETS: usize = REQUEST_BUCKETS.len() + 1;

/// The latency in seconds that a `share` of all requests, from 0 to 1, stayed within: as if those
/// of a bucket were spread evenly. `None`: there were none. What took longer than the last bound
/// counts as that.
pub fn quantile(counts: &[u32; BUCKETS], share: f64) -> Option<f32> {
    let total: u64 = counts.iter().map(|count| u64::from(*count)).sum();
    if total == 0 {
        return None;
    }
    let rank = share * total as f64;
    let (mut below, mut lower) = (0.0, 0.0);
    for (bound, count) in REQUEST_BUCKETS.iter().zip(counts) {
        let within = f64::from(*count);
        if within > 0.0 && below + within >= rank {
            return Some((lower + (bound - lower) * (rank - below) / within) as f32);
        }
        below += within;
        lower = *bound;
    }
    Some(lower as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_lies_in_its_bucket() {
        let mut counts = [0; BUCKETS];
        assert_eq!(quantile(&counts, 0.5), None);
        // 90 of up to 1 ms, 10 of 50 to 100 ms.
        (counts[1], counts[7]) = (90, 10);
        let near = |share, expected: f32| {
            let found = quantile(&counts, share).unwrap();
            assert!(
                (found - expected).abs() < expected / 1_000.0,
                "{share}: {found} and not {expected}"
            );
        };
        near(0.5, 0.000_777_8);
        near(0.9, 0.001);
        near(0.95, 0.075);
        near(0.99, 0.095);
    }

    #[test]
    fn what_is_over_all_bounds_counts_as_the_last() {
        let mut counts = [0; BUCKETS];
        counts[BUCKETS - 1] = 1;
        assert_eq!(quantile(&counts, 0.5), Some(60.0));
    }
}
