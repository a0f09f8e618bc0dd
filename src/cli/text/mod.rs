//! The JSON of an admin port as text for people.

pub mod bucket;
pub mod explanation;
#[cfg(feature = "team")]
pub mod policies;
