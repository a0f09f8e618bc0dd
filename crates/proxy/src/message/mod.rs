//! How a message's header section changes on its way through the gateway: `headers` removes what is
//! meant for one connection only, `additions` adds where a request comes from and which way it
//! took, `target` rewrites the request target, `max_forwards` counts hops, and `forwarded` decides
//! whose claims about a client's address are believed.

pub mod additions;
pub mod forwarded;
pub mod headers;
pub mod max_forwards;
#[cfg(test)]
mod samples;
pub mod target;
