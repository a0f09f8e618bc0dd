//! The sections of the file, each with all that is to know of it: its keys with their types, bounds
//! and defaults, the rules that they obey, and the types of the domain that they become.
//!
//! Types that mirror a part of the file are called `Raw…`. Decoding refuses unknown keys and
//! whatever one section alone can judge. `root` is the whole file: it builds the sections in the
//! order in which they refer to one another. `common` has what several sections share.
//!
//! Everything is visited even after a mistake. A part that cannot be built is `None`, with its
//! mistake in the report, and nothing is said of what only follows from it.

pub mod access_log;
pub mod admin;
pub mod authenticator;
pub mod body_keys;
pub mod common;
pub mod defaults;
pub mod error_pages;
pub mod limit;
pub mod listener;
pub mod policies;
pub mod root;
pub mod route;
pub mod store;
pub mod trusted_proxies;
pub mod upstream;
