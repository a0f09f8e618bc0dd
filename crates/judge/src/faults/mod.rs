//! The faults of a scenario: nodes that crash or change their limit, and connections to Redis that
//! are slow or broken.
//!
//! `fleet` holds the nodes of a run. `interruption` says when they cannot reach Redis, and what
//! that concedes. `proxy` stands between a node and Redis; `redis_url` puts it there. `cluster`
//! pauses a master.

pub mod cluster;
pub mod fleet;
pub mod interruption;
pub mod proxy;
pub mod redis_url;
