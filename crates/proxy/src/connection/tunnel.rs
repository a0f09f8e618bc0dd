//! A tunnel: both sides of a connection that has left HTTP, joined until one of them ends.
//!
//! Guarantees that a tunnel without traffic ends after its idle time, and that its observer is
//! called at the end, whatever ends it: the deadline of a drain, too.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use parking_lot::Mutex;
use pin_project_lite::pin_project;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional_with_sizes};

use tollgate_limiter::clock::{self, Instant};
use tollgate_wire::http::h1::upgrade::Io;
use tollgate_wire::http::timer::Timer;

/// Bytes of the buffer, per direction.
const BUFFER: usize = 16 * 1024;

/// An observer of the end of a tunnel.
pub trait TunnelObserver: Send {
    /// The tunnel has ended. `complete`: both sides closed it in order.
    fn on_end(self: Box<Self>, bytes: TunnelBytes, complete: bool);
}

/// The bytes that a tunnel has carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TunnelBytes {
    pub from_client: u64,
    pub from_upstream: u64,
}

/// A tunnel's place for its observer: an extension of the response that begins it.
#[derive(Clone, Default)]
pub struct TunnelEnd(Arc<Mutex<Option<Box<dyn TunnelObserver>>>>);

impl TunnelEnd {
    /// Calls `observer` at the end of the tunnel.
    pub fn observe(&self, observer: Box<dyn TunnelObserver>) {
        *self.0.lock() = Some(observer);
    }
}

/// Both directions of a tunnel, as they are counted.
#[derive(Debug)]
struct TunnelTraffic {
    /// When something was last read, in microseconds.
    read_at: AtomicU64,
    from_client: AtomicU64,
    from_upstream: AtomicU64,
}

/// Calls the observer when dropped.
struct EndNotice {
    traffic: Arc<TunnelTraffic>,
    end: TunnelEnd,
    complete: bool,
}

pin_project! {
    /// A socket whose reads are counted.
    struct CountedReads<T> {
        #[pin]
        io: T,
        traffic: Arc<TunnelTraffic>,
        is_client: bool,
    }
}

/// Joins both sides until they have ended, or nothing was read from either for `idle`.
pub async fn run(client: impl Io, upstream: impl Io, idle: Duration, end: TunnelEnd) {
    let traffic = Arc::new(TunnelTraffic {
        read_at: AtomicU64::new(clock::monotonic_micros()),
        from_client: AtomicU64::new(0),
        from_upstream: AtomicU64::new(0),
    });
    let mut notice = EndNotice {
        traffic: Arc::clone(&traffic),
        end,
        complete: false,
    };
    let mut client = CountedReads {
        io: client,
        traffic: Arc::clone(&traffic),
        is_client: true,
    };
    let mut upstream = CountedReads {
        io: upstream,
        traffic: Arc::clone(&traffic),
        is_client: false,
    };
    let mut copying = pin!(copy_bidirectional_with_sizes(
        &mut client,
        &mut upstream,
        BUFFER,
        BUFFER
    ));
    let mut timer = Timer::default();
    let mut due = clock::now() + idle;
    let ended = poll_fn(|cx| match copying.as_mut().poll(cx) {
        Poll::Ready(ended) => Poll::Ready(ended.map(drop)),
        Poll::Pending => traffic
            .poll_idle(&mut timer, &mut due, idle, cx)
            .map(|()| Err(io::ErrorKind::TimedOut.into())),
    });
    match ended.await {
        Ok(()) => notice.complete = true,
        Err(error) => tracing::debug!(%error, "a tunnel broke"),
    }
}

impl TunnelTraffic {
    fn poll_idle(
        &self,
        timer: &mut Timer,
        due: &mut Instant,
        limit: Duration,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        loop {
            ready!(timer.poll(cx, *due));
            let idle =
                clock::monotonic_micros().saturating_sub(self.read_at.load(Ordering::Relaxed));
            let left = limit.saturating_sub(Duration::from_micros(idle));
            if left.is_zero() {
                return Poll::Ready(());
            }
            *due = clock::now() + left;
        }
    }
}

impl Drop for EndNotice {
    fn drop(&mut self) {
        if let Some(observer) = self.end.0.lock().take() {
            let bytes = TunnelBytes {
                from_client: self.traffic.from_client.load(Ordering::Relaxed),
                from_upstream: self.traffic.from_upstream.load(Ordering::Relaxed),
            };
            observer.on_end(bytes, self.complete);
        }
    }
}

impl<T: AsyncRead> AsyncRead for CountedReads<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.project();
        let before = buf.filled().len();
        ready!(this.io.poll_read(cx, buf))?;
        let bytes = if *this.is_client {
            &this.traffic.from_client
        } else {
            &this.traffic.from_upstream
        };
        bytes.fetch_add((buf.filled().len() - before) as u64, Ordering::Relaxed);
        this.traffic
            .read_at
            .store(clock::monotonic_micros(), Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite> AsyncWrite for CountedReads<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
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
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

    use super::*;

    struct Reported(UnboundedSender<(TunnelBytes, bool)>);

    impl TunnelObserver for Reported {
        fn on_end(self: Box<Self>, bytes: TunnelBytes, complete: bool) {
            self.0.send((bytes, complete)).unwrap();
        }
    }

    const IDLE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_tunnel_ends_after_its_idle_time_and_each_byte_begins_that_anew() {
        let (mut client, near) = duplex(100);
        let (far, mut upstream) = duplex(100);
        let (sender, mut reports) = unbounded_channel();
        let end = TunnelEnd::default();
        end.observe(Box::new(Reported(sender)));
        let begun = clock::now();
        let tunnel = tokio::spawn(run(near, far, IDLE, end));
        for _ in 0..3 {
            tokio::time::sleep(IDLE / 2).await;
            client.write_all(b"ping").await.unwrap();
            upstream.read_exact(&mut [0; 4]).await.unwrap();
        }
        upstream.write_all(b"to and").await.unwrap();
        tunnel.await.unwrap();
        assert_eq!((clock::now() - begun).as_secs(), 150);
        assert_eq!(
            reports.recv().await.unwrap(),
            (
                TunnelBytes {
                    from_client: 12,
                    from_upstream: 6
                },
                false
            )
        );
    }

    #[tokio::test]
    async fn the_observer_is_called_for_a_tunnel_that_is_cut_or_closed() {
        for cut in [true, false] {
            let ((client, near), (far, upstream)) = (duplex(100), duplex(100));
            let (sender, mut reports) = unbounded_channel();
            let end = TunnelEnd::default();
            end.observe(Box::new(Reported(sender)));
            let tunnel = tokio::spawn(run(near, far, IDLE, end));
            tokio::task::yield_now().await;
            if cut {
                tunnel.abort()
            } else {
                drop((client, upstream))
            }
            assert_eq!(
                reports.recv().await.unwrap(),
                (TunnelBytes::default(), !cut)
            );
        }
    }
}
