//! Connections that leave HTTP: WebSocket and its like (RFC 9110 §7.8).
//!
//! Guarantees that both sides have agreed before anything is tied together, and that HTTP itself is never the new
//! protocol: requests inside such a tunnel would escape routes and limits.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{HeaderValue, Request};
use pin_project_lite::pin_project;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional_with_sizes};

use super::connection::Connection;
use crate::body::Body;
use crate::clock::{self, Instant};
use crate::http::h1::timer::Timer;
use crate::http::h1::upgrade::{Io, OnUpgrade};

/// A tunnel without a byte either way for so long is closed. WebSockets are quiet for minutes, so an upstream's idle
/// timeout would cut them; without any bound, peers that vanished would be kept for ever.
pub const TUNNEL_IDLE: Duration = Duration::from_secs(3600);

/// Per direction.
const BUFFER: usize = 16 * 1024;

/// A client's wish to leave HTTP.
pub struct Wish {
    client: OnUpgrade,
    protocol: HeaderValue,
}

pin_project! {
    /// Notes when something was last read.
    struct Watched<T> {
        #[pin]
        io: T,
        read_at: Arc<AtomicU64>,
    }
}

impl Wish {
    /// `protocol`: the `Upgrade` that the request announced. `None`: it goes on as an ordinary request, as it also does on a
    /// connection that cannot leave HTTP.
    pub fn of(request: &mut Request<Body>, protocol: Option<HeaderValue>) -> Option<Self> {
        let protocol = protocol.filter(|protocol| !names_http(protocol))?;
        Some(Self { client: request.extensions_mut().remove()?, protocol })
    }

    pub fn protocol(&self) -> &HeaderValue {
        &self.protocol
    }

    /// Ties both sides together once the client has its 101. The connection counts until the tunnel closes.
    pub fn grant(self, connection: Box<Connection>) {
        let (upstream, kept) = connection.upgrade();
        tokio::spawn(async move {
            match self.client.upgraded().await {
                Some(client) => tunnel(client, upstream).await,
                None => tracing::debug!("an upgrade came to nothing"),
            }
            drop(kept);
        });
    }
}

/// HTTP/2 in clear text, or another version of HTTP.
pub fn names_http(protocol: &HeaderValue) -> bool {
    protocol.as_bytes().split(|&byte| byte == b',').map(<[u8]>::trim_ascii).any(|name| {
        name.eq_ignore_ascii_case(b"h2c") || name.get(..4).is_some_and(|start| start.eq_ignore_ascii_case(b"http"))
    })
}

async fn tunnel(client: impl Io, upstream: impl Io) {
    let read_at = Arc::new(AtomicU64::new(clock::monotonic_micros()));
    let mut client = Watched { io: client, read_at: Arc::clone(&read_at) };
    let mut upstream = Watched { io: upstream, read_at: Arc::clone(&read_at) };
    let mut copying = pin!(copy_bidirectional_with_sizes(&mut client, &mut upstream, BUFFER, BUFFER));
    let (mut timer, mut due) = (Timer::default(), clock::now() + TUNNEL_IDLE);
    let ended = poll_fn(|cx| match copying.as_mut().poll(cx) {
        Poll::Ready(ended) => Poll::Ready(ended.map(drop)),
        Poll::Pending => poll_idle(&mut timer, &mut due, &read_at, cx).map(|()| Err(io::ErrorKind::TimedOut.into())),
    });
    if let Err(error) = ended.await {
        tracing::debug!(%error, "a tunnel broke");
    }
}

fn poll_idle(timer: &mut Timer, due: &mut Instant, read_at: &AtomicU64, cx: &mut Context<'_>) -> Poll<()> {
    loop {
        ready!(timer.poll(cx, *due));
        let idle = clock::monotonic_micros().saturating_sub(read_at.load(Ordering::Relaxed));
        let left = TUNNEL_IDLE.saturating_sub(Duration::from_micros(idle));
        if left.is_zero() {
            return Poll::Ready(());
        }
        *due = clock::now() + left;
    }
}

impl<T: AsyncRead> AsyncRead for Watched<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.project();
        ready!(this.io.poll_read(cx, buf))?;
        this.read_at.store(clock::monotonic_micros(), Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite> AsyncWrite for Watched<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.project().io.poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().io.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().io.poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_is_never_the_new_protocol() {
        for refused in ["h2c", "H2C", "websocket, h2c", "HTTP/2.0", "http/3"] {
            assert!(names_http(&HeaderValue::from_static(refused)), "{refused}");
        }
        assert!(!names_http(&HeaderValue::from_static("websocket")));
    }
}
