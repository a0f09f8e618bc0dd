//! Turns among the tests of a binary. Most tests don't care. Those that watch what happens within a
//! time keep off from those that keep the machine busy, and those that keep it busy and measure are
//! alone.

use std::sync::{Condvar, Mutex, MutexGuard};

/// The number of tests that may watch at once: each has a small load of its own, and two cores
/// carry these.
const FEW: usize = 5;

static RUNNING: Mutex<RunningTests> = Mutex::new(RunningTests {
    others: 0,
    few: 0,
    alone: 0,
});
static CHANGED: Condvar = Condvar::new();

#[derive(Clone, Copy)]
struct RunningTests {
    others: usize,
    few: usize,
    alone: usize,
}

/// Ends with the test, however it ends.
pub struct Turn(fn(&mut RunningTests) -> &mut usize);

impl Drop for Turn {
    fn drop(&mut self) {
        *(self.0)(&mut running()) -= 1;
        CHANGED.notify_all();
    }
}

/// For a test that others don't disturb.
pub fn beside_others() -> Turn {
    when(
        |running| running.few + running.alone == 0,
        |running| &mut running.others,
    )
}

/// For a test that waits for most of its time, and says how long something may take.
pub fn among_few() -> Turn {
    when(
        |running| running.others + running.alone == 0 && running.few < FEW,
        |running| &mut running.few,
    )
}

/// For a test that needs what the machine can do.
pub fn alone() -> Turn {
    when(
        |running| running.others + running.few + running.alone == 0,
        |running| &mut running.alone,
    )
}

fn when(free: fn(RunningTests) -> bool, count: fn(&mut RunningTests) -> &mut usize) -> Turn {
    let mut running = CHANGED
        .wait_while(running(), |running| !free(*running))
        .unwrap_or_else(|lock| lock.into_inner());
    *count(&mut running) += 1;
    Turn(count)
}

fn running() -> MutexGuard<'static, RunningTests> {
    RUNNING
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}
