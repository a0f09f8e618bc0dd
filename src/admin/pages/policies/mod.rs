//! `/policies`: what people edit beside the file. `document` is the whole of it, `objects` has each
//! object by itself, `changes` stands before all changes, `candidates` ends what is tried out,
//! `revisions` what was changed, and `request` reads what all of these are asked.
//!
//! Reading is bounded to applications that the caller may look at. Every change goes through
//! [`Proposal`](crate::admin::policies::proposal::Proposal).

pub mod candidates;
pub mod changes;
pub mod document;
pub mod objects;
pub mod request;
pub mod revisions;
