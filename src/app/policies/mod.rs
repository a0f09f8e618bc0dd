//! The policies of a database, from there to the configuration at work. On the control plane alone:
//! no request waits for them.
//!
//! `start` finds what a gateway begins with: what stands in the database, else the copy on disk.
//! `follower` keeps up with the database, and hands each state to the reload, which lays it over
//! the file. `copy` keeps what was applied last on disk. `local` leaves candidates out that this
//! node must not act on. `handle` is what they share with the rest of the control plane.

pub mod copy;
pub mod follower;
pub mod handle;
pub mod local;
pub mod start;
