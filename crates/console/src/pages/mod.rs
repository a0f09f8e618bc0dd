//! The pages of the console, a file for each.
//!
//! A page is rendered here and works without script. What changes while somebody looks at it is a
//! part with a template of its own: `data` renders the parts anew for the script that puts them in
//! place, so that both are the same. `charts` has what the library draws, and the same in words and
//! numbers; `list` finds entries of long lists.

pub mod accounts;
pub mod bucket;
mod charts;
pub mod data;
pub mod explain;
pub mod limit;
pub mod limits;
pub mod list;
pub mod nodes;
pub mod overview;
pub mod routes;
pub mod upstreams;

pub use list::encode;
