//! HTTP/2 frame by frame: what a client may do, and what ends its stream or its connection, with
//! which code.

mod deadlines;
mod floods;
mod messages;
mod responses;
mod websocket;

use std::time::Duration;

/// Longer than a request takes, shorter than patience.
const SHORT: Duration = Duration::from_millis(100);

/// Error codes (RFC 9113 §7).
const NO_ERROR: u32 = 0;
const PROTOCOL_ERROR: u32 = 1;
const INTERNAL_ERROR: u32 = 2;
const FLOW_CONTROL_ERROR: u32 = 3;
const STREAM_CLOSED: u32 = 5;
const FRAME_SIZE_ERROR: u32 = 6;
const CANCEL: u32 = 8;
const ENHANCE_YOUR_CALM: u32 = 11;
