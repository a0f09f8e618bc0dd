//! Waiting for what happens elsewhere: each poll asks again and again, and fails with a message
//! once its time is over.

use std::future::Future;
use std::time::Duration;

use tollgate_limiter::clock;

/// Longer than anything here takes, shorter than anyone waits for a test.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Polls until the condition holds, for [`PATIENCE`] at most.
pub async fn eventually<F, C>(what: &str, mut condition: C)
where
    F: Future<Output = bool>,
    C: FnMut() -> F,
{
    let started = clock::now();
    while !condition().await {
        assert!(started.elapsed() < PATIENCE, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Polls a condition that needs no waiting of its own, for [`PATIENCE`] at most. Other tasks run in
/// between.
pub async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let polling = async {
        while !condition() {
            // Not at once: the core is for those who make it come true.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    in_time(what, polling).await;
}

/// The outcome of what waits for nothing that may never come. Fails after [`PATIENCE`].
pub async fn in_time<T>(what: &str, work: impl Future<Output = T>) -> T {
    let Ok(outcome) = tokio::time::timeout(PATIENCE, work).await else {
        panic!("waited in vain until {what}");
    };
    outcome
}

/// Asks until there is an answer, for [`PATIENCE`] at most, in a thread that may block.
pub fn answer_of<T>(what: &str, ask: impl FnMut() -> Option<T>) -> T {
    answer_within(PATIENCE, what, ask)
}

/// Asks until there is an answer, for `limit` at most. The pauses grow with the time that was
/// waited: a question may cost a process.
pub fn answer_within<T>(limit: Duration, what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let started = clock::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        let waited = started.elapsed();
        assert!(waited < limit, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5) + waited / 20);
    }
}
