//! Candidates of strategies: each node judges those that act on it by its own traffic, and ends
//! what is out of its bounds.
//!
//! `counters` reads what was counted of a candidate, `window` judges it, `watch` does so each
//! second and stops what must not go on, and `ending` commits what becomes of a candidate: it is
//! taken away, or it becomes the limit. All of it is on the control plane: a request pays nothing.

mod counters;
mod ending;
pub mod watch;
mod window;
