//! The compressors, all used the same way: bytes are written, and what came out so far is taken.

use std::io::{self, Write};

use brotli::CompressorWriter;
use brotli::enc::BrotliEncoderParams;
use bytes::Bytes;
use flate2::{Compress, Compression as GzipLevel, FlushCompress, Status};
use zstd::stream::raw::{CParameter, Encoder as ZstdEncoder, Operation as _};
use zstd::stream::zio::Writer;

use tollgate_spec::route::compression::ContentCoding;

/// The windows are 64 KiB, and gzip's 32 KiB: with more, each answer under way would hold
/// megabytes.
const WINDOW_LOG: u8 = 16;
const GZIP_WINDOW_LOG: u8 = 15;
/// Levels that compress as fast as an upstream on the same network sends, as those of nginx and
/// Caddy do. The next one of br has a table of twice the size.
const GZIP_LEVEL: u32 = 5;
const BROTLI_QUALITY: i32 = 3;
const ZSTD_LEVEL: i32 = 3;
/// The tables of zstd, of 64 KiB and 32 KiB: enough for its window. Those of its level have three
/// quarters of a MiB.
const ZSTD_TABLES: [CParameter; 2] = [CParameter::HashLog(14), CParameter::ChainLog(13)];

/// Bytes that gzip may put out before its output is enlarged.
const GZIP_PIECE: usize = 1024;

/// A compressor and what it has put out. Boxed: they are of different sizes, and all are large.
pub enum Encoder {
    Zstd(Box<Writer<Vec<u8>, ZstdEncoder<'static>>>),
    Brotli(Box<CompressorWriter<Vec<u8>>>),
    Gzip(Box<GzipEncoder>),
}

/// Like the writer of its library, but for an end after which it can begin anew.
pub struct GzipEncoder {
    compress: Compress,
    output: Vec<u8>,
}

impl Encoder {
    pub fn new(coding: ContentCoding) -> io::Result<Self> {
        Ok(match coding {
            ContentCoding::Zstd => {
                let mut encoder = ZstdEncoder::new(ZSTD_LEVEL)?;
                encoder.set_parameter(CParameter::WindowLog(WINDOW_LOG.into()))?;
                for table in ZSTD_TABLES {
                    encoder.set_parameter(table)?;
                }
                Self::Zstd(Box::new(Writer::new(Vec::new(), encoder)))
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
            ContentCoding::Gzip => Self::Gzip(Box::new(GzipEncoder {
                compress: Compress::new_gzip(GzipLevel::new(GZIP_LEVEL), GZIP_WINDOW_LOG),
                output: Vec::new(),
            })),
        })
    }

    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Zstd(encoder) => encoder.write_all(bytes),
            Self::Brotli(encoder) => encoder.write_all(bytes),
            Self::Gzip(encoder) => encoder.run(bytes, FlushCompress::None),
        }
    }

    /// Puts out everything that was written, so that the client can read it.
    pub fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Zstd(encoder) => encoder.flush(),
            Self::Brotli(encoder) => encoder.flush(),
            Self::Gzip(encoder) => encoder.run(&[], FlushCompress::Sync),
        }
    }

    /// The number of bytes that can be taken.
    pub fn ready(&self) -> usize {
        match self {
            Self::Zstd(encoder) => encoder.writer().len(),
            Self::Brotli(encoder) => encoder.get_ref().len(),
            Self::Gzip(encoder) => encoder.output.len(),
        }
    }

    /// Takes what has come out.
    pub fn take(&mut self) -> Bytes {
        let output = match self {
            Self::Zstd(encoder) => encoder.writer_mut(),
            Self::Brotli(encoder) => encoder.get_mut(),
            Self::Gzip(encoder) => &mut encoder.output,
        };
        std::mem::take(output).into()
    }

    /// Ends the content, and takes the rest. With the compressor, where it can begin anew.
    pub fn finish(self) -> io::Result<(Bytes, Option<Self>)> {
        Ok(match self {
            Self::Zstd(mut encoder) => {
                encoder.finish()?;
                let (rest, mut operation) = encoder.into_inner();
                operation.reinit()?;
                let anew = Writer::new(Vec::new(), operation);
                (rest.into(), Some(Self::Zstd(Box::new(anew))))
            }
            Self::Brotli(encoder) => (encoder.into_inner().into(), None),
            Self::Gzip(mut encoder) => {
                encoder.run(&[], FlushCompress::Finish)?;
                encoder.compress.reset();
                let rest = std::mem::take(&mut encoder.output);
                (rest.into(), Some(Self::Gzip(encoder)))
            }
        })
    }
}

impl GzipEncoder {
    fn run(&mut self, mut bytes: &[u8], flush: FlushCompress) -> io::Result<()> {
        loop {
            self.output.reserve(GZIP_PIECE);
            let before = self.compress.total_in();
            let status = self.compress.compress_vec(bytes, &mut self.output, flush)?;
            let read = usize::try_from(self.compress.total_in() - before).unwrap_or(usize::MAX);
            bytes = bytes.get(read..).unwrap_or_default();
            // Room that was left says that all of it is out.
            let is_all_out = bytes.is_empty() && self.output.len() < self.output.capacity();
            if is_all_out || status == Status::StreamEnd {
                return Ok(());
            }
        }
    }
}
