//! Restarts that lose no connection: listening sockets that this process did not open.
//!
//! `inherited` holds them, whoever opened them. `systemd` takes those of a socket unit and tells
//! the service manager how far this process is. `successor` takes those of a running gateway:
//! `predecessor` offers them, and its `attempts` are the processes that want them. Both sides speak
//! in `message`s. Guarantees that no listening socket is closed while connections wait in its
//! queue, unless nobody wants it.

pub mod attempts;
pub mod inherited;
mod message;
pub mod predecessor;
pub mod successor;
pub mod systemd;
pub mod take_over_right;
