//! Maintenance of a route: when it is on, which clients are served all the same, and when the
//! others may come back.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::route::error_pages::ErrorPages;
use crate::route::networks::NetworkSet;

/// Maintenance of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaintenanceSpec {
    /// The file that switches it on by existing. `None`: it is on as long as the configuration has
    /// it.
    pub when_file: Option<PathBuf>,
    /// The clients that are served all the same.
    pub allow: NetworkSet,
    /// When it is expected to end.
    pub until: Option<SystemTime>,
    /// How long clients are to stay away, where `until` does not say so.
    pub retry_after: Duration,
    /// The pages of its answer. They come before those of the route.
    pub pages: Option<Arc<ErrorPages>>,
}

impl MaintenanceSpec {
    /// When a client may come back: at the expected end, or after some time once that has passed.
    pub fn retry_after_secs(&self, now: SystemTime) -> u64 {
        let mut wait = self.retry_after;
        if let Some(until) = self.until
            && let Ok(left) = until.duration_since(now)
            && !left.is_zero()
        {
            wait = left;
        }
        wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_come_back_at_the_end_and_later_if_it_has_passed() {
        fn at(millis: u64) -> SystemTime {
            SystemTime::UNIX_EPOCH + Duration::from_millis(millis)
        }
        let mut spec = MaintenanceSpec {
            when_file: None,
            allow: NetworkSet::default(),
            until: Some(at(10_000)),
            retry_after: Duration::from_secs(90),
            pages: None,
        };
        let waits =
            [0, 9_000, 9_001, 9_999, 10_000, 10_001].map(|now| spec.retry_after_secs(at(now)));
        assert_eq!(waits, [10, 1, 1, 1, 90, 90]);
        spec.until = None;
        assert_eq!(spec.retry_after_secs(at(0)), 90);
    }
}
