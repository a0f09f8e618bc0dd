//! The windows of a calendar that were last asked for, since the next call mostly asks for them
//! again.
//!
//! Guarantees that readers neither lock nor wait: one that meets a change learns nothing, and no
//! reader gets a part of one pair of windows and a part of another.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::super::unit::WindowBounds;

/// A window and the next one.
#[derive(Debug, Default)]
pub(super) struct LastWindows {
    /// Odd while the times change.
    version: AtomicU64,
    start_us: AtomicU64,
    end_us: AtomicU64,
    next_end_us: AtomicU64,
}

impl LastWindows {
    /// The window of `unix_us`, if it is one of the two.
    pub fn find(&self, unix_us: u64) -> Option<WindowBounds> {
        let version = self.version.load(Ordering::Acquire);
        let [start_us, end_us, next_end_us] = [&self.start_us, &self.end_us, &self.next_end_us]
            .map(|time| time.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        if version % 2 == 1 || self.version.load(Ordering::Relaxed) != version {
            return None;
        }
        let windows = [
            WindowBounds { start_us, end_us },
            WindowBounds {
                start_us: end_us,
                end_us: next_end_us,
            },
        ];
        windows
            .into_iter()
            .find(|window| (window.start_us..window.end_us).contains(&unix_us))
    }

    /// Remembers a window and the end of the next, unless another thread is about to.
    pub fn remember(&self, window: WindowBounds, next_end_us: u64) {
        let version = self.version.load(Ordering::Relaxed);
        let free = version.is_multiple_of(2);
        let odd = version.wrapping_add(1);
        if !free
            || self
                .version
                .compare_exchange(version, odd, Ordering::Acquire, Ordering::Relaxed)
                .is_err()
        {
            return;
        }
        fence(Ordering::Release);
        self.start_us.store(window.start_us, Ordering::Relaxed);
        self.end_us.store(window.end_us, Ordering::Relaxed);
        self.next_end_us.store(next_end_us, Ordering::Relaxed);
        self.version.store(odd.wrapping_add(1), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_windows_are_found_and_no_other_time() {
        let last = LastWindows::default();
        assert_eq!(last.find(0), None);
        last.remember(
            WindowBounds {
                start_us: 10,
                end_us: 20,
            },
            40,
        );
        let found = [9, 10, 19, 20, 39, 40]
            .map(|at| last.find(at).map(|window| (window.start_us, window.end_us)));
        assert_eq!(
            found,
            [
                None,
                Some((10, 20)),
                Some((10, 20)),
                Some((20, 40)),
                Some((20, 40)),
                None
            ]
        );
    }

    #[test]
    fn threads_that_change_the_windows_mix_none() {
        let last = LastWindows::default();
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let last = &last;
                scope.spawn(move || {
                    for turn in 0..50_000_u64 {
                        let start_us = (turn * 7 + thread) % 100 * 1_000;
                        last.remember(
                            WindowBounds {
                                start_us,
                                end_us: start_us + 1_000,
                            },
                            start_us + 2_000,
                        );
                        let asked = start_us + 1_500;
                        if let Some(window) = last.find(asked) {
                            assert!((window.start_us..window.end_us).contains(&asked));
                            assert_eq!(
                                (window.start_us % 1_000, window.end_us - window.start_us),
                                (0, 1_000)
                            );
                        }
                    }
                });
            }
        });
    }
}
