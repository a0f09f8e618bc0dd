//! Message rules for every version of HTTP: what may stand in a header section, whom a request is for, which responses
//! have content, which trailer fields pass. The codec of HTTP/1.1 is in `h1`; both sides of the gateway use it.

pub mod authority;
pub mod content;
pub mod h1;
pub mod syntax;
pub mod trailers;
