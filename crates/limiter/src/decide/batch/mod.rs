//! Coalesces calls: requests with the same checks that come while a call for them is in flight
//! share the next call.
//!
//! The first request calls at once. Those that come meanwhile join a batch. When the call ends, the
//! batch goes as one call of as many units, and the units granted go to its requests in the order
//! they came. A hot key costs one call per round trip, not one per request.
//!
//! Guarantees that a request waits no longer than until its deadline, whatever becomes of the
//! others: a request that is dropped takes none of them along. When a call is slow, the next batch
//! does not wait for its end: it goes while there is time for its own call. A store that is slower
//! than its time limit has a bounded number of calls for a key.

pub(crate) mod batcher;
mod group;

pub(crate) use crate::decide::batch::group::unit;
