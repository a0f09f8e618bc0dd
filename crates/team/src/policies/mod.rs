//! Brings policies from the database into the running configuration. The work is on the control
//! plane, so no request waits for it.
//!
//! `start` finds the state that a gateway begins with: that of the database, else the copy on disk.
//! `follower` keeps up with the database, and `news` wakes the reload, which puts each state over
//! the file. `copy` keeps what was applied last on disk. `local` leaves candidates out that this
//! node must not act on, and `candidate` is how one ends. `handle` is what these share with the
//! rest of the control plane, `service` what callers who change policies need, and `places` bounds
//! their work.

pub mod candidate;
pub mod copy;
pub mod follower;
pub mod handle;
pub mod local;
pub mod news;
pub mod places;
pub mod service;
pub mod start;
