//! What an admin port says in JSON, as text for people.

pub mod bucket;
pub mod explanation;
