//! Time that passes on purpose: how long a peer of a test takes for what it does, and how long a
//! load goes on. No test waits by it for something to happen: `poll` does that.

use std::time::Duration;

use tollgate_limiter::clock::Instant;

/// Takes so long, in a thread that may block.
pub fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Takes until `end`.
pub async fn pause_until(end: Instant) {
    tokio::time::sleep_until(end).await;
}
