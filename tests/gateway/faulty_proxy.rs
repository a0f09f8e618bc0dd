//! A proxy between a gateway and Redis that can fail: it drops every packet, or answers every
//! command with an error or with any bytes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use socket2::{Domain, Socket, Type};

/// Connections that may wait to be accepted.
const QUEUE: i32 = 64;

/// A proxy before the Redis on a port of this machine. Its threads end with the process.
pub struct FaultyProxy {
    socket: Arc<Socket>,
    state: Arc<State>,
}

struct State {
    mode: Mutex<Mode>,
    changed: Condvar,
    connections: Mutex<Vec<TcpStream>>,
}

#[derive(Clone, PartialEq, Eq)]
enum Mode {
    Through,
    /// Bytes vanish, and new connections are not accepted.
    Hole,
    /// Commands are answered with these bytes, but for those that a connection begins with.
    Answering(Vec<u8>),
}

impl FaultyProxy {
    pub fn to(port: u16) -> Self {
        let wire = Self::open();
        wire.lead_to(port);
        wire
    }

    /// A proxy without a server behind it yet.
    pub fn open() -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket
            .bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())
            .unwrap();
        socket.listen(QUEUE).unwrap();
        let state = State {
            mode: Mutex::new(Mode::Through),
            changed: Condvar::new(),
            connections: Mutex::default(),
        };
        Self {
            socket: Arc::new(socket),
            state: Arc::new(state),
        }
    }

    pub fn lead_to(&self, port: u16) {
        let (listener, state) = (
            TcpListener::from(self.socket.try_clone().unwrap()),
            self.state.clone(),
        );
        thread::spawn(move || {
            loop {
                drop(
                    state
                        .changed
                        .wait_while(state.mode.lock().unwrap(), |mode| *mode == Mode::Hole)
                        .unwrap(),
                );
                let Ok((client, _)) = listener.accept() else {
                    continue;
                };
                let state = state.clone();
                thread::spawn(move || carry(client, port, &state));
            }
        });
    }

    pub fn port(&self) -> u16 {
        self.socket
            .local_addr()
            .unwrap()
            .as_socket()
            .unwrap()
            .port()
    }

    /// Nothing comes through: open connections stay and carry nothing ever again, new ones hang.
    pub fn swallow(&self) {
        self.set(Mode::Hole);
        // The kernel drops what asks for a connection once this many wait.
        self.socket.listen(0).unwrap();
    }

    /// Connections break, and new ones are told `error` to every command.
    pub fn refuse(&self, error: &str) {
        self.answer(format!("-{error}\r\n").as_bytes());
    }

    /// Connections break, and new ones get this answer to every command.
    pub fn answer(&self, answer: &[u8]) {
        self.set(Mode::Answering(answer.to_owned()));
        self.cut();
    }

    /// Carries everything again.
    pub fn mend(&self) {
        let answered = matches!(*self.state.mode.lock().unwrap(), Mode::Answering(_));
        self.set(Mode::Through);
        self.socket.listen(QUEUE).unwrap();
        if answered {
            self.cut();
        }
    }

    fn set(&self, mode: Mode) {
        *self.state.mode.lock().unwrap() = mode;
        self.state.changed.notify_all();
    }

    fn cut(&self) {
        for connection in self.state.connections.lock().unwrap().drain(..) {
            // The other end may have gone first.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for FaultyProxy {
    fn drop(&mut self) {
        self.cut();
    }
}

impl State {
    fn mode(&self) -> Mode {
        self.mode.lock().unwrap().clone()
    }
}

/// Until either side ends it.
fn carry(client: TcpStream, port: u16, state: &Arc<State>) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else {
        return;
    };
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    state
        .connections
        .lock()
        .unwrap()
        .extend([client.try_clone().unwrap(), server.try_clone().unwrap()]);
    let (from, to, back) = (
        server.try_clone().unwrap(),
        client.try_clone().unwrap(),
        state.clone(),
    );
    thread::spawn(move || pass(from, to, &back));
    match state.mode() {
        Mode::Answering(answer) => answer_all(client, server, &answer),
        Mode::Through | Mode::Hole => pass(client, server, state),
    }
}

/// Copies one direction. A connection that has dropped bytes is lost for good, and is not even
/// closed.
fn pass(mut from: TcpStream, mut to: TcpStream, state: &State) {
    let mut lost = false;
    let mut piece = [0; 16 * 1_024];
    while let Ok(count @ 1..) = from.read(&mut piece) {
        lost = lost || state.mode() == Mode::Hole;
        if !lost && to.write_all(&piece[..count]).is_err() {
            break;
        }
    }
    if !lost {
        let _ = to.shutdown(Shutdown::Both);
    }
}

/// A connection begins with these, one after the other.
const GREETINGS: [&str; 9] = [
    "HELLO", "AUTH", "CLIENT", "INFO", "SELECT", "PING", "CLUSTER", "COMMAND", "ROLE",
];

fn answer_all(client: TcpStream, mut server: TcpStream, answer: &[u8]) {
    let mut answers = client.try_clone().unwrap();
    let mut commands = BufReader::new(client);
    while let Some((name, command)) = read_command(&mut commands) {
        let sent = if GREETINGS.contains(&name.as_str()) {
            server.write_all(&command)
        } else {
            answers.write_all(answer)
        };
        if sent.is_err() {
            break;
        }
    }
    let _ = server.shutdown(Shutdown::Both);
}

/// An array of bulk strings: its first, and all of it as it was sent.
fn read_command(from: &mut impl BufRead) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let parts = read_number(from, &mut bytes)?;
    let mut name = None;
    for _ in 0..parts {
        let length = read_number(from, &mut bytes)?;
        let begin = bytes.len();
        bytes.resize(begin + length + 2, 0);
        from.read_exact(&mut bytes[begin..]).ok()?;
        name.get_or_insert_with(|| {
            String::from_utf8_lossy(&bytes[begin..begin + length]).to_ascii_uppercase()
        });
    }
    Some((name?, bytes))
}

/// Of a line such as `*3`.
fn read_number(from: &mut impl BufRead, bytes: &mut Vec<u8>) -> Option<usize> {
    let begin = bytes.len();
    from.read_until(b'\n', bytes).ok()?;
    std::str::from_utf8(bytes.get(begin + 1..)?)
        .ok()?
        .trim_end()
        .parse()
        .ok()
}
