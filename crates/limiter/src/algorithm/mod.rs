//! The arithmetic of limits: pure functions over integers, without clocks, keys, stores or allocation.
//!
//! Each algorithm has a file. [`quota`] asks every algorithm that counts tokens the same questions, [`state`] is what a
//! key holds of any of them, and [`conversion`] carries consumption from one limit over to another.

pub mod calendar;
pub(crate) mod compact_state;
pub mod concurrency;
pub mod conversion;
pub mod level;
pub mod quota;
pub mod share;
pub mod state;
pub mod token_bucket;
pub mod window;
