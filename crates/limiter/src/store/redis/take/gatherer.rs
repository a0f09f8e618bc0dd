//! Groups that wait for a server, and the calls that take them there, many in one.
//!
//! While no call is under way, groups go at the end of the worker's turn. While one is, the next
//! call gathers. Guarantees that groups go in the order they came, that what fills a call does not
//! wait for another, that a group is charged no later than if it had been sent alone when it came,
//! and that one which cannot be decided is no other's failure.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use fred::types::Value;
use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::clock;
use crate::store::redis::script;
use crate::store::redis::take::group::{self, Group, GroupReply};
use crate::store::redis::topology::any_topology::Topology;
use crate::store::redis::topology::server::CallError;
use crate::store::usual_duration::UsualDuration;
use crate::store::{ServerId, StoreError};

/// The work of a call at most, in that of deciding on one bucket. Redis does so much in about
/// 0.3 ms, and serves nobody else meanwhile.
const MOST_WORK: usize = 48;

/// A call waits for the one before it as long as that usually takes, and for this part of the time
/// limit at most: its groups have waited for others already, and a slow call needs the time.
const LONGEST_WAIT_PARTS: u32 = 16;

/// Where that is less, it waits for none: timers are no finer.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);

/// The groups that wait for each server of a store.
pub(crate) struct Gatherers {
    caller: Caller,
    /// Servers of a cluster.
    others: Mutex<HashMap<ServerId, Arc<Gatherer>>>,
}

/// The groups that wait for one server.
#[derive(Default)]
struct Gatherer {
    waiting: Mutex<Waiting>,
    usual: UsualDuration,
}

#[derive(Default)]
struct Waiting {
    groups: VecDeque<WaitingGroup>,
    /// The work of all groups together.
    work: usize,
    /// Tasks that will send groups, when they begin or when their calls end.
    senders: usize,
    /// Tasks among the senders that begin at the end of the turn.
    beginning: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SenderState {
    Beginning,
    Sending,
    Left,
}

/// A group, and who learns of its reply.
struct WaitingGroup {
    group: Group,
    hash_slot: u16,
    since_us: u64,
    answer: oneshot::Sender<Result<GroupReply, CallError>>,
}

/// Takes groups to their server.
#[derive(Clone)]
struct Caller {
    topology: Arc<Topology>,
    gatherer: Arc<Gatherer>,
    timeout: Duration,
    /// The runtime of the connections. Another one that asks may be busy with something else.
    runtime: Handle,
}

/// A task that calls as long as groups wait. They count on it until it leaves, or is dropped.
struct Sender {
    caller: Caller,
    state: SenderState,
}

impl Gatherers {
    /// For the servers of `topology`, whose connections are in the current runtime.
    pub fn new(topology: Arc<Topology>, timeout: Duration) -> Self {
        let caller = Caller {
            topology,
            gatherer: Arc::default(),
            timeout,
            runtime: Handle::current(),
        };
        Self {
            caller,
            others: Mutex::default(),
        }
    }

    /// The server's reply to a group whose keys are in `hash_slot`, and which has waited since a
    /// time of the monotonic clock.
    pub async fn ask(
        &self,
        group: Group,
        hash_slot: u16,
        since_us: u64,
    ) -> Result<GroupReply, CallError> {
        let (answer, replied) = oneshot::channel();
        let waiting = WaitingGroup {
            group,
            hash_slot,
            since_us,
            answer,
        };
        let gatherer = self.gatherer(hash_slot);
        if gatherer.waiting.lock().push(waiting) {
            Sender::start(Caller {
                gatherer,
                ..self.caller.clone()
            });
        }
        replied
            .await
            .unwrap_or(Err(CallError::Store(StoreError::Io)))
    }

    fn gatherer(&self, hash_slot: u16) -> Arc<Gatherer> {
        if self.caller.topology.is_single_server() {
            return self.caller.gatherer.clone();
        }
        let server = self.caller.topology.server_of(hash_slot);
        let mut others = self.others.lock();
        if let Some(known) = others.get(&server) {
            return known.clone();
        }
        // Servers come and go. Nobody waits for the others, or they are in use.
        others.retain(|_, gatherer| Arc::strong_count(gatherer) > 1);
        others.entry(server).or_default().clone()
    }
}

impl Sender {
    /// Starts a task that begins at the end of the worker's turn.
    fn start(caller: Caller) {
        let runtime = caller.runtime.clone();
        let sender = Self {
            caller,
            state: SenderState::Beginning,
        };
        runtime.spawn(sender.send());
    }

    async fn send(mut self) {
        loop {
            let groups = self.next_call();
            if groups.is_empty() {
                return;
            }
            let mut call = Box::pin(self.caller.call(groups));
            let is_over = match self.caller.longest_wait() {
                Some(longest) => timeout(longest, &mut call).await.is_ok(),
                None => false,
            };
            if !is_over {
                self.state = SenderState::Left;
                if self.caller.gatherer.waiting.lock().leave() {
                    Self::start(self.caller.clone());
                }
                return call.await;
            }
        }
    }

    /// The groups of the next call. None: nothing waits, and the task ends.
    fn next_call(&mut self) -> Vec<WaitingGroup> {
        let mut waiting = self.caller.gatherer.waiting.lock();
        waiting.beginning -= usize::from(self.state == SenderState::Beginning);
        self.state = SenderState::Sending;
        let groups = waiting.next_call(self.caller.timeout);
        if groups.is_empty() {
            waiting.senders -= 1;
            self.state = SenderState::Left;
        }
        // Groups that came before may not have filled their calls.
        let is_another_needed = !groups.is_empty() && waiting.expects_another();
        drop(waiting);
        if is_another_needed {
            Self::start(self.caller.clone());
        }
        groups
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let mut waiting = self.caller.gatherer.waiting.lock();
        waiting.beginning -= usize::from(self.state == SenderState::Beginning);
        waiting.senders -= usize::from(self.state != SenderState::Left);
        if waiting.senders == 0 {
            // The runtime has ended, or the task: whoever waits learns that it is in vain.
            waiting.groups.clear();
            waiting.work = 0;
        }
    }
}

impl Caller {
    /// `None`: the next call waits for none.
    fn longest_wait(&self) -> Option<Duration> {
        let longest = self.timeout / LONGEST_WAIT_PARTS;
        let usual = self.gatherer.usual.get();
        (longest >= SHORTEST_WAIT && !usual.is_zero()).then(|| usual.min(longest))
    }

    /// Takes groups to their server: in a command for each of their hash slots, which go together.
    async fn call(&self, groups: Vec<WaitingGroup>) {
        let mut by_slot: Vec<(u16, Vec<WaitingGroup>)> = Vec::new();
        for group in groups {
            let slot = group.hash_slot;
            match by_slot.iter_mut().find(|(known, _)| *known == slot) {
                Some((_, groups)) => groups.push(group),
                None => by_slot.push((slot, vec![group])),
            }
        }
        let commands = by_slot
            .into_iter()
            .map(|(slot, groups)| self.call_slot(slot, groups));
        join_all(commands).await;
    }

    async fn call_slot(&self, hash_slot: u16, groups: Vec<WaitingGroup>) {
        let replies = self.run(hash_slot, &groups).await;
        if matches!(replies, Err(CallError::SlotMoving)) && groups.len() > 1 {
            // Some of their keys are here and others there: most groups work alone.
            let alone = groups.into_iter().map(|group| async {
                let reply = self.run(hash_slot, std::slice::from_ref(&group)).await;
                hand_out(vec![group], reply);
            });
            join_all(alone).await;
            return;
        }
        hand_out(groups, replies);
    }

    async fn run(
        &self,
        hash_slot: u16,
        waiting: &[WaitingGroup],
    ) -> Result<Vec<Result<GroupReply, CallError>>, CallError> {
        let groups = waiting.iter().map(|waiting| &waiting.group);
        let quotas = groups.clone().flat_map(|group| &group.charges);
        let script = script::take(quotas.map(|charge| charge.quota));
        let sent_us = clock::monotonic_micros();
        let oldest_us = waiting.iter().map(|waiting| waiting.since_us).min();
        let reply: Result<Value, CallError> = self
            .topology
            .run(script, hash_slot, |deadline| {
                // The time of the one that waited longest, and so of the others too.
                let now_us = clock::monotonic_micros();
                let waited_us = now_us.saturating_sub(oldest_us.unwrap_or(sent_us));
                let deadline = deadline.saturating_sub_unsigned(waited_us);
                group::input(groups.clone(), deadline, self.timeout)
            })
            .await;
        let took_us = clock::monotonic_micros().saturating_sub(sent_us);
        self.gatherer.usual.learn(took_us);
        let asked = groups.map(|group| (group.charges.len(), group.units));
        group::parse(&reply?, asked).ok_or(CallError::Store(StoreError::Protocol))
    }
}

impl Waiting {
    /// Whether a task is to be started that sends what waits.
    fn push(&mut self, group: WaitingGroup) -> bool {
        self.work += group.group.work();
        self.groups.push_back(group);
        self.expects_another()
    }

    /// Counts no more on a task whose call takes long. Whether another one is to be started.
    fn leave(&mut self) -> bool {
        self.senders -= 1;
        self.expects_another()
    }

    /// Whether a task is to be started, since there is none, or since those that begin and the next
    /// one whose call ends cannot take all groups along.
    fn expects_another(&mut self) -> bool {
        let calling = usize::from(self.senders > self.beginning);
        let taken = MOST_WORK * (self.beginning + calling);
        let is_needed = !self.groups.is_empty() && (self.senders == 0 || self.work > taken);
        self.senders += usize::from(is_needed);
        self.beginning += usize::from(is_needed);
        is_needed
    }

    /// The groups that came first, as many as a call may have.
    fn next_call(&mut self, longest: Duration) -> Vec<WaitingGroup> {
        let now_us = clock::monotonic_micros();
        let mut groups = Vec::new();
        let mut work = 0;
        while let Some(next) = self.groups.front() {
            let more = next.group.work();
            if work > 0 && work + more > MOST_WORK {
                break;
            }
            let Some(next) = self.groups.pop_front() else {
                break;
            };
            self.work -= more;
            let age = Duration::from_micros(now_us.saturating_sub(next.since_us));
            if age >= longest {
                let _ = next.answer.send(Err(CallError::Store(StoreError::Timeout)));
            } else if !next.answer.is_closed() {
                work += more;
                groups.push(next);
            }
        }
        groups
    }
}

fn hand_out(
    groups: Vec<WaitingGroup>,
    replies: Result<Vec<Result<GroupReply, CallError>>, CallError>,
) {
    match replies {
        Ok(replies) => {
            for (waiting, reply) in groups.into_iter().zip(replies) {
                let _ = waiting.answer.send(reply);
            }
        }
        Err(error) => {
            for waiting in groups {
                let _ = waiting.answer.send(Err(error.clone()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::quota::Quota;
    use crate::algorithm::window::Window;
    use crate::store::redis::take::group::KeyCharge;

    /// A group of so many windows, which are six units of work each.
    fn group(keys: usize, since_us: u64) -> WaitingGroup {
        let quota = Quota::Window(Window::sliding(20, 1_000_000).unwrap());
        let charge = || KeyCharge {
            key: "k".into(),
            quota,
            charge: 1,
        };
        let charges = std::iter::repeat_with(charge).take(keys).collect();
        WaitingGroup {
            group: Group { units: 1, charges },
            hash_slot: 0,
            since_us,
            answer: oneshot::channel().0,
        }
    }

    #[test]
    fn a_task_is_started_for_each_call_that_fills() {
        let mut waiting = Waiting::default();
        let begun: Vec<bool> = (0..17).map(|_| waiting.push(group(1, 0))).collect();
        let places = begun.iter().enumerate().filter(|(_, begun)| **begun);
        assert_eq!(
            places.map(|(place, _)| place).collect::<Vec<_>>(),
            [0, 8, 16],
            "eight groups fill a call"
        );
        assert_eq!((waiting.senders, waiting.beginning), (3, 3));
        // A task that calls takes the next call along when that ends.
        waiting.beginning -= 1;
        waiting.groups.clear();
        waiting.work = 0;
        let begun = (0..24).filter(|_| waiting.push(group(1, 0))).count();
        assert_eq!(begun, 0);
        assert!(waiting.push(group(1, 0)));
    }

    #[test]
    fn groups_that_do_not_pack_well_are_not_left_behind() {
        let mut waiting = Waiting::default();
        let mut senders = (0..10).filter(|_| waiting.push(group(5, 0))).count();
        let mut calls = 0;
        while senders > 0 {
            senders -= 1;
            waiting.beginning -= 1;
            let gone = waiting.groups.pop_front().unwrap();
            waiting.work -= gone.group.work();
            calls += 1;
            senders += usize::from(waiting.expects_another());
            // The call takes long.
            senders += usize::from(waiting.leave());
        }
        assert_eq!(calls, 10);
        assert_eq!(
            (waiting.senders, waiting.beginning, waiting.work),
            (0, 0, 0)
        );
    }

    #[test]
    fn a_group_that_is_too_old_is_answered_and_not_sent() {
        let mut waiting = Waiting::default();
        let (answer, mut replied) = oneshot::channel();
        let (kept, _kept) = oneshot::channel();
        while clock::monotonic_micros() == 0 {
            std::hint::spin_loop();
        }
        waiting.push(WaitingGroup {
            answer,
            ..group(1, 0)
        });
        waiting.push(WaitingGroup {
            answer: kept,
            ..group(1, u64::MAX)
        });
        // Nobody asks for this one any more.
        waiting.push(group(1, u64::MAX));
        let sent = waiting.next_call(Duration::from_micros(1));
        assert_eq!((sent.len(), waiting.work), (1, 0));
        assert!(matches!(
            replied.try_recv(),
            Ok(Err(CallError::Store(StoreError::Timeout)))
        ));
    }

    #[test]
    fn a_group_of_more_than_a_call_goes_alone() {
        let mut waiting = Waiting::default();
        let (first, _first) = oneshot::channel();
        let (second, _second) = oneshot::channel();
        for (keys, answer) in [(60, first), (1, second)] {
            waiting.push(WaitingGroup {
                answer,
                ..group(keys, u64::MAX)
            });
        }
        let lengths = [(); 3].map(|()| waiting.next_call(Duration::from_secs(1)).len());
        assert_eq!(lengths, [1, 1, 0]);
    }
}
