//! Clients that ask as fast as they are told to, and remember what they got and how long it took.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tollgate_testing::pace;

/// An answer, and when and how fast it came.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub at: Instant,
    pub status: u16,
    pub took: Duration,
    /// Which of the targets answered.
    pub target: usize,
}

/// Clients at work.
pub struct Load {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<()>>,
    samples: Arc<Mutex<Vec<Sample>>>,
}

impl Load {
    /// `clients` connections to each target, which ask for `/` every `pause`, or without one.
    pub fn start(targets: &[SocketAddr], clients: usize, pause: Duration) -> Self {
        let targets: Vec<_> = targets.iter().map(|address| (*address, "/")).collect();
        Self::of_paths(&targets, clients, pause)
    }

    /// Like `start`, each target with the path to ask for.
    pub fn of_paths(
        targets: &[(SocketAddr, &'static str)],
        clients: usize,
        pause: Duration,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let samples = Arc::new(Mutex::new(Vec::new()));
        let clients = targets
            .iter()
            .enumerate()
            .flat_map(|(target, address)| (0..clients).map(move |_| (target, *address)))
            .map(|(target, (address, path))| {
                let (stop, samples) = (stop.clone(), samples.clone());
                thread::spawn(move || drive(target, address, path, pause, &stop, &samples))
            })
            .collect();
        Self {
            stop,
            clients,
            samples,
        }
    }

    /// The answers so far.
    pub fn samples(&self) -> Vec<Sample> {
        self.samples.lock().unwrap().clone()
    }

    /// Ends the load; a client that failed fails the test.
    pub fn stop(self) -> Vec<Sample> {
        self.stop.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.join().expect("a client failed");
        }
        std::mem::take(&mut self.samples.lock().unwrap())
    }
}

/// Lets the load run on.
pub fn run_for(time: Duration) {
    pace::pause(time);
}

fn drive(
    target: usize,
    address: SocketAddr,
    path: &str,
    pause: Duration,
    stop: &AtomicBool,
    samples: &Mutex<Vec<Sample>>,
) {
    let mut stream = TcpStream::connect(address).expect("connect");
    stream.set_nodelay(true).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n");
    while !stop.load(Ordering::Relaxed) {
        let at = Instant::now();
        stream.write_all(request.as_bytes()).expect("send");
        let status = read_answer(&mut stream);
        samples.lock().unwrap().push(Sample {
            at,
            status,
            took: at.elapsed(),
            target,
        });
        if !pause.is_zero() {
            pace::pause(pause);
        }
    }
}

/// Reads one answer that has a Content-Length.
fn read_answer(stream: &mut TcpStream) -> u16 {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    let head = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        let count = stream.read(&mut chunk).expect("receive");
        assert!(
            count > 0,
            "closed within an answer: {:?}",
            String::from_utf8_lossy(&bytes)
        );
        bytes.extend_from_slice(&chunk[..count]);
    };
    let text = std::str::from_utf8(&bytes[..head])
        .unwrap()
        .to_ascii_lowercase();
    let status = text[9..12].parse().unwrap();
    let length: usize = text
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .expect("a length")
        .parse()
        .unwrap();
    let missing = (head + length)
        .checked_sub(bytes.len())
        .expect("one answer at a time");
    stream.read_exact(&mut vec![0; missing]).expect("the body");
    status
}
