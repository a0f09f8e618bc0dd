//! The JSON of the admin port, for its pages and for the commands that read it back.

pub mod bucket;
pub mod comparison;
pub mod explain;
pub mod node;
pub mod policies;
pub mod policy;
pub mod words;
