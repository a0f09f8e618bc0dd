use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;
use tokio::io::AsyncReadExt;

use super::follow::Verdict;
use super::*;

const MINUTE: Duration = Duration::from_secs(60);
const BOUNDS: Bounds = Bounds { bytes: 256, fields: 8 };

/// What a follower lets pass of `bytes` when they come in `pieces`.
fn follow(bytes: &[u8], pieces: &[usize]) -> (Verdict, u64) {
    let mut follower = Follower::new(BOUNDS);
    let mut passed = 0;
    for end in pieces.iter().copied().chain([bytes.len()]) {
        let verdict = follower.follow(&bytes[passed..end.max(passed)]);
        passed += verdict.pass;
        if verdict.stop.is_some() {
            return (Verdict { pass: passed, stop: verdict.stop }, follower.heads());
        }
    }
    (Verdict { pass: passed, stop: None }, follower.heads())
}

/// Bytes that look like HTTP, more or less.
fn almost_http() -> impl Strategy<Value = Vec<u8>> {
    let word = prop::sample::select(vec![
        "GET / HTTP/1.1\r\n",
        "POST /a HTTP/1.1\r\n",
        "GET / HTTP/1.0\r\n",
        "Host: a\r\n",
        "Content-Length: 5\r\n",
        "Transfer-Encoding: chunked\r\n",
        "X: y\r\n",
        "Upgrade: z\r\n",
        "\r\n",
        "\n",
        "\r",
        "hello",
        "5\r\nhello\r\n",
        "0\r\n\r\n",
        "0\r\nx: y\r\n\r\n",
        "5;a=b\r\n",
        " ",
        ":",
        "\0",
        "GET",
        "/",
        "HTTP/1.1",
    ]);
    prop::collection::vec(word, 0..20).prop_map(|words| words.concat().into_bytes())
}

fn cuts(bytes: &[u8], cuts: &[prop::sample::Index]) -> Vec<usize> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    cuts.sort_unstable();
    cuts
}

proptest! {
    #[test]
    fn what_passes_does_not_depend_on_how_it_comes(
        bytes in almost_http(),
        at in prop::collection::vec(any::<prop::sample::Index>(), 0..10),
    ) {
        let whole = follow(&bytes, &[]);
        prop_assert_eq!(&follow(&bytes, &cuts(&bytes, &at)), &whole);
        let singly: Vec<usize> = (0..bytes.len()).collect();
        prop_assert_eq!(&follow(&bytes, &singly), &whole);
    }

    #[test]
    fn no_bytes_make_a_follower_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let (verdict, _) = follow(&bytes, &[]);
        prop_assert!(verdict.pass <= bytes.len());
    }

    /// hyper must read every section that passes, or its own refusals would speak in place of ours.
    #[test]
    fn every_section_that_passes_parses(bytes in almost_http()) {
        let mut follower = Follower::new(BOUNDS);
        let end = bytes.windows(4).position(|w| w == b"\r\n\r\n").map_or(bytes.len(), |at| at + 4);
        if follower.follow(&bytes[..end]).pass == end && follower.heads() == 1 {
            let text = std::str::from_utf8(&bytes[..end]).unwrap();
            let target = text.trim_start().split(' ').nth(1).unwrap();
            prop_assert!(target.parse::<http::Uri>().is_ok());
        }
    }
}

/// Gives one piece per read, then the end.
struct Pieces(VecDeque<Vec<u8>>);

impl AsyncRead for Pieces {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.0.front_mut() {
            None => Poll::Ready(Ok(())),
            // The wait between two pieces.
            Some(piece) if piece.is_empty() => {
                self.0.pop_front();
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Some(piece) => {
                let taken = piece.len().min(buf.remaining());
                buf.put_slice(&piece[..taken]);
                piece.drain(..taken);
                Poll::Ready(Ok(()))
            }
        }
    }
}

fn spec() -> ListenerSpec {
    ListenerSpec {
        address: ([127, 0, 0, 1], 0).into(),
        header_timeout: MINUTE,
        keepalive_timeout: MINUTE,
        body_timeout: MINUTE,
        max_header_bytes: BOUNDS.bytes,
        max_headers: BOUNDS.fields,
        max_connections: 1,
    }
}

/// What comes out of a screen that is read `step` bytes at a time, and whether it broke.
async fn screened(pieces: Vec<Vec<u8>>, step: usize) -> (Vec<u8>, bool) {
    let address = spec().address;
    let connection = Arc::new(Connection::new(address, address));
    let mut screen = Screen::new(Pieces(pieces.into()), connection, &spec(), ());
    let mut out = Vec::new();
    let mut buffer = vec![0; step];
    while screen.mode == Mode::Follow || screen.ready > 0 {
        match screen.read(&mut buffer).await {
            Ok(0) => break,
            Ok(read) => out.extend_from_slice(&buffer[..read]),
            Err(_) => return (out, true),
        }
    }
    let broken = matches!(screen.mode, Mode::Broken(_));
    (out, broken)
}

proptest! {
    #[test]
    fn a_screen_gives_what_its_follower_passes_and_a_stand_in_for_the_rest(
        bytes in almost_http(),
        at in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        step in 1..400_usize,
    ) {
        let (verdict, _) = follow(&bytes, &[]);
        let mut pieces = Vec::new();
        let mut start = 0;
        for end in cuts(&bytes, &at).into_iter().chain([bytes.len()]) {
            pieces.push(bytes[start..end].to_vec());
            start = end;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (out, broken) = runtime.block_on(screened(pieces, step));
        prop_assert_eq!(&out[..verdict.pass], &bytes[..verdict.pass]);
        let rest = &out[verdict.pass..];
        match verdict.stop {
            Some(Stop::Refused(_)) => prop_assert!(rest == STAND_IN || rest == HEAD_STAND_IN),
            Some(Stop::Broken) => prop_assert!(broken && rest.is_empty()),
            None => prop_assert!(!broken && rest.is_empty()),
        }
    }
}
