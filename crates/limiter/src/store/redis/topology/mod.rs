//! The servers of a store, and which of them has a key: one server (`server`), a primary behind
//! sentinels (`sentinel`), or a cluster (`cluster`). `any_topology` has the type that stands for
//! each of them, `marker` the keys beside buckets that a server remembers corrections in, and
//! `evictions` counts what servers evict.

pub(crate) mod any_topology;
pub(crate) mod cluster;
pub(crate) mod evictions;
pub(crate) mod marker;
pub(crate) mod sentinel;
pub(crate) mod server;
mod server_time;
