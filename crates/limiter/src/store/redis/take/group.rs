//! Groups of charges in the form of the script: KEYS, ARGV, and the reply.
//!
//! Guarantees that a reply which is not of the form that the script's head describes is an error,
//! never a grant, and that a number which cannot be one of a group is an error of that group alone.

use std::time::Duration;

use fred::types::{Key, Value};
use smallvec::SmallVec;

use crate::algorithm::level::Level;
use crate::algorithm::quota::Quota;
use crate::store::redis::script::{self, Input, integer_of};
use crate::store::redis::topology::server::CallError;
use crate::store::{Levels, StoreError};

/// Stands in a reply for the tokens left of a key that holds a foreign value.
const FOREIGN: i64 = -1;

/// Stands in a reply for the units of a group that the server could not decide on: it is outside of
/// the fixed window that it was sent.
const OUTSIDE: i64 = -1;

/// Equal requests, as the charges that each of them makes to keys of one hash slot: all or nothing.
pub(crate) struct Group {
    pub units: u32,
    pub charges: SmallVec<[KeyCharge; 2]>,
}

/// A charge to one key.
pub(crate) struct KeyCharge {
    pub key: Key,
    pub quota: Quota,
    /// Ticks of a bucket, tokens of a window.
    pub charge: u64,
}

/// The reply to a group.
#[derive(Debug)]
pub(crate) struct GroupReply {
    pub units: u32,
    pub levels: Levels,
    /// Microseconds of its server's clock.
    pub at_us: u64,
    /// The places of keys that hold a foreign value.
    pub foreign: SmallVec<[usize; 2]>,
}

impl Group {
    /// The work of its decision, in that of a bucket's.
    pub fn work(&self) -> usize {
        self.charges
            .iter()
            .map(|charge| charge.quota.script_work())
            .sum()
    }
}

/// KEYS and ARGV of a call for `groups`: see the script's head.
pub(crate) fn input<'a>(
    groups: impl Iterator<Item = &'a Group> + Clone,
    deadline: i64,
    timeout: Duration,
) -> Input {
    let charges: usize = groups.clone().map(|group| group.charges.len()).sum();
    let mut keys = Vec::with_capacity(charges);
    let mut known: SmallVec<[Quota; 4]> = SmallVec::new();
    let mut limits = Vec::new();
    let mut packed = Vec::with_capacity(32 * charges);
    for group in groups {
        pack(
            &mut packed,
            [group.units.into(), group.charges.len() as u64],
        );
        for KeyCharge { key, quota, charge } in &group.charges {
            let place = known.iter().position(|one| one == quota);
            let place = place.unwrap_or_else(|| {
                limits.extend_from_slice(quota.script().letter().as_bytes());
                pack(&mut limits, script::numbers(*quota, deadline, timeout));
                known.push(*quota);
                known.len() - 1
            });
            keys.push(key.clone());
            pack(&mut packed, [place as u64 + 1, *charge]);
        }
    }
    let args = vec![
        Value::Integer(deadline),
        Value::Bytes(limits.into()),
        Value::Bytes(packed.into()),
    ];
    (keys, args)
}

/// Numbers as doubles, which Lua counts by. One beyond 2^53 is rounded, and can never be granted
/// anyway.
fn pack<const N: usize>(packed: &mut Vec<u8>, numbers: [u64; N]) {
    for number in numbers {
        packed.extend_from_slice(&(number as f64).to_le_bytes());
    }
}

/// The replies to groups, in their order, given for each its number of keys and its units. `None`:
/// the reply is of another form.
pub(crate) fn parse(
    reply: &Value,
    groups: impl Iterator<Item = (usize, u32)>,
) -> Option<Vec<Result<GroupReply, CallError>>> {
    let Value::Array(values) = reply else {
        return None;
    };
    let integers: Vec<i64> = values.iter().map(integer_of).collect::<Option<_>>()?;
    let ([1, now], mut rest) = integers.split_first_chunk()? else {
        return None;
    };
    let at_us = u64::try_from(*now).ok()?;
    let mut replies = Vec::new();
    for (keys, asked) in groups {
        let (units, behind) = rest.split_first()?;
        let (levels, behind) = behind.split_at_checked(3 * keys)?;
        rest = behind;
        replies.push(if *units == OUTSIDE {
            Err(CallError::Outside)
        } else {
            read_group(*units, levels, asked, at_us).ok_or(CallError::Store(StoreError::Protocol))
        });
    }
    rest.is_empty().then_some(replies)
}

fn read_group(units: i64, numbers: &[i64], asked: u32, at_us: u64) -> Option<GroupReply> {
    let units = u32::try_from(units).ok()?;
    if units > asked {
        return None;
    }
    let mut levels = Levels::new();
    let mut foreign = SmallVec::new();
    for (place, numbers) in numbers.chunks_exact(3).enumerate() {
        let [remaining, retry_after, reset_after] = *numbers else {
            return None;
        };
        let is_foreign = remaining == FOREIGN;
        if is_foreign {
            foreign.push(place);
        }
        levels.push(Level {
            remaining: u64::try_from(if is_foreign { 0 } else { remaining }).ok()?,
            retry_after_us: u64::try_from(retry_after).ok()?,
            reset_after_us: u64::try_from(reset_after).ok()?,
        });
    }
    Some(GroupReply {
        units,
        levels,
        at_us,
        foreign,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_763_000_000_000_000;

    fn parsed(integers: &[i64]) -> Option<Vec<Result<GroupReply, CallError>>> {
        let values = integers.iter().copied().map(Value::Integer).collect();
        parse(&Value::Array(values), [(1, 5), (2, 1), (1, 3)].into_iter())
    }

    #[test]
    fn each_group_has_its_own_part_of_a_reply() {
        let one = [2, 40, 0, 7];
        let two = [0, -1, 0, 0, 9, 11, 12];
        let three = [3, 0, 0, 5];
        let all = [&[1, NOW][..], &one, &two, &three].concat();
        let replies = parsed(&all).unwrap();
        let read: Vec<_> = replies.into_iter().map(Result::unwrap).collect();
        let units: Vec<u32> = read.iter().map(|reply| reply.units).collect();
        assert_eq!(units, [2, 0, 3]);
        assert_eq!(read[0].levels[0].remaining, 40);
        assert_eq!(read[1].foreign.as_slice(), [0]);
        assert_eq!(read[1].levels[1].reset_after_us, 12);
        assert_eq!(read[2].levels[0].reset_after_us, 5);
        for length in 0..all.len() {
            assert!(parsed(&all[..length]).is_none(), "{length}");
        }
        assert!(parsed(&[&all[..], &[0]].concat()).is_none());
        assert!(parsed(&[&[0][..], &all[1..]].concat()).is_none());
    }

    #[test]
    fn what_is_wrong_with_one_group_is_no_others_failure() {
        let good = [1, 2, 3, 4];
        let wrong = [
            vec![2, 0, 0, 0, 0, 0, 0],
            vec![-2, 0, 0, 0, 0, 0, 0],
            vec![0, 0, i64::MIN, 0, 0, 0, 0],
            vec![1, -2, 0, 0, 0, 0, 0],
        ];
        for wrong in wrong {
            let replies = parsed(&[&[1, NOW][..], &good, &wrong, &good].concat()).unwrap();
            let granted: Vec<_> = replies
                .iter()
                .map(|reply| reply.as_ref().ok().map(|reply| reply.units))
                .collect();
            assert_eq!(granted, [Some(1), None, Some(1)], "{wrong:?}");
        }
        let outside = [-1, -1, 0, 0, -1, 0, 0];
        let replies = parsed(&[&[1, NOW][..], &good, &outside, &good].concat()).unwrap();
        assert!(matches!(replies[1], Err(CallError::Outside)));
    }
}
