//! The server of a simulated fleet: the shipped scripts on a clock of its own, and the table of
//! nodes.
//!
//! Guarantees that arguments are those that the Redis store sends, with what silent nodes may be
//! admitting held back.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;

use tollgate_limiter::algorithm::concurrency::{
    DEMAND_US, GrantedPermits, LEASE_US, PermitRequest, ROTATION_US,
};
use tollgate_limiter::algorithm::held_back::HeldBack;
use tollgate_limiter::algorithm::level::Level;
use tollgate_limiter::algorithm::quota::{AlgorithmScript, Quota};
use tollgate_limiter::algorithm::share::Share;
use tollgate_limiter::algorithm::token_bucket::MAX_TICKS;
use tollgate_limiter::clock::{self, Instant};
use tollgate_limiter::limit::key::Key;
use tollgate_limiter::store::adjustment::{
    Adjustment, AdjustmentBatch, AdjustmentOutcome, AdjustmentResult, Change, PlacedAdjustment,
};
use tollgate_limiter::store::fleet_share::SilentNode;
use tollgate_limiter::store::redis::ShippedScript;
use tollgate_limiter::store::{BucketCharge, Grant, PermitClaim, StoreError};

use crate::scripts::{LuaScripts, ScriptCharge};

/// The server's clock when a run starts: 800 seconds into an hour.
pub const EPOCH_US: u64 = 1_763_000_000_000_000;

/// A node that was not heard of for so long is silent.
pub const SILENCE: Duration = Duration::from_millis(1_250);

/// Until then, the other nodes have noticed that a node is silent.
pub const NOTICE: Duration = Duration::from_secs(2);

/// A silent node counts for so long.
pub const AUTONOMY: Duration = Duration::from_secs(15);

/// A node's view of the fleet: its share, and the nodes that are silent.
#[derive(Clone, Debug)]
pub struct FleetView {
    pub share: Share,
    pub silent: Vec<SilentNode>,
}

/// The nodes by their numbers, and when each was last heard of, in microseconds of the run.
pub type Fleet = BTreeMap<u64, u64>;

/// The simulated Redis of a thread.
pub struct SimulatedRedis {
    scripts: LuaScripts,
    started: Cell<Option<Instant>>,
    stepped_us: Cell<i64>,
    /// No call is carried out before.
    pub stalled_until: Cell<Option<Instant>>,
    beats: RefCell<Fleet>,
    /// Tokens of each key that the server took, or did not give back, without the node's knowledge.
    unheard: RefCell<BTreeMap<String, u64>>,
}

thread_local! {
    static REDIS: SimulatedRedis = SimulatedRedis {
        scripts: LuaScripts::load(),
        started: Cell::new(None),
        stepped_us: Cell::new(0),
        stalled_until: Cell::new(None),
        beats: RefCell::default(),
        unheard: RefCell::default(),
    };
}

/// The server of this thread. A runtime of one thread has one.
pub fn with_redis<T>(ask: impl FnOnce(&SimulatedRedis) -> T) -> T {
    REDIS.with(ask)
}

pub fn key_text(key: &Key) -> String {
    String::from_utf8_lossy(key.as_bytes()).into_owned()
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap()
}

impl FleetView {
    fn held_back(&self, key: &Key, quota: Quota, largest_cost: u64) -> HeldBack {
        let now_us = clock::monotonic_micros();
        let silent = self.silent.iter().filter(|node| node.gone_us > now_us);
        let ranks: Vec<u32> = silent.map(|node| node.rank).collect();
        let share = self.share;
        share.held_back(key.as_bytes(), quota, largest_cost, &ranks)
    }
}

impl SimulatedRedis {
    /// An empty server, whose clock begins now.
    pub fn start(&self) {
        self.scripts.redis.flush();
        self.started.set(Some(clock::now()));
        self.stepped_us.set(0);
        self.stalled_until.set(None);
        self.beats.borrow_mut().clear();
        self.unheard.borrow_mut().clear();
    }

    /// Time since the run began.
    pub fn elapsed_us(&self) -> u64 {
        micros(
            self.started
                .get()
                .map_or(Duration::ZERO, |started| started.elapsed()),
        )
    }

    pub fn now_us(&self) -> u64 {
        (EPOCH_US + self.elapsed_us()).saturating_add_signed(self.stepped_us.get())
    }

    pub fn step_clock(&self, by_us: i64) {
        self.stepped_us.set(self.stepped_us.get() + by_us);
    }

    /// Loses all keys, the nodes' among them.
    pub fn empty(&self) {
        self.scripts.redis.flush();
        self.beats.borrow_mut().clear();
    }

    pub fn write_foreign(&self, key: &str) {
        self.scripts.redis.write(key, b"another program's");
    }

    pub fn note_unheard(&self, key: &Key, tokens: u64) {
        *self.unheard.borrow_mut().entry(key_text(key)).or_default() += tokens;
    }

    pub fn unheard(&self, key: &str) -> u64 {
        self.unheard.borrow().get(key).copied().unwrap_or(0)
    }

    fn run(
        &self,
        script: ShippedScript,
        keys: impl Iterator<Item = String>,
        args: Vec<String>,
    ) -> Result<Vec<i64>, StoreError> {
        self.scripts.redis.now_us.set(self.now_us());
        in_time(self.scripts.run(script, keys, args))
    }

    /// Takes like the store in Redis, for a node that sees the fleet as `view`.
    pub fn take(
        &self,
        charges: &[BucketCharge],
        units: u32,
        view: &FleetView,
        deadline_us: u64,
    ) -> Result<Grant, StoreError> {
        let asked = charges.iter().map(|charge| {
            let held = view.held_back(&charge.key, charge.quota, charge.largest_cost);
            let (cost, quota) = charge.quota.holding_back(held, charge.cost);
            ScriptCharge {
                key: key_text(&charge.key),
                letter: quota.script().letter(),
                numbers: quota.script_numbers(0),
                charge: cost,
            }
        });
        let script = if charges
            .iter()
            .all(|charge: &BucketCharge| charge.quota.script() == AlgorithmScript::TokenBucket)
        {
            ShippedScript::TakeTokenBucket
        } else {
            ShippedScript::TakeAny
        };
        self.scripts.redis.now_us.set(self.now_us());
        let asked = asked.collect();
        let reply = in_time(self.scripts.take(script, deadline_us, units, asked))?;
        let mut grant = Grant {
            units: u32::try_from(reply[0]).unwrap(),
            at_us: reply[1] as u64,
            ..Grant::default()
        };
        for BucketCharge {
            key,
            quota,
            cost,
            largest_cost,
            ..
        } in charges
            .iter()
            .filter(|charge| !charge.quota.tokens_expire())
        {
            // Tokens that weigh more than they are.
            let held = view.held_back(key, *quota, *largest_cost);
            let weight = quota.holding_back(held, *cost).0 * u64::from(grant.units);
            let extra = weight.div_ceil(quota.charge(1)) - cost * u64::from(grant.units);
            self.note_unheard(key, extra);
        }
        for (place, numbers) in reply[2..].chunks_exact(3).enumerate() {
            if numbers[0] < 0 {
                grant.foreign.push(place);
                grant.levels.push(Level::default());
            } else {
                let [remaining, retry_after_us, reset_after_us] =
                    [0, 1, 2].map(|at| numbers[at] as u64);
                grant.levels.push(Level {
                    remaining,
                    retry_after_us,
                    reset_after_us,
                });
            }
        }
        Ok(grant)
    }

    /// Corrects like the store in Redis, for a node among `nodes`.
    pub fn adjust(
        &self,
        batch: &AdjustmentBatch,
        nodes: u32,
        deadline_us: u64,
    ) -> Vec<AdjustmentResult> {
        let number = batch.id.map_or(0, |id| id.number);
        let head = [
            deadline_us,
            number,
            3_600_000,
            nodes.into(),
            micros(NOTICE) / 1_000,
            batch.len() as u64,
        ];
        let mut args = head.map(|number| number.to_string()).to_vec();
        let now_us = clock::monotonic_micros();
        for PlacedAdjustment {
            place,
            adjustment: Adjustment { quota, change, .. },
        } in batch.placed()
        {
            let change = match *change {
                Change::Charge { charge, since_us } => {
                    [charge.min(MAX_TICKS), now_us.saturating_sub(since_us), 0, 0]
                }
                Change::Refund {
                    charge,
                    taken_at_us,
                } => [0, 0, charge, taken_at_us],
            };
            args.extend([place.to_string(), quota.script().letter().to_owned()]);
            args.extend(change.map(|number| number.to_string()));
            args.extend(quota.script_numbers(0).map(|number| number.to_string()));
        }
        let keys = batch.iter().map(|one| key_text(&one.key));
        let marker = batch.id.map(|id| format!("!adjusted:{}", id.node));
        let notes = batch
            .iter()
            .filter(|_| batch.id.is_some())
            .map(|one| format!("!full:{}", key_text(&one.key)));
        match self.run(ShippedScript::Adjust, keys.chain(marker).chain(notes), args) {
            Ok(reply) => reply[2..].iter().map(|made| Ok(outcome(*made))).collect(),
            Err(error) => vec![Err(error); batch.len()],
        }
    }

    /// Takes over claims like the store in Redis.
    pub fn claim(
        &self,
        claims: &[PermitClaim],
        deadline_us: u64,
    ) -> Result<Vec<GrantedPermits>, StoreError> {
        let Some(first) = claims.first() else {
            return Ok(Vec::new());
        };
        let mut args = vec![deadline_us.to_string(), first.node.to_string()];
        args.extend([LEASE_US, DEMAND_US, ROTATION_US, 0].map(|number| number.to_string()));
        for PermitClaim { most, claim, .. } in claims {
            let PermitRequest {
                wanted,
                demand,
                kept,
                needed,
                largest_cost,
                turn,
            } = *claim;
            let numbers = [*most, wanted, demand, kept, needed, largest_cost, turn];
            args.extend(numbers.map(|number| number.to_string()));
        }
        let keys = claims
            .iter()
            .map(|claim| format!("!in-flight:{}", key_text(&claim.key)));
        let reply = self.run(ShippedScript::Concurrency, keys, args)?;
        Ok(reply[2..]
            .chunks_exact(3)
            .map(|of_claim: &[i64]| {
                let [own, others, share] = [0, 1, 2].map(|at| of_claim[at] as u64);
                GrantedPermits { own, others, share }
            })
            .collect())
    }

    /// Announces `node`, or, with `leaves`, takes it out, and restores the nodes of `lost`. Whether
    /// the node was known before, and the fleet as it is told then.
    pub fn beat(&self, node: u64, leaves: bool, lost: &Fleet) -> (bool, Fleet) {
        let now_us = self.now_us();
        let elapsed_us = self.elapsed_us();
        let mut beats = self.beats.borrow_mut();
        let was_known = beats.insert(node, now_us).is_some();
        if leaves {
            beats.remove(&node);
        }
        for (other, heard_us) in lost {
            let age_us = elapsed_us - heard_us;
            beats.entry(*other).or_insert(now_us - age_us);
        }
        beats.retain(|_, heard_us| *heard_us + micros(AUTONOMY) >= now_us);
        beats
            .values_mut()
            .for_each(|heard_us| *heard_us = (*heard_us).min(now_us));
        let told = beats.iter().map(|(node, heard_us)| {
            let age_us = now_us - heard_us;
            (*node, elapsed_us.saturating_sub(age_us))
        });
        (was_known, told.collect())
    }

    /// Ticks that a bucket lacks, or tokens that a window has out: as they are stored.
    pub fn stored(&self, charge: &BucketCharge) -> u64 {
        self.scripts.redis.now_us.set(self.now_us());
        let mut args = vec![
            u64::MAX.to_string(),
            "0".to_owned(),
            charge.quota.script().letter().to_owned(),
        ];
        args.extend(
            charge
                .quota
                .script_numbers(0)
                .map(|number| number.to_string()),
        );
        let keys = [key_text(&charge.key)].into_iter();
        let reply = self.scripts.run(ShippedScript::Grant, keys, args).unwrap();
        let state = &reply[3..3 + usize::try_from(reply[2]).unwrap()];
        if charge.quota.tokens_expire() {
            state.chunks_exact(2).map(|entry| entry[1] as u64).sum()
        } else {
            state.first().map_or(0, |ticks| *ticks as u64)
        }
    }
}

/// The reply, unless the deadline had passed.
fn in_time(reply: mlua::Result<Vec<i64>>) -> Result<Vec<i64>, StoreError> {
    let reply = reply.map_err(|error| StoreError::Script(error.to_string().into()))?;
    if reply.first() == Some(&-1) {
        Err(StoreError::Timeout)
    } else {
        Ok(reply)
    }
}

fn outcome(made: i64) -> AdjustmentOutcome {
    if made == 1 {
        AdjustmentOutcome::Applied
    } else {
        AdjustmentOutcome::Foreign
    }
}
