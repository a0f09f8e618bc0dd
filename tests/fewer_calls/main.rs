//! Ways to ask the store less, none of which bends the promise.

#![expect(clippy::unwrap_used, reason = "a test that lacks what it needs fails")]

mod coalescing;
mod denials;
mod desk;
#[path = "../support/mod.rs"]
mod support;
