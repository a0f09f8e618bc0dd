//! The body of an upstream's response, which its connection reads.
//!
//! Guarantees that the connection goes back to the pool only once both messages have ended, and
//! closes otherwise.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::time::Instant;

use super::UpstreamConnection;
use crate::connection::pool::place;
use tollgate_limiter::clock;
use tollgate_wire::body::{Body, BodySource, BoxError};
use tollgate_wire::http::deadline::{UpstreamWait, Wait as _};
use tollgate_wire::http::h1::body_decoder::BodyDecoder;

/// Why a response body broke off.
#[derive(Debug, thiserror::Error)]
enum ResponseBodyError {
    #[error("the upstream's response stalled")]
    Stalled,
    #[error("the upstream closed the connection within its response")]
    Closed,
}

impl UpstreamConnection {
    /// The response's body. The connection is free once the body has ended, and closes if the body
    /// is dropped before. `now`: when the header section came.
    pub fn into_body(mut self: Box<Self>, now: Instant) -> Body {
        // Most bodies arrive whole with their header section: then the connection need not wait for
        // the client to read.
        if let Some(length) = self.size_hint().exact()
            && length <= self.input.len() as u64
            && let Ok(length) = usize::try_from(length)
        {
            let whole = self.input.split_to(length).freeze();
            self.finish(now);
            return Body::from(whole);
        }
        Body::from_source(self)
    }

    /// Puts the connection into the pool, if another exchange can follow.
    fn finish(mut self: Box<Self>, now: Instant) {
        let sent = self.is_sent();
        let exchange = std::mem::take(&mut self.exchange);
        self.large_reads = self.large_reads.saturating_sub(1);
        if sent
            && !exchange.last
            && !self.spec.proxy_protocol
            && self.input.is_empty()
            && let Some(pool) = self.pool.upgrade()
        {
            self.used = true;
            let bounded = self
                .counted
                .bound()
                .map(|bound| (Arc::clone(bound), place(&pool, &self.key)));
            let limit = self.spec.keepalive_connections;
            let expires = now + UpstreamWait::NextExchange.limit(&self.timeouts);
            pool.put(self, limit, expires);
            if let Some((bound, place)) = bounded {
                bound.offer_idle(&place);
            }
        }
    }

    fn decode(&mut self) -> Result<Option<Frame<Bytes>>, BoxError> {
        let Self {
            input, exchange, ..
        } = self;
        match &mut exchange.decoder {
            Some(decoder) => Ok(decoder.decode(input)?),
            None => Ok(None),
        }
    }

    /// Ready at the deadline, with an error unless the upload moves.
    fn poll_stalled(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        if !std::mem::replace(&mut self.exchange.waiting, true) {
            self.due = clock::now() + UpstreamWait::ResponseBody.limit(&self.timeouts);
            self.release_buffer();
        }
        ready!(self.timer.poll(cx, self.due));
        if self.has_taken_more() {
            Poll::Ready(Ok(()))
        } else {
            Poll::Ready(Err(ResponseBodyError::Stalled.into()))
        }
    }
}

impl BodySource for UpstreamConnection {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        loop {
            // A response may begin before its request has ended: the rest is sent meanwhile.
            if let Err(error) = self.poll_request(cx) {
                return Poll::Ready(Some(Err(error.into())));
            }
            if let Some(frame) = self.decode().transpose() {
                self.exchange.waiting = false;
                return Poll::Ready(Some(frame));
            }
            if self.is_over() {
                return Poll::Ready(None);
            }
            match self.poll_fill(cx) {
                Poll::Ready(Ok(0))
                    if self
                        .exchange
                        .decoder
                        .as_mut()
                        .is_some_and(BodyDecoder::close) =>
                {
                    return Poll::Ready(None);
                }
                Poll::Ready(Ok(0)) => {
                    return Poll::Ready(Some(Err(ResponseBodyError::Closed.into())));
                }
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
                Poll::Pending => {
                    if let Err(error) = ready!(self.poll_stalled(cx)) {
                        return Poll::Ready(Some(Err(error)));
                    }
                }
            }
        }
    }

    fn is_over(&self) -> bool {
        self.exchange
            .decoder
            .as_ref()
            .is_none_or(BodyDecoder::is_over)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.exchange.decoder {
            Some(decoder) => decoder.size_hint(),
            None => SizeHint::with_exact(0),
        }
    }

    fn ended(self: Box<Self>) {
        self.finish(clock::now());
    }
}
