//! Policies: a document that people edit beside the file, and that lies over it.
//!
//! `document` reads one, from text or from JSON, and `state` makes one of the objects of a
//! revision; `application` is one of its applications, checked by itself. `over` puts them over the
//! file: `owned_routes` says which routes are an application's, and `apply` applies one to the file
//! (`base`). Its limits come from `strategy_limits`, with those of a `candidate`, its changes of
//! routes from `parts`; `limit_work` bounds what requests cost by them. `applied` is the result,
//! which is kept for the next revisions.

mod application;
mod applied;
mod apply;
mod base;
mod candidate;
pub mod document;
mod limit_work;
pub mod over;
mod owned_routes;
mod parts;
#[cfg(feature = "team")]
pub mod state;
mod strategy_limits;
