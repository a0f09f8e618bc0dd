//! Writes bare lines over a TCP connection, as collectors of logs take them.
//!
//! Guarantees that a reader that is away keeps the log's thread for a bounded time, and that a
//! connection is tried once a second: a reader that accepts and closes counts as away.

use std::io::{self, Read as _};
use std::net::TcpStream;
use std::time::Duration;

use super::line_stream::{LineStream, WriteOutcome};
use super::receiver::ReceiverLookup;
use tollgate_limiter::clock::{self, Instant};

/// Longest time for the resolver to find the reader, and for the reader to accept a connection, or
/// any bytes.
const PATIENCE: Duration = Duration::from_secs(2);

/// Addresses of a name that are tried, within the one time.
const MOST_ADDRESSES: usize = 4;

/// The time from one attempt to connect to the next.
const BACK_OFF: Duration = Duration::from_secs(1);

/// A connection that is opened when there are lines.
pub struct LineConnection {
    lookup: ReceiverLookup,
    stream: Option<LineStream<TcpStream>>,
    /// The time at which the next connection may be opened, whatever became of the last one.
    not_before: Option<Instant>,
}

impl LineConnection {
    pub fn new(lookup: ReceiverLookup) -> Self {
        Self {
            lookup,
            stream: None,
            not_before: None,
        }
    }

    /// Writes whole lines, as far as the reader takes them.
    pub fn write(&mut self, lines: &[u8]) -> WriteOutcome {
        let mut stream = match self.open() {
            Ok(stream) => stream,
            Err(error) => return WriteOutcome::lost(lines, error),
        };
        let outcome = stream.write(lines);
        // A line that was cut is the last one of its connection.
        if outcome.error.is_none() {
            self.stream = Some(stream);
        }
        outcome
    }

    /// The present connection, or another one if its reader has closed it.
    fn open(&mut self) -> io::Result<LineStream<TcpStream>> {
        if let Some(stream) = self.stream.take()
            && is_open(stream.get_ref()).unwrap_or(false)
        {
            return Ok(stream);
        }
        let now = clock::now();
        if let Some(not_before) = self.not_before
            && now < not_before
        {
            return Err(io::ErrorKind::NotConnected.into());
        }
        self.not_before = Some(now + BACK_OFF);
        let stream = self.connect()?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(LineStream::new(stream))
    }

    /// Connects to the first address that accepts.
    fn connect(&mut self) -> io::Result<TcpStream> {
        let addresses = self.lookup.find(PATIENCE)?;
        let tried = &addresses[..addresses.len().min(MOST_ADDRESSES)];
        let patience = PATIENCE / tried.len().max(1) as u32;
        let mut failure = io::ErrorKind::NotFound.into();
        for address in tried {
            match TcpStream::connect_timeout(address, patience) {
                Ok(stream) => return Ok(stream),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }
}

/// Whether the reader is still there, as far as is known. Drops bytes that the reader sends: none
/// are expected.
fn is_open(mut stream: &TcpStream) -> io::Result<bool> {
    stream.set_nonblocking(true)?;
    let read = stream.read(&mut [0; 512]);
    stream.set_nonblocking(false)?;
    match read {
        Ok(0) => Ok(false),
        Ok(_) => Ok(true),
        Err(error) => Ok(error.kind() == io::ErrorKind::WouldBlock),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::net::TcpListener;
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;
    use tollgate_spec::access_log::LineReceiver;

    fn connection_to(listener: &TcpListener) -> LineConnection {
        LineConnection::new(ReceiverLookup::new(LineReceiver::Address(
            listener.local_addr().unwrap(),
        )))
    }

    #[tokio::test(start_paused = true)]
    async fn lines_go_to_a_reader_and_a_second_later_to_the_next_one_once_it_has_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut connection = connection_to(&listener);
        for _ in 0..2 {
            assert_eq!(connection.write(b"one\ntwo\n").lost, 0);
            let mut lines = BufReader::new(listener.accept().unwrap().0).lines();
            assert_eq!(
                (
                    lines.next().unwrap().unwrap(),
                    lines.next().unwrap().unwrap()
                ),
                ("one".into(), "two".into())
            );
            drop(lines);
            let outcome = connection.write(b"three\nfour\n");
            assert_eq!(
                (outcome.lost, outcome.error.unwrap().kind()),
                (2, io::ErrorKind::NotConnected)
            );
            tokio::time::advance(BACK_OFF).await;
        }
        listener.set_nonblocking(true).unwrap();
        assert!(listener.accept().is_err(), "no other connection was opened");
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_is_looked_up_for_each_connection_and_the_first_address_that_accepts_is_taken() {
        let listeners = [0; 2].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
        let closed = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let mut addresses: Vec<_> = listeners
            .iter()
            .map(|listener| listener.local_addr().unwrap())
            .collect();
        addresses.reverse();
        let addresses = Mutex::new(addresses);
        let receiver = LineReceiver::Name {
            host: "logs.test".into(),
            port: 5170,
        };
        let look_up = Arc::new(move |_: &str, _| Ok(vec![closed, addresses.lock().pop().unwrap()]));
        let mut connection = LineConnection::new(ReceiverLookup::with_resolver(receiver, look_up));
        for listener in listeners {
            assert_eq!(connection.write(b"one\n").lost, 0);
            let line = BufReader::new(listener.accept().unwrap().0)
                .lines()
                .next()
                .unwrap()
                .unwrap();
            assert_eq!(line, "one");
            tokio::time::advance(BACK_OFF).await;
        }
    }

    #[test]
    fn lines_without_a_reader_are_lost_and_it_is_looked_for_now_and_then() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut connection = connection_to(&listener);
        drop(listener);
        let outcome = connection.write(b"one\ntwo\n");
        assert_eq!(
            (outcome.lost, outcome.error.unwrap().kind()),
            (2, io::ErrorKind::ConnectionRefused)
        );
        let outcome = connection.write(b"three\n");
        assert_eq!(
            (outcome.lost, outcome.error.unwrap().kind()),
            (1, io::ErrorKind::NotConnected)
        );
    }

    #[test]
    fn a_reader_that_takes_nothing_costs_the_lines_that_do_not_fit() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut connection = connection_to(&listener);
        let lines = b"0123456789abcde\n".repeat(1 << 20);
        let outcome = connection.write(&lines);
        assert!(outcome.lost > 0 && outcome.lost < 1 << 20, "{outcome:?}");
        assert!(connection.stream.is_none());
    }
}
