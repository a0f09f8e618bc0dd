//! A call to the store for the tokens of requests, which may outlast them.
//!
//! `take_call` is the call, `late_call` its answer when its requests gave up,
//! `foreign_charge` the decision on keys that the store cannot read.

mod foreign_charge;
pub(crate) mod late_call;
pub(crate) mod take_call;
