//! A deadline that moves with every request, or every chunk, and hardly ever touches the timer behind it.
//!
//! Guarantees never to go off early. Knows nothing of what it guards.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::time::{Instant, Sleep, sleep_until};

/// One timer, made once, for all the deadlines that follow one another.
pub struct Alarm {
    timer: Pin<Box<Sleep>>,
    deadline: Instant,
}

impl Alarm {
    pub fn new(deadline: Instant) -> Self {
        Self { timer: Box::pin(sleep_until(deadline)), deadline }
    }

    /// Moves the deadline. A timer that goes off before is left alone: it is cheaper to look again then.
    pub fn set(&mut self, deadline: Instant) {
        self.deadline = deadline;
        if self.timer.deadline() > deadline || self.timer.is_elapsed() {
            self.timer.as_mut().reset(deadline);
        }
    }

    /// Ready once the deadline has passed.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.timer.as_mut().poll(cx));
            if self.deadline <= self.timer.deadline() {
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(self.deadline);
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
    async fn goes_off_at_the_last_deadline_set() {
        let start = clock::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut alarm = Alarm::new(after(10));
        for seconds in [20, 5, 30] {
            alarm.set(after(seconds));
        }
        poll_fn(|cx| alarm.poll(cx)).await;
        assert_eq!(clock::now(), after(30));
        alarm.set(after(40));
        poll_fn(|cx| alarm.poll(cx)).await;
        assert_eq!(clock::now(), after(40));
    }
}
