//! One timer for all the waits of one side of a connection, however often they begin anew.
//!
//! It is armed early rather than often: when it goes off before its time, what is being waited for by then decides when it
//! goes off next. So an ordinary request arms nothing. Never ready early.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::task::coop;
use tokio::time::{Sleep, sleep_until};

use crate::clock::Instant;

/// Made when first needed.
#[derive(Debug, Default)]
pub struct Timer(Option<Armed>);

#[derive(Debug)]
struct Armed {
    sleep: Pin<Box<Sleep>>,
    /// Whom it wakes. A connection's task stays the same, so it need not be told with every wait.
    wakes: Option<Waker>,
}

impl Timer {
    /// Ready at `due`.
    pub fn poll(&mut self, cx: &mut Context<'_>, due: Instant) -> Poll<()> {
        let armed = self.0.get_or_insert_with(|| Armed { sleep: Box::pin(sleep_until(due)), wakes: None });
        loop {
            if armed.sleep.is_elapsed() || armed.sleep.deadline() > due {
                armed.sleep.as_mut().reset(due);
                armed.wakes = None;
            }
            if armed.wakes.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                return Poll::Pending;
            }
            // Without budget a poll is no more than the promise of another one.
            let told = coop::has_budget_remaining();
            if armed.sleep.as_mut().poll(cx).is_pending() {
                armed.wakes = told.then(|| cx.waker().clone());
                return Poll::Pending;
            }
            armed.wakes = None;
            if due <= armed.sleep.deadline() {
                return Poll::Ready(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use super::*;
    use crate::clock;

    #[tokio::test(start_paused = true)]
    async fn it_goes_off_when_what_is_waited_for_by_then_is_due() {
        let start = clock::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut timer = Timer::default();
        for due in [20, 5, 30] {
            let waits = poll_fn(|cx| Poll::Ready(timer.poll(cx, after(due)).is_pending())).await;
            assert!(waits);
        }
        for due in [30, 40] {
            poll_fn(|cx| timer.poll(cx, after(due))).await;
            assert_eq!(clock::now(), after(due));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_has_used_up_its_turn_is_woken_all_the_same() {
        let due = clock::now() + Duration::from_secs(5);
        let (mut timer, mut first) = (Timer::default(), true);
        poll_fn(|cx| {
            while first && coop::has_budget_remaining() {
                let _ = std::pin::pin!(coop::consume_budget()).poll(cx);
            }
            first = false;
            timer.poll(cx, due)
        })
        .await;
        assert_eq!(clock::now(), due);
    }
}
