use http_body_util::{BodyExt, StreamBody};

use super::*;

const MOST_KEPT: usize = 64 * 1024;

fn body(pieces: usize, length: usize) -> Body {
    let pieces =
        (0..pieces).map(move |n| Ok(Frame::data(Bytes::from(vec![b'a' + n as u8; length]))));
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", "1".parse().unwrap());
    Body::boxed(StreamBody::new(futures_util::stream::iter(
        pieces.chain([Ok(Frame::trailers(trailers))]),
    )))
}

async fn whole(body: Body) -> (Bytes, Option<HeaderMap>) {
    let collected = body.collect().await.unwrap();
    let trailers = collected.trailers().cloned();
    (collected.to_bytes(), trailers)
}

#[tokio::test]
async fn what_was_read_is_read_again_and_then_the_rest() {
    for read in 0..6 {
        let replay = ReplayBody::new(body(4, 10), MOST_KEPT);
        let mut first = replay.read().unwrap();
        for _ in 0..read {
            first.frame().await;
        }
        drop(first);
        assert_eq!(
            whole(replay.read().unwrap()).await,
            whole(body(4, 10)).await,
            "{read}"
        );
    }
}

#[tokio::test]
async fn a_long_body_is_not_kept() {
    let replay = ReplayBody::new(body(3, MOST_KEPT / 2), MOST_KEPT);
    let mut first = replay.read().unwrap();
    first.frame().await;
    assert!(replay.is_whole());
    first.frame().await;
    first.frame().await;
    assert!(!replay.is_whole() && replay.read().is_none());
    assert!(first.frame().await.unwrap().unwrap().is_trailers());
}

#[tokio::test]
async fn many_small_pieces_hold_no_more_than_their_bytes() {
    // Each piece is one byte of a large buffer.
    let buffer = Bytes::from(vec![b'a'; 1 << 20]);
    let pieces = (0..MOST_KEPT).map({
        let buffer = buffer.clone();
        move |n| Ok(Frame::data(buffer.slice(n..=n)))
    });
    let replay = ReplayBody::new(
        Body::boxed(StreamBody::new(futures_util::stream::iter(pieces))),
        MOST_KEPT,
    );
    assert_eq!(whole(replay.read().unwrap()).await.0.len(), MOST_KEPT);
    assert!(replay.0.kept.lock().bytes.capacity() <= 2 * MOST_KEPT);
    assert_eq!(whole(replay.read().unwrap()).await.0.len(), MOST_KEPT);
    // The pieces' own references are gone with the iterator: what is kept holds nothing of the
    // buffer.
    drop(std::mem::replace(
        &mut replay.0.kept.lock().body,
        Body::empty(),
    ));
    assert!(buffer.is_unique());
}

#[tokio::test]
async fn a_reader_gets_what_was_kept_before_it_was_forgotten() {
    for read in 0..6 {
        let replay = ReplayBody::new(body(4, PIECE), MOST_KEPT);
        let mut first = replay.read().unwrap();
        for _ in 0..read {
            first.frame().await;
        }
        let mut second = replay.read().unwrap();
        let begin = second.frame().await.unwrap().unwrap().into_data().unwrap();
        replay.forget();
        assert!(replay.read().is_none());
        let (rest, trailers) = whole(second).await;
        assert_eq!(
            (Bytes::from([begin, rest].concat()), trailers),
            whole(body(4, PIECE)).await,
            "{read}"
        );
        assert_eq!(replay.0.kept.lock().bytes.capacity(), 0, "{read}");
    }
}

#[tokio::test]
async fn a_reader_that_another_follows_takes_nothing_from_it() {
    let replay = ReplayBody::new(body(4, 10), MOST_KEPT);
    let mut first = replay.read().unwrap();
    first.frame().await;
    let second = replay.read().unwrap();
    assert!(!first.is_end_stream());
    assert!(first.frame().await.unwrap().is_err());
    assert_eq!(whole(second).await, whole(body(4, 10)).await);
}

/// A body without content, of which that was not known before it was read. Having said so, it says
/// nothing more.
struct EmptyAfterAll {
    is_over: bool,
}

impl BodySource for EmptyAfterAll {
    fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.is_over = true;
        Poll::Ready(None)
    }

    fn poll_arrived(&mut self, _: &mut Context<'_>) -> Poll<()> {
        if self.is_over {
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    }

    fn is_over(&self) -> bool {
        self.is_over
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::new()
    }

    fn ended(self: Box<Self>) {}
}

#[tokio::test]
async fn the_end_of_an_empty_body_is_there_for_each_reader() {
    let replay = ReplayBody::new(
        Body::from_source(Box::new(EmptyAfterAll { is_over: false })),
        MOST_KEPT,
    );
    for _ in 0..2 {
        let mut reader = replay.read().unwrap();
        assert!(
            !reader.is_end_stream(),
            "it is framed as at first, and so it needs an end"
        );
        assert!(std::future::poll_fn(|cx| Poll::Ready(reader.poll_arrived(cx).is_ready())).await);
        assert!(reader.frame().await.is_none() && reader.is_end_stream());
    }
}

#[tokio::test]
async fn a_body_that_broke_off_is_not_read_again() {
    let pieces = [
        Ok(Frame::data(Bytes::from_static(b"abc"))),
        Err("reset".into()),
    ];
    let replay = ReplayBody::new(
        Body::boxed(StreamBody::new(futures_util::stream::iter(pieces))),
        MOST_KEPT,
    );
    let mut first = replay.read().unwrap();
    first.frame().await;
    // Taken before the break is known.
    let mut second = replay.read().unwrap();
    second.frame().await;
    assert!(second.frame().await.unwrap().is_err());
    assert!(replay.read().is_none());
    let mut kept = replay.0.kept.lock();
    assert!(kept.next_kept().is_none() && kept.failed);
}

#[tokio::test]
async fn the_length_counts_what_is_read_again() {
    let replay = ReplayBody::new(Body::from(Bytes::from_static(b"whole")), MOST_KEPT);
    let mut first = replay.read().unwrap();
    assert_eq!(first.size_hint().exact(), Some(5));
    first.frame().await;
    assert!(first.is_end_stream());
    assert_eq!(replay.read().unwrap().size_hint().exact(), Some(5));
}

#[tokio::test]
async fn a_body_whose_length_was_not_known_has_none_when_it_is_read_again() {
    let replay = ReplayBody::new(body(1, 10), MOST_KEPT);
    whole(replay.read().unwrap()).await;
    assert_eq!(replay.read().unwrap().size_hint().exact(), None);
}
