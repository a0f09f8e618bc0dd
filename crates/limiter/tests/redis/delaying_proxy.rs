//! A proxy before a Redis whose replies take a time that a test chooses. Commands take none.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tollgate_limiter::clock::{self, Instant};

pub struct DelayingProxy {
    pub address: SocketAddr,
    delay: watch::Sender<Duration>,
    _tasks: JoinSet<()>,
}

impl DelayingProxy {
    pub async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (delay, delays) = watch::channel(Duration::ZERO);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(carry(client, port, delays.clone()));
            }
        });
        Self {
            address,
            delay,
            _tasks: tasks,
        }
    }

    pub fn replies_take(&self, delay: Duration) {
        self.delay.send_replace(delay);
    }
}

async fn carry(client: TcpStream, port: u16, delays: watch::Receiver<Duration>) {
    let server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let (mut from_client, to_client) = client.into_split();
    let (from_server, mut to_server) = server.into_split();
    let (pieces, delayed) = mpsc::unbounded_channel();
    tokio::select! {
        _ = tokio::io::copy(&mut from_client, &mut to_server) => {}
        () = read(from_server, pieces, delays) => {}
        () = write(to_client, delayed) => {}
    }
}

async fn read(
    mut from: OwnedReadHalf,
    to: mpsc::UnboundedSender<(Instant, Vec<u8>)>,
    delays: watch::Receiver<Duration>,
) {
    let mut piece = vec![0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut piece).await {
        let due = clock::now() + *delays.borrow();
        if to.send((due, piece[..count].to_vec())).is_err() {
            return;
        }
    }
}

async fn write(mut to: OwnedWriteHalf, mut pieces: mpsc::UnboundedReceiver<(Instant, Vec<u8>)>) {
    while let Some((due, piece)) = pieces.recv().await {
        tokio::time::sleep_until(due).await;
        if to.write_all(&piece).await.is_err() {
            return;
        }
    }
}
