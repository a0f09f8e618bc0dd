//! A timer that serves all the waits of one side of a connection.
//!
//! A wait that is due later than the timer does not set it anew: the timer goes off early, finds
//! the wait that is under way by then, and is set for that. An ordinary request therefore sets no
//! timer. Guarantees never to be ready early.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::task::coop;
use tokio::time::{Sleep, sleep_until};

use tollgate_limiter::clock::Instant;

/// A timer that is created when it is first needed.
#[derive(Debug, Default)]
pub struct Timer(Option<ArmedTimer>);

#[derive(Debug)]
struct ArmedTimer {
    sleep: Pin<Box<Sleep>>,
    /// The task to wake. A connection's task stays the same: the waker is stored once and not with
    /// every wait.
    waker: Option<Waker>,
}

impl Timer {
    /// Ready at `due`.
    pub fn poll(&mut self, cx: &mut Context<'_>, due: Instant) -> Poll<()> {
        let armed = self.0.get_or_insert_with(|| ArmedTimer {
            sleep: Box::pin(sleep_until(due)),
            waker: None,
        });
        loop {
            if armed.sleep.is_elapsed() || armed.sleep.deadline() > due {
                armed.sleep.as_mut().reset(due);
                armed.waker = None;
            }
            if let Some(waker) = &armed.waker
                && waker.will_wake(cx.waker())
            {
                return Poll::Pending;
            }
            // Without cooperative budget, `poll` wakes the task at once and does not register it
            // with the timer.
            let registered = coop::has_budget_remaining();
            if armed.sleep.as_mut().poll(cx).is_pending() {
                armed.waker = registered.then(|| cx.waker().clone());
                return Poll::Pending;
            }
            armed.waker = None;
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
    use tollgate_limiter::clock;

    #[tokio::test(start_paused = true)]
    async fn the_timer_goes_off_when_the_latest_wait_is_due() {
        let start = clock::now();
        let mut timer = Timer::default();
        for seconds in [20, 5, 30] {
            let due = start + Duration::from_secs(seconds);
            let waits = poll_fn(|cx| Poll::Ready(timer.poll(cx, due).is_pending())).await;
            assert!(waits);
        }
        for seconds in [30, 40] {
            let due = start + Duration::from_secs(seconds);
            poll_fn(|cx| timer.poll(cx, due)).await;
            assert_eq!(clock::now(), due);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_without_cooperative_budget_is_woken_nevertheless() {
        let due = clock::now() + Duration::from_secs(5);
        let mut timer = Timer::default();
        let mut first = true;
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
