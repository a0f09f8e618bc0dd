//! Ends a request that panics, and that request only.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::Poll;

use tollgate_wire::error::Failure;

/// Drives `guarded`, which is pinned and lent: an async function that takes a future has room for
/// it twice. Panics are caught around each poll.
///
/// # Errors
/// The future's own. [`Failure::Panicked`] when it panicked, which is a bug: it is not polled
/// again, and the panic is in the log.
#[inline]
pub fn guard<T>(
    mut guarded: Pin<&mut impl Future<Output = Result<T, Failure>>>,
) -> impl Future<Output = Result<T, Failure>> {
    poll_fn(move |cx| {
        let polled = catch_unwind(AssertUnwindSafe(|| guarded.as_mut().poll(cx)));
        polled.unwrap_or(Poll::Ready(Err(Failure::Panicked)))
    })
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;

    #[tokio::test]
    async fn a_panic_ends_the_guarded_future_and_nothing_else() {
        assert!(
            guard(pin!(async { Ok(7) }))
                .await
                .is_ok_and(|seven| seven == 7)
        );
        let panicked: Result<(), _> = guard(pin!(async { panic!("a bug") })).await;
        assert!(matches!(panicked, Err(Failure::Panicked)));
    }
}
