//! Policies: a document that people edit beside the file, and that lies over it.
//!
//! `document` reads one, from text or from JSON, and `state` makes one of the objects of a
//! revision. `tree` turns it into limits and routes of the file's own tree, so that the rest of
//! the configuration checks them as it checks the file, and `applied` is what came of an
//! application before, which `node_additions` keeps. `owned` says which routes and upstreams are an
//! application's, `bounds` how much it may have, `keys` has the API keys that each route takes,
//! `candidate` has the limits of a strategy, `limit_references` puts them on a route's list,
//! `route_changes` collects what applications change of routes, `part` makes a part of a route, and
//! `precedence` knows whether a part takes what the file gives to another route.

mod application;
pub mod applied;
pub mod candidate;
pub mod document;
mod limit_references;
mod node_additions;
mod owned;
mod part;
mod part_bounds;
mod precedence;
mod route_changes;
#[cfg(feature = "team")]
pub mod state;
pub mod tree;
