//! A proxy before a Redis. Commands and replies take times on their way that a test chooses.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinSet, spawn_blocking};
use tollgate_limiter::clock::{self, Instant};

use crate::pace::pause;

pub struct DelayingProxy {
    pub address: SocketAddr,
    commands: watch::Sender<Duration>,
    replies: watch::Sender<Duration>,
    accepted: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl DelayingProxy {
    /// A proxy to `port`, at a port of its own.
    pub async fn to(port: u16) -> Self {
        Self::at(0, port).await
    }

    /// A proxy at `own`, to `port`.
    pub async fn at(own: u16, port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", own)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let commands = watch::Sender::new(Duration::ZERO);
        let replies = watch::Sender::new(Duration::ZERO);
        let (there, back) = (commands.subscribe(), replies.subscribe());
        let accepted = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&accepted);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                connections.spawn(carry(client, port, there.clone(), back.clone()));
            }
        });
        Self {
            address,
            commands,
            replies,
            accepted,
            _tasks: tasks,
        }
    }

    /// The connections that were opened so far.
    pub fn connections(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }

    pub fn replies_take(&self, delay: Duration) {
        self.replies.send_replace(delay);
    }

    /// Commands and replies take half of `latency` each.
    pub fn round_trips_take(&self, latency: Duration) {
        self.commands.send_replace(latency / 2);
        self.replies.send_replace(latency / 2);
    }
}

async fn carry(
    client: TcpStream,
    port: u16,
    there: watch::Receiver<Duration>,
    back: watch::Receiver<Duration>,
) {
    let server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::join!(
        pass_on(from_client, to_server, there),
        pass_on(from_server, to_client, back)
    );
}

/// Passes bytes on in order, each piece after the delay of the time when it came: also when who
/// sent it has gone meanwhile.
async fn pass_on(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    delay: watch::Receiver<Duration>,
) {
    let (pieces, mut delayed) = mpsc::unbounded_channel();
    let read = async move {
        let mut piece = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = from.read(&mut piece).await {
            let due = clock::now() + *delay.borrow();
            if pieces.send((due, piece[..count].to_vec())).is_err() {
                return;
            }
        }
    };
    let write = async move {
        while let Some((due, piece)) = delayed.recv().await {
            take_until(due).await;
            if to.write_all(&piece).await.is_err() {
                return;
            }
        }
    };
    tokio::join!(read, write);
}

/// Takes until `due`. Timers are no finer than a millisecond, and a thread's sleep is.
async fn take_until(due: Instant) {
    let left = due.saturating_duration_since(clock::now());
    if !left.is_zero() {
        spawn_blocking(move || pause(left)).await.unwrap();
    }
}
