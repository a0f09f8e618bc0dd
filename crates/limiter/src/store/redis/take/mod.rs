//! Calls that take tokens for many requests at once: `group` is what equal requests ask, as the
//! script reads it, and `gatherer` puts groups that wait for the same server into one call.

pub(super) mod gatherer;
pub(super) mod group;
