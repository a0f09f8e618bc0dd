//! The mirror of the file: every key with its type, bounds and default, one file per section.
//!
//! Types that mirror a part of the file are called `Raw…`; `config` is the whole of it. Decoding
//! refuses unknown keys and whatever can be judged by one section alone. A name that must be
//! defined elsewhere is still a plain name here: `check` looks it up. `scalar` has the single
//! values that several sections share.

pub mod access_log;
pub mod balance;
pub mod config;
pub mod defaults;
pub mod discover;
pub mod header;
pub mod health;
pub mod identity;
pub mod limit;
pub mod listener;
pub mod listener_tls;
pub mod policies;
pub mod respond;
pub mod route;
pub mod scalar;
pub mod store;
pub mod upstream;
