//! HTTP/1 on one connection: a request is read, handled and answered, and then the next one.
//!
//! One task, one loop, no queue. Guarantees that what cannot be read in one way is refused in its turn and followed by
//! nothing, that a body which nobody reads is either read to its end or ends the connection, that a request is dropped
//! when its client goes away, and that a response which broke off never looks complete.
//!
//! `head` makes requests of bytes, `inbound` reads them and `content` lends it to whoever reads a body; `answer` makes bytes
//! of responses and `outbound` writes them. Knows nothing of what requests mean.

mod answer;
mod asked;
mod content;
mod date;
pub(super) mod head;
mod inbound;
mod outbound;
mod target;

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response};

use self::answer::Answer;
use self::asked::Asked;
use self::content::Reader;
use self::inbound::{Arrival, Inbound};
use self::outbound::Outbound;
use super::connection::Connection;
use super::gather::Gather;
use super::socket::Socket;
use super::{Drain, Handler, ListenerSpec};
use crate::body::{Body, BoxError};
use crate::clock::{self, Instant};
use crate::error::Failure;
use crate::http::h1::BodyFraming;
use crate::http::h1::upgrade::{self, UpgradeSender, Upgraded};

/// The interim answer to a client that waits for it before it sends content (RFC 9110 §15.2.1).
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Why no more requests are read.
enum End {
    /// In order: the client gets to read what it was sent.
    Closed,
    /// The client has gone.
    Gone,
    /// In the middle of a response.
    Cut(BoxError),
    /// The client speaks HTTP/2.
    Preface,
    /// The client was told that HTTP ends here.
    Switched(UpgradeSender),
}

/// Both sides of a connection.
struct Http1<'a> {
    reader: Reader,
    writer: Outbound,
    drain: &'a Drain,
}

/// Serves until the connection ends. Gives it back when the client speaks HTTP/2.
pub async fn drive<H: Handler>(
    socket: Socket,
    connection: &Arc<Connection>,
    handler: &H,
    spec: &ListenerSpec,
    drain: &Drain,
) -> Option<Upgraded> {
    // Polled once: from then on a drain wakes this task, and a load tells whether that was it.
    let mut waiting = drain.clone();
    let mut begun = pin!(waiting.begun());
    poll_fn(|cx| Poll::Ready(begun.as_mut().poll(cx).is_ready())).await;

    let (read, write) = socket.stream.into_split();
    let reader = Reader::Here(Box::new(Inbound::new(read, socket.slot, spec)));
    let mut http = Http1 { reader, writer: Outbound::new(write, spec), drain };
    let end = loop {
        if let Err(end) = http.turn(connection, handler).await {
            break end;
        }
    };
    http.end(end).await
}

impl Http1<'_> {
    /// One request and its response; or why there is none, or none after it.
    async fn turn<H: Handler>(&mut self, connection: &Arc<Connection>, handler: &H) -> Result<(), End> {
        let accepted = match self.next().await {
            Arrival::Head(length) => self.accept(length),
            Arrival::Refused(failure) => Err(failure),
            Arrival::Preface => return Err(End::Preface),
            Arrival::Silence => return Err(End::Closed),
            Arrival::Gone => return Err(End::Gone),
        };
        let (asked, upgrade_sender, (response, closes)) = match accepted {
            Ok((request, asked, upgrade_sender)) => {
                let handling = pin!(handler.handle(connection, request));
                (asked, upgrade_sender, self.answer(handling).await.ok_or(End::Gone)?)
            }
            Err(failure) => (self.refuse(), None, (handler.refuse(connection, failure), true)),
        };
        let now = clock::now();
        let output = &mut self.writer.output;
        let mut answer = Answer::begin(output, response, &asked, closes, now).map_err(End::Cut)?;
        let waited = self.write(&mut answer).await.map_err(End::Cut)?;
        if !self.settle().await {
            return Err(End::Closed);
        }
        match upgrade_sender {
            Some(upgrade_sender) if answer.switches => Err(End::Switched(upgrade_sender)),
            _ if answer.closes => Err(End::Closed),
            _ => {
                self.rest(if waited { clock::now() } else { now });
                Ok(())
            }
        }
    }

    /// Waits for a request.
    async fn next(&mut self) -> Arrival {
        poll_fn(|cx| match self.reader.poll_here(cx) {
            Poll::Ready(_) if self.drain.has_begun() => Poll::Ready(Arrival::Silence),
            Poll::Ready(inbound) => inbound.poll_arrival(cx),
            Poll::Pending => Poll::Pending,
        })
        .await
    }

    /// Takes the request that has arrived, and what it asks of the connection.
    fn accept(&mut self, length: usize) -> Result<(Request<Body>, Asked, Option<UpgradeSender>), Failure> {
        let mut request = Request::new(Body::empty());
        let asked = match &mut self.reader {
            Reader::Here(inbound) => inbound.take_head(length, &mut request)?,
            // None arrives before the one before it has ended.
            Reader::Lent(_) => return Err(Failure::BadRequest("the request before it has not ended")),
        };
        if asked.framing != BodyFraming::Length(0) {
            *request.body_mut() = self.reader.lend();
        }
        let upgrade_sender = asked.upgrade.then(|| {
            let (upgrade_sender, on_upgrade) = upgrade::channel();
            request.extensions_mut().insert(on_upgrade);
            upgrade_sender
        });
        Ok((request, asked, upgrade_sender))
    }

    /// What is answered instead of a request that cannot be read, nothing being read after it.
    fn refuse(&mut self) -> Asked {
        let mut is_head = false;
        if let Reader::Here(inbound) = &mut self.reader {
            is_head = inbound.is_head();
            inbound.give_up();
        }
        Asked::of_refused(is_head)
    }

    /// Waits for the response, and whether the connection has to close after it; `None`: the client does not wait.
    async fn answer(
        &mut self,
        mut handling: Pin<&mut impl Future<Output = Response<Body>>>,
    ) -> Option<(Response<Body>, bool)> {
        poll_fn(|cx| {
            if let Poll::Ready(response) = handling.as_mut().poll(cx) {
                return Poll::Ready(Some((response, self.must_close(cx))));
            }
            let gone = self.reader.poll_gone(cx);
            // Looked for after this task is known to whoever has the content: it may be on another thread.
            if self.reader.take_wish() {
                self.writer.output.push(|out| out.extend_from_slice(CONTINUE));
            }
            match self.writer.poll_flush(cx) {
                Poll::Ready(Err(_)) => Poll::Ready(None),
                _ => gone.map(|()| None),
            }
        })
        .await
    }

    /// Whether what the client has yet to send could be taken for a request, or its next request for content that it was
    /// never told to send, or a request would come too late.
    fn must_close(&mut self, cx: &mut Context<'_>) -> bool {
        let unread = match self.reader.poll_here(cx) {
            Poll::Ready(inbound) => !inbound.is_drainable(),
            Poll::Pending => self.reader.is_held_back(),
        };
        unread || self.drain.has_begun()
    }

    /// Writes the response to its end. Whether that took time.
    async fn write(&mut self, answer: &mut Answer) -> Result<bool, BoxError> {
        let mut waited = false;
        poll_fn(|cx| {
            loop {
                let content = answer.poll_content(&mut self.writer.output, cx);
                // What there is goes out before what comes later, and before an end that comes too soon.
                let flushed = self.writer.poll_flush(cx)?;
                match content {
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Ready(Ok(true)) if flushed.is_ready() => return Poll::Ready(Ok(waited)),
                    Poll::Ready(Ok(false)) if flushed.is_ready() => continue,
                    Poll::Ready(Ok(_)) => {}
                    Poll::Pending if self.reader.poll_gone(cx).is_ready() => {
                        return Poll::Ready(Err(io::Error::from(io::ErrorKind::ConnectionAborted).into()));
                    }
                    Poll::Pending => {}
                }
                waited = true;
                return Poll::Pending;
            }
        })
        .await
    }

    /// Waits for the end of the request, whoever reads it, and reads past what nobody wants. False: nothing may follow.
    async fn settle(&mut self) -> bool {
        poll_fn(|cx| {
            let inbound = ready!(self.reader.poll_here(cx));
            if inbound.is_drainable() { inbound.poll_drained(cx) } else { Poll::Ready(false) }
        })
        .await
    }

    fn rest(&mut self, now: Instant) {
        if let Reader::Here(inbound) = &mut self.reader {
            inbound.rest(now);
        }
    }

    /// Gives back what goes on as something else.
    async fn end(mut self, end: End) -> Option<Upgraded> {
        match end {
            End::Gone => {}
            End::Cut(error) => {
                tracing::debug!(error, "a response broke off");
                self.writer.reset();
            }
            End::Closed => self.close().await,
            End::Preface => return self.whole(),
            End::Switched(upgrade_sender) => {
                if let Some(upgraded) = self.whole() {
                    upgrade_sender.send(upgraded);
                }
            }
        }
        None
    }

    async fn close(&mut self) {
        if let Err(error) = self.writer.shut_down().await {
            return tracing::debug!(%error, "a connection was not shut down cleanly");
        }
        if let Reader::Here(inbound) = &mut self.reader {
            inbound.linger().await;
        }
    }

    /// The socket as it was before it was ours, with what was read too early.
    fn whole(self) -> Option<Upgraded> {
        let Reader::Here(inbound) = self.reader else { return None };
        let (read, slot, early) = inbound.into_parts();
        let stream = read.reunite(self.writer.into_half()).ok()?;
        Some(Upgraded::new(Gather(Socket { stream, slot }), early))
    }
}
