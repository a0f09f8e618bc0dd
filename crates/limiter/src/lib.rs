//! Rate limits that hold across a fleet, as a library: the limiter of the Tollgate gateway.

pub mod algorithm;
pub mod clock;
pub mod decide;
pub mod layer;
pub mod limit;
pub mod node;
pub mod request;
pub mod store;
