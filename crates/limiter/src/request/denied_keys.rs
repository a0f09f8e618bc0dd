//! Whom a limit denies: the keys with most denials of the last minutes, by limit.
//!
//! Guarantees that a request which passes pays nothing for it, that no denial waits for another,
//! and that what is kept is bounded, whatever clients send. A key is personal data: it is kept for
//! minutes, in this process alone.

use std::collections::{HashMap, VecDeque};
use std::mem::take;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::limit::key::Key;
use crate::request::heavy_hitters::{HeavyHitter, HeavyHitters};

/// Windows that have ended and still count.
const PAST: usize = 4;

/// Keys that are kept of a window that has ended.
const KEPT: usize = 16;

/// The denied keys of all limits.
#[derive(Debug, Default)]
pub struct DenialWatch(Mutex<HashMap<Arc<str>, Arc<DeniedKeys>>>);

/// The denied keys of one limit.
#[derive(Debug, Default)]
pub struct DeniedKeys {
    /// Counts of the window that has begun last.
    current: Mutex<HeavyHitters>,
    /// Counts of earlier windows, the last one first.
    past: Mutex<VecDeque<Vec<HeavyHitter>>>,
}

impl DenialWatch {
    /// The denied keys of the limit called `name`.
    pub fn limit(&self, name: &Arc<str>) -> Arc<DeniedKeys> {
        self.0.lock().entry(name.clone()).or_default().clone()
    }

    /// The denied keys of the limit called `name`, if a limit has been called so.
    pub fn find(&self, name: &str) -> Option<Arc<DeniedKeys>> {
        self.0.lock().get(name).cloned()
    }

    /// Ends a window and begins another: for a background task, in even intervals. Limits that are
    /// gone are forgotten with their last window.
    pub fn turn(&self) {
        let mut all = self.0.lock();
        all.retain(|_, keys| !keys.turn() || Arc::strong_count(keys) > 1);
    }
}

impl DeniedKeys {
    /// Counts a denial of `key`. Where another thread is counting one just now, this one is left
    /// out.
    #[cold]
    pub fn count(&self, key: &Key) {
        if let Some(mut current) = self.current.try_lock() {
            current.count(key);
        }
    }

    /// The `most` keys with the highest counts over all windows that still count, the highest
    /// first.
    pub fn top(&self, most: usize) -> Vec<HeavyHitter> {
        let mut sums: HashMap<Key, HeavyHitter> = HashMap::new();
        add(&mut sums, self.current.lock().hitters());
        self.past
            .lock()
            .iter()
            .for_each(|window| add(&mut sums, window));
        let mut all: Vec<_> = sums.into_values().collect();
        all.sort_by(|one, other| {
            other
                .count
                .cmp(&one.count)
                .then_with(|| one.key.as_bytes().cmp(other.key.as_bytes()))
        });
        all.truncate(most);
        all
    }

    /// Whether nothing is left.
    fn turn(&self) -> bool {
        let ended = take(&mut *self.current.lock());
        let mut past = self.past.lock();
        past.push_front(ended.hitters().iter().take(KEPT).cloned().collect());
        past.truncate(PAST);
        past.iter().all(Vec::is_empty)
    }
}

/// Adds the counts of a window to `sums`.
fn add(sums: &mut HashMap<Key, HeavyHitter>, window: &[HeavyHitter]) {
    for hitter in window {
        let sum = sums
            .entry(hitter.key.clone())
            .or_insert_with(|| HeavyHitter {
                key: hitter.key.clone(),
                count: 0,
                error: 0,
            });
        sum.count += hitter.count;
        sum.error += hitter.error;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::heavy_hitters::CAPACITY;

    fn top(keys: &DeniedKeys) -> Vec<(String, u64)> {
        keys.top(10)
            .into_iter()
            .map(|hitter| {
                (
                    String::from_utf8_lossy(hitter.key.as_bytes()).into_owned(),
                    hitter.count,
                )
            })
            .collect()
    }

    #[test]
    fn windows_are_added_up_until_they_are_old() {
        let watch = DenialWatch::default();
        let keys = watch.limit(&"per-client".into());
        keys.count(&Key::from("a"));
        watch.turn();
        (0..2).for_each(|_| keys.count(&Key::from("b")));
        keys.count(&Key::from("a"));
        assert_eq!(top(&keys), [("a".to_owned(), 2), ("b".to_owned(), 2)]);
        (0..PAST).for_each(|_| watch.turn());
        assert_eq!(top(&keys), [("b".to_owned(), 2), ("a".to_owned(), 1)]);
        watch.turn();
        assert_eq!(top(&keys), []);
    }

    #[test]
    fn a_limit_keeps_its_keys_over_a_reload_and_is_forgotten_once_it_is_gone() {
        let watch = DenialWatch::default();
        let name = Arc::from("per-client");
        let keys = watch.limit(&name);
        keys.count(&Key::from("a"));
        assert_eq!(top(&watch.limit(&name)).len(), 1);
        drop(keys);
        (0..PAST).for_each(|_| watch.turn());
        assert!(watch.find("per-client").is_some());
        watch.turn();
        assert!(watch.find("per-client").is_none());
    }

    #[test]
    fn a_limit_takes_ten_kilobytes_at_most() {
        let hitter = size_of::<HeavyHitter>();
        let bytes = CAPACITY * (hitter + size_of::<u64>()) + PAST * KEPT * hitter;
        assert!(bytes <= 10_240, "{bytes}");
        let keys = DeniedKeys::default();
        for window in 0..10 {
            (0..10_000)
                .for_each(|number| keys.count(&Key::from(format!("{window}-{number}").as_str())));
            keys.turn();
        }
        let past = keys.past.lock();
        assert!(
            past.len() == PAST
                && past
                    .iter()
                    .all(|window| window.len() == KEPT && window.capacity() == KEPT)
        );
    }
}
