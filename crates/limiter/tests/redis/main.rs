//! The limiter against real Redis servers: what is stored, what every store must do, and what
//! happens when one fails.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that lacks what it needs fails"
)]

mod debts;
mod fleet;
mod inspect;
mod late_answers;
mod outage;
mod plans;
mod shared_limiter;
mod store;
mod store_suite;
mod together;
mod topologies;
mod unasked;
