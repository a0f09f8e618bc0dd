//! Queues of requests that wait for their tokens or permits.
//!
//! `limit_queue` has the queue of each limit, `ticket` a request's place in it. The order is kept
//! in `lines`: a `line` for each key, and the bound on all of them together.

mod limit_queue;
mod line;
mod lines;
#[cfg(test)]
mod tests;
mod ticket;

pub use crate::request::queue::limit_queue::{Queue, Queues, TooLong, WaitingFor};
pub use crate::request::queue::ticket::{ArrivalNumber, JoiningRequest, Ticket};
