//! A DNS server of a test's own, over UDP and TCP, whose answers change when the test says so.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

const A: u16 = 1;
const AAAA: u16 = 28;
const SRV: u16 = 33;

/// How the server treats questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DnsMood {
    /// By its records.
    Answers,
    /// Every name does not exist.
    NxDomain,
    /// It cannot tell.
    ServFail,
    /// It is silent.
    Silent,
    /// Over UDP, every answer is too long.
    Truncates,
    /// It has no record of anything, and does not say so.
    Unclear,
    /// Only of IPv6 addresses it cannot tell.
    FailsOnIpv6,
}

/// An SRV record.
#[derive(Clone, Debug)]
pub struct Service {
    pub priority: u16,
    pub weight: u16,
    pub port: u16,
    pub target: String,
}

#[derive(Default)]
struct Records {
    addresses: Vec<IpAddr>,
    services: Vec<Service>,
    ttl: u32,
}

struct DnsState {
    records: Mutex<HashMap<String, Records>>,
    mood: Mutex<DnsMood>,
    questions: AtomicUsize,
    over_tcp: AtomicUsize,
}

/// The server. Its threads end with the process.
pub struct DnsServer {
    pub address: SocketAddr,
    state: Arc<DnsState>,
}

impl DnsServer {
    pub fn start() -> Self {
        let (udp, tcp) = (0..100)
            .find_map(|_| {
                let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
                let tcp = TcpListener::bind(udp.local_addr().unwrap()).ok()?;
                Some((udp, tcp))
            })
            .expect("a port that is free for UDP and TCP");
        let state = Arc::new(DnsState {
            records: Mutex::default(),
            mood: Mutex::new(DnsMood::Answers),
            questions: AtomicUsize::new(0),
            over_tcp: AtomicUsize::new(0),
        });
        let address = udp.local_addr().unwrap();
        let (of_udp, of_tcp) = (Arc::clone(&state), Arc::clone(&state));
        thread::spawn(move || {
            let mut question = [0; 4096];
            while let Ok((length, client)) = udp.recv_from(&mut question) {
                if let Some(answer) = of_udp.answer(&question[..length], false) {
                    let _ = udp.send_to(&answer, client);
                }
            }
        });
        thread::spawn(move || {
            for stream in tcp.incoming() {
                let (stream, state) = (stream.unwrap(), Arc::clone(&of_tcp));
                thread::spawn(move || state.converse(stream));
            }
        });
        Self { address, state }
    }

    /// From now on, `name` has these addresses.
    pub fn set_addresses(&self, name: &str, ttl: u32, addresses: &[IpAddr]) {
        let records = Records {
            addresses: addresses.to_vec(),
            services: Vec::new(),
            ttl,
        };
        self.state
            .records
            .lock()
            .unwrap()
            .insert(name.to_owned(), records);
    }

    /// From now on, `name` has these servers.
    pub fn set_services(&self, name: &str, ttl: u32, services: &[Service]) {
        let records = Records {
            addresses: Vec::new(),
            services: services.to_vec(),
            ttl,
        };
        self.state
            .records
            .lock()
            .unwrap()
            .insert(name.to_owned(), records);
    }

    pub fn set_mood(&self, mood: DnsMood) {
        *self.state.mood.lock().unwrap() = mood;
    }

    /// How many questions came.
    pub fn questions(&self) -> usize {
        self.state.questions.load(Ordering::SeqCst)
    }

    /// How many of them came over TCP.
    pub fn over_tcp(&self) -> usize {
        self.state.over_tcp.load(Ordering::SeqCst)
    }
}

impl DnsState {
    fn converse(&self, mut stream: TcpStream) {
        let mut length = [0; 2];
        while stream.read_exact(&mut length).is_ok() {
            let mut question = vec![0; usize::from(u16::from_be_bytes(length))];
            if stream.read_exact(&mut question).is_err() {
                return;
            }
            self.over_tcp.fetch_add(1, Ordering::SeqCst);
            let Some(answer) = self.answer(&question, true) else {
                continue;
            };
            let length = u16::try_from(answer.len()).unwrap().to_be_bytes();
            if stream.write_all(&[&length[..], &answer].concat()).is_err() {
                return;
            }
        }
    }

    /// RFC 1035 §4. `None`: silence.
    fn answer(&self, question: &[u8], is_tcp: bool) -> Option<Vec<u8>> {
        self.questions.fetch_add(1, Ordering::SeqCst);
        let (name, end) = name(question, 12)?;
        let of = u16::from_be_bytes(question.get(end..end + 2)?.try_into().unwrap());
        let question_end = end + 4;
        let records = self.records.lock().unwrap();
        let mood = *self.mood.lock().unwrap();
        let known = records.get(&name).filter(|_| mood != DnsMood::NxDomain);
        let has_records = |_: &&Records| mood != DnsMood::Unclear;
        let data = known
            .filter(has_records)
            .map_or_else(Vec::new, |records| data(records, of));
        let (code, truncated) = match mood {
            DnsMood::Silent => return None,
            DnsMood::ServFail => (2, false),
            DnsMood::FailsOnIpv6 if of == AAAA => (2, false),
            DnsMood::Truncates if !is_tcp => (0, true),
            _ => (if known.is_some() { 0 } else { 3 }, false),
        };
        let data = if code == 0 && !truncated {
            data
        } else {
            Vec::new()
        };
        let mut answer = question.get(..2)?.to_vec();
        // An answer, authoritative, recursion desired and available.
        answer.extend([0x85 | if truncated { 2 } else { 0 }, 0x80 | code]);
        // RFC 2308 §2: the SOA says that there is nothing.
        let says_nothing =
            data.is_empty() && matches!(code, 0 | 3) && !truncated && mood != DnsMood::Unclear;
        for count in [1, data.len(), usize::from(says_nothing), 0] {
            answer.extend(u16::try_from(count).unwrap().to_be_bytes());
        }
        answer.extend(question.get(12..question_end)?);
        for data in data {
            answer.extend([0xc0, 12]);
            answer.extend(of.to_be_bytes());
            answer.extend(1_u16.to_be_bytes());
            answer.extend(known.map_or(0, |records| records.ttl).to_be_bytes());
            answer.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
            answer.extend(data);
        }
        if says_nothing {
            answer.extend([0xc0, 12, 0, 6, 0, 1, 0, 0, 0, 0, 0, 22]);
            answer.extend([0; 22]);
        }
        Some(answer)
    }
}

/// The data of the records of a type.
fn data(records: &Records, of: u16) -> Vec<Vec<u8>> {
    let address = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) if of == A => Some(ip.octets().to_vec()),
        IpAddr::V6(ip) if of == AAAA => Some(ip.octets().to_vec()),
        _ => None,
    };
    let service = |service: &Service| {
        let mut data = [service.priority, service.weight, service.port]
            .map(u16::to_be_bytes)
            .concat();
        for label in service.target.split('.').filter(|label| !label.is_empty()) {
            data.push(u8::try_from(label.len()).unwrap());
            data.extend(label.as_bytes());
        }
        data.push(0);
        data
    };
    let services = records.services.iter().filter(|_| of == SRV).map(service);
    records
        .addresses
        .iter()
        .filter_map(address)
        .chain(services)
        .collect()
}

/// The name in a question, in lower case, and where it ends.
fn name(message: &[u8], mut at: usize) -> Option<(String, usize)> {
    let mut labels = Vec::new();
    loop {
        let length = usize::from(*message.get(at)?);
        at += 1;
        if length == 0 {
            return Some((labels.join("."), at));
        }
        labels.push(String::from_utf8_lossy(message.get(at..at + length)?).to_ascii_lowercase());
        at += length;
    }
}
