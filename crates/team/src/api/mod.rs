//! `/policies` of the admin port: what people edit beside the file, for programs.
//!
//! `router` is the table of paths, `openapi` their description. `document` is the whole of the
//! policies, `objects` has each object by itself, `admission` stands before all changes,
//! `candidates` ends what is tried out, `revisions` has what was changed, `request` reads what
//! these are asked, `extract` bodies and queries, whose keys are `unique_keys`, and `reading` makes
//! long answers.
//!
//! Reading is bounded to applications that the caller may look at. Every change goes through
//! [`Proposal`](crate::changes::proposal::Proposal).

mod admission;
mod candidates;
mod document;
pub mod extract;
mod objects;
mod openapi;
pub mod reading;
pub mod request;
pub mod revisions;
mod router;
mod unique_keys;

pub use router::extension;
