//! Watches over the endpoints of upstreams, on the control plane: `monitor` says when one is probed, `probe` asks it, and
//! `report` shows what is known of each.

pub mod monitor;
mod probe;
pub mod report;
