//! The questions to DNS that are under way, of all upstreams together.
//!
//! Guarantees that no more are under way than [`MOST`], however many names there are and whether or
//! not anybody answers, and that those which nobody answers leave their places to others.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::pin;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Questions under way at most. Each has a socket or two.
pub const MOST: usize = 64;

/// How long a question keeps its place while others wait for one: more than an answer from far away
/// takes.
const PATIENCE: Duration = Duration::from_millis(500);

/// How often a question that takes longer looks whether others wait.
const TICK: Duration = Duration::from_millis(50);

/// The places of questions.
pub struct QuestionPlaces {
    free: Semaphore,
    waiting: AtomicUsize,
}

/// A question that waits for a place, until it is dropped.
struct WaitingQuestion<'a>(&'a AtomicUsize);

impl QuestionPlaces {
    pub const fn new(most: usize) -> Self {
        Self {
            free: Semaphore::const_new(most),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Drives `question` to its end. `None`: nobody answers, and others wait for its place.
    pub async fn ask<T>(&self, question: impl Future<Output = T>) -> Option<T> {
        let waiting = WaitingQuestion::new(&self.waiting);
        let _place = self.free.acquire().await.ok()?;
        drop(waiting);
        pin!(question);
        let mut time = PATIENCE;
        loop {
            if let Ok(answer) = timeout(time, question.as_mut()).await {
                return Some(answer);
            }
            if self.waiting.load(Ordering::Relaxed) > 0 {
                return None;
            }
            time = TICK;
        }
    }
}

impl<'a> WaitingQuestion<'a> {
    fn new(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::Relaxed);
        Self(waiting)
    }
}

impl Drop for WaitingQuestion<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures_util::future::{join_all, poll_immediate};
    use tokio::time::sleep;

    use super::*;
    use tollgate_limiter::clock;

    #[tokio::test(start_paused = true)]
    async fn questions_that_nobody_answers_leave_their_places_to_others() {
        let places = QuestionPlaces::new(2);
        let begun = clock::now();
        let silent = join_all((0..4).map(|_| places.ask(pending::<()>())));
        // More others than there are places, so that one waits whoever has these.
        let others =
            join_all((0..3).map(async |_| while places.ask(pending::<()>()).await.is_none() {}));
        let both = futures_util::future::join(silent, places.ask(ready("answer")));
        let (silent, answered) =
            tokio::select! { both = both => both, _ = others => unreachable!() };
        assert_eq!((silent, answered), (vec![None; 4], Some("answer")));
        assert!(clock::now() - begun >= 2 * PATIENCE, "two at a time");
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_answer_is_waited_for_while_nobody_else_waits() {
        let places = QuestionPlaces::new(1);
        assert_eq!(
            places.ask(async { sleep(20 * PATIENCE).await }).await,
            Some(())
        );
        // A question that has gone away waits no more.
        let mut first = Box::pin(places.ask(sleep(2 * PATIENCE)));
        assert!(poll_immediate(&mut first).await.is_none());
        let mut second = Box::pin(places.ask(ready(())));
        assert!(poll_immediate(&mut second).await.is_none());
        drop(second);
        assert_eq!(first.await, Some(()));
    }
}
