//! Turns among the tests of a binary that break a store under load, or drive gateways as fast as
//! they can: they are few at a time. All other tests run beside them.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The number of such tests at a time: each has a small load of its own, and two cores carry these.
const FEW: usize = 5;

static RUNNING: Mutex<usize> = Mutex::new(0);
static ENDED: Condvar = Condvar::new();

/// Ends with the test, however it ends.
pub struct Turn(());

impl Drop for Turn {
    fn drop(&mut self) {
        *running() -= 1;
        ENDED.notify_one();
    }
}

/// Waits until few of these tests run.
pub fn among_few() -> Turn {
    let mut running = ENDED
        .wait_while(running(), |running| *running >= FEW)
        .unwrap_or_else(PoisonError::into_inner);
    *running += 1;
    Turn(())
}

fn running() -> MutexGuard<'static, usize> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}
