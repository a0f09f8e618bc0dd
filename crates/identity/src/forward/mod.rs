//! Authentication by a service of the operator's, which is asked about each request:
//! `authenticator` asks, `subrequest` is the question, `answer` makes a verdict of the answer, and
//! `cache` keeps answers in an `answer_table`.

mod answer;
mod answer_table;
pub mod authenticator;
mod cache;
pub mod spec;
mod subrequest;
