//! Replies of any form, for tests and fuzzing: all that reads a script's reply reads them.
//!
//! Guarantees, by the properties that run it, that no reply of a server ends the process, and that
//! none is a grant but one of the form that the scripts give.

use fred::types::{Key, Map, Value};

use crate::algorithm::calendar::Period;
use crate::algorithm::quota::Quota;
use crate::algorithm::token_bucket::TokenBucket;
use crate::algorithm::window::Window;
use crate::store::hash_reader::FieldValue;
use crate::store::redis::script::Integers;
use crate::store::redis::take::group;
use crate::store::redis::topology::{cluster, server};
use crate::store::redis::{adjust_call, fleet_nodes, heartbeat, inspect, permits};

/// Values within values at most: each is a call on the stack.
const DEPTH: usize = 64;

/// A reply.
#[doc(hidden)]
pub struct AnyReply(Value);

impl AnyReply {
    /// The reply that `bytes` describe, in a form of their own: every kind of value, in every order
    /// and depth.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self(ValueReader(bytes).value(DEPTH))
    }

    /// The units that the reply grants to groups, each of so many buckets and asked units. `None`:
    /// it is no reply to that. None of a group: it is granted nothing.
    pub fn granted(&self, groups: &[(usize, u32)]) -> Option<Vec<Option<u32>>> {
        let replies = group::parse(&self.0, groups.iter().copied())?;
        let units = replies.into_iter().map(|reply| Some(reply.ok()?.units));
        Some(units.collect())
    }

    /// The integers that the reply is a list of. `None`: it is something else.
    pub fn integers(&self) -> Option<Vec<i64>> {
        let Integers(integers) = self.0.clone().convert().ok()?;
        Some(integers)
    }

    /// Reads the reply as that of every other script, and of CLUSTER SLOTS. Returns how many read
    /// something.
    pub fn read_by_all(&self) -> usize {
        let mut read = usize::from(server::reply_head(&self.0).is_some());
        read += cluster::ranges_of(&self.0);
        if let Some(integers) = self.integers() {
            for number in 0..4 {
                read += usize::from(permits::parse(&integers, number).is_some());
                read += usize::from(adjust_call::parse(&integers, number).is_some());
            }
            for quota in quotas() {
                read += usize::from(inspect::states(&integers, quota).is_some());
            }
        }
        if let Ok(words) = self.0.clone().convert::<Vec<String>>() {
            read += usize::from(heartbeat::read_beat(&words).is_ok());
        }
        if let Ok(words) = self.0.clone().convert::<Vec<Vec<u8>>>() {
            read += usize::from(inspect::notices(&words).is_ok());
            read += usize::from(fleet_nodes::read_nodes(&words).is_ok());
        }
        let fields = self.0.clone().convert::<Vec<FieldValue>>();
        read + usize::from(fields.is_ok())
    }
}

/// A quota of each algorithm.
fn quotas() -> impl Iterator<Item = Quota> {
    let [one, ten, second] = [1, 10, 1_000_000].map(|number: u64| number.try_into());
    let bucket = match (one, second, ten) {
        (Ok(one), Ok(second), Ok(ten)) => TokenBucket::new(one, second, ten).ok(),
        _ => None,
    };
    let windows = [
        Window::fixed(10, Period::every(1_000_000)).ok(),
        Window::sliding(10, 1_000_000).ok(),
        Window::sliding(10_000, 1_000_000).ok(),
    ];
    let windows = windows.into_iter().flatten().map(Quota::Window);
    bucket.map(Quota::TokenBucket).into_iter().chain(windows)
}

/// Reads values off bytes that may be of any kind.
struct ValueReader<'a>(&'a [u8]);

impl ValueReader<'_> {
    fn value(&mut self, depth: usize) -> Value {
        let Some(kind) = self.byte() else {
            return Value::Null;
        };
        match kind % 10 {
            0 => Value::Null,
            1 => Value::Integer(i64::from_le_bytes(self.eight())),
            2 | 3 => Value::Integer(self.byte().unwrap_or_default().cast_signed().into()),
            4 => Value::Double(f64::from_le_bytes(self.eight())),
            5 => Value::Boolean(kind > 127),
            6 => Value::String(String::from_utf8_lossy(&self.text()).as_ref().into()),
            7 => Value::Bytes(self.text().into()),
            8 if depth > 0 => self.map(depth - 1),
            _ if depth > 0 => Value::Array(self.list(depth - 1)),
            _ => Value::Queued,
        }
    }

    fn list(&mut self, depth: usize) -> Vec<Value> {
        let mut values = Vec::new();
        for _ in 0..self.byte().unwrap_or_default() {
            if self.0.is_empty() {
                break;
            }
            values.push(self.value(depth));
        }
        values
    }

    fn map(&mut self, depth: usize) -> Value {
        let mut values = Map::new();
        for value in self.list(depth) {
            let key = Key::from(self.text().as_slice());
            values.insert(key, value);
        }
        Value::Map(values)
    }

    fn text(&mut self) -> Vec<u8> {
        let length = usize::from(self.byte().unwrap_or_default()).min(self.0.len());
        let (text, rest) = self.0.split_at(length);
        self.0 = rest;
        text.to_vec()
    }

    fn eight(&mut self) -> [u8; 8] {
        let Some((eight, rest)) = self.0.split_first_chunk() else {
            return [0; 8];
        };
        self.0 = rest;
        *eight
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }
}
