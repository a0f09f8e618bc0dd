//! Reads the largest header section that an upstream takes from its SETTINGS. The HTTP/2 library
//! does not report it.
//!
//! Guarantees that the connection's bytes pass unchanged, and that nothing after the first frame is
//! read.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use tollgate_wire::transport::Stream;

/// Bytes of a frame's header, and of a setting (RFC 9113 §4.1, §6.5.1).
const HEADER: usize = 9;
const SETTING: usize = 6;

const SETTINGS: u8 = 4;
const MAX_HEADER_LIST_SIZE: u16 = 6;

/// A connection whose first frame is read along.
pub struct SettingsReader {
    stream: Stream,
    /// `None`: the frame has ended.
    first: Option<FirstFrame>,
    announced: AnnouncedHeadSize,
}

/// The largest header section that an upstream has announced.
#[derive(Clone, Default)]
pub struct AnnouncedHeadSize(Arc<AtomicUsize>);

/// The part of a connection's first frame that has come.
#[derive(Default)]
struct FirstFrame {
    /// The frame's header, and then the setting that is being read.
    unit: [u8; HEADER],
    filled: usize,
    /// Bytes of the frame that are still to come. `None`: a part of its header is missing, too.
    payload: Option<usize>,
}

impl AnnouncedHeadSize {
    /// The size. `None`: the upstream has announced none, or 0, with which it would take no
    /// request.
    pub fn get(&self) -> Option<usize> {
        let size = self.0.load(Ordering::Relaxed);
        if size > 0 { Some(size) } else { None }
    }
}

impl SettingsReader {
    pub fn new(stream: Stream, announced: AnnouncedHeadSize) -> Self {
        Self {
            stream,
            first: Some(FirstFrame::default()),
            announced,
        }
    }
}

impl FirstFrame {
    /// Reads on. Returns whether the frame has ended.
    fn read(&mut self, bytes: &[u8], announced: &AnnouncedHeadSize) -> bool {
        for byte in bytes {
            if let Some(place) = self.unit.get_mut(self.filled) {
                *place = *byte;
            }
            self.filled += 1;
            match &mut self.payload {
                None if self.filled < HEADER => {}
                None => {
                    let [high, middle, low, kind, ..] = self.unit;
                    let length =
                        usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
                    if kind != SETTINGS || length == 0 {
                        return true;
                    }
                    self.payload = Some(length);
                    self.filled = 0;
                }
                Some(left) => {
                    *left -= 1;
                    if self.filled == SETTING {
                        let [id_high, id_low, a, b, c, d, ..] = self.unit;
                        if u16::from_be_bytes([id_high, id_low]) == MAX_HEADER_LIST_SIZE {
                            let size = usize::try_from(u32::from_be_bytes([a, b, c, d]))
                                .unwrap_or(usize::MAX);
                            announced.0.store(size, Ordering::Relaxed);
                        }
                        self.filled = 0;
                    }
                    if *left == 0 {
                        return true;
                    }
                }
            }
        }
        false
    }
}

impl AsyncRead for SettingsReader {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let Some(first) = &mut this.first else {
            return Pin::new(&mut this.stream).poll_read(cx, buffer);
        };
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buffer))?;
        if first.read(&buffer.filled()[before..], &this.announced) {
            this.first = None;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for SettingsReader {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, settings: &[(u16, u32)]) -> Vec<u8> {
        let payload: Vec<u8> = settings
            .iter()
            .flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat())
            .collect();
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, 0, 0, 0, 0, 0], &payload].concat()
    }

    #[test]
    fn the_size_is_read_from_the_first_frame_however_it_is_cut() {
        let later = frame(SETTINGS, &[(MAX_HEADER_LIST_SIZE, 7)]);
        for (first, size) in [
            (
                frame(
                    SETTINGS,
                    &[(3, 100), (MAX_HEADER_LIST_SIZE, 16_384), (4, 65_535)],
                ),
                Some(16_384),
            ),
            (
                frame(SETTINGS, &[(MAX_HEADER_LIST_SIZE, u32::MAX)]),
                Some(u32::MAX as usize),
            ),
            (frame(SETTINGS, &[(MAX_HEADER_LIST_SIZE, 0)]), None),
            (frame(SETTINGS, &[(3, 100)]), None),
            (frame(SETTINGS, &[]), None),
            (frame(6, &[(MAX_HEADER_LIST_SIZE, 1)]), None),
        ] {
            let bytes = [first, later.clone()].concat();
            for cut in 1..bytes.len() {
                let announced = AnnouncedHeadSize::default();
                let mut frame = FirstFrame::default();
                let mut ended = false;
                for piece in bytes.chunks(cut) {
                    ended = ended || frame.read(piece, &announced);
                }
                assert_eq!((ended, announced.get()), (true, size), "{cut}");
            }
        }
    }
}
