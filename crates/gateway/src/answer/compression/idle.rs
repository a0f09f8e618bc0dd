//! Compressors that wait for the next answer: to build one costs ten times what a short answer
//! does.
//!
//! Guarantees that the process keeps few of them.

use std::io;

use parking_lot::Mutex;
use tollgate_spec::route::compression::ContentCoding;

use super::encoder::Encoder;

/// Compressors of each coding: some 4 MiB of gzip.
const MOST: usize = 16;

/// The idle compressors of this process.
pub static IDLE: IdleEncoders = IdleEncoders {
    zstd: Mutex::new(Vec::new()),
    gzip: Mutex::new(Vec::new()),
};

pub struct IdleEncoders {
    zstd: Mutex<Vec<Encoder>>,
    gzip: Mutex<Vec<Encoder>>,
}

impl IdleEncoders {
    /// A compressor that waits, or a new one.
    pub fn take(&self, coding: ContentCoding) -> io::Result<Encoder> {
        let waiting = match coding {
            ContentCoding::Zstd => self.zstd.lock().pop(),
            ContentCoding::Gzip => self.gzip.lock().pop(),
            ContentCoding::Brotli => None,
        };
        waiting.map_or_else(|| Encoder::new(coding), Ok)
    }

    /// Keeps a compressor that can begin anew.
    pub fn keep(&self, encoder: Encoder) {
        let mut waiting = match encoder {
            Encoder::Zstd(_) => self.zstd.lock(),
            Encoder::Gzip(_) => self.gzip.lock(),
            Encoder::Brotli(_) => return,
        };
        if waiting.len() < MOST {
            waiting.push(encoder);
        }
    }
}
