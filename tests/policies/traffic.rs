//! Clients that send requests until the test ends, each on a connection of its own.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tollgate_testing::pace;

use crate::process::{Gateway, eventually};

/// Of ten requests, those of one client that sends more than its share. All others are of clients
/// that come once.
pub const GREEDY: u64 = 3;

/// Between two requests of a connection.
const PAUSE: Duration = Duration::from_millis(4);

/// Requests to one path of a gateway.
pub struct Traffic {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    denied: Arc<AtomicU64>,
    clients: Vec<JoinHandle<()>>,
}

impl Traffic {
    /// On so many connections, with [`GREEDY`] of ten requests of one client.
    pub fn start(gateway: &Gateway, path: &str, connections: usize) -> Self {
        let (stop, sent, denied) = (
            Arc::<AtomicBool>::default(),
            Arc::<AtomicU64>::default(),
            Arc::default(),
        );
        let begun = Arc::<AtomicU64>::default();
        let client = |_| {
            let (address, path) = (gateway.listeners[0], path.to_owned());
            let (stop, sent, denied) = (Arc::clone(&stop), Arc::clone(&sent), Arc::clone(&denied));
            let begun = Arc::clone(&begun);
            thread::spawn(move || send(address, &path, &begun, (&stop, &sent, &denied)))
        };
        let clients = (0..connections).map(client).collect();
        Self {
            stop,
            sent,
            denied,
            clients,
        }
    }

    /// Waits until so many more requests were answered.
    pub fn go_on(&self, requests: u64) {
        let before = self.sent.load(Ordering::Relaxed);
        eventually(&format!("{requests} more requests are answered"), || {
            (self.sent.load(Ordering::Relaxed) >= before + requests).then_some(())
        });
    }

    /// Requests that were sent, and those of them that were denied.
    pub fn counts(&self) -> (u64, u64) {
        (
            self.sent.load(Ordering::Relaxed),
            self.denied.load(Ordering::Relaxed),
        )
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for client in self.clients.drain(..) {
            let ended = client.join();
            assert!(thread::panicking() || ended.is_ok(), "a client failed");
        }
    }
}

fn send(
    address: SocketAddr,
    path: &str,
    begun: &AtomicU64,
    (stop, sent, denied): (&AtomicBool, &AtomicU64, &AtomicU64),
) {
    let mut stream = BufReader::new(TcpStream::connect(address).unwrap());
    while !stop.load(Ordering::Relaxed) {
        // Each has a number of its own, whatever connection the machine holds up.
        let number = begun.fetch_add(1, Ordering::Relaxed);
        let client = if number % 10 < GREEDY {
            "greedy".to_owned()
        } else {
            format!("{:x}", fastrand::u64(..))
        };
        let head = format!("GET {path} HTTP/1.1\r\nhost: a\r\nx-client: {client}\r\n\r\n");
        stream.get_mut().write_all(head.as_bytes()).unwrap();
        let status = answer(&mut stream);
        denied.fetch_add(u64::from(status == 429), Ordering::Relaxed);
        sent.fetch_add(1, Ordering::Relaxed);
        pace::pause(PAUSE);
    }
}

/// Reads an answer, and returns its status.
fn answer(stream: &mut BufReader<TcpStream>) -> u16 {
    let (mut status, mut length) = (0, 0);
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        let line = line.trim_end().to_ascii_lowercase();
        if let Some(rest) = line.strip_prefix("http/1.1 ") {
            status = rest[..3].parse().unwrap();
        } else if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        } else if line.is_empty() {
            break;
        }
    }
    stream.read_exact(&mut vec![0; length]).unwrap();
    status
}
