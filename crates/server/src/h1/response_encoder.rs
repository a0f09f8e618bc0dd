//! Encodes a response: its head, framed as its body needs it, and its content as it comes (RFC 9110
//! §6.4, RFC 9112 §6).
//!
//! Guarantees that a response has one framing, whatever its handler wrote, that all content that
//! came is written, and that an incomplete response never looks complete.

#[cfg(test)]
mod tests;

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING};
use http::{HeaderMap, Response, StatusCode};
use http_body::{Body as _, Frame};

use super::connection_options::ConnectionOptions;
use crate::date;
use tollgate_limiter::clock::Instant;
use tollgate_wire::body::{Body, BoxError};
use tollgate_wire::header_map_pool;
use tollgate_wire::http::h1::ReasonPhrase;
use tollgate_wire::http::h1::encode::{self, LAST_CHUNK};
use tollgate_wire::http::h1::write_buffer::WriteBuffer;
use tollgate_wire::http::interim::InterimResponse;
use tollgate_wire::http::trailers::AnnouncedTrailers;
use tollgate_wire::http::{response_rules, syntax};

/// A response whose head has been written and whose content is being written.
pub struct ResponseEncoder {
    /// The body. `None`: all of it has been written.
    body: Option<Body>,
    /// The time at which the response was begun. `None`: the response has waited since.
    pub now: Option<Instant>,
    framing: ResponseFraming,
    trailers: AnnouncedTrailers,
    /// The connection closes after the response.
    pub closes: bool,
    /// The connection leaves HTTP.
    pub switches: bool,
    /// The content broke off.
    pub broken: Option<BreakVisibility>,
}

/// The sign by which a client sees that a response broke off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakVisibility {
    /// A close that comes too early (RFC 9112 §8).
    Close,
    /// A reset: a close would mark the end of the content.
    Reset,
}

/// The framing of a response's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResponseFraming {
    /// No content, because of the method or the status.
    Nothing,
    /// This many bytes are left.
    Length(u64),
    Chunked,
    /// The content ends with the connection.
    Close,
}

/// The reason why a response broke off.
#[derive(Debug, thiserror::Error)]
enum BrokenResponse {
    #[error("the response's content is not as long as its body said")]
    Length,
    #[error("the response switches protocols, which its request does not ask for")]
    Status,
}

/// The fields that the handler has set itself.
#[derive(Default)]
struct WrittenFields {
    date: bool,
    length: bool,
    /// An Upgrade that `Connection` must name beside `close` (RFC 9110 §7.8).
    upgrade: bool,
}

impl ResponseEncoder {
    /// Writes the head of `response` to a request with these `options`. `closes`: the connection
    /// cannot go on.
    pub fn begin(
        output: &mut WriteBuffer,
        response: Response<Body>,
        options: &ConnectionOptions,
        closes: bool,
        now: Instant,
    ) -> Result<Self, BoxError> {
        let (head, body) = response.into_parts();
        let switches = head.status == StatusCode::SWITCHING_PROTOCOLS && options.upgrade;
        if head.status.is_informational() && !switches {
            return Err(BrokenResponse::Status.into());
        }
        let framing = ResponseFraming::new(options, head.status, &body);
        let mut encoder = Self {
            closes: closes || !options.keeps_alive || framing == ResponseFraming::Close,
            trailers: AnnouncedTrailers::default(),
            body: None,
            now: Some(now),
            framing,
            switches,
            broken: None,
        };
        if framing == ResponseFraming::Chunked && options.takes_trailers {
            encoder.trailers = AnnouncedTrailers::from_headers(&head.headers);
        }
        output.push(|out| {
            status_line(out, options, head.status, head.extensions.get());
            let written = encoder.fields(
                out,
                &head.headers,
                response_rules::keeps_length(options.is_head, head.status),
            );
            encoder.framing_field(out, options, &written, &body);
            encoder.connection_field(out, options, &written);
            if !written.date {
                out.extend_from_slice(b"date: ");
                out.extend_from_slice(&date::at(now));
                out.extend_from_slice(b"\r\n");
            }
            out.extend_from_slice(b"\r\n");
        });
        header_map_pool::give_back(head.headers);
        if matches!(
            framing,
            ResponseFraming::Nothing | ResponseFraming::Length(0)
        ) {
            body.drop_at(encoder.now);
        } else {
            encoder.body = Some(body);
        }
        Ok(encoder)
    }

    /// Writes the handler's fields, except those for the framing of the message.
    fn fields(
        &mut self,
        out: &mut BytesMut,
        headers: &HeaderMap,
        keeps_length: bool,
    ) -> WrittenFields {
        let mut written = WrittenFields::default();
        for (name, value) in headers {
            let name_text = name.as_str();
            match name_text.len() {
                4 if name == DATE => written.date = true,
                10 if name == CONNECTION => {
                    self.closes |= syntax::list_has(value.as_bytes(), b"close");
                    if self.closes && !self.switches {
                        written.upgrade |= syntax::list_has(value.as_bytes(), b"upgrade");
                        continue;
                    }
                }
                14 if name == CONTENT_LENGTH => {
                    if !keeps_length {
                        continue;
                    }
                    written.length = true;
                }
                17 if name == TRANSFER_ENCODING => continue,
                _ => {}
            }
            encode::field(out, name_text, value.as_bytes());
        }
        written
    }

    fn framing_field(
        &self,
        out: &mut BytesMut,
        options: &ConnectionOptions,
        written: &WrittenFields,
        body: &Body,
    ) {
        let length = match self.framing {
            ResponseFraming::Length(length) => length,
            ResponseFraming::Chunked => {
                return out.extend_from_slice(b"transfer-encoding: chunked\r\n");
            }
            ResponseFraming::Close => return,
            // The length that the response to a GET would have, if it is known.
            ResponseFraming::Nothing => match body.size_hint().exact() {
                Some(length @ 1..) if options.is_head && !written.length => length,
                _ => return,
            },
        };
        out.extend_from_slice(b"content-length: ");
        out.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
        out.extend_from_slice(b"\r\n");
    }

    fn connection_field(
        &self,
        out: &mut BytesMut,
        options: &ConnectionOptions,
        written: &WrittenFields,
    ) {
        if self.switches {
            return;
        }
        if self.closes && written.upgrade {
            out.extend_from_slice(b"connection: close, upgrade\r\n");
        } else if self.closes {
            out.extend_from_slice(b"connection: close\r\n");
        } else if !options.http_11 {
            out.extend_from_slice(b"connection: keep-alive\r\n");
        }
    }

    /// Writes the content that has come to `output`. True: no more will come. False: `output`
    /// should be flushed first.
    pub fn poll_content(&mut self, output: &mut WriteBuffer, cx: &mut Context<'_>) -> Poll<bool> {
        match ready!(self.poll_pieces(output, cx)) {
            Ok(is_complete) => Poll::Ready(is_complete),
            Err(error) => {
                tracing::debug!(error, "a response broke off");
                self.broken = Some(if self.framing == ResponseFraming::Close {
                    BreakVisibility::Reset
                } else {
                    BreakVisibility::Close
                });
                self.body = None;
                Poll::Ready(true)
            }
        }
    }

    fn poll_pieces(
        &mut self,
        output: &mut WriteBuffer,
        cx: &mut Context<'_>,
    ) -> Poll<Result<bool, BoxError>> {
        while let Some(body) = &mut self.body {
            if output.is_enough() {
                return Poll::Ready(Ok(false));
            }
            let frame = ready!(Pin::new(&mut *body).poll_frame(cx)).transpose()?;
            let is_last = body.is_end_stream();
            let goes_on = match frame {
                Some(frame) => self.frame(output, frame)?,
                None => false,
            };
            if !goes_on || is_last {
                self.end(output)?;
            }
        }
        Poll::Ready(Ok(true))
    }

    /// Writes one frame. Returns whether more may follow.
    fn frame(
        &mut self,
        output: &mut WriteBuffer,
        frame: Frame<Bytes>,
    ) -> Result<bool, BrokenResponse> {
        let piece = match frame.into_data() {
            Ok(piece) => piece,
            Err(frame) => {
                if let (ResponseFraming::Chunked, Ok(trailers)) =
                    (self.framing, frame.into_trailers())
                {
                    output.push(|out| encode::last_chunk(out, &self.trailers, &trailers));
                    self.framing = ResponseFraming::Nothing;
                }
                return Ok(false);
            }
        };
        match &mut self.framing {
            ResponseFraming::Chunked => output.push_chunk(piece),
            ResponseFraming::Length(left) => {
                *left = left
                    .checked_sub(piece.len() as u64)
                    .ok_or(BrokenResponse::Length)?;
                output.push_piece(piece);
                return Ok(*left > 0);
            }
            ResponseFraming::Nothing | ResponseFraming::Close => output.push_piece(piece),
        }
        Ok(true)
    }

    /// Ends the content. The body is dropped before its last bytes are written: everything that
    /// ends with the body has ended when the client sees the end of the response.
    fn end(&mut self, output: &mut WriteBuffer) -> Result<(), BrokenResponse> {
        match self.framing {
            ResponseFraming::Length(1..) => return Err(BrokenResponse::Length),
            ResponseFraming::Chunked => output.push(|out| out.extend_from_slice(LAST_CHUNK)),
            ResponseFraming::Length(0) | ResponseFraming::Nothing | ResponseFraming::Close => {}
        }
        if let Some(body) = self.body.take() {
            body.drop_at(self.now);
        }
        Ok(())
    }
}

impl ResponseFraming {
    /// The framing of a response. The body alone decides where there may be content (RFC 9110
    /// §6.4.1).
    fn new(options: &ConnectionOptions, status: StatusCode, body: &Body) -> Self {
        if options.is_head || !response_rules::has_content(status) {
            return Self::Nothing;
        }
        match body.size_hint().exact() {
            Some(length) => Self::Length(length),
            None if body.is_end_stream() => Self::Length(0),
            None if options.http_11 => Self::Chunked,
            None => Self::Close,
        }
    }
}

/// Writes an interim response. Clients of HTTP/1.1 get them.
pub fn write_interim(out: &mut BytesMut, interim: &InterimResponse) {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(interim.status.as_str().as_bytes());
    out.extend_from_slice(b" ");
    out.extend_from_slice(
        interim
            .status
            .canonical_reason()
            .unwrap_or_default()
            .as_bytes(),
    );
    out.extend_from_slice(b"\r\n");
    for (name, value) in &interim.headers {
        encode::field(out, name.as_str(), value.as_bytes());
    }
    out.extend_from_slice(b"\r\n");
}

/// Writes the status line, in the client's version.
fn status_line(
    out: &mut BytesMut,
    options: &ConnectionOptions,
    status: StatusCode,
    reason: Option<&ReasonPhrase>,
) {
    if options.http_11 && status == StatusCode::OK && reason.is_none() {
        return out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    }
    out.extend_from_slice(if options.http_11 {
        b"HTTP/1.1 "
    } else {
        b"HTTP/1.0 "
    });
    out.extend_from_slice(status.as_str().as_bytes());
    out.extend_from_slice(b" ");
    out.extend_from_slice(match reason {
        Some(reason) => reason.0.as_bytes(),
        None => status.canonical_reason().unwrap_or_default().as_bytes(),
    });
    out.extend_from_slice(b"\r\n");
}
