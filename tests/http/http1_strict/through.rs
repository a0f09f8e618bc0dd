//! Requests leave the gateway as they came in, or not at all.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use proptest::prelude::*;
use proptest::sample::Index;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::reader::{Message, Read, read, read_all};
use crate::support::proxy_server::ProxyServer;
use tollgate_testing::PATIENCE;

/// The last request of every client.
const LAST: &str = "GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
/// A client that was neither answered nor refused after so long is one that waits for itself.
const ENOUGH: Duration = Duration::from_millis(30);

/// Records what it reads, as requests. Bytes that are none are recorded as one without a method.
async fn upstream(listener: TcpListener, seen: Arc<Mutex<Vec<Message>>>) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let seen = Arc::clone(&seen);
        tokio::spawn(async move {
            let mut bytes = Vec::new();
            while stream
                .read_buf(&mut bytes)
                .await
                .is_ok_and(|count| count > 0)
            {
                loop {
                    match read(&bytes) {
                        Read::Partial => break,
                        Read::Broken => {
                            let target = String::from_utf8_lossy(&bytes).into_owned();
                            let (fields, body, trailers) = Default::default();
                            return seen.lock().push(Message {
                                method: "".into(),
                                target,
                                fields,
                                body,
                                trailers,
                            });
                        }
                        Read::Whole(message, length) => {
                            bytes.drain(..length);
                            let content = if message.method == "HEAD" { "" } else { "ok" };
                            seen.lock().push(*message);
                            let answer =
                                format!("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{content}");
                            if stream.write_all(answer.as_bytes()).await.is_err() {
                                return;
                            }
                        }
                    }
                }
            }
        });
    }
}

/// The requests that an upstream gets when a client sends `bytes` in pieces that end at `ends`, and
/// the answers; after `wait` it has no more to send.
async fn passed(bytes: &[u8], ends: &[usize], wait: Duration) -> (Vec<Message>, Vec<u8>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let seen = Arc::<Mutex<Vec<Message>>>::default();
    let recording = tokio::spawn(upstream(listener, Arc::clone(&seen)));
    let front = ProxyServer::to(&[address]).await;
    let (mut read, mut write) = TcpStream::connect(front.address)
        .await
        .unwrap()
        .into_split();
    let mut sent = 0;
    for end in ends.iter().copied().chain([bytes.len()]) {
        // It may have been refused already.
        let _ = write.write_all(&bytes[sent..end]).await;
        sent = end;
        tokio::task::yield_now().await;
    }
    let mut answers = Vec::new();
    if timeout(wait, read.read_to_end(&mut answers)).await.is_err() {
        let _ = write.shutdown().await;
        assert!(
            timeout(PATIENCE, read.read_to_end(&mut answers))
                .await
                .is_ok(),
            "neither answered nor closed"
        );
    }
    recording.abort();
    let seen = std::mem::take(&mut *seen.lock());
    (seen, answers)
}

/// The part of a request that has to arrive, without hop-by-hop fields and without those that the
/// gateway adds.
fn end_to_end(mut message: Message) -> Message {
    let named: Vec<String> = words(&message, "connection");
    let announced: Vec<String> = words(&message, "trailer");
    message
        .fields
        .retain(|name, _| (name.starts_with("x-q") || name == "host") && !named.contains(name));
    message.trailers.retain(|name, _| announced.contains(name));
    message
}

fn words(message: &Message, name: &str) -> Vec<String> {
    let lines = message.fields.get(name).into_iter().flatten();
    let text: Vec<String> = lines
        .map(|line| String::from_utf8_lossy(line).to_ascii_lowercase())
        .collect();
    text.iter()
        .flat_map(|line| line.split(','))
        .map(|word| word.trim().to_owned())
        .collect()
}

fn any_field() -> impl Strategy<Value = String> {
    (
        "[xX]-[qQ][a-c]",
        "[ \t]{0,2}",
        "([!-~\u{e9}]([ -~\t]{0,12}[!-~])?)?",
        "[ \t]{0,2}",
    )
        .prop_map(|(name, before, value, after)| format!("{name}:{before}{value}{after}\r\n"))
}

fn any_content() -> impl Strategy<Value = String> {
    let sized = "[ -~\r\n]{0,60}"
        .prop_map(|content| format!("Content-Length: {}\r\n\r\n{content}", content.len()));
    let extension = prop::sample::select(vec!["", ";a", ";a=b", "; a=\"b;c\""]);
    let chunk =
        ("[ -~\r\n]{1,20}", extension, any::<bool>()).prop_map(|(data, extension, zeros)| {
            let zeros = if zeros { "00" } else { "" };
            format!("{zeros}{:X}{extension}\r\n{data}\r\n", data.len())
        });
    let trailer = prop::sample::select(vec!["", "X-Qa: 1\r\n", "x-qb:\t2\r\nx-other: 3\r\n"]);
    let announced = prop::sample::select(vec!["", "Trailer: x-qb\r\n"]);
    let chunked = (prop::collection::vec(chunk, 0..4), trailer, announced).prop_map(
        |(chunks, trailer, announced)| {
            format!(
                "{announced}Transfer-Encoding: chunked\r\n\r\n{}0\r\n{trailer}\r\n",
                chunks.concat()
            )
        },
    );
    prop_oneof![2 => Just("\r\n".to_owned()), 2 => sized, 3 => chunked]
}

fn any_request() -> impl Strategy<Value = String> {
    let method = prop::sample::select(vec!["GET", "POST", "PUT", "HEAD", "DELETE", "M-SEARCH"]);
    let target =
        "/[a-z%~;]{0,8}(\\?[a-z&=/{}\\[\\]]{0,8})?".prop_map(|target| target.replace('%', "%2F"));
    let host = prop::sample::select(vec!["a", "b.example:80", "[::1]"]);
    let connection = prop::sample::select(vec![
        "",
        "Connection: X-Qa , keep-alive\r\n",
        "Connection: content-length\r\n",
    ]);
    (
        method,
        target,
        host,
        connection,
        prop::collection::vec(any_field(), 0..4),
        any_content(),
    )
        .prop_map(|(method, target, host, connection, fields, content)| {
            format!(
                "{method} {target} HTTP/1.1\r\nHost: {host}\r\n{connection}{}{content}",
                fields.concat()
            )
        })
}

/// Something small that goes wrong with bytes.
#[derive(Clone, Debug)]
enum Damage {
    Put(Index, &'static str),
    Replace(Index, u8),
    Drop(Index),
    Cut(Index),
}

fn any_damage() -> impl Strategy<Value = Damage> {
    let put = prop::sample::select(vec![
        "\n",
        "\r",
        "\r\n",
        "\0",
        " ",
        "\t",
        ":",
        ";",
        "0",
        "0x",
        "+",
        "\r\n x",
        "\r\nContent-Length: 3\r\n",
        "\r\nTransfer-Encoding: chunked\r\n",
        "\r\nHost: b\r\n",
        "Transfer-Encoding : chunked\r\n",
        "0\r\n\r\n",
        LAST,
    ]);
    prop_oneof![
        4 => (any::<Index>(), put).prop_map(|(at, what)| Damage::Put(at, what)),
        2 => (any::<Index>(), prop::sample::select(b"\n\r\0 \t:;,\x0b\x7f\x80Xx".to_vec()))
            .prop_map(|(at, byte)| Damage::Replace(at, byte)),
        2 => any::<Index>().prop_map(Damage::Drop),
        1 => any::<Index>().prop_map(Damage::Cut),
    ]
}

impl Damage {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Put(at, what) => {
                let at = at.index(bytes.len() + 1);
                bytes.splice(at..at, what.bytes());
            }
            Self::Replace(at, byte) => {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            Self::Drop(at) => drop(bytes.remove(at.index(bytes.len()))),
            Self::Cut(at) => bytes.truncate(at.index(bytes.len())),
        }
    }
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

fn ends(cuts: &[Index], length: usize) -> Vec<usize> {
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(length + 1)).collect();
    ends.sort_unstable();
    ends
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn sound_requests_arrive_as_they_were_sent(
        requests in prop::collection::vec(any_request(), 0..5),
        cuts in prop::collection::vec(any::<Index>(), 0..12),
    ) {
        let bytes = [&requests.concat(), LAST].concat().into_bytes();
        let wanted: Vec<_> = read_all(&bytes).into_iter().map(end_to_end).collect();
        prop_assert_eq!(wanted.len(), requests.len() + 1);
        let (seen, answers) = run(passed(&bytes, &ends(&cuts, bytes.len()), PATIENCE));
        let seen: Vec<_> = seen.into_iter().map(end_to_end_of_gateway).collect();
        prop_assert_eq!(seen, wanted);
        prop_assert_eq!(memchr::memmem::find_iter(&answers, "HTTP/1.1 200 OK\r\n").count(), requests.len() + 1);
    }

    #[test]
    fn broken_requests_never_arrive_nor_anything_after_them(
        requests in prop::collection::vec(any_request(), 1..4),
        damage in prop::collection::vec(any_damage(), 1..3),
        cuts in prop::collection::vec(any::<Index>(), 0..6),
    ) {
        let mut bytes = requests.concat().into_bytes();
        damage.iter().for_each(|damage| if !bytes.is_empty() { damage.apply(&mut bytes) });
        bytes.extend_from_slice(LAST.as_bytes());
        // Another version is sound too, and follows other rules.
        prop_assume!(memchr::memmem::find(&bytes, b"HTTP/1.0").is_none());
        let sound: Vec<_> = read_all(&bytes).into_iter().map(end_to_end).collect();
        let (seen, _) = run(passed(&bytes, &ends(&cuts, bytes.len()), ENOUGH));
        let seen: Vec<_> = seen.into_iter().map(end_to_end_of_gateway).collect();
        prop_assert!(sound.starts_with(&seen), "{:?} of {:?}", seen, sound);
    }
}

/// The gateway's own `Connection` names nothing of the client's; trailers are those it let pass.
fn end_to_end_of_gateway(mut message: Message) -> Message {
    message
        .fields
        .retain(|name, _| name.starts_with("x-q") || name == "host");
    message
}
