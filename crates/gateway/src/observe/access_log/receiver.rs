//! A receiver of lines on the network: its address, or its name, which is looked up when a
//! connection is made.
//!
//! Guarantees that a resolver which hangs keeps the log's thread for a bounded time, and holds one
//! other thread at most.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use tollgate_limiter::clock::{self, Instant};
use tollgate_spec::access_log::LineReceiver;

/// The time before a failed lookup is tried again.
const BACK_OFF: Duration = Duration::from_secs(1);

type NameLookUp = Arc<dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync>;

type FoundAddresses = io::Result<Vec<SocketAddr>>;

/// Finds the addresses of a receiver.
pub struct ReceiverLookup {
    receiver: LineReceiver,
    look_up: NameLookUp,
    under_way: Option<Receiver<FoundAddresses>>,
    not_before: Option<Instant>,
}

impl ReceiverLookup {
    pub fn new(receiver: LineReceiver) -> Self {
        // The machine's resolver, as for upstreams.
        Self::with_resolver(
            receiver,
            Arc::new(|host, port| Ok((host, port).to_socket_addrs()?.collect())),
        )
    }

    pub fn with_resolver(receiver: LineReceiver, look_up: NameLookUp) -> Self {
        Self {
            receiver,
            look_up,
            under_way: None,
            not_before: None,
        }
    }

    /// Whether the receiver's addresses may change.
    pub fn is_by_name(&self) -> bool {
        matches!(self.receiver, LineReceiver::Name { .. })
    }

    /// The receiver's addresses, at least one. Waits for a resolver up to `patience`; the next call
    /// gets an answer that comes later.
    ///
    /// # Errors
    /// The name cannot be looked up, or has no address, or a lookup failed a moment ago.
    pub fn find(&mut self, patience: Duration) -> FoundAddresses {
        let (host, port) = match &self.receiver {
            LineReceiver::Address(address) => return Ok(vec![*address]),
            LineReceiver::Name { host, port } => (host.clone(), *port),
        };
        let answers = match self.under_way.take() {
            Some(answers) => answers,
            None => {
                let now = clock::now();
                if let Some(not_before) = self.not_before
                    && now < not_before
                {
                    return Err(io::ErrorKind::NotConnected.into());
                }
                self.not_before = Some(now + BACK_OFF);
                self.begin(host, port)?
            }
        };
        match answers.recv_timeout(patience) {
            Ok(found) => {
                let found = found?;
                if found.is_empty() {
                    return Err(io::Error::new(
                        io::ErrorKind::NotFound,
                        "the name has no address",
                    ));
                }
                self.not_before = None;
                Ok(found)
            }
            Err(RecvTimeoutError::Timeout) => {
                self.under_way = Some(answers);
                Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the resolver does not answer",
                ))
            }
            Err(RecvTimeoutError::Disconnected) => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Begins a lookup, on a thread since the system's resolver blocks.
    fn begin(&self, host: Arc<str>, port: u16) -> io::Result<Receiver<FoundAddresses>> {
        let (answer, answers) = sync_channel(1);
        let look_up = self.look_up.clone();
        let name = thread::Builder::new().name("access-log-name".to_owned());
        // The receiver of the answer may be gone.
        name.spawn(move || drop(answer.try_send(look_up(&host, port))))?;
        Ok(answers)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;

    use parking_lot::Mutex;

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    fn name() -> LineReceiver {
        LineReceiver::Name {
            host: "logs.test".into(),
            port: 5170,
        }
    }

    #[test]
    fn a_resolver_that_hangs_is_asked_once_and_answers_whoever_asks_next() {
        let (go_on, may_go_on) = channel::<()>();
        let asked = Arc::new(AtomicUsize::new(0));
        let may_go_on = Mutex::new(may_go_on);
        let mut lookup = ReceiverLookup::with_resolver(name(), {
            let asked = asked.clone();
            Arc::new(move |host, port| {
                assert_eq!((host, port), ("logs.test", 5170));
                asked.fetch_add(1, Ordering::SeqCst);
                may_go_on.lock().recv().unwrap();
                Ok(vec!["192.0.2.1:5170".parse().unwrap()])
            })
        });
        for _ in 0..3 {
            assert_eq!(
                lookup.find(Duration::from_millis(1)).unwrap_err().kind(),
                io::ErrorKind::TimedOut
            );
        }
        go_on.send(()).unwrap();
        assert_eq!(
            lookup.find(LONG).unwrap(),
            ["192.0.2.1:5170".parse().unwrap()]
        );
        assert_eq!(asked.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_name_that_is_not_found_is_looked_up_now_and_then_and_one_that_is_found_each_time() {
        let asked = Arc::new(AtomicUsize::new(0));
        let mut unknown = answering(vec![], &asked);
        assert_eq!(
            unknown.find(LONG).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        assert_eq!(
            unknown.find(LONG).unwrap_err().kind(),
            io::ErrorKind::NotConnected
        );
        assert_eq!(asked.swap(0, Ordering::SeqCst), 1);
        let mut known = answering(vec!["192.0.2.1:5170".parse().unwrap()], &asked);
        assert!(known.find(LONG).is_ok() && known.find(LONG).is_ok());
        assert_eq!(asked.load(Ordering::SeqCst), 2);
    }

    /// A lookup whose resolver gives `addresses`, and counts its calls in `asked`.
    fn answering(addresses: Vec<SocketAddr>, asked: &Arc<AtomicUsize>) -> ReceiverLookup {
        let asked = asked.clone();
        ReceiverLookup::with_resolver(
            name(),
            Arc::new(move |_, _| {
                asked.fetch_add(1, Ordering::SeqCst);
                Ok(addresses.clone())
            }),
        )
    }
}
