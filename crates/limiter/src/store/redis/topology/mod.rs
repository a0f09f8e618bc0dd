//! Which server has a key: one server, a primary behind sentinels, or a cluster.

pub(crate) mod cluster;
pub(crate) mod connection_log;
pub(crate) mod link;
pub(crate) mod multi_slot;
pub(crate) mod sentinel;
