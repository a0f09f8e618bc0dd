//! Ways to ask the store less, none of which bends the promise.

#![expect(clippy::unwrap_used, reason = "a test that lacks what it needs fails")]
#![expect(clippy::print_stdout, reason = "figures that are worth reading with --nocapture")]

mod coalescing;
mod denials;
mod desk;
mod figures;
mod leases;
#[path = "../support/mod.rs"]
mod support;
