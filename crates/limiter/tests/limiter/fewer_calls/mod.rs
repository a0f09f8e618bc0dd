//! Ways to ask the store less, none of which bends the promise.

mod coalescing;
mod denials;
mod leases;
mod manual_store;
