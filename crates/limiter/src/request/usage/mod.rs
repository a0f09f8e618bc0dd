//! What a response says of its request's cost, read as it passes: a header field, JSON, or the events of a stream.

mod event_stream;
pub(crate) mod json;
pub(crate) mod reader;
