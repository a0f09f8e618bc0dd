//! A master of a Redis Cluster that stops answering: which keys it has, and how it is paused.
//!
//! Guarantees to pause it for a stated time, with a command that needs no end: an aborted run
//! leaves nothing paused.

use std::time::Duration;

use tollgate_limiter::store::redis::address::Host;
use tollgate_limiter::store::redis::spec::RedisSpec;

use crate::drive::redis_commands::{RedisCommands, RedisReply, servers_of, strange};
use crate::error::Error;
use crate::plan::RunPlan;

/// The master that a run pauses, and the keys of the others.
pub struct PausedMaster {
    commands: RedisCommands,
    /// By the keys' numbers.
    spared: Vec<bool>,
}

/// Hash slots from one to the other, and the master that has them.
struct SlotRange {
    from: i64,
    to: i64,
    master: Host,
}

impl PausedMaster {
    /// Chooses a master of the cluster of `spec` by the seed of `plan`, and finds out which of its
    /// keys it has.
    ///
    /// # Errors
    /// When the cluster does not say, or has one master only.
    pub fn choose(
        spec: &RedisSpec,
        plan: &RunPlan,
        name: impl Fn(u32) -> String,
    ) -> Result<Self, Error> {
        let (servers, login) = servers_of(&spec.url).ok_or(Error::NoCluster)?;
        let entry = servers.first().ok_or(Error::NoCluster)?;
        let mut commands = RedisCommands::connect(entry, &login)?;
        let ranges = slot_ranges(&commands.send(&["CLUSTER", "SLOTS"])?, entry)?;
        let mut masters: Vec<&Host> = ranges.iter().map(|range| &range.master).collect();
        masters.sort_unstable();
        masters.dedup();
        if masters.len() < 2 {
            return Err(Error::NoCluster);
        }
        let chosen = masters[usize::try_from(plan.seed).unwrap_or_default() % masters.len()];
        let mut spared = Vec::new();
        for number in 0..plan.keys.get() {
            let key = format!("{}{}", spec.key_prefix, name(number));
            let RedisReply::Number(slot) = commands.send(&["CLUSTER", "KEYSLOT", &key])? else {
                return Err(Error::NoCluster);
            };
            spared.push(
                !ranges.iter().any(|range| {
                    range.master == *chosen && (range.from..=range.to).contains(&slot)
                }),
            );
        }
        Ok(Self {
            commands: RedisCommands::connect(chosen, &login)?,
            spared,
        })
    }

    /// Whether each key is another master's, by its number.
    pub fn spared(&self) -> Vec<bool> {
        self.spared.clone()
    }

    /// Lets the master answer nothing for so long.
    ///
    /// # Errors
    /// When it refuses.
    pub fn pause(&mut self, time: Duration) -> Result<(), Error> {
        let millis = time.as_millis().to_string();
        self.commands
            .send(&["CLIENT", "PAUSE", &millis, "ALL"])
            .map(drop)
    }
}

/// Reads the answer of `entry` to `CLUSTER SLOTS`.
fn slot_ranges(reply: &RedisReply, entry: &Host) -> Result<Vec<SlotRange>, Error> {
    let RedisReply::List(ranges) = reply else {
        return Err(strange(reply));
    };
    ranges
        .iter()
        .map(|range| slot_range(range, entry).ok_or_else(|| strange(range)))
        .collect()
}

fn slot_range(range: &RedisReply, entry: &Host) -> Option<SlotRange> {
    let RedisReply::List(parts) = range else {
        return None;
    };
    let [
        RedisReply::Number(from),
        RedisReply::Number(to),
        RedisReply::List(master),
        ..,
    ] = parts.as_slice()
    else {
        return None;
    };
    let [name, RedisReply::Number(port), ..] = master.as_slice() else {
        return None;
    };
    // A node that does not know its own address leaves it out.
    let name = name
        .text()
        .filter(|name| !name.is_empty())
        .unwrap_or(&entry.name);
    Some(SlotRange {
        from: *from,
        to: *to,
        master: Host {
            name: name.into(),
            port: u16::try_from(*port).ok()?,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masters_are_read_with_their_slots_and_the_one_asked_may_not_name_itself() {
        fn text(text: &str) -> RedisReply {
            RedisReply::Text(text.to_owned())
        }
        fn node(name: &str) -> RedisReply {
            RedisReply::List(vec![text(name), RedisReply::Number(7), text("id")])
        }
        fn range(from: i64, to: i64, name: &str) -> RedisReply {
            let slots = [from, to].map(RedisReply::Number);
            RedisReply::List(
                slots
                    .into_iter()
                    .chain([node(name), node("replica")])
                    .collect(),
            )
        }
        let entry = Host {
            name: "entry".into(),
            port: 1,
        };
        let reply = RedisReply::List(vec![range(0, 9, ""), range(10, 16_383, "other")]);
        let ranges = slot_ranges(&reply, &entry).unwrap();
        let read: Vec<_> = ranges
            .iter()
            .map(|range| (range.from, range.to, range.master.to_string()))
            .collect();
        assert_eq!(
            read,
            [
                (0, 9, "entry:7".to_owned()),
                (10, 16_383, "other:7".to_owned())
            ]
        );
        assert!(slot_ranges(&RedisReply::List(vec![RedisReply::Number(1)]), &entry).is_err());
    }
}
