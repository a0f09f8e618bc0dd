//! `authenticators`: how clients say who they are.
//!
//! `definition` is the section. Each method has a file: `api_key`, `basic`, `forward` and `jwt`.
//! `key_file` and `user_file` read the files that keys and users are in, and `credential_field` has
//! the header fields that may have a credential.

pub mod api_key;
pub mod basic;
pub mod credential_field;
pub mod definition;
pub mod forward;
pub mod jwt;
pub mod key_file;
pub mod user_file;
