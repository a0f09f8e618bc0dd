//! `match` of a route, and the routes beside one another. `conditions` is the key, `path` its paths
//! and `path_text` how these are written; `ambiguity` finds routes of which neither goes first,
//! `hidden` those that no request reaches, and `kept` those whose paths are another's to some
//! servers.

pub mod ambiguity;
pub mod conditions;
pub mod hidden;
pub mod kept;
pub mod path;
pub mod path_text;
