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

/// The server's treatment of questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DnsMood {
    /// Answers by its records.
    Answers,
    /// No name exists.
    NxDomain,
    /// Every answer is a failure of the server.
    ServFail,
    /// No answer comes.
    Silent,
    /// Every answer is too long for UDP.
    Truncates,
    /// Answers have no record, and no word that there is none.
    Unclear,
    /// Questions for IPv6 addresses fail, others are answered.
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
        let server = Self {
            address,
            state: Arc::clone(&state),
        };
        let over_udp = Arc::clone(&state);
        thread::spawn(move || over_udp.serve_udp(&udp));
        thread::spawn(move || {
            for stream in tcp.incoming() {
                let state = Arc::clone(&state);
                thread::spawn(move || state.converse(stream.unwrap()));
            }
        });
        server
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

    /// How many questions came over TCP.
    pub fn over_tcp(&self) -> usize {
        self.state.over_tcp.load(Ordering::SeqCst)
    }
}

impl DnsState {
    fn serve_udp(&self, socket: &UdpSocket) {
        let mut question = [0; 4096];
        while let Ok((length, client)) = socket.recv_from(&mut question) {
            if let Some(answer) = self.answer(&question[..length], false) {
                let _ = socket.send_to(&answer, client);
            }
        }
    }

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
        let kind = u16::from_be_bytes(question.get(end..end + 2)?.try_into().unwrap());
        let question_end = end + 4;
        let records = self.records.lock().unwrap();
        let mood = *self.mood.lock().unwrap();
        let known = records.get(&name).filter(|_| mood != DnsMood::NxDomain);
        let truncated = mood == DnsMood::Truncates && !is_tcp;
        let code = match mood {
            DnsMood::Silent => return None,
            DnsMood::ServFail => 2,
            DnsMood::FailsOnIpv6 if kind == AAAA => 2,
            DnsMood::Truncates if !is_tcp => 0,
            DnsMood::Answers
            | DnsMood::NxDomain
            | DnsMood::Truncates
            | DnsMood::Unclear
            | DnsMood::FailsOnIpv6 => {
                if known.is_some() {
                    0
                } else {
                    3
                }
            }
        };
        let data = match known {
            Some(records) if code == 0 && !truncated && mood != DnsMood::Unclear => {
                data(records, kind)
            }
            Some(_) | None => Vec::new(),
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
            answer.extend(kind.to_be_bytes());
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

/// The data of the records of this type.
fn data(records: &Records, kind: u16) -> Vec<Vec<u8>> {
    let mut data = Vec::new();
    for address in &records.addresses {
        match address {
            IpAddr::V4(ip) if kind == A => data.push(ip.octets().to_vec()),
            IpAddr::V6(ip) if kind == AAAA => data.push(ip.octets().to_vec()),
            IpAddr::V4(_) | IpAddr::V6(_) => {}
        }
    }
    if kind == SRV {
        data.extend(records.services.iter().map(service_data));
    }
    data
}

/// RFC 2782.
fn service_data(service: &Service) -> Vec<u8> {
    let numbers = [service.priority, service.weight, service.port];
    let mut data = numbers.map(u16::to_be_bytes).concat();
    for label in service.target.split('.').filter(|label| !label.is_empty()) {
        data.push(u8::try_from(label.len()).unwrap());
        data.extend(label.as_bytes());
    }
    data.push(0);
    data
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
