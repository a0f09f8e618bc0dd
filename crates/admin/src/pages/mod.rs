//! The pages of the admin port, a file for each path. A page reads its query, asks the state and
//! returns a view.

pub mod buckets;
pub mod explain;
pub mod health;
pub mod limits;
pub mod nodes;
pub mod upstreams;
