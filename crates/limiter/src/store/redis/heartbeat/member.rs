//! The nodes in the set of nodes, as `lua/heartbeat.lua` lists them in its answer to a beat.

use std::fmt;
use std::time::Duration;

use crate::clock;

/// A node that was not heard of for so long is silent: one beat may be lost, and the next be late
/// by half of its time.
pub(super) const SILENCE: Duration = Duration::from_millis(1_250);

/// The answer to a beat.
pub(in crate::store::redis) struct Beat {
    /// Whether Redis knew this node before.
    pub was_known: bool,
    /// In the order of their ids.
    pub members: Vec<Member>,
}

/// A connection to Redis, which nothing but the end of its node's process closes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Connection {
    /// The server's own number of it.
    pub number: u64,
    /// The run of the server, which its `INFO` tells: another one may have the same number.
    pub run: String,
}

impl fmt::Display for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.number, self.run)
    }
}

impl Connection {
    fn read(text: &str) -> Option<Self> {
        let (number, run) = text.split_once('@')?;
        Some(Self {
            number: number.parse().ok()?,
            run: run.to_owned(),
        })
    }
}

/// A node, and when it was last heard of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store::redis) struct Member {
    /// "id:autonomy:connection", the last empty if there is none.
    text: String,
    id_length: usize,
    connection: Option<Connection>,
    heard_us: u64,
    gone_us: u64,
}

impl Member {
    /// The member, and the milliseconds since it was heard of, in a reply that has just come.
    pub fn read(words: &[String]) -> Option<Self> {
        let [text, age_ms] = words else {
            return None;
        };
        let mut parts = text.split(':');
        let id_length = parts.next()?.len();
        let autonomy_ms: u64 = parts.next()?.parse().ok()?;
        let connection = Connection::read(parts.next()?);
        let age_ms: u64 = age_ms.parse().ok()?;
        let now_us = clock::monotonic_micros();
        let left_ms = autonomy_ms.saturating_sub(age_ms);
        Some(Self {
            text: text.clone(),
            id_length,
            connection,
            heard_us: now_us.saturating_sub(age_ms.saturating_mul(1_000)),
            gone_us: now_us.saturating_add(left_ms.saturating_mul(1_000)),
        })
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn id(&self) -> &str {
        &self.text[..self.id_length]
    }

    /// The connection that ends with its process.
    pub(super) fn connection(&self) -> Option<&Connection> {
        self.connection.as_ref()
    }

    /// When it was last heard of, in microseconds of this node's monotonic clock.
    pub fn heard_us(&self) -> u64 {
        self.heard_us
    }

    /// When it counts as gone, if it is not heard of before.
    pub fn gone_us(&self) -> u64 {
        self.gone_us
    }

    pub fn unheard_for(&self) -> Duration {
        Duration::from_micros(clock::monotonic_micros().saturating_sub(self.heard_us))
    }

    pub fn is_silent(&self) -> bool {
        self.unheard_for() >= SILENCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(member: &str, age: &str) -> Option<Member> {
        Member::read(&[member.to_owned(), age.to_owned()])
    }

    #[test]
    fn a_member_has_an_id_a_time_and_perhaps_a_connection() {
        let member = read("ab:15000:7@f0", "0").unwrap();
        let connection = member.connection().unwrap();
        assert_eq!((member.id(), connection.number), ("ab", 7));
        assert_eq!(connection.to_string(), "7@f0");
        assert_eq!(member.gone_us() - member.heard_us(), 15_000_000);
        for none in ["", "0", "7", "x@f0"] {
            let member = read(&format!("ab:15000:{none}"), "0").unwrap();
            assert_eq!(member.connection(), None, "{none}");
        }
    }

    #[test]
    fn another_form_is_no_member() {
        for [member, age] in [["ab", "0"], ["ab:1", "0"], ["ab:x:", "0"], ["ab:1:", "-"]] {
            assert_eq!(read(member, age), None, "{member} {age}");
        }
    }
}
