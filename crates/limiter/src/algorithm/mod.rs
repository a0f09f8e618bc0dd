//! The arithmetic of limits: pure functions over integers, without clocks, keys or I/O.
//!
//! Each algorithm has a file and a folder. [`quota`] and [`state`] are the one dispatch between
//! those that count tokens: `quota` answers for the limit's numbers, `state` for what a key holds.
//! [`share`] is a node's part of a limit, [`concurrency`] counts requests in flight.
//!
//! CONTRIBUTING.md leads through the files that a new algorithm needs.

pub mod calendar;
pub mod concurrency;
pub mod held_back;
pub mod level;
pub mod quota;
pub mod share;
pub mod state;
pub mod token_bucket;
pub mod window;
