//! Policies: a document that people edit beside the configuration file, and that lies over it.
//!
//! `document` reads it from YAML or JSON; `state` builds it from the objects of a revision in the
//! database. `application` checks one section of it: the limits of a service, its plans, and what
//! it changes of its routes. `over` lays all applications over the file: `owned_routes` says which
//! routes are an application's, and `apply` adds one application to the checked file (`base`). A
//! strategy is a limit that the document defines, made by `strategy_limits`; `candidate` is the
//! version of one that a roll-out tries (docs/rollouts.md). `parts` are the parts of routes that
//! have limits of their own. `limit_work` refuses a document whose limits would take too much work
//! for each request. `applied` is the result. The next revision takes applications that did not
//! change from it.

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
