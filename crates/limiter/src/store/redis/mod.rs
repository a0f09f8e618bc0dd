//! Buckets in Redis, shared by the fleet, in scripts that decide atomically and by Redis's clock.
//! The only room that names the client library.
//!
//! `connection/` opens connections and keeps them, `topology/` finds the server that has a key,
//! `script` has the Lua texts. On top of these: `redis_store` for requests (`slot_call` asks one
//! hash slot, `multi_slot` several, `take/` sends what many ask in one call; `adjust_call` has
//! corrections, `permits` claims of permits), `hash_reader` for plans, `inspect` for operators,
//! `heartbeat` for the size of the fleet. `any_reply/` makes replies of any form, for tests.

mod adjust_call;
mod any_reply;
mod connection;
mod fleet_nodes;
mod hash_reader;
pub mod heartbeat;
pub mod inspect;
mod multi_slot;
mod permit_key;
mod permits;
mod redis_store;
mod script;
mod slot_call;
mod take;
mod topology;

#[doc(hidden)]
pub use crate::store::redis::any_reply::AnyReply;
pub use crate::store::redis::connection::connector::ConnectError;
pub use crate::store::redis::connection::{address, spec, tls};
pub use crate::store::redis::redis_store::RedisStore;
#[doc(hidden)]
pub use crate::store::redis::script::ShippedScript;
