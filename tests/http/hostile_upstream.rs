//! An upstream that does whatever it likes, on paused time: random schedules of answers, lies,
//! stalls and resets.
//!
//! Each request is answered with its own answer, or with a failure of the gateway's, or its answer
//! breaks off visibly; and all of it ends within the time limits. A seed that fails is printed;
//! `HOSTILE_UPSTREAM_SEEDS=a..b` runs others.

use std::time::Duration;

use crate::support::proxy_server::{ForwarderConfig, ProxyServer};
use fastrand::Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tollgate_testing::upstream::RawConnection;

/// Requests of one client, one after the other.
const REQUESTS: usize = 6;
const CONNECT: Duration = Duration::from_secs(1);
const RESPONSE: Duration = Duration::from_secs(3);
const IDLE: Duration = Duration::from_secs(2);
/// Longer than any answer takes that never stalls: 40 pieces, each just within the idle time.
const LONGEST: Duration = Duration::from_secs(120);
/// Stands in whatever the upstream says that is no part of an answer.
const EVIL: &str = "evil";

/// How an answer is framed, and how it breaks the rules.
#[derive(Clone, Copy, Debug)]
enum Framing {
    Length,
    Chunked,
    Close,
    /// Announces more than it sends.
    LengthTooLong,
    /// Announces less than it sends: the rest would be the next answer.
    LengthTooShort,
    /// Both framings, the length a lie.
    LengthAndChunked,
    BadChunk,
}

/// A step of an upstream's conversation.
#[derive(Clone, Debug)]
enum Step {
    Send(Vec<u8>),
    Pause(Duration),
    Close,
    Reset,
    Stall,
}

/// The content of the answer to the request numbered `number`.
fn content(number: usize) -> Vec<u8> {
    format!("<answer {number}>")
        .repeat(1 + number * 37 % 300)
        .into_bytes()
}

/// Steps that answer request `number`, more or less.
fn answer(rng: &mut Rng, number: usize) -> Vec<Step> {
    let mut bytes = Vec::new();
    for _ in 0..rng.usize(..3) {
        bytes.extend_from_slice(b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n");
    }
    let (framing, body) = (*choose(rng, &FRAMINGS), content(number));
    let head = match framing {
        Framing::Length => format!("content-length: {}\r\n", body.len()),
        Framing::LengthTooLong => {
            format!("content-length: {}\r\n", body.len() + 1 + rng.usize(..100))
        }
        Framing::LengthTooShort => format!("content-length: {}\r\n", body.len()),
        Framing::Chunked | Framing::BadChunk => "transfer-encoding: chunked\r\n".to_owned(),
        Framing::LengthAndChunked => format!(
            "transfer-encoding: chunked\r\ncontent-length: {}\r\n",
            rng.usize(..50)
        ),
        Framing::Close => "x-framing: close\r\n".to_owned(),
    };
    bytes.extend_from_slice(format!("HTTP/1.1 200 OK\r\n{head}\r\n").as_bytes());
    match framing {
        Framing::Chunked | Framing::LengthAndChunked | Framing::BadChunk => {
            for piece in body.chunks(1 + rng.usize(..500)) {
                bytes.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
                bytes.extend_from_slice(piece);
                bytes.extend_from_slice(b"\r\n");
            }
            bytes.extend_from_slice(if matches!(framing, Framing::BadChunk) {
                b"-1\r\nevil\r\n"
            } else {
                b"0\r\n\r\n"
            });
        }
        _ => bytes.extend_from_slice(&body),
    }
    // Where the end is the connection's, nobody can tell what belongs to the answer.
    let ends = matches!(framing, Framing::Close | Framing::LengthTooLong);
    if matches!(framing, Framing::LengthTooShort) || (!ends && rng.u8(..8) == 0) {
        bytes.extend_from_slice(
            format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{EVIL}",
                EVIL.len()
            )
            .as_bytes(),
        );
    }
    cut(rng, &bytes, ends)
}

const FRAMINGS: [Framing; 9] = [
    Framing::Length,
    Framing::Length,
    Framing::Chunked,
    Framing::Close,
    Framing::LengthTooLong,
    Framing::LengthTooShort,
    Framing::LengthAndChunked,
    Framing::BadChunk,
    Framing::Chunked,
];

/// Cuts `bytes` into pieces with pauses, and perhaps breaks off between two of them.
fn cut(rng: &mut Rng, bytes: &[u8], ends: bool) -> Vec<Step> {
    let mut steps = Vec::new();
    let size = *choose(rng, &[usize::MAX, 4_000, 700, 90]);
    let slow = rng.u8(..4) == 0;
    for piece in bytes.chunks(size.min(bytes.len()).max(bytes.len() / 40 + 1)) {
        if rng.u8(..30) == 0 {
            steps.push(choose(rng, &[Step::Close, Step::Reset, Step::Stall]).clone());
            return steps;
        }
        steps.push(Step::Send(piece.to_vec()));
        if slow {
            steps.push(Step::Pause(Duration::from_millis(
                rng.u64(..IDLE.as_millis() as u64),
            )));
        }
    }
    if ends {
        steps.push(Step::Close);
    }
    steps
}

fn conversation(rng: &mut Rng, number: usize) -> Vec<Step> {
    match rng.u8(..10) {
        0 => vec![Step::Close],
        1 => vec![Step::Reset],
        2 => vec![Step::Stall],
        3 => vec![
            Step::Send(format!("{EVIL} \r\n\r\n\0\0").into_bytes()),
            Step::Stall,
        ],
        _ => answer(rng, number),
    }
}

fn choose<'a, T>(rng: &mut Rng, choices: &'a [T]) -> &'a T {
    &choices[rng.usize(..choices.len())]
}

/// Accepts connections and misbehaves on each. Some of them it does not read to the end of the
/// request's body.
async fn misbehave(listener: TcpListener, mut rng: Rng) {
    while let Ok((stream, _)) = listener.accept().await {
        // Nagle's algorithm would wait in real time.
        stream.set_nodelay(true).unwrap();
        let rng = rng.fork();
        tokio::spawn(converse(stream, rng));
    }
}

async fn converse(mut stream: TcpStream, mut rng: Rng) {
    let mut read = Vec::new();
    loop {
        let end = loop {
            if let Some(end) = memchr::memmem::find(&read, b"\r\n\r\n") {
                break end + 4;
            }
            if !stream
                .read_buf(&mut read)
                .await
                .is_ok_and(|count| count > 0)
            {
                return;
            }
        };
        let head = String::from_utf8(read.drain(..end).collect()).unwrap();
        let number: usize = head.split(['/', ' ']).nth(2).unwrap().parse().unwrap();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let mut left: usize = length.map_or(0, |length| length.parse().unwrap());
        if rng.bool() {
            while left > read.len() {
                left -= read.len();
                read.clear();
                if !stream
                    .read_buf(&mut read)
                    .await
                    .is_ok_and(|count| count > 0)
                {
                    return;
                }
            }
            read.drain(..left);
            left = 0;
        }
        for step in conversation(&mut rng, number) {
            match step {
                Step::Send(bytes) if stream.write_all(&bytes).await.is_err() => return,
                Step::Send(_) => {}
                Step::Pause(time) => sleep(time).await,
                Step::Close => return,
                Step::Reset => return stream.set_zero_linger().unwrap(),
                Step::Stall => std::future::pending().await,
            }
        }
        if left > 0 {
            // The rest of the body is on the wire: no request can be read after it.
            return;
        }
    }
}

/// The end of an answer.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    Complete,
    /// The connection closed before the answer's end.
    Cut,
}

/// An answer, as far as it came.
struct Answer {
    status: u16,
    content: Vec<u8>,
    ended: Ended,
    /// No other answer follows on the connection.
    closes: bool,
    /// The upstream marked its end by closing, so nobody can tell whether it is whole.
    unframed: bool,
}

async fn read_answer(stream: &mut TcpStream, read: &mut Vec<u8>) -> Option<Answer> {
    let mut head = section(stream, read).await?;
    while head.starts_with("HTTP/1.1 1") {
        head = section(stream, read).await?;
    }
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let field = |name: &str| {
        head.lines()
            .find_map(|line| line.strip_prefix(name))
            .map(str::trim)
    };
    let (closes, unframed) = (
        field("connection:") == Some("close"),
        field("x-framing:") == Some("close"),
    );
    let answer = |content, whole| {
        let ended = if whole { Ended::Complete } else { Ended::Cut };
        Some(Answer {
            status,
            content,
            ended,
            closes,
            unframed,
        })
    };
    if field("transfer-encoding:") == Some("chunked") {
        let mut content = Vec::new();
        loop {
            let Some(line) = until(stream, read, b"\r\n").await else {
                return answer(content, false);
            };
            let size = usize::from_str_radix(line.trim_end(), 16).unwrap();
            let whole = take(stream, read, size + 2, &mut content).await;
            content.truncate(content.len().saturating_sub(if whole { 2 } else { 0 }));
            if !whole || size == 0 {
                return answer(content, whole);
            }
        }
    }
    let mut content = Vec::new();
    let length = field("content-length:").map(|length| length.parse::<usize>().unwrap());
    let whole = take(stream, read, length.unwrap_or(usize::MAX), &mut content).await;
    answer(content, whole || length.is_none())
}

async fn section(stream: &mut TcpStream, read: &mut Vec<u8>) -> Option<String> {
    until(stream, read, b"\r\n\r\n").await
}

async fn until(stream: &mut TcpStream, read: &mut Vec<u8>, end: &[u8]) -> Option<String> {
    loop {
        if let Some(at) = memchr::memmem::find(read, end) {
            return Some(String::from_utf8(read.drain(..at + end.len()).collect()).unwrap());
        }
        if !stream.read_buf(read).await.is_ok_and(|count| count > 0) {
            return None;
        }
    }
}

async fn take(
    stream: &mut TcpStream,
    read: &mut Vec<u8>,
    length: usize,
    content: &mut Vec<u8>,
) -> bool {
    let end = content.len().saturating_add(length);
    loop {
        let wanted = (end - content.len()).min(read.len());
        content.extend(read.drain(..wanted));
        if content.len() == end {
            return true;
        }
        if !stream.read_buf(read).await.is_ok_and(|count| count > 0) {
            return false;
        }
    }
}

/// Runs one client against one upstream. Returns how many answers came whole from the upstream.
async fn run(seed: u64) -> usize {
    let mut rng = Rng::with_seed(seed);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let upstream = tokio::spawn(misbehave(listener, rng.fork()));
    let limits = |plan: &mut ForwarderConfig| {
        (
            plan.spec.connect_timeout,
            plan.spec.response_timeout,
            plan.spec.idle_timeout,
        ) = (CONNECT, RESPONSE, IDLE);
    };
    let front = ProxyServer::with(&[address], limits).await;
    let mut connection: Option<(TcpStream, Vec<u8>)> = None;
    let mut whole = 0;
    for number in 0..REQUESTS {
        let (mut stream, mut read) = match connection.take() {
            Some(kept) => kept,
            None => (
                RawConnection::connect(front.address).await.stream,
                Vec::new(),
            ),
        };
        let body = vec![b'x'; *choose(&mut rng, &[0, 0, 10, 100_000])];
        let method = if body.is_empty() { "GET" } else { "POST" };
        let length = body.len();
        let mut request =
            format!("{method} /{number} HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n")
                .into_bytes();
        request.extend_from_slice(&body);
        // It may be answered, and its connection closed, before all of it is sent.
        let _ = stream.write_all(&request).await;
        let answered = timeout(LONGEST, read_answer(&mut stream, &mut read)).await;
        assert!(
            answered.is_ok(),
            "seed {seed}, request {number}: no end in {LONGEST:?}"
        );
        // No answer at all: the gateway cut the connection, visibly.
        let Some(Answer {
            status,
            content: found,
            ended,
            closes,
            unframed,
        }) = answered.unwrap()
        else {
            continue;
        };
        let said = String::from_utf8_lossy(&found);
        assert!(
            !said.contains(EVIL),
            "seed {seed}, request {number}: {said}"
        );
        match (status, &ended) {
            (200, Ended::Complete) if unframed => {
                assert!(content(number).starts_with(&found), "seed {seed}: {said}")
            }
            (200, Ended::Complete) => {
                assert!(
                    found == content(number),
                    "seed {seed}, request {number}: {said}"
                );
                whole += 1;
            }
            (200, Ended::Cut) => assert!(
                content(number).starts_with(&found),
                "seed {seed}, request {number}: {said}"
            ),
            (408 | 502 | 504, Ended::Complete) => {
                assert!(
                    said.contains("urn:tollgate:problem:"),
                    "seed {seed}: {said}"
                )
            }
            other => panic!("seed {seed}, request {number}: {other:?}: {said}"),
        }
        if ended == Ended::Complete && !closes {
            connection = Some((stream, read));
        }
    }
    drop(connection);
    let endpoints = front.gate.upstream.endpoints();
    let endpoint = &endpoints[0];
    let freed = timeout(LONGEST, async {
        while endpoint.in_flight() > 0 {
            sleep(Duration::from_millis(100)).await;
        }
    });
    assert!(
        freed.await.is_ok(),
        "seed {seed}: {} exchanges are still under way",
        endpoint.in_flight()
    );
    upstream.abort();
    whole
}

#[tokio::test(start_paused = true)]
async fn whatever_an_upstream_does_each_request_gets_its_own_answer_or_a_visible_failure() {
    let seeds = std::env::var("HOSTILE_UPSTREAM_SEEDS").unwrap_or_else(|_| "0..300".to_owned());
    let (from, to) = seeds
        .split_once("..")
        .expect("HOSTILE_UPSTREAM_SEEDS is a range, such as 0..1000");
    let (from, to): (u64, u64) = (from.parse().unwrap(), to.parse().unwrap());
    let mut whole = 0;
    for seed in from..to {
        whole += run(seed).await;
    }
    // The upstream is not so hostile that nothing is tested.
    let requests = (to - from) as usize * REQUESTS;
    assert!(
        whole * 5 > requests,
        "{whole} of {requests} answers came whole"
    );
}
