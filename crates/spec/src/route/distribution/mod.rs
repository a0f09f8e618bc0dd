//! Where requests go, if not all to one upstream: a split sends each to one of several, by their
//! shares, and a mirror sends copies of some to another.
//!
//! Guarantees that the shares of a split are all there is: together they are 100 %.

use std::fmt;
use std::sync::Arc;

use tollgate_limiter::limit::key::KeyPart;

/// A whole, in hundredths of a percent.
pub const WHOLE: u16 = 10_000;

/// A share of the requests, in hundredths of a percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrafficShare(u16);

/// Several upstreams, each with its share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamSplit {
    parts: Vec<SplitPart>,
    /// Requests that are alike in this go to one upstream. Empty, and for those that lack a part:
    /// any.
    pub by: Arc<[KeyPart]>,
}

/// An upstream of a split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitPart {
    pub upstream: Arc<str>,
    pub share: TrafficShare,
}

/// The upstream that gets copies of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorSpec {
    pub upstream: Arc<str>,
    pub share: TrafficShare,
    /// A request with a longer body is not copied.
    pub max_body: usize,
    /// Copies under way.
    pub max_in_flight: usize,
}

impl TrafficShare {
    /// `None`: that is more than all.
    pub fn from_hundredths(hundredths: u16) -> Option<Self> {
        (hundredths <= WHOLE).then_some(Self(hundredths))
    }

    /// Whether a request at this point of the whole is within the share.
    pub fn has(self, point: u16) -> bool {
        point < self.0
    }

    pub fn hundredths(self) -> u16 {
        self.0
    }
}

impl UpstreamSplit {
    /// `None`: the shares are not 100 % together.
    pub fn new(parts: Vec<SplitPart>, by: Arc<[KeyPart]>) -> Option<Self> {
        let sum: u64 = parts.iter().map(|part| u64::from(part.share.0)).sum();
        (sum == u64::from(WHOLE)).then_some(Self { parts, by })
    }

    /// The upstream of the request at `point` of the whole, from 0 to below [`WHOLE`].
    pub fn pick(&self, point: u16) -> Option<&Arc<str>> {
        let mut end = 0;
        let part = self.parts.iter().find(|part| {
            end += part.share.0;
            point < end
        });
        part.map(|part| &part.upstream)
    }

    pub fn parts(&self) -> &[SplitPart] {
        &self.parts
    }
}

impl fmt::Display for TrafficShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0 / 100, self.0 % 100) {
            (whole, 0) => write!(f, "{whole}%"),
            (whole, hundredths) => write!(f, "{whole}.{hundredths:02}%"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(upstream: &str, hundredths: u16) -> SplitPart {
        SplitPart {
            upstream: upstream.into(),
            share: TrafficShare::from_hundredths(hundredths).unwrap(),
        }
    }

    #[test]
    fn each_point_is_of_one_part_by_its_share() {
        let split = UpstreamSplit::new(
            vec![part("a", 9_450), part("none", 0), part("b", 550)],
            [].into(),
        )
        .unwrap();
        for (name, share) in [("a", 9_450), ("none", 0), ("b", 550)] {
            let points = (0..WHOLE).filter(|point| **split.pick(*point).unwrap() == *name);
            assert_eq!(points.count(), share, "{name}");
        }
    }

    #[test]
    fn shares_that_are_not_all_are_no_split() {
        for last in [549, 551, 10_000] {
            assert_eq!(
                UpstreamSplit::new(vec![part("a", 9_450), part("b", last)], [].into()),
                None
            );
        }
        assert_eq!(TrafficShare::from_hundredths(10_001), None);
    }
}
