//! The charges of one request, with those of the same bucket merged.
//!
//! Guarantees that a limit which the listener and the route both name is one charge.

use smallvec::SmallVec;

use crate::algorithm::level::Level;
use crate::algorithm::quota::Quota;
use crate::store::{BucketCharge, Levels};

/// The buckets of one request, each once.
pub(crate) struct MergedCharges<'a> {
    pub list: SmallVec<[MergedCharge<'a>; 4]>,
    /// For each charge of the request, its place in the list.
    places: SmallVec<[usize; 4]>,
}

/// A bucket to charge.
pub(crate) struct MergedCharge<'a> {
    pub key: &'a [u8],
    pub quota: Quota,
    pub cost: u64,
    pub largest_cost: u64,
    pub local_us: u64,
}

impl<'a> MergedCharge<'a> {
    /// A charge that stands alone.
    pub fn new(charge: &'a BucketCharge) -> Self {
        let BucketCharge {
            ref key,
            quota,
            cost,
            largest_cost,
            local_us,
        } = *charge;
        Self {
            key: key.as_bytes(),
            quota,
            cost,
            largest_cost,
            local_us,
        }
    }
}

impl<'a> MergedCharges<'a> {
    /// The charges of a request.
    pub fn new(charges: &'a [BucketCharge]) -> Self {
        let mut merged = Self {
            list: SmallVec::new(),
            places: SmallVec::new(),
        };
        for charge in charges {
            let place = merged.place(charge);
            merged.places.push(place);
        }
        merged
    }

    fn place(&mut self, charge: &'a BucketCharge) -> usize {
        let key = charge.key.as_bytes();
        if let Some(place) = self.list.iter().position(|known| known.key == key) {
            let known = &mut self.list[place];
            known.cost = known.cost.saturating_add(charge.cost);
            return place;
        }
        self.list.push(MergedCharge::new(charge));
        self.list.len() - 1
    }

    /// The level of each charge's bucket, in the order of the charges.
    pub fn spread(&self, levels: &[Level]) -> Levels {
        self.places
            .iter()
            .filter_map(|place| levels.get(*place).copied())
            .collect()
    }

    /// The charges that go to one of these `places` of the list.
    #[cfg(feature = "redis-core")]
    pub fn charges_at(&self, places: &[usize]) -> SmallVec<[usize; 2]> {
        let charges = self.places.iter().enumerate();
        charges
            .filter(|(_, place)| places.contains(place))
            .map(|(charge, _)| charge)
            .collect()
    }
}
