//! The JSON of the admin port, for its pages and for the commands that read it back.

pub mod bucket;
pub mod explain;
pub mod node;
pub mod policy;
pub mod words;
