//! Which clients a limit acts on while it is rolled out.
//!
//! Guarantees that a client is treated alike on every node, by every request and after every
//! restart, and that raising the share only adds clients. A hash of the limit's name and the key
//! chooses them, so two limits begin with different clients.

use crate::algorithm::share::fnv1a;

/// A share of all keys, in hundredths of a percent.
///
/// ```
/// use tollgate_limiter::limit::definition::Limit;
/// use tollgate_limiter::limit::rollout::Rollout;
/// use tollgate_limiter::client_ip;
///
/// let limit = Limit::per_second("per-client", 10).key(client_ip()).build()?.limit;
/// let quarter = Rollout::from_hundredths(2_500).unwrap_or(Rollout::NONE);
/// let limit = Limit { rollout: quarter, ..(*limit).clone() };
/// # Ok::<(), tollgate_limiter::LimitError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rollout(u16);

const WHOLE: u16 = 10_000;

impl Rollout {
    /// Every key: the limit acts.
    pub const ALL: Self = Self(WHOLE);
    /// No key: the limit only counts.
    pub const NONE: Self = Self(0);

    /// A share of `hundredths` of a percent. `None`: over 10 000, which is all.
    pub fn from_hundredths(hundredths: u16) -> Option<Self> {
        (hundredths <= WHOLE).then_some(Self(hundredths))
    }

    /// The share, in hundredths of a percent.
    pub const fn hundredths(self) -> u16 {
        self.0
    }

    /// Whether the limit acts on this key.
    pub fn takes(self, key: &[u8]) -> bool {
        self == Self::ALL || mix(fnv1a(key)) % u64::from(WHOLE) < u64::from(self.0)
    }
}

impl Default for Rollout {
    fn default() -> Self {
        Self::ALL
    }
}

/// FNV leaves similar keys close together; this spreads them (the finalizer of MurmurHash3, public
/// domain).
fn mix(mut hash: u64) -> u64 {
    for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53] {
        hash = (hash ^ hash >> 33).wrapping_mul(factor);
    }
    hash ^ hash >> 33
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(hundredths: u16) -> Vec<String> {
        let share = Rollout::from_hundredths(hundredths).unwrap();
        let keys = (0..10_000).map(|n| format!("per-client:10.0.{}.{}", n / 250, n % 250));
        keys.filter(|key| share.takes(key.as_bytes())).collect()
    }

    #[test]
    fn takes_the_share_of_similar_keys_that_it_should() {
        for (hundredths, about) in [
            (0, 0),
            (100, 100),
            (2_500, 2_500),
            (9_000, 9_000),
            (10_000, 10_000),
        ] {
            let count = taken(hundredths).len();
            assert!(
                count.abs_diff(about) <= 150,
                "{count} of 10000 at {hundredths}"
            );
        }
        assert_eq!((taken(0).len(), taken(10_000).len()), (0, 10_000));
        assert_eq!(Rollout::from_hundredths(10_001), None);
    }

    #[test]
    fn a_larger_share_keeps_everyone_of_the_smaller() {
        let quarter = taken(2_500);
        let half = taken(5_000);
        assert!(quarter.iter().all(|key| half.contains(key)));
    }
}
