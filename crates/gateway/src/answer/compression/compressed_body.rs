//! A body that is compressed as it streams.
//!
//! Guarantees that a client is never kept waiting for what has come already: when the body pauses,
//! everything that was compressed goes out.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as _, Frame};
use metrics::Counter;

use super::encoder::Encoder;
use super::idle::IDLE;
use super::place::CompressorPlace;
use tollgate_spec::route::compression::ContentCoding;
use tollgate_wire::body::{Body, BoxError};
use tollgate_wire::http::response_rules::DIGESTS;

/// Bytes that are collected before they go out, while more comes at once.
const PIECE: usize = 16 * 1024;

/// Bytes that are compressed before others on this worker have their turn: some 100 µs.
const TURN: usize = 64 * 1024;

/// How many bytes of content went in and came out.
#[derive(Clone)]
pub struct CompressedSizes {
    pub original: Counter,
    pub compressed: Counter,
}

/// A body that is compressed as it streams.
pub struct CompressedBody {
    body: Body,
    state: CodingState,
    sizes: CompressedSizes,
    /// The place of the compressor. `None`: the body needs none.
    place: Option<CompressorPlace>,
}

enum CodingState {
    /// No content has come yet.
    New(ContentCoding),
    Coding {
        encoder: Encoder,
        /// Something was written that the client could not read yet.
        unflushed: bool,
    },
    /// The content has ended. What may be left are trailers.
    Ended(Option<HeaderMap>),
}

type BodyFrame = Option<Result<Frame<Bytes>, BoxError>>;

impl CompressedBody {
    pub fn new(
        body: Body,
        coding: ContentCoding,
        place: Option<CompressorPlace>,
        sizes: CompressedSizes,
    ) -> Self {
        Self {
            body,
            state: CodingState::New(coding),
            sizes,
            place,
        }
    }

    /// Compresses some content. Returns what comes out, once it is enough.
    fn write(&mut self, data: &Bytes) -> Result<Option<Bytes>, BoxError> {
        self.sizes.original.increment(data.len() as u64);
        if let CodingState::New(coding) = self.state {
            self.state = CodingState::Coding {
                encoder: IDLE.take(coding)?,
                unflushed: false,
            };
        }
        let CodingState::Coding { encoder, unflushed } = &mut self.state else {
            return Ok(None);
        };
        encoder.write(data)?;
        *unflushed = true;
        if encoder.ready() < PIECE {
            return Ok(None);
        }
        Ok(Some(encoder.take()))
    }

    /// Puts out everything that was written, when nothing more is there for now.
    fn flush(&mut self) -> Result<Option<Bytes>, BoxError> {
        let CodingState::Coding { encoder, unflushed } = &mut self.state else {
            return Ok(None);
        };
        if !std::mem::take(unflushed) {
            return Ok(None);
        }
        encoder.flush()?;
        Ok(non_empty(encoder.take()))
    }

    /// Ends the content, before these trailers. Returns the last of it.
    fn end(&mut self, trailers: Option<HeaderMap>) -> Result<Option<Bytes>, BoxError> {
        let encoder = match std::mem::replace(&mut self.state, CodingState::Ended(trailers)) {
            CodingState::Coding { encoder, .. } => encoder,
            // No content is compressed to the mark of its end.
            CodingState::New(coding) => IDLE.take(coding)?,
            CodingState::Ended(_) => return Ok(None),
        };
        self.place = None;
        let (rest, encoder) = encoder.finish()?;
        if let Some(encoder) = encoder {
            IDLE.keep(encoder);
        }
        Ok(non_empty(rest))
    }

    fn poll_compressed(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Frame<Bytes>>, BoxError>> {
        let mut compressed = 0;
        loop {
            if let CodingState::Ended(trailers) = &mut self.state {
                return Poll::Ready(Ok(trailers.take().map(Frame::trailers)));
            }
            let output = match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Pending => match self.flush()? {
                    None => return Poll::Pending,
                    output => output,
                },
                Poll::Ready(None) => self.end(None)?,
                Poll::Ready(Some(frame)) => match frame?.into_data() {
                    Ok(data) => {
                        compressed += data.len();
                        self.write(&data)?
                    }
                    Err(frame) => self.end(frame.into_trailers().ok().map(without_digests))?,
                },
            };
            if let Some(output) = output {
                self.sizes.compressed.increment(output.len() as u64);
                return Poll::Ready(Ok(Some(Frame::data(output))));
            }
            if compressed >= TURN {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }
}

/// The trailers without the digests of the content that was compressed.
fn without_digests(mut trailers: HeaderMap) -> HeaderMap {
    for digest in DIGESTS {
        trailers.remove(digest);
    }
    trailers
}

fn non_empty(output: Bytes) -> Option<Bytes> {
    if output.is_empty() {
        None
    } else {
        Some(output)
    }
}

impl http_body::Body for CompressedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<BodyFrame> {
        self.get_mut().poll_compressed(cx).map(Result::transpose)
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.state, CodingState::Ended(None))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::io::Read as _;

    use flate2::read::GzDecoder;
    use http::HeaderValue;
    use http_body_util::{BodyExt as _, StreamBody};

    use super::*;

    fn sizes() -> CompressedSizes {
        CompressedSizes {
            original: Counter::noop(),
            compressed: Counter::noop(),
        }
    }

    fn gzip(frames: impl IntoIterator<Item = Result<Frame<Bytes>, BoxError>>) -> CompressedBody {
        let frames: VecDeque<_> = frames.into_iter().collect();
        let body = Body::boxed(StreamBody::new(futures_util::stream::iter(frames)));
        CompressedBody::new(body, ContentCoding::Gzip, None, sizes())
    }

    #[tokio::test]
    async fn trailers_follow_the_end_of_the_content() {
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", HeaderValue::from_static("7"));
        let mut sent = trailers.clone();
        // A digest of the content before it was compressed.
        sent.insert("content-digest", HeaderValue::from_static("sha-256=:AA==:"));
        let data = Bytes::from("text ".repeat(100_000));
        let collected = gzip([Ok(Frame::data(data.clone())), Ok(Frame::trailers(sent))])
            .collect()
            .await
            .unwrap();
        assert_eq!(collected.trailers(), Some(&trailers));
        let mut decoded = Vec::new();
        GzDecoder::new(&*collected.to_bytes())
            .read_to_end(&mut decoded)
            .unwrap();
        assert_eq!(decoded, data);
    }

    #[tokio::test]
    async fn nothing_of_one_answer_is_in_the_next() {
        for coding in [
            ContentCoding::Gzip,
            ContentCoding::Zstd,
            ContentCoding::Brotli,
        ] {
            let compressed = async |text: &'static str| {
                let frames = futures_util::stream::iter([Ok(Frame::data(Bytes::from(text)))]);
                let body = Body::boxed(StreamBody::new(frames));
                let body = CompressedBody::new(body, coding, None, sizes());
                body.collect().await.unwrap().to_bytes()
            };
            let first = compressed("a text that is told to one").await;
            assert_ne!(compressed("a text that is told to two").await, first);
            assert_eq!(compressed("a text that is told to one").await, first);
        }
    }

    #[tokio::test]
    async fn no_content_is_compressed_to_none() {
        let compressed = gzip([]).collect().await.unwrap().to_bytes();
        let mut decoded = Vec::new();
        GzDecoder::new(&*compressed)
            .read_to_end(&mut decoded)
            .unwrap();
        assert!(decoded.is_empty() && !compressed.is_empty());
    }

    #[tokio::test]
    async fn content_that_breaks_off_never_looks_whole() {
        let mut body = gzip([
            Ok(Frame::data(Bytes::from("half a text"))),
            Err("gone".into()),
        ]);
        let mut compressed = Vec::new();
        let failure = loop {
            match body.frame().await.unwrap() {
                Ok(frame) => compressed.extend(frame.into_data().unwrap()),
                Err(failure) => break failure,
            }
        };
        assert_eq!(failure.to_string(), "gone");
        assert!(
            GzDecoder::new(&*compressed)
                .read_to_end(&mut Vec::new())
                .is_err()
        );
    }
}
