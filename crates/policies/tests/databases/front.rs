//! A relay before a server, and the faults it can have.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    None,
    /// Every connection is closed.
    Closed,
    /// Connections are accepted and kept, and nothing comes through.
    Silent,
    /// Once: the connection is cut before the server gets these words.
    CutBefore(&'static str),
    /// Once: the connection is cut after the server has answered these words, and the answer is
    /// lost.
    CutAfter(&'static str),
}

pub struct Front {
    pub port: u16,
    fault: Arc<Mutex<Fault>>,
    /// Counts up when all connections are to end.
    round: watch::Sender<u32>,
    /// How often clients have sent something.
    sent: Arc<AtomicUsize>,
}

impl Front {
    pub async fn start(server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (round, _) = watch::channel(0);
        let fault = Arc::new(Mutex::new(Fault::None));
        let (known, rounds) = (Arc::clone(&fault), round.clone());
        let sent = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&sent);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(relay(
                    client,
                    server,
                    Arc::clone(&known),
                    Arc::clone(&counted),
                    rounds.subscribe(),
                ));
            }
        });
        Self {
            port,
            fault,
            round,
            sent,
        }
    }

    /// How often clients have sent something.
    pub fn sent(&self) -> usize {
        self.sent.load(Ordering::Relaxed)
    }

    /// From now on.
    pub fn set(&self, fault: Fault) {
        *self.fault.lock().unwrap() = fault;
        if fault == Fault::Closed {
            self.close_all();
        }
    }

    pub fn close_all(&self) {
        self.round.send_modify(|round| *round += 1);
    }

    /// Closes every connection, and waits until all are.
    pub async fn close_each(&self) {
        self.close_all();
        self.round.closed().await;
    }

    pub fn fault(&self) -> Fault {
        *self.fault.lock().unwrap()
    }
}

async fn relay(
    client: TcpStream,
    server: u16,
    fault: Arc<Mutex<Fault>>,
    sent: Arc<AtomicUsize>,
    mut round: watch::Receiver<u32>,
) {
    if *fault.lock().unwrap() == Fault::Closed {
        return;
    }
    let server = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
    let ((from_client, to_client), (from_server, to_server)) =
        (client.into_split(), server.into_split());
    // The next answer is lost.
    let cut = AtomicBool::new(false);
    let marks = Sent {
        cut: &cut,
        count: &sent,
    };
    tokio::select! {
        () = requests(from_client, to_server, Arc::clone(&fault), &marks) => {}
        () = answers(from_server, to_client, fault, &cut) => {}
        _ = round.changed() => {}
    }
}

/// The marks that what a client sends leaves.
struct Sent<'a> {
    cut: &'a AtomicBool,
    count: &'a AtomicUsize,
}

async fn requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    fault: Arc<Mutex<Fault>>,
    Sent { cut, count }: &Sent<'_>,
) {
    let mut buffer = vec![0; 65536];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        count.fetch_add(1, Ordering::Relaxed);
        let bytes = &buffer[..read];
        let has = |words: &str| {
            bytes
                .windows(words.len())
                .any(|part| part == words.as_bytes())
        };
        let now = *fault.lock().unwrap();
        match now {
            Fault::Silent => std::future::pending().await,
            Fault::CutBefore(words) if has(words) => {
                *fault.lock().unwrap() = Fault::None;
                return;
            }
            _ => {}
        }
        cut.store(
            matches!(now, Fault::CutAfter(words) if has(words)),
            Ordering::Relaxed,
        );
        if to.write_all(bytes).await.is_err() {
            return;
        }
    }
}

async fn answers(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    fault: Arc<Mutex<Fault>>,
    cut: &AtomicBool,
) {
    let mut buffer = vec![0; 65536];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let bytes = &buffer[..read];
        let now = *fault.lock().unwrap();
        match now {
            Fault::Silent => std::future::pending().await,
            Fault::CutAfter(_) if cut.load(Ordering::Relaxed) => {
                *fault.lock().unwrap() = Fault::None;
                return;
            }
            _ => {}
        }
        if to.write_all(bytes).await.is_err() {
            return;
        }
    }
}
