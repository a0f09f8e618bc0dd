//! Sheds load: refuses requests once as many are in flight as the gateway takes.

use std::num::NonZeroUsize;

use crate::exchange::Exchange;
use tollgate_wire::error::Failure;

/// The most requests in flight on a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestBound {
    pub max: NonZeroUsize,
    /// Whether tunnels count.
    pub with_tunnels: bool,
}

impl RequestBound {
    /// Refuses the request if as many others were in flight when it came.
    ///
    /// # Errors
    /// [`Failure::Overloaded`].
    #[inline]
    pub fn check(&self, exchange: &Exchange<'_>) -> Result<(), Failure> {
        let before = exchange.context.in_flight_before;
        // Rare, so that an ordinary request reads one number.
        if before >= self.max.get() && !self.fits_without_tunnels(before, exchange) {
            return Err(Failure::Overloaded);
        }
        Ok(())
    }

    /// Whether fewer than the bound are left of `before` when tunnels are not counted.
    #[cold]
    fn fits_without_tunnels(&self, before: usize, exchange: &Exchange<'_>) -> bool {
        if self.with_tunnels {
            return false;
        }
        let tunnels = exchange.worker.in_flight.tunnels();
        before.saturating_sub(tunnels) < self.max.get()
    }
}
