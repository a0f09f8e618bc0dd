//! The compressors, all used the same way: bytes are written, and what came out so far is taken.

use std::io::{self, Write};

use brotli::CompressorWriter;
use brotli::enc::BrotliEncoderParams;
use bytes::Bytes;
use flate2::Compression as GzipLevel;
use flate2::write::GzEncoder;
use zstd::stream::raw::CParameter;
use zstd::stream::write::Encoder as ZstdEncoder;

use tollgate_spec::route::compression::ContentCoding;

/// The windows are 64 KiB, and gzip's 32 KiB: with more, each answer under way would hold
/// megabytes.
const WINDOW_LOG: u8 = 16;
/// Levels that compress as fast as an upstream on the same network sends, as those of nginx and
/// Caddy do. The next one of br has a table of twice the size.
const GZIP_LEVEL: u32 = 5;
const BROTLI_QUALITY: i32 = 3;
const ZSTD_LEVEL: i32 = 3;
/// The tables of zstd, of 64 KiB and 32 KiB: enough for its window. Those of its level have three
/// quarters of a MiB.
const ZSTD_TABLES: [CParameter; 2] = [CParameter::HashLog(14), CParameter::ChainLog(13)];

/// A compressor and what it has put out. Boxed: they are of different sizes, and all are large.
pub enum Encoder {
    Zstd(Box<ZstdEncoder<'static, Vec<u8>>>),
    Brotli(Box<CompressorWriter<Vec<u8>>>),
    Gzip(Box<GzEncoder<Vec<u8>>>),
}

impl Encoder {
    pub fn new(coding: ContentCoding) -> io::Result<Self> {
        Ok(match coding {
            ContentCoding::Zstd => {
                let mut encoder = ZstdEncoder::new(Vec::new(), ZSTD_LEVEL)?;
                encoder.set_parameter(CParameter::WindowLog(WINDOW_LOG.into()))?;
                for table in ZSTD_TABLES {
                    encoder.set_parameter(table)?;
                }
                Self::Zstd(Box::new(encoder))
            }
            ContentCoding::Brotli => {
                let params = BrotliEncoderParams {
                    quality: BROTLI_QUALITY,
                    lgwin: WINDOW_LOG.into(),
                    ..Default::default()
                };
                Self::Brotli(Box::new(CompressorWriter::with_params(
                    Vec::new(),
                    4096,
                    &params,
                )))
            }
            ContentCoding::Gzip => Self::Gzip(Box::new(GzEncoder::new(
                Vec::new(),
                GzipLevel::new(GZIP_LEVEL),
            ))),
        })
    }

    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Zstd(encoder) => encoder.write_all(bytes),
            Self::Brotli(encoder) => encoder.write_all(bytes),
            Self::Gzip(encoder) => encoder.write_all(bytes),
        }
    }

    /// Puts out everything that was written, so that the client can read it.
    pub fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Zstd(encoder) => encoder.flush(),
            Self::Brotli(encoder) => encoder.flush(),
            Self::Gzip(encoder) => encoder.flush(),
        }
    }

    /// The number of bytes that can be taken.
    pub fn ready(&self) -> usize {
        match self {
            Self::Zstd(encoder) => encoder.get_ref().len(),
            Self::Brotli(encoder) => encoder.get_ref().len(),
            Self::Gzip(encoder) => encoder.get_ref().len(),
        }
    }

    /// Takes what has come out.
    pub fn take(&mut self) -> Bytes {
        let output = match self {
            Self::Zstd(encoder) => encoder.get_mut(),
            Self::Brotli(encoder) => encoder.get_mut(),
            Self::Gzip(encoder) => encoder.get_mut(),
        };
        std::mem::take(output).into()
    }

    /// Ends the content, and takes the rest.
    pub fn finish(self) -> io::Result<Bytes> {
        Ok(match self {
            Self::Zstd(encoder) => encoder.finish()?.into(),
            Self::Brotli(encoder) => encoder.into_inner().into(),
            Self::Gzip(encoder) => encoder.finish()?.into(),
        })
    }
}
