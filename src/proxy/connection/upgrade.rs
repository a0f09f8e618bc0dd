//! Upgrades: connections that leave HTTP for WebSocket and other protocols (RFC 9110 §7.8).
//!
//! Guarantees that both sides have agreed before their connections are joined, and that the new protocol is never HTTP
//! itself: requests inside such a tunnel would evade routes and limits.

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

use crate::body::Body;
use crate::clock::{self, Instant};
use crate::http::deadline::UpstreamWait;
use crate::http::h1::upgrade::{Io, OnUpgrade, Upgraded};
use crate::http::timer::Timer;

/// A tunnel that carries no byte either way for this long is closed. WebSockets are quiet for minutes, so an upstream's
/// idle timeout would close them. Without any bound, tunnels of vanished peers would stay open for ever.
pub const TUNNEL_IDLE: Duration = UpstreamWait::Tunnel.fixed();

/// Bytes of the buffer, per direction.
const BUFFER: usize = 16 * 1024;

/// A client's request to leave HTTP for another protocol.
pub struct UpgradeRequest {
    client: OnUpgrade,
    protocol: HeaderValue,
}

pin_project! {
    /// A socket that records when something was last read.
    struct ReadTracked<T> {
        #[pin]
        io: T,
        read_at: Arc<AtomicU64>,
    }
}

impl UpgradeRequest {
    /// `protocol`: the `Upgrade` that the request announced. `None`: the request goes on as an ordinary one, since it
    /// announces no protocol or its connection cannot leave HTTP.
    pub fn of(request: &mut Request<Body>, protocol: Option<HeaderValue>) -> Option<Self> {
        let protocol = protocol.filter(|protocol| !names_http(protocol))?;
        Some(Self { client: request.extensions_mut().remove()?, protocol })
    }

    pub fn protocol(&self) -> &HeaderValue {
        &self.protocol
    }

    /// Joins both connections once the client has its 101. `guard` is dropped when the tunnel closes.
    pub fn join(self, upstream: Upgraded, guard: impl Send + 'static) {
        tokio::spawn(async move {
            match self.client.upgraded().await {
                Some(client) => tunnel(client, upstream).await,
                None => tracing::debug!("an upgrade came to nothing"),
            }
            drop(guard);
        });
    }
}

/// Whether `protocol` lists HTTP/2 in clear text or another version of HTTP.
pub fn names_http(protocol: &HeaderValue) -> bool {
    protocol.as_bytes().split(|&byte| byte == b',').map(<[u8]>::trim_ascii).any(|name| {
        name.eq_ignore_ascii_case(b"h2c") || name.get(..4).is_some_and(|start| start.eq_ignore_ascii_case(b"http"))
    })
}

async fn tunnel(client: impl Io, upstream: impl Io) {
    let read_at = Arc::new(AtomicU64::new(clock::monotonic_micros()));
    let mut client = ReadTracked { io: client, read_at: Arc::clone(&read_at) };
    let mut upstream = ReadTracked { io: upstream, read_at: Arc::clone(&read_at) };
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

impl<T: AsyncRead> AsyncRead for ReadTracked<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.project();
        ready!(this.io.poll_read(cx, buf))?;
        this.read_at.store(clock::monotonic_micros(), Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite> AsyncWrite for ReadTracked<T> {
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
