//! The clock of a run: waits until it is over, does what is planned meanwhile and reports how far
//! it is.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tollgate_limiter::clock;

use crate::drive::load::OfferedLoad;
use crate::error::Error;

/// How far a run is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    pub passed: Duration,
    pub of: Duration,
    /// Requests sent so far.
    pub asked: u64,
}

/// Pause between two steps.
const STEP: Duration = Duration::from_millis(5);

/// Waits for `duration`. Meanwhile it calls `step` with the time in microseconds, and `report` with
/// the progress.
///
/// # Errors
/// When a step fails.
pub fn wait(
    duration: Duration,
    load: &OfferedLoad,
    report: &mut dyn FnMut(Progress),
    step: &mut dyn FnMut(u64) -> Result<(), Error>,
) -> Result<(), Error> {
    let begun = clock::now();
    loop {
        let passed = clock::now().saturating_duration_since(begun).min(duration);
        report(Progress {
            passed,
            of: duration,
            asked: load.asked.load(Ordering::Relaxed),
        });
        if passed == duration {
            return Ok(());
        }
        step(clock::monotonic_micros())?;
        std::thread::sleep(STEP.min(duration - passed));
    }
}
