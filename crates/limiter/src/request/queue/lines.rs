//! The lines of one limit, one for each key with waiting requests, and the bound on all of them
//! together.
//!
//! Guarantees that no key keeps others out: when all places are taken, a request for a key with few
//! of them takes the place of the last one in the longest line. A lone key may have all places.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use crate::clock::Instant;
use crate::limit::key::Key;
use crate::request::queue::line::{KeyLine, QueuedRequest};

/// The lines before one limit.
#[derive(Default)]
pub(super) struct QueueLines {
    by_key: HashMap<Key, KeyLine>,
    /// The keys of the lines by how many of their requests have no turn yet.
    by_length: BTreeMap<(usize, u64), Key>,
    waiting: usize,
    /// Lines that there were so far.
    lines: u64,
    call_time: Duration,
}

impl QueueLines {
    pub fn has_line(&self, key: &Key) -> bool {
        self.waiting > 0 && self.by_key.contains_key(key)
    }

    /// Requests that wait.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// How long a call takes: an average of the latest ones.
    pub fn call_time(&self) -> Duration {
        self.call_time
    }

    /// Takes over how long a call took.
    pub fn observe_call(&mut self, took: Duration) {
        self.call_time = (3 * self.call_time + took) / 4;
    }

    /// The line of a key.
    pub fn line(&self, key: &Key) -> Option<&KeyLine> {
        self.by_key.get(key)
    }

    /// Makes sure that one more request for `key` has a place: one of `max` that are free, or the
    /// last one of the longest line, if that stays the longer one. `false`: it has none.
    pub fn make_room(&mut self, key: &Key, max: usize) -> bool {
        if self.waiting < max {
            return true;
        }
        let own = self.by_key.get(key).map_or(0, KeyLine::waiting);
        let Some(((longest, _), longest_key)) = self.by_length.last_key_value() else {
            return false;
        };
        if own + 1 >= *longest {
            return false;
        }
        let longest_key = longest_key.clone();
        self.with(&longest_key, KeyLine::remove_last).is_some()
    }

    /// Adds a request to the line of `key`: its ticket. Of a new line, the first request may pass
    /// at `ready_at`.
    pub fn join(&mut self, key: &Key, request: QueuedRequest, ready_at: Instant) -> Option<u64> {
        if !self.by_key.contains_key(key) {
            self.lines += 1;
            self.by_key
                .insert(key.clone(), KeyLine::new(self.lines, ready_at));
            self.by_length.insert((0, self.lines), key.clone());
        }
        self.with(key, |line| line.join(request))
    }

    /// Lets `act` work on the line of a key, if there is one. An empty line is removed afterwards.
    pub fn with<R>(&mut self, key: &Key, act: impl FnOnce(&mut KeyLine) -> R) -> Option<R> {
        let line = self.by_key.get_mut(key)?;
        let id = line.id;
        let len = line.len();
        let length = line.waiting();
        let result = act(line);
        self.waiting = self.waiting + line.len() - len;
        let is_empty = line.len() == 0;
        let new_length = line.waiting();
        if is_empty {
            self.by_key.remove(key);
            self.by_length.remove(&(length, id));
        } else if new_length != length
            && let Some(key) = self.by_length.remove(&(length, id))
        {
            self.by_length.insert((new_length, id), key);
        }
        Some(result)
    }
}
