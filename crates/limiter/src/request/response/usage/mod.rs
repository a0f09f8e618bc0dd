//! The cost of a request as its response tells it, read as it passes: a header field, JSON, or the
//! events of a stream.

mod event_stream;
pub(crate) mod json;
pub(crate) mod reader;
mod terms;
