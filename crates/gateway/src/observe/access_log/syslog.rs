//! Sends lines to a syslog, each as a datagram.
//!
//! Guarantees that a syslog that is away, or takes nothing, blocks the log's thread for a bounded
//! time per batch.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;

use super::line_stream::WriteOutcome;
use super::receiver::ReceiverLookup;
use super::timestamp::CalendarTime;
use tollgate_limiter::clock::{self, Instant};

/// The longest time that one datagram may block, and that a resolver may take while no socket is
/// open.
const PATIENCE: Duration = Duration::from_secs(1);

/// The time for which the address of a name is used. UDP gives no sign when the name moves.
const FRESH: Duration = Duration::from_secs(30);

/// Severity 6 (informational) of facility 16 (local0), as in HAProxy's examples and RFC 5424
/// §6.2.1.
const PRIORITY: &str = "<134>";

/// The longest name of a host (RFC 5424 §6).
const LONGEST_HOST: usize = 255;

/// Sends each line as a datagram of syslog.
pub struct SyslogSender {
    socket: SyslogSocket,
    /// The part of the header behind the time, the same in each datagram.
    header_tail: String,
    datagram: Vec<u8>,
}

/// A socket that the first line opens, and the first line after an error opens anew.
enum SyslogSocket {
    Udp(UdpTarget),
    Unix {
        path: PathBuf,
        socket: Option<UnixDatagram>,
    },
}

/// A syslog over the network.
struct UdpTarget {
    lookup: ReceiverLookup,
    socket: Option<UdpSocket>,
    /// The time at which a name is looked up again.
    stale_at: Instant,
    fresh: Duration,
}

impl SyslogSender {
    pub fn udp(lookup: ReceiverLookup) -> Self {
        let host = host_name();
        let host = if host.is_empty() { "-" } else { &host };
        let header_tail = format!(" {host} tollgate {} access - ", std::process::id());
        let target = UdpTarget {
            lookup,
            socket: None,
            stale_at: clock::now(),
            fresh: FRESH,
        };
        Self {
            socket: SyslogSocket::Udp(target),
            header_tail,
            datagram: Vec::new(),
        }
    }

    /// A sender to the syslog of this machine, which adds the host's name itself.
    pub fn unix(path: &Path) -> Self {
        let header_tail = format!(" tollgate[{}]: ", std::process::id());
        Self {
            socket: SyslogSocket::Unix {
                path: path.to_owned(),
                socket: None,
            },
            header_tail,
            datagram: Vec::new(),
        }
    }

    /// Sends whole lines. After an error other than that of a line too long or of an earlier one,
    /// the remaining lines are lost: each might block for [`PATIENCE`] again.
    pub fn send(&mut self, lines: &[u8]) -> WriteOutcome {
        let time = CalendarTime::new(clock::wall());
        let mut outcome = WriteOutcome::default();
        let mut left = lines;
        let mut is_retried = false;
        while let Some(end) = left.iter().position(|byte| *byte == b'\n') {
            self.compose(time, &left[..end]);
            if let Err(error) = self.socket.send(&self.datagram) {
                let reports_late = self.socket.reports_late(&error);
                if !reports_late && error.raw_os_error() != Some(Errno::MSGSIZE.raw_os_error()) {
                    self.socket.close();
                    let rest = WriteOutcome::lost(left, error);
                    return WriteOutcome {
                        lost: outcome.lost + rest.lost,
                        ..rest
                    };
                }
                outcome = WriteOutcome {
                    lost: outcome.lost + 1,
                    error: Some(error),
                };
                // The kernel tells that an earlier datagram was refused, which is counted as lost,
                // and has not sent this line. A second try is its last.
                is_retried = reports_late && !is_retried;
                if is_retried {
                    continue;
                }
            }
            is_retried = false;
            left = &left[end + 1..];
        }
        outcome
    }

    /// Composes a datagram, with the header of syslog(3) for the machine's syslog, or of RFC 5424
    /// over the network.
    fn compose(&mut self, time: CalendarTime, line: &[u8]) {
        let datagram = &mut self.datagram;
        datagram.clear();
        datagram.extend_from_slice(PRIORITY.as_bytes());
        match self.socket {
            SyslogSocket::Udp(_) => {
                datagram.extend_from_slice(b"1 ");
                time.write_iso(datagram);
            }
            SyslogSocket::Unix { .. } => time.write_syslog(datagram),
        }
        datagram.extend_from_slice(self.header_tail.as_bytes());
        datagram.extend_from_slice(line);
    }
}

impl SyslogSocket {
    fn send(&mut self, datagram: &[u8]) -> io::Result<()> {
        match self {
            Self::Udp(target) => {
                target.open()?.send(datagram)?;
            }
            Self::Unix { path, socket } => {
                let open = match socket.take() {
                    Some(open) => open,
                    None => unbound()?,
                };
                // A datagram goes to the path: a syslog that was restarted has another socket
                // there.
                socket.insert(open).send_to(datagram, path)?;
            }
        }
        Ok(())
    }

    /// Whether `error` says that an earlier datagram found nobody. The kernel says so once, instead
    /// of sending the next one.
    fn reports_late(&self, error: &io::Error) -> bool {
        matches!(self, Self::Udp(_)) && error.kind() == io::ErrorKind::ConnectionRefused
    }

    fn close(&mut self) {
        match self {
            Self::Udp(target) => target.socket = None,
            Self::Unix { socket, .. } => *socket = None,
        }
    }
}

impl UdpTarget {
    /// The socket. While one is open, a name is looked up anew without waiting for the answer, with
    /// each line until there is one.
    fn open(&mut self) -> io::Result<&UdpSocket> {
        let open = match self.socket.take() {
            Some(open) if !self.lookup.is_by_name() || clock::now() < self.stale_at => open,
            Some(former) => self.connect(Duration::ZERO).unwrap_or(former),
            None => self.connect(PATIENCE)?,
        };
        Ok(self.socket.insert(open))
    }

    /// A socket to the first address to which this machine has a route.
    fn connect(&mut self, patience: Duration) -> io::Result<UdpSocket> {
        let mut failure = io::ErrorKind::NotFound.into();
        for address in self.lookup.find(patience)? {
            match connected(address) {
                Ok(socket) => {
                    self.stale_at = clock::now() + self.fresh;
                    return Ok(socket);
                }
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }
}

fn connected(address: SocketAddr) -> io::Result<UdpSocket> {
    let any = match address {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(address)?;
    socket.set_write_timeout(Some(PATIENCE))?;
    Ok(socket)
}

fn unbound() -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(PATIENCE))?;
    Ok(socket)
}

/// The name of this machine, without characters that RFC 5424 forbids.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.chars()
        .filter(char::is_ascii_graphic)
        .take(LONGEST_HOST)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;
    use tollgate_spec::access_log::LineReceiver;

    fn sender_to(address: SocketAddr) -> SyslogSender {
        SyslogSender::udp(ReceiverLookup::new(LineReceiver::Address(address)))
    }

    fn text(received: io::Result<usize>, buffer: &[u8]) -> String {
        String::from_utf8(buffer[..received.unwrap()].to_vec()).unwrap()
    }

    #[test]
    fn each_line_is_a_datagram_with_the_header_of_rfc_5424() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut sender = sender_to(receiver.local_addr().unwrap());
        assert_eq!(sender.send(b"one\ntwo\n").lost, 0);
        let mut buffer = [0; 512];
        for line in ["one", "two"] {
            let datagram = text(receiver.recv(&mut buffer), &buffer);
            let words: Vec<&str> = datagram.split(' ').collect();
            let [priority, time, host, program, process, kind, data, message] = words[..] else {
                panic!("{datagram}")
            };
            assert_eq!(
                (priority, program, kind, data, message),
                ("<134>1", "tollgate", "access", "-", line)
            );
            assert!(time.ends_with('Z') && !host.is_empty(), "{datagram}");
            assert_eq!(process.parse(), Ok(std::process::id()));
        }
    }

    #[test]
    fn a_name_is_looked_up_again_and_its_former_address_is_kept_while_that_fails() {
        let receivers = [0; 2].map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
        let addresses = receivers
            .each_ref()
            .map(|receiver| receiver.local_addr().unwrap());
        let answer = Arc::new(Mutex::new(Some(addresses[0])));
        let receiver = LineReceiver::Name {
            host: "logs.test".into(),
            port: 514,
        };
        let look_up = {
            let answer = answer.clone();
            Arc::new(move |_: &str, _| Ok(answer.lock().iter().copied().collect()))
        };
        let mut sender = SyslogSender::udp(ReceiverLookup::with_resolver(receiver, look_up));
        let SyslogSocket::Udp(target) = &mut sender.socket else {
            panic!()
        };
        target.fresh = Duration::ZERO;
        let mut buffer = [0; 512];
        for (known, receiver) in [(Some(addresses[0]), 0), (None, 0), (Some(addresses[1]), 1)] {
            *answer.lock() = known;
            // The sender does not wait for the resolver: lines until then go to the former address.
            receivers[receiver]
                .set_read_timeout(Some(Duration::from_millis(5)))
                .unwrap();
            let mut received = Err(io::ErrorKind::WouldBlock.into());
            for _ in 0..2_000 {
                assert_eq!(sender.send(b"one\n").lost, 0);
                received = receivers[receiver].recv(&mut buffer);
                if received.is_ok() {
                    break;
                }
            }
            assert!(text(received, &buffer).ends_with(" - one"));
        }
    }

    #[test]
    fn lines_that_nobody_takes_over_udp_are_counted_once_that_is_known() {
        let gone = UdpSocket::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let mut sender = sender_to(gone);
        // The kernel reports a loss with the next datagram: that of the last line is never known.
        assert_eq!(sender.send(b"one\ntwo\nthree\n").lost, 2);
    }

    #[test]
    fn a_syslog_that_has_come_back_gets_the_line_that_says_it_was_away() {
        let address = UdpSocket::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let mut sender = sender_to(address);
        assert_eq!(sender.send(b"one\n").lost, 0);
        let receiver = UdpSocket::bind(address).unwrap();
        assert_eq!(sender.send(b"two\n").lost, 1, "the first one");
        let mut buffer = [0; 512];
        assert!(text(receiver.recv(&mut buffer), &buffer).ends_with(" - two"));
    }

    #[test]
    fn the_local_syslog_may_come_and_go_and_gets_the_header_of_syslog_3() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut sender = SyslogSender::unix(&path);
        let outcome = sender.send(b"one\ntwo\n");
        assert_eq!(
            (outcome.lost, outcome.error.unwrap().kind()),
            (2, io::ErrorKind::NotFound)
        );
        let mut buffer = [0; 512];
        for _ in 0..2 {
            let receiver = UnixDatagram::bind(&path).unwrap();
            assert_eq!(sender.send(b"three\n").lost, 0);
            let datagram = text(receiver.recv(&mut buffer), &buffer);
            assert!(datagram.starts_with("<134>"), "{datagram}");
            // `<134>`, and a time such as `Nov 22 16:27:14`.
            assert_eq!(datagram.find(" tollgate["), Some(20), "{datagram}");
            assert!(
                datagram.ends_with(&format!(" tollgate[{}]: three", std::process::id())),
                "{datagram}"
            );
            drop(receiver);
            assert_eq!(sender.send(b"four\n").lost, 1);
            std::fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn a_local_syslog_that_takes_nothing_keeps_the_thread_for_one_datagram_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let receiver = UnixDatagram::bind(&path).unwrap();
        let mut sender = SyslogSender::unix(&path);
        let lines = b"line\n".repeat(10_000);
        let outcome = sender.send(&lines);
        assert!(outcome.lost > 5_000 && outcome.lost < 10_000, "{outcome:?}");
        let mut buffer = [0; 512];
        assert!(text(receiver.recv(&mut buffer), &buffer).ends_with("line"));
    }

    #[test]
    fn a_line_that_is_too_long_for_a_datagram_costs_no_other() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut sender = sender_to(receiver.local_addr().unwrap());
        let lines = [b"one\n".to_vec(), vec![b'x'; 70_000], b"\ntwo\n".to_vec()].concat();
        assert_eq!(sender.send(&lines).lost, 1);
        let mut buffer = [0; 512];
        for line in ["one", "two"] {
            assert!(text(receiver.recv(&mut buffer), &buffer).ends_with(line));
        }
    }
}
