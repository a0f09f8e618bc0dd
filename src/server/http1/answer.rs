//! Writes one response: its head, framed as its body demands, and its content as it comes (RFC 9110 §6.4, RFC 9112 §6).
//!
//! Guarantees that a response has one framing, whatever its handler wrote, and that none looks complete which is not. Knows
//! no sockets.

#[cfg(test)]
mod tests;

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING};
use http::{HeaderMap, Response, StatusCode};
use http_body::{Body as _, Frame};

use super::asked::Asked;
use super::date;
use crate::body::{Body, BoxError};
use crate::clock::Instant;
use crate::header_map_pool;
use crate::http::h1::ReasonPhrase;
use crate::http::h1::encode::{self, LAST_CHUNK};
use crate::http::h1::write_buffer::WriteBuffer;
use crate::http::trailers::AnnouncedTrailers;
use crate::http::{content, syntax};

/// A response whose head has been written.
pub struct Answer {
    /// `None`: all of it has been written.
    body: Option<Body>,
    framing: ResponseFraming,
    trailers: AnnouncedTrailers,
    /// The connection ends with it.
    pub closes: bool,
    /// The connection leaves HTTP.
    pub switches: bool,
}

/// How the content is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResponseFraming {
    /// There is none, by the rules for the method or the status.
    Nothing,
    /// So many bytes are left.
    Length(u64),
    Chunked,
    /// It ends with the connection.
    Close,
}

/// Why a response broke off.
#[derive(Debug, thiserror::Error)]
enum Cut {
    #[error("the response's content is not as long as it said")]
    Length,
    #[error("the response switches protocols, which nobody asked for")]
    Status,
}

/// What is noticed of the fields while they are written.
#[derive(Default)]
struct Noticed {
    date: bool,
    length: bool,
}

impl Answer {
    /// Writes the head of `response` to what was `asked`. `closes`: the connection cannot go on.
    pub fn begin(
        output: &mut WriteBuffer,
        response: Response<Body>,
        asked: &Asked,
        closes: bool,
        now: Instant,
    ) -> Result<Self, BoxError> {
        let (head, body) = response.into_parts();
        let switches = head.status == StatusCode::SWITCHING_PROTOCOLS && asked.upgrade;
        if head.status.is_informational() && !switches {
            return Err(Cut::Status.into());
        }
        let framing = ResponseFraming::of(asked, head.status, &body);
        let mut answer = Self {
            closes: closes || !asked.keeps_alive || framing == ResponseFraming::Close,
            trailers: AnnouncedTrailers::default(),
            body: None,
            framing,
            switches,
        };
        if framing == ResponseFraming::Chunked && asked.takes_trailers {
            answer.trailers = AnnouncedTrailers::by(&head.headers);
        }
        output.push(|out| {
            status_line(out, asked, head.status, head.extensions.get());
            let noticed = answer.fields(out, &head.headers, has_length(asked, head.status));
            answer.framing_field(out, asked, &noticed, &body);
            answer.connection_field(out, asked);
            if !noticed.date {
                out.extend_from_slice(b"date: ");
                out.extend_from_slice(&date::at(now));
                out.extend_from_slice(b"\r\n");
            }
            out.extend_from_slice(b"\r\n");
        });
        header_map_pool::give_back(head.headers);
        if !matches!(framing, ResponseFraming::Nothing | ResponseFraming::Length(0)) {
            answer.body = Some(body);
        }
        Ok(answer)
    }

    /// The handler's fields, but for those that say how the message is framed.
    fn fields(&mut self, out: &mut BytesMut, headers: &HeaderMap, keeps_length: bool) -> Noticed {
        let mut noticed = Noticed::default();
        for (name, value) in headers {
            match name.as_str().len() {
                4 if name == DATE => noticed.date = true,
                10 if name == CONNECTION => {
                    self.closes |= syntax::list_has(value.as_bytes(), b"close");
                    if self.closes && !self.switches {
                        continue;
                    }
                }
                14 if name == CONTENT_LENGTH => {
                    if !keeps_length {
                        continue;
                    }
                    noticed.length = true;
                }
                17 if name == TRANSFER_ENCODING => continue,
                _ => {}
            }
            encode::field(out, name.as_str(), value.as_bytes());
        }
        noticed
    }

    fn framing_field(&self, out: &mut BytesMut, asked: &Asked, noticed: &Noticed, body: &Body) {
        let length = match self.framing {
            ResponseFraming::Length(length) => length,
            ResponseFraming::Chunked => return out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
            ResponseFraming::Close => return,
            // What a GET would have got, if that is known.
            ResponseFraming::Nothing => match body.size_hint().exact() {
                Some(length @ 1..) if asked.is_head && !noticed.length => length,
                _ => return,
            },
        };
        out.extend_from_slice(b"content-length: ");
        out.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
        out.extend_from_slice(b"\r\n");
    }

    fn connection_field(&self, out: &mut BytesMut, asked: &Asked) {
        if self.switches {
        } else if self.closes {
            out.extend_from_slice(b"connection: close\r\n");
        } else if !asked.http_11 {
            out.extend_from_slice(b"connection: keep-alive\r\n");
        }
    }

    /// Writes what there is of the content to `output`. True: that was all of it. False: what waits there should go out
    /// first.
    pub fn poll_content(&mut self, output: &mut WriteBuffer, cx: &mut Context<'_>) -> Poll<Result<bool, BoxError>> {
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

    /// Whether more may follow.
    fn frame(&mut self, output: &mut WriteBuffer, frame: Frame<Bytes>) -> Result<bool, Cut> {
        let piece = match frame.into_data() {
            Ok(piece) => piece,
            Err(frame) => {
                if let (ResponseFraming::Chunked, Ok(trailers)) = (self.framing, frame.into_trailers()) {
                    output.push(|out| encode::last_chunk(out, &self.trailers, &trailers));
                    self.framing = ResponseFraming::Nothing;
                }
                return Ok(false);
            }
        };
        match &mut self.framing {
            ResponseFraming::Chunked => output.push_chunk(piece),
            ResponseFraming::Length(left) => {
                *left = left.checked_sub(piece.len() as u64).ok_or(Cut::Length)?;
                output.push_piece(piece);
                return Ok(*left > 0);
            }
            ResponseFraming::Nothing | ResponseFraming::Close => output.push_piece(piece),
        }
        Ok(true)
    }

    /// The body is let go of before its last bytes are written: what ends with it has ended when the client sees the end.
    fn end(&mut self, output: &mut WriteBuffer) -> Result<(), Cut> {
        match self.framing {
            ResponseFraming::Length(1..) => return Err(Cut::Length),
            ResponseFraming::Chunked => output.push(|out| out.extend_from_slice(LAST_CHUNK)),
            ResponseFraming::Length(0) | ResponseFraming::Nothing | ResponseFraming::Close => {}
        }
        self.body = None;
        Ok(())
    }
}

impl ResponseFraming {
    /// The body alone decides, where there may be content (RFC 9110 §6.4.1).
    fn of(asked: &Asked, status: StatusCode, body: &Body) -> Self {
        if asked.is_head || !content::has_content(status) {
            return Self::Nothing;
        }
        match body.size_hint().exact() {
            Some(length) => Self::Length(length),
            None if body.is_end_stream() => Self::Length(0),
            None if asked.http_11 => Self::Chunked,
            None => Self::Close,
        }
    }
}

/// Whether the handler's Content-Length means something: in place of content, it is that of another answer (RFC 9110 §8.6).
fn has_length(asked: &Asked, status: StatusCode) -> bool {
    content::has_length_of_another(status) || (asked.is_head && content::has_content(status))
}

/// To a client of HTTP/1.0, in its version.
fn status_line(out: &mut BytesMut, asked: &Asked, status: StatusCode, reason: Option<&ReasonPhrase>) {
    if asked.http_11 && status == StatusCode::OK && reason.is_none() {
        return out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    }
    let usual = || status.canonical_reason().unwrap_or_default().as_bytes();
    out.extend_from_slice(if asked.http_11 { b"HTTP/1.1 " } else { b"HTTP/1.0 " });
    out.extend_from_slice(status.as_str().as_bytes());
    out.extend_from_slice(b" ");
    out.extend_from_slice(reason.map_or_else(usual, |reason| reason.0.as_bytes()));
    out.extend_from_slice(b"\r\n");
}
