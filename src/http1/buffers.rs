//! Buffers for what is read and written, kept by each thread for whoever needs one next.
//!
//! A connection has a buffer while a message is under way and none while it is idle; so few of them serve many
//! connections, and they stay warm. Guarantees that no buffer is used anew while anybody holds a piece of it.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Bytes of a buffer for header sections and small bodies.
pub const USUAL: usize = 8 * 1024;
/// Bytes of a buffer for large bodies: what the kernel sends as one packet and leaves to the network card to cut, 64 KiB with
/// headers, in whole segments of an Ethernet (45 of 1448). What is read of one such packet then goes out as another. By
/// measurement: with 376 bytes more, each read leaves a remainder that becomes a packet of its own, and an upload costs
/// nearly twice as much.
pub const LARGE: usize = 45 * 1448;

/// What one thread keeps, of each size.
const KEPT_USUAL: usize = 64;
const KEPT_LARGE: usize = 8;

#[derive(Default)]
struct Kept {
    usual: Vec<BytesMut>,
    large: Vec<BytesMut>,
}

thread_local! {
    static KEPT: RefCell<Kept> = RefCell::default();
}

/// An empty buffer with room for `size` bytes or more.
pub fn take(size: usize) -> BytesMut {
    let (capacity, kept) = KEPT.with_borrow_mut(|kept| {
        if size <= USUAL { (USUAL, kept.usual.pop()) } else { (size.max(LARGE), kept.large.pop()) }
    });
    kept.filter(|buffer| buffer.capacity() >= size).unwrap_or_else(|| BytesMut::with_capacity(capacity))
}

/// Leaves a buffer to others, if nobody holds a piece of it any more. What it contains is forgotten.
pub fn give(mut buffer: BytesMut) {
    buffer.clear();
    if !buffer.try_reclaim(if buffer.capacity() > USUAL { LARGE } else { USUAL }) {
        return;
    }
    KEPT.with_borrow_mut(|kept| {
        if buffer.capacity() < LARGE {
            if kept.usual.len() < KEPT_USUAL {
                kept.usual.push(buffer);
            }
        } else if kept.large.len() < KEPT_LARGE {
            kept.large.push(buffer);
        }
    });
}

/// Makes room for another read of about `wanted` bytes. Half of that will do, rather than to move what is there already.
pub fn make_room(buffer: &mut BytesMut, wanted: usize) {
    let least = if wanted > USUAL { wanted.min(LARGE) / 2 } else { wanted.min(USUAL / 8) };
    if buffer.capacity() - buffer.len() >= least || buffer.try_reclaim(least) {
        return;
    }
    let mut larger = take(buffer.len() + wanted.min(LARGE));
    larger.extend_from_slice(buffer);
    give(std::mem::replace(buffer, larger));
}

/// Reads once, behind what `buffer` holds, about `wanted` bytes. How many came; 0: the peer sends no more.
pub fn poll_fill(
    io: &mut (impl AsyncRead + Unpin),
    cx: &mut Context<'_>,
    buffer: &mut BytesMut,
    wanted: usize,
) -> Poll<io::Result<usize>> {
    make_room(buffer, wanted);
    // Nothing of the future outlives one look: it is only the way to read without touching memory that is not ours yet.
    pin!(io.read_buf(buffer)).poll(cx)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_when_nobody_holds_a_piece() {
        let mut buffer = take(10);
        buffer.extend_from_slice(b"abc");
        let place = buffer.as_ptr();
        let piece = buffer.split_to(2).freeze();
        give(buffer);
        assert_eq!(take(10).capacity(), USUAL);
        assert_eq!(&*piece, b"ab");

        let mut buffer = take(10);
        buffer.extend_from_slice(b"abc");
        let again = buffer.as_ptr();
        drop(buffer.split_to(2).freeze());
        give(buffer);
        assert_ne!(place, again);
        assert_eq!(take(10).as_ptr(), again);
    }

    #[test]
    fn room_is_made_without_losing_anything() {
        let mut buffer = take(1);
        buffer.resize(USUAL - 1, b'x');
        make_room(&mut buffer, LARGE);
        assert!(buffer.capacity() - buffer.len() >= LARGE / 2);
        assert_eq!(buffer.len(), USUAL - 1);
        assert!(buffer.iter().all(|byte| *byte == b'x'));
    }
}
