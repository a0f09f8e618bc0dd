//! A debt to a bucket, which flows off at this node's part of the rate.
//!
//! The debt may flow off only by a share that nobody else uses. The nodes that still reach the
//! store hold this node's share back from [`NOTICE_US`] after it was cut off. Before that nobody
//! uses it only if no node reaches the store, which the store alone can tell: its bucket is full
//! then. Guarantees that what flowed off in the last [`NOTICE_US`] stays owed. It is charged with
//! the time in which it flowed off, and the store takes it off again where nothing else used the
//! share.

use crate::algorithm::token_bucket;
use crate::algorithm::token_bucket::{MAX_TICKS, TokenBucket};
use crate::store::fleet_share::NOTICE_US;

/// A debt to a bucket, which flows off.
#[derive(Clone, Copy)]
pub(super) struct BucketDebt {
    shape: TokenBucket,
    /// Ticks of the whole limit, at `at_us`, that have not flowed off.
    ticks: u64,
    /// Ticks that flowed off since `recent_from_us`, and in the [`NOTICE_US`] before. They are owed
    /// unless nobody used this node's share.
    recent: u64,
    earlier: u64,
    recent_from_us: u64,
    at_us: u64,
    /// The nodes among which the limit is divided: the debt flows off at one part of the rate.
    parts: u32,
}

impl BucketDebt {
    /// An empty debt to `shape`. Nothing flows off until `at_us`.
    pub fn new(shape: TokenBucket, at_us: u64, parts: u32) -> Self {
        Self {
            shape,
            ticks: 0,
            recent: 0,
            earlier: 0,
            recent_from_us: at_us,
            at_us,
            parts,
        }
    }

    /// Time passes.
    pub fn flow(&mut self, now_us: u64) {
        let Some(elapsed_us) = now_us.checked_sub(self.at_us) else {
            return;
        };
        let flowed = self.flowing(elapsed_us).min(self.ticks);
        self.ticks -= flowed;
        if elapsed_us >= NOTICE_US {
            let ended_us = self.at_us.saturating_add(self.flow_us(flowed)).min(now_us);
            let of_late = self
                .flowing(ended_us.saturating_sub(now_us - NOTICE_US))
                .min(flowed);
            (self.recent, self.earlier, self.recent_from_us) = (0, of_late, now_us);
        } else {
            if now_us - self.recent_from_us >= NOTICE_US {
                (self.recent, self.earlier, self.recent_from_us) = (0, self.recent, now_us);
            }
            self.recent += flowed;
        }
        self.at_us = now_us;
    }

    /// Ticks that flowed off and are still owed: in [`NOTICE_US`], or a little longer.
    fn unsettled(&self) -> u64 {
        self.earlier
            .saturating_add(self.recent)
            .min(self.flowing(NOTICE_US))
    }

    /// Ticks that flow off in `micros` microseconds.
    fn flowing(&self, micros: u64) -> u64 {
        micros.saturating_mul(self.shape.ticks_per_us()) / u64::from(self.parts)
    }

    /// Microseconds in which `ticks` flow off, rounded up.
    fn flow_us(&self, ticks: u64) -> u64 {
        ticks
            .saturating_mul(self.parts.into())
            .div_ceil(self.shape.ticks_per_us())
    }

    /// All that may be charged, in ticks.
    pub fn owed(&self) -> u64 {
        self.ticks.saturating_add(self.unsettled()).min(MAX_TICKS)
    }

    pub fn shape(&self) -> TokenBucket {
        self.shape
    }

    /// The beginning of the time in which the unsettled part flowed off.
    pub fn since_us(&self) -> u64 {
        self.at_us.saturating_sub(
            self.unsettled().saturating_mul(self.parts.into()) / self.shape.ticks_per_us(),
        )
    }

    /// Counts the debt by the faster limit from now on, and of equally fast ones by the larger: see
    /// [`crate::algorithm::token_bucket::conversion`].
    fn adopt(&mut self, shape: TokenBucket) {
        let old = self.shape.tick_rate();
        let new = shape.tick_rate();
        let ticks = token_bucket::convert(self.ticks, old, new);
        let is_larger = new == old && shape.capacity() > self.shape.capacity();
        if is_larger || (new.is_faster_than(old) && ticks < MAX_TICKS) {
            self.shape = shape;
            self.ticks = ticks;
            self.recent = token_bucket::convert(self.recent, old, new);
            self.earlier = token_bucket::convert(self.earlier, old, new);
        }
    }

    /// Adds ticks of `shape`.
    pub fn owe(&mut self, shape: TokenBucket, ticks: u64) {
        self.adopt(shape);
        let own = token_bucket::convert(ticks, shape.tick_rate(), self.shape.tick_rate());
        self.ticks = self.ticks.saturating_add(own).min(MAX_TICKS);
    }

    /// Takes off ticks of `shape` that were not spent.
    pub fn reduce(&mut self, shape: TokenBucket, ticks: u64) {
        let own = token_bucket::convert_room(ticks, shape.tick_rate(), self.shape.tick_rate());
        self.take_off(own);
    }

    /// Waives what is beyond `left_us`, in microseconds.
    pub fn lower(&mut self, left_us: u64) {
        let left = self.shape.tick_rate().ticks(left_us);
        self.ticks = self.ticks.min(left);
        self.recent = self.recent.min(left - self.ticks);
        self.earlier = self.earlier.min(left - self.ticks - self.recent);
    }

    /// Takes off ticks, those first that have not flowed off.
    fn take_off(&mut self, mut ticks: u64) {
        for part in [&mut self.ticks, &mut self.recent, &mut self.earlier] {
            let taken = ticks.min(*part);
            *part -= taken;
            ticks -= taken;
        }
    }
}
