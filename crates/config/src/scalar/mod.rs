//! Single values that several sections of the file have: numbers, addresses, paths, names, times,
//! and what HTTP constrains.
//!
//! Each type says how it is written, its bounds and the message for anything else. A value that one
//! section alone has is in that section's file.

pub mod address;
pub mod http;
pub mod media_type;
pub mod number;
pub mod path;
pub mod pem;
pub mod text;
pub mod time;
