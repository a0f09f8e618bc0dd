//! Policies as JSON, for the pages of the API and the commands that read it back: `comparison` has
//! what differs between two bodies.

pub mod comparison;
pub mod policies;
