//! The arithmetic of limits: pure functions over integers, without clocks, keys or I/O.
//!
//! Each algorithm has a file. [`quota`] and [`state`] are the one dispatch between those that count
//! tokens: `quota` answers for the limit's numbers, `state` for what a key holds. [`conversion`]
//! lets limits that change share a bucket, [`share`] is a node's part of a limit, [`concurrency`]
//! counts requests in flight.
//!
//! A new algorithm touches these files:
//! - `algorithm/NAME.rs`: its arithmetic, with `algorithm/NAME/tests.rs`;
//! - `algorithm/quota.rs`: a variant of `Quota` with its answers, and its script's letter and
//!   numbers;
//! - `algorithm/state.rs`: how a key's state is charged and corrected;
//! - `store/memory/compact_state.rs`: how a table in memory keeps that state, if it is of a new
//!   form;
//! - `lua/NAME.lua`: the same arithmetic in Redis, and `lua/values.lua` if it stores a value of a
//!   new form;
//! - `store/redis/script.rs`: the script that takes from it alone;
//! - `node/debt.rs`: how a debt to it expires, if its state is of a new form;
//! - `limit/algorithm.rs`: a variant of `Algorithm` and of `AlgorithmKind`;
//! - `src/config/file/limit/algorithm.rs`, in the gateway: its spelling in the file;
//! - `tests/limiter/parity.rs`: its script and its arithmetic decide alike.

pub mod calendar;
pub mod concurrency;
pub mod conversion;
pub mod held_back;
pub mod level;
pub mod quota;
pub mod share;
pub mod state;
pub mod token_bucket;
pub mod window;
