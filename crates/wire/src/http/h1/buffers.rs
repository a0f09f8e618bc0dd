//! Buffers for reading and writing, kept by each thread for its next message.
//!
//! A connection has a buffer while a message is under way and none while it is idle. Few buffers
//! serve many connections, and they stay in the CPU's cache. Guarantees that no buffer is reused
//! while a piece of it is still held.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll};

use bytes::{BufMut, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Bytes of a buffer for header sections and small bodies.
pub const SMALL: usize = 8 * 1024;
/// Bytes of a buffer for large bodies. The kernel sends up to 64 KiB, headers included, as one
/// packet that the network card cuts into segments; this is the largest number of whole Ethernet
/// segments (45 of 1448 bytes). The content of one such packet then goes out as one packet. By
/// measurement: with 376 bytes more, each read leaves a remainder that becomes a packet of its own,
/// and an upload costs nearly twice as much.
pub const LARGE: usize = 45 * 1448;
/// Bytes of a message that is read at once, though it is longer than [`LARGE`]: bodies of 64 KiB
/// are common, and with their head they come by one read and leave by one write. By measurement: a
/// tail of its own costs two system calls more.
pub const WHOLE: usize = 66 * 1024;

/// Buffers that one thread keeps, of each size.
const KEPT_SMALL: usize = 64;
const KEPT_LARGE: usize = 8;

#[derive(Default)]
struct KeptBuffers {
    small: Vec<BytesMut>,
    large: Vec<BytesMut>,
}

thread_local! {
    static KEPT: RefCell<KeptBuffers> = RefCell::default();
}

/// An empty buffer with room for `size` bytes or more.
pub fn take(size: usize) -> BytesMut {
    let (capacity, kept) = KEPT.with_borrow_mut(|kept| {
        if size <= SMALL {
            (SMALL, kept.small.pop())
        } else {
            (size.max(WHOLE), kept.large.pop())
        }
    });
    kept.filter(|buffer| buffer.capacity() >= size)
        .unwrap_or_else(|| BytesMut::with_capacity(capacity))
}

/// Gives a buffer back to the pool, unless a piece of it is still held. Its content is dropped.
pub fn give_back(mut buffer: BytesMut) {
    buffer.clear();
    if !buffer.try_reclaim(if buffer.capacity() > SMALL {
        WHOLE
    } else {
        SMALL
    }) {
        return;
    }
    KEPT.with_borrow_mut(|kept| {
        if buffer.capacity() < WHOLE {
            if kept.small.len() < KEPT_SMALL {
                kept.small.push(buffer);
            }
        } else if kept.large.len() < KEPT_LARGE {
            kept.large.push(buffer);
        }
    });
}

/// Makes room for a read of about `wanted` bytes. Half of `wanted` is enough, to avoid moving the
/// bytes that are there.
pub fn make_room(buffer: &mut BytesMut, wanted: usize) {
    let least = if wanted > SMALL {
        wanted.min(LARGE) / 2
    } else {
        wanted.min(SMALL / 8)
    };
    if buffer.capacity() - buffer.len() >= least || buffer.try_reclaim(least) {
        return;
    }
    if buffer.capacity() == 0 {
        *buffer = take(wanted.min(WHOLE));
        return;
    }
    let mut larger = take(buffer.len() + wanted.min(WHOLE));
    larger.extend_from_slice(buffer);
    give_back(std::mem::replace(buffer, larger));
}

/// Reads once, up to about `wanted` bytes, and appends the bytes to `buffer`. Returns their number;
/// 0: the peer sends no more.
pub fn poll_fill(
    io: &mut (impl AsyncRead + Unpin),
    cx: &mut Context<'_>,
    buffer: &mut BytesMut,
    wanted: usize,
) -> Poll<io::Result<usize>> {
    make_room(buffer, wanted);
    // The futures are polled once and dropped: `read_buf` is the safe way to read into memory that
    // is not initialised.
    if wanted > SMALL {
        return pin!(io.read_buf(&mut buffer.limit(wanted))).poll(cx);
    }
    pin!(io.read_buf(buffer)).poll(cx)
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[test]
    fn a_buffer_comes_back_once_no_piece_of_it_is_held() {
        let mut buffer = take(10);
        buffer.extend_from_slice(b"abc");
        let place = buffer.as_ptr();
        let piece = buffer.split_to(2).freeze();
        give_back(buffer);
        assert_eq!(take(10).capacity(), SMALL);
        assert_eq!(&*piece, b"ab");

        let mut buffer = take(10);
        buffer.extend_from_slice(b"abc");
        let again = buffer.as_ptr();
        drop(buffer.split_to(2).freeze());
        give_back(buffer);
        assert_ne!(place, again);
        assert_eq!(take(10).as_ptr(), again);
    }

    #[tokio::test]
    async fn a_body_of_64_kib_comes_with_its_head_by_one_read_and_no_piece_of_a_longer_one_is_larger_than_a_packet()
     {
        let message = vec![b'x'; 3 * WHOLE];
        let mut buffer = BytesMut::new();
        let mut input = &*message;
        for (wanted, read) in [(WHOLE, WHOLE), (LARGE, LARGE), (SMALL, SMALL)] {
            give_back(std::mem::take(&mut buffer));
            assert_eq!(
                poll_fn(|cx| poll_fill(&mut input, cx, &mut buffer, wanted))
                    .await
                    .unwrap(),
                read
            );
        }
    }

    #[test]
    fn room_is_made_without_losing_anything() {
        let mut buffer = take(1);
        buffer.resize(SMALL - 1, b'x');
        make_room(&mut buffer, LARGE);
        assert!(buffer.capacity() - buffer.len() >= LARGE / 2);
        assert_eq!(buffer.len(), SMALL - 1);
        assert!(buffer.iter().all(|byte| *byte == b'x'));
    }
}
