//! Tells a node whose process ended from one that is cut off: Redis knows its connections.
//!
//! Each node keeps a connection that it never closes while it lives, and announces its number. The
//! system closes the connection when the process ends, and Redis then has it no longer. A network
//! that swallows everything closes nothing. Guarantees that a connection counts only where nothing
//! stands between node and Redis that could close it for both, such as a proxy: then its address in
//! Redis is that of this process's own socket. Guarantees that only the run of the server that knew
//! a connection is believed that it has ended.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use fred::types::Value;
use parking_lot::Mutex;
use tokio::time::timeout;

use crate::store::redis::connection::connector::{CallLimits, ConnectError, ConnectionEvents};
use crate::store::redis::connection::spec::RedisSpec;
use crate::store::redis::heartbeat::member::{Connection, Member};
use crate::store::redis::topology::any_topology::Topology;

/// For an answer of Redis. The next beat waits for it.
const TIMEOUT: Duration = Duration::from_millis(200);

/// A connection that owes an answer is replaced only after this. Packets are lost before a network
/// fails, and a node that is cut off must not have closed its connection just then.
const PATIENCE: Duration = Duration::from_secs(60);

/// The port of a Unix socket, to the client library.
const NO_PORT: u16 = 0;

/// The connection of this node that ends with its process.
pub(super) struct Witness {
    topology: Topology,
    known: Mutex<KnownConnection>,
}

/// A connection as Redis knows it.
#[derive(Clone, Default)]
struct KnownConnection {
    connection: Option<Connection>,
    /// Where it comes from.
    address: String,
    /// Whether nothing stands between.
    is_direct: bool,
}

impl Witness {
    /// Starts connecting, in the current runtime, and returns at once.
    pub fn connect(spec: &RedisSpec) -> Result<Self, ConnectError> {
        let limits = CallLimits::strict(PATIENCE);
        Ok(Self {
            topology: Topology::start(spec, limits, ConnectionEvents::Silent)?,
            known: Mutex::default(),
        })
    }

    /// The connection to announce. `None`: its end would say nothing.
    pub fn announced(&self) -> Option<Connection> {
        let known = self.known.lock();
        known.connection.clone().filter(|_| known.is_direct)
    }

    /// Learns which connection it is.
    pub async fn look(&self, hash_slot: u16) {
        let line = self.ask(hash_slot, "CLIENT", vec!["INFO".into()]).await;
        let line = line.unwrap_or_default();
        if self.known.lock().is_at(&line) {
            return;
        }
        // Another connection may be to another server.
        let server = self.ask(hash_slot, "INFO", vec!["server".into()]).await;
        let port = self.topology.port(hash_slot);
        *self.known.lock() = KnownConnection::new(&line, &server.unwrap_or_default(), port);
    }

    /// The `silent` nodes whose process has ended.
    pub async fn ended(
        &self,
        silent: impl Iterator<Item = &Member>,
        hash_slot: u16,
    ) -> Vec<Member> {
        let known = self.known.lock().clone();
        let Some(own) = &known.connection else {
            return Vec::new();
        };
        let suspects: Vec<_> = silent
            .filter_map(|member| Some((member, member.connection()?)))
            .filter(|(_, connection)| connection.run == own.run)
            .collect();
        if suspects.is_empty() {
            return Vec::new();
        }
        let mut words = vec![Value::from("LIST"), Value::from("ID")];
        words.extend(
            suspects
                .iter()
                .map(|(_, connection)| connection.number)
                .chain([own.number])
                .map(|number| Value::from(number.to_string())),
        );
        let list = self
            .ask(hash_slot, "CLIENT", words)
            .await
            .unwrap_or_default();
        if !list.lines().any(|line| known.is_at(line)) {
            return Vec::new();
        }
        let mut ended = Vec::new();
        for (member, connection) in suspects {
            if !list
                .lines()
                .any(|line| number(line) == Some(connection.number))
            {
                ended.push(member.clone());
            }
        }
        ended
    }

    /// Closes the connection. Nothing waits for a Redis that is slow: the process ends.
    pub async fn quit(&self) {
        drop(timeout(TIMEOUT, self.topology.quit()).await);
    }

    /// The answer to a command. `None`: Redis did not answer, or does not permit it.
    async fn ask(&self, hash_slot: u16, name: &'static str, words: Vec<Value>) -> Option<String> {
        let answer = self.topology.command(hash_slot, name, words);
        timeout(TIMEOUT, answer).await.ok()?.ok()
    }
}

impl KnownConnection {
    /// The connection that Redis describes in `line`, to the `server` that describes itself so, and
    /// was opened to this `port`. Of other lines: none.
    fn new(line: &str, server: &str, port: Option<u16>) -> Self {
        let address = field(line, "addr").unwrap_or_default();
        let mut lines = server.lines();
        let run = lines.find_map(|line| line.strip_prefix("run_id:"));
        let connection = number(line).zip(run).map(|(number, run)| Connection {
            number,
            run: run.to_owned(),
        });
        Self {
            is_direct: connection.is_some() && is_own_socket(address, port),
            connection,
            address: address.to_owned(),
        }
    }

    /// Whether Redis describes this connection in `line`.
    fn is_at(&self, line: &str) -> bool {
        self.connection
            .as_ref()
            .is_some_and(|own| number(line) == Some(own.number))
            && field(line, "addr") == Some(&*self.address)
    }
}

/// A field of a line of `CLIENT LIST`.
fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = line.split_ascii_whitespace();
    fields.find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
}

fn number(line: &str) -> Option<u64> {
    field(line, "id")?.parse().ok()
}

/// Whether a socket of this process has this address, and leads to this `port`, which is known on
/// Linux alone. A path is that of a Unix socket, which has no port: where this process connected to
/// one, a proxy on Redis's machine came by the path.
fn is_own_socket(address: &str, port: Option<u16>) -> bool {
    let Some(port) = port else {
        return false;
    };
    if address.starts_with('/') {
        return port == NO_PORT;
    }
    let Ok(address) = address.parse::<SocketAddr>() else {
        return false;
    };
    let inodes = inodes(address, port);
    let Ok(files) = fs::read_dir("/proc/self/fd") else {
        return false;
    };
    files
        .filter_map(|file| fs::read_link(file.ok()?.path()).ok())
        .any(|target| inodes.iter().any(|inode| target.as_os_str() == &**inode))
}

/// The names, as those of open files, of the TCP sockets of this machine with this local address,
/// which lead to this `port`.
fn inodes(address: SocketAddr, port: u16) -> Vec<String> {
    let (table, words) = match address.ip() {
        IpAddr::V4(ip) => ("/proc/self/net/tcp", vec![u32::from_ne_bytes(ip.octets())]),
        IpAddr::V6(ip) => {
            let words = ip.octets();
            let (words, _) = words.as_chunks::<4>();
            let words = words.iter().map(|word| u32::from_ne_bytes(*word));
            ("/proc/self/net/tcp6", words.collect())
        }
    };
    let mut local: String = words.iter().map(|word| format!("{word:08X}")).collect();
    local.push_str(&format!(":{:04X}", address.port()));
    let remote = format!(":{port:04X}");
    let table = fs::read_to_string(table).unwrap_or_default();
    let mut inodes = Vec::new();
    for line in table.lines() {
        let mut fields = line.split_ascii_whitespace();
        if fields.nth(1) == Some(&*local)
            && fields.next().is_some_and(|peer| peer.ends_with(&remote))
            && let Some(inode) = fields.nth(6)
        {
            inodes.push(format!("socket:[{inode}]"));
        }
    }
    inodes
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    const LINE: &str = "id=7 addr=127.0.0.1:1 laddr=127.0.0.1:6379 fd=8 name= age=3 user=default";

    #[test]
    fn a_line_has_a_number_and_an_address() {
        assert_eq!(
            (number(LINE), field(LINE, "addr")),
            (Some(7), Some("127.0.0.1:1"))
        );
        assert_eq!((number("ERR"), field("ERR", "addr")), (None, None));
    }

    #[test]
    fn a_socket_of_this_process_is_its_own_and_no_other_is() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                continue;
            };
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let own = stream.local_addr().unwrap().to_string();
            let port = listener.local_addr().unwrap().port();
            assert!(is_own_socket(&own, Some(port)), "{own}");
            // A proxy in this process leads elsewhere.
            assert!(!is_own_socket(&own, Some(port ^ 1)), "{own}");
            drop((listener, stream));
            assert!(!is_own_socket(&own, Some(port)), "{own}");
        }
        assert!(!is_own_socket("", Some(1)) && !is_own_socket("192.0.2.1:5", Some(1)));
    }

    #[test]
    fn a_path_is_that_of_a_proxy_where_this_process_connected_to_a_port() {
        let path = "/run/redis.sock:0";
        assert!(is_own_socket(path, Some(NO_PORT)));
        assert!(!is_own_socket(path, Some(6379)) && !is_own_socket(path, None));
    }
}
