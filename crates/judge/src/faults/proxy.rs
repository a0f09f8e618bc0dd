//! A TCP proxy on loopback between a node and Redis, with faults that can be switched while it
//! runs.
//!
//! Guarantees to keep the bytes of a connection in order, as TCP does. Calls overtake each other on
//! different connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::BytesMut;
use fastrand::Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::sleep_until;
use tollgate_limiter::clock::{self, Instant};

use crate::drive::thread::{runtime, spawn};
use crate::error::Error;

/// A fault of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// Each piece sent to the server takes a random time up to this; answers take none.
    Delay(Duration),
    /// Each piece sent to the server takes exactly this; answers take none.
    Distance(Duration),
    /// Connections are closed, new ones as soon as they are accepted.
    Cut,
    /// Connections stay open, and nothing passes. Bytes sent meanwhile arrive once the fault ends.
    Silence,
}

/// A running proxy. Ends when dropped.
pub struct FaultyProxy {
    pub address: SocketAddr,
    fault: Arc<watch::Sender<Fault>>,
    _stop: oneshot::Sender<()>,
    _thread: JoinHandle<()>,
}

/// Pieces on their way, at most.
const IN_FLIGHT: usize = 1_024;

const PIECE: usize = 16 * 1024;

impl FaultyProxy {
    /// Opens a proxy to `server`, on a port that the system chooses.
    ///
    /// # Errors
    /// When the port or the thread cannot be had.
    pub fn open(server: &str, fault: Fault, seed: u64) -> Result<Self, Error> {
        let socket = std::net::TcpListener::bind(("127.0.0.1", 0))?;
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        let fault = Arc::new(watch::channel(fault).0);
        let (stop, stopped) = oneshot::channel::<()>();
        let server = server.to_owned();
        let faults = fault.clone();
        let runtime = runtime()?;
        let thread = spawn("torture-proxy", move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = stopped => {}
                    () = accept(socket, server, faults, seed) => {}
                }
            });
        })?;
        Ok(Self {
            address,
            fault,
            _stop: stop,
            _thread: thread,
        })
    }

    pub fn set(&self, fault: Fault) {
        self.fault.send_replace(fault);
    }
}

async fn accept(
    socket: std::net::TcpListener,
    server: String,
    fault: Arc<watch::Sender<Fault>>,
    seed: u64,
) {
    let mut rng = Rng::with_seed(seed);
    let Ok(listener) = TcpListener::from_std(socket) else {
        return;
    };
    loop {
        match listener.accept().await {
            Ok((client, _)) if *fault.borrow() != Fault::Cut => {
                tokio::spawn(relay(client, server.clone(), fault.subscribe(), rng.fork()));
            }
            Ok(_) => {}
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// Relays one connection until either side ends it or the fault cuts it.
async fn relay(client: TcpStream, server: String, fault: watch::Receiver<Fault>, rng: Rng) {
    let mut cut = fault.clone();
    let both = async {
        let server = TcpStream::connect(&server).await?;
        // Two small writes are two pieces, and neither waits for the other.
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        let there = one_way(from_client, to_server, Delays::new(fault.clone(), rng));
        let back = one_way(from_server, to_client, Delays::none(fault));
        tokio::try_join!(there, back).map(|_| ())
    };
    tokio::select! {
        // When one side has gone, the other is closed.
        _ = both => {}
        _ = cut.wait_for(|fault| *fault == Fault::Cut) => {}
    }
}

/// The delays of one direction of a connection.
struct Delays {
    fault: watch::Receiver<Fault>,
    rng: Option<Rng>,
}

impl Delays {
    fn new(fault: watch::Receiver<Fault>, rng: Rng) -> Self {
        Self {
            fault,
            rng: Some(rng),
        }
    }

    fn none(fault: watch::Receiver<Fault>) -> Self {
        Self { fault, rng: None }
    }

    fn next(&mut self) -> Duration {
        match (*self.fault.borrow(), &mut self.rng) {
            (Fault::Delay(most), Some(rng)) => most.mul_f64(rng.f64()),
            (Fault::Distance(exactly), Some(_)) => exactly,
            _ => Duration::ZERO,
        }
    }
}

async fn one_way(from: OwnedReadHalf, to: OwnedWriteHalf, delays: Delays) -> std::io::Result<()> {
    let fault = delays.fault.clone();
    let (pieces, arriving) = mpsc::channel(IN_FLIGHT);
    tokio::try_join!(receive(from, pieces, delays), deliver(to, arriving, fault)).map(|_| ())
}

/// Reads pieces and stamps each with the time at which it arrives.
async fn receive(
    mut from: OwnedReadHalf,
    pieces: mpsc::Sender<(Instant, BytesMut)>,
    mut delays: Delays,
) -> std::io::Result<()> {
    loop {
        let mut piece = BytesMut::with_capacity(PIECE);
        if from.read_buf(&mut piece).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let arrival = clock::now() + delays.next();
        if pieces.send((arrival, piece)).await.is_err() {
            return Ok(());
        }
    }
}

/// Writes pieces in order, each at its time.
async fn deliver(
    mut to: OwnedWriteHalf,
    mut pieces: mpsc::Receiver<(Instant, BytesMut)>,
    mut fault: watch::Receiver<Fault>,
) -> std::io::Result<()> {
    while let Some((arrival, piece)) = pieces.recv().await {
        if clock::now() < arrival {
            sleep_until(arrival).await;
        }
        if fault
            .wait_for(|fault| *fault != Fault::Silence)
            .await
            .is_err()
        {
            return Ok(());
        }
        to.write_all(&piece).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// A proxy to a listener, and both ends of a connection through it.
    fn connected(fault: Fault) -> (FaultyProxy, TcpStream, TcpStream) {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = FaultyProxy::open(&server.local_addr().unwrap().to_string(), fault, 1).unwrap();
        let client = TcpStream::connect(proxy.address).unwrap();
        let (accepted, _) = server.accept().unwrap();
        (proxy, client, accepted)
    }

    fn passes(from: &mut TcpStream, to: &mut TcpStream, text: &[u8]) -> bool {
        from.write_all(text).unwrap();
        let mut read = vec![0; text.len()];
        to.read_exact(&mut read).is_ok() && read == text
    }

    #[test]
    fn carries_bytes_both_ways_and_delays_those_to_the_server() {
        let distance = Duration::from_millis(20);
        let (_proxy, mut client, mut server) = connected(Fault::Distance(distance));
        let begun = clock::now();
        assert!(passes(&mut client, &mut server, b"there"));
        assert!(clock::now().saturating_duration_since(begun) >= distance);
        assert!(passes(&mut server, &mut client, b"back"));
    }

    #[test]
    fn a_cut_closes_connections_and_refuses_new_ones_until_it_ends() {
        let (proxy, mut client, _server) = connected(Fault::None);
        proxy.set(Fault::Cut);
        assert!(!client.read(&mut [0]).is_ok_and(|count| count > 0));
        let mut refused = TcpStream::connect(proxy.address).unwrap();
        assert!(!refused.read(&mut [0]).is_ok_and(|count| count > 0));
    }

    #[test]
    fn bytes_sent_into_silence_arrive_after_it() {
        let (proxy, mut client, mut server) = connected(Fault::None);
        assert!(passes(&mut client, &mut server, b"before"));
        proxy.set(Fault::Silence);
        client.write_all(b"meanwhile").unwrap();
        server
            .set_read_timeout(Some(Duration::from_millis(30)))
            .unwrap();
        assert!(server.read(&mut [0]).is_err());
        server.set_read_timeout(None).unwrap();
        proxy.set(Fault::None);
        let mut read = [0; 9];
        server.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"meanwhile");
    }
}
