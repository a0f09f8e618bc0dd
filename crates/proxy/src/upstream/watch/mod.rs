//! Watches over the endpoints of upstreams, on the control plane: `discover` finds them, `monitor`
//! says when one is probed, `probe` asks it, and `report` shows what is known of each.

mod bounded_connection;
pub mod discover;
pub mod monitor;
mod probe;
pub mod report;
