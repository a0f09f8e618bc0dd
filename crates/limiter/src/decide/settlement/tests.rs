//! `model` holds what settlements do to a bucket against its limit; `sending` has what the settler
//! sends, and when.

mod model;
mod sending;

use std::num::NonZeroU64;

use super::*;
use crate::algorithm::token_bucket::TokenBucket;
use crate::limit::key::Key;

const SECOND: u64 = 1_000_000;

fn shape(rate: u64, burst: u64) -> TokenBucket {
    fn nonzero(number: u64) -> NonZeroU64 {
        NonZeroU64::new(number).unwrap()
    }
    TokenBucket::new(nonzero(rate), nonzero(SECOND), nonzero(burst)).unwrap()
}

fn charge(bucket: TokenBucket, cost: u64) -> BucketCharge {
    BucketCharge {
        key: Key::from("k"),
        quota: bucket.into(),
        cost,
        largest_cost: cost,
        local_us: u64::MAX,
    }
}
