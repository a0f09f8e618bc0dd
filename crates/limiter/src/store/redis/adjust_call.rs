//! Corrections of buckets: a call for each hash slot, and each correction once, however often its
//! batch is sent.
//!
//! The script keeps a marker next to what it corrects: a hash of the batches of a node that it has
//! made, in the same hash slot, so that both are written by one call or by none. Guarantees a
//! result for each adjustment, and that a hash slot whose server does not answer keeps no other
//! waiting beyond the time limit. The marker forgets a batch with the next call after its answer
//! came, and all of them an hour after the last call.

use std::time::Duration;

use fred::types::{Key, Value};
use futures_util::future::join_all;
use tokio::time::timeout_at;

use crate::algorithm::token_bucket::MAX_TICKS;
use crate::clock;
use crate::limit::key::Key as BucketKey;
use crate::store::StoreError;
use crate::store::adjustment::{
    Adjustment, AdjustmentBatch, AdjustmentOutcome, AdjustmentResult, BatchId, Change,
    PlacedAdjustment,
};
use crate::store::fleet_share::NOTICE_US;
use crate::store::redis::redis_store::RedisStore;
use crate::store::redis::script::{self, Input, Integers, integer};
use crate::store::redis::topology::marker::{self, MarkerPlace};
use crate::store::redis::topology::server::CallError;

/// A node tries a batch again several times a second. Past this, a batch whose answer was lost
/// could be made twice.
const RETENTION: Duration = Duration::from_secs(3_600);

/// The part of a batch that is in one hash slot.
struct SlotBatch<'a> {
    id: Option<BatchId>,
    hash_slot: u16,
    placed: Vec<&'a PlacedAdjustment>,
    /// Whether it names notes of full buckets. While a hash slot moves, most of them are on no
    /// server, and Redis refuses calls with a key that is missing.
    has_notes: bool,
}

impl RedisStore {
    /// Corrects each bucket. Each hash slot is tried, also when another fails: their corrections
    /// are independent.
    pub(super) async fn adjust_all(&self, batch: &AdjustmentBatch) -> Vec<AdjustmentResult> {
        let deadline = clock::now() + script::ADJUST.time_limit(self.timeout);
        let placed = batch.placed().iter().enumerate();
        let hash_slots = self.by_hash_slot(placed, |(_, placed)| placed.adjustment.key.as_bytes());
        let calls = hash_slots.iter().map(|(hash_slot, part)| async move {
            let placed = part.iter().map(|(_, placed)| *placed).collect();
            let call = self.adjust_slot(SlotBatch {
                id: batch.id,
                hash_slot: *hash_slot,
                placed,
                has_notes: batch.id.is_some(),
            });
            timeout_at(deadline, call)
                .await
                .unwrap_or_else(|_| vec![Err(StoreError::Timeout); part.len()])
        });
        let mut results = vec![Err(StoreError::Protocol); batch.len()];
        for ((_, part), answers) in hash_slots.iter().zip(join_all(calls).await) {
            for ((index, _), answer) in part.iter().zip(answers) {
                results[*index] = answer;
            }
        }
        // Now that the caller is about to have them: a batch whose results it does not see is sent
        // again.
        for (hash_slot, part) in hash_slots {
            if let Some(id) = batch.id
                && part.iter().all(|(index, _)| results[*index].is_ok())
            {
                self.answered.answer(
                    MarkerPlace {
                        node: id.node,
                        hash_slot,
                    },
                    id.number,
                );
            }
        }
        results
    }

    /// Corrects buckets of one hash slot: in one call, or one by one while the slot moves between
    /// servers.
    async fn adjust_slot(&self, batch: SlotBatch<'_>) -> Vec<AdjustmentResult> {
        let forget = batch
            .id
            .zip(batch.marker())
            .map_or_else(Vec::new, |(id, marker)| self.answered.at(marker, id.number));
        match self.adjust_together(&batch, &forget).await {
            Ok(outcomes) => {
                batch
                    .marker()
                    .into_iter()
                    .for_each(|marker| self.answered.forgot(marker, &forget));
                outcomes.into_iter().map(Ok).collect()
            }
            Err(CallError::SlotMoving) => {
                join_all(batch.placed.iter().map(|one| self.adjust_one(&batch, one))).await
            }
            Err(error) => vec![Err(error.for_one_key()); batch.placed.len()],
        }
    }

    async fn adjust_one(
        &self,
        batch: &SlotBatch<'_>,
        placed: &PlacedAdjustment,
    ) -> AdjustmentResult {
        let alone = SlotBatch {
            placed: vec![placed],
            has_notes: false,
            ..*batch
        };
        let outcomes = self
            .adjust_together(&alone, &[])
            .await
            .map_err(CallError::for_one_key)?;
        outcomes.first().copied().ok_or(StoreError::Protocol)
    }

    async fn adjust_together(
        &self,
        batch: &SlotBatch<'_>,
        forget: &[u64],
    ) -> Result<Vec<AdjustmentOutcome>, CallError> {
        let Integers(reply) = self
            .topology
            .run(&script::ADJUST, batch.hash_slot, |deadline| {
                self.adjust_input(batch, forget, deadline)
            })
            .await?;
        parse(&reply, batch.placed.len()).ok_or(CallError::Store(StoreError::Protocol))
    }

    /// The script's KEYS and ARGV: see its head.
    fn adjust_input(&self, batch: &SlotBatch<'_>, forget: &[u64], deadline: i64) -> Input {
        let mut keys: Vec<Key> = batch
            .placed
            .iter()
            .map(|placed| self.key(placed.adjustment.key.as_bytes()))
            .collect();
        if let Some(marker) = batch.marker() {
            keys.push(self.marker_key(marker));
        }
        if batch.has_notes {
            keys.extend(
                batch
                    .placed
                    .iter()
                    .map(|placed| self.full_note(batch.hash_slot, &placed.adjustment.key)),
            );
        }
        let number = batch.id.map_or(0, |id| id.number);
        let retention_ms = u64::try_from(RETENTION.as_millis()).unwrap_or(u64::MAX);
        let mut args = Vec::with_capacity(6 + 10 * batch.placed.len() + forget.len());
        args.extend([
            Value::Integer(deadline),
            integer(number),
            integer(retention_ms),
        ]);
        // Tokens that flowed in meanwhile pay for the debts of every node, each by its share.
        args.extend([
            Value::Integer(self.nodes().into()),
            integer(NOTICE_US / 1_000),
        ]);
        args.push(Value::Integer(
            i64::try_from(batch.placed.len()).unwrap_or(i64::MAX),
        ));
        let now_us = clock::monotonic_micros();
        for PlacedAdjustment {
            place,
            adjustment: Adjustment { quota, change, .. },
        } in &batch.placed
        {
            let numbers = match *change {
                Change::Charge { charge, since_us } => {
                    [charge.min(MAX_TICKS), now_us.saturating_sub(since_us), 0, 0]
                }
                Change::Refund {
                    charge,
                    taken_at_us,
                } => [0, 0, charge, taken_at_us],
            };
            args.extend([Value::Integer((*place).into()), script::letter(*quota)]);
            args.extend(numbers.map(integer));
            let time_limit = script::ADJUST.time_limit(self.timeout);
            args.extend(script::numbers(*quota, deadline, time_limit).map(integer));
        }
        args.extend(forget.iter().map(|number| integer(*number)));
        (keys, args)
    }

    fn marker_key(&self, marker: MarkerPlace) -> Key {
        self.key(marker.name(!self.topology.is_single_server()).as_bytes())
    }

    /// The note of when debts found the bucket of `key` full, in the same hash slot.
    fn full_note(&self, hash_slot: u16, key: &BucketKey) -> Key {
        let is_cluster = !self.topology.is_single_server();
        let mut name = marker::full_note_prefix(hash_slot, is_cluster).into_bytes();
        name.extend_from_slice(key.as_bytes());
        self.key(&name)
    }
}

impl SlotBatch<'_> {
    /// `None`: the batch is sent once, and needs none.
    fn marker(&self) -> Option<MarkerPlace> {
        self.id.map(|id| MarkerPlace {
            node: id.node,
            hash_slot: self.hash_slot,
        })
    }
}

/// The script's reply for `buckets` buckets: see its head.
pub(super) fn parse(reply: &[i64], buckets: usize) -> Option<Vec<AdjustmentOutcome>> {
    reply
        .get(2..)
        .filter(|results| results.len() == buckets)?
        .iter()
        .map(|number| match number {
            1 => Some(AdjustmentOutcome::Applied),
            0 => Some(AdjustmentOutcome::Foreign),
            2 => Some(AdjustmentOutcome::OtherAlgorithm),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_of_another_form_is_an_error() {
        assert_eq!(
            parse(&[1, 5, 1, 0, 2], 3),
            Some(vec![
                AdjustmentOutcome::Applied,
                AdjustmentOutcome::Foreign,
                AdjustmentOutcome::OtherAlgorithm
            ])
        );
        for reply in [&[1_i64, 5][..], &[1, 5, 1], &[1, 5, 1, 3], &[]] {
            assert_eq!(parse(reply, 2), None, "{reply:?}");
        }
    }
}
