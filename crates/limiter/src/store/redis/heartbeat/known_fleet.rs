//! The fleet as this node knows it by the answers to its beats.
//!
//! Guarantees that a node which falls silent is known at once, whatever the count does; and that a
//! count that falls is believed only after the others had time to announce themselves, where this
//! node was out of reach of Redis or Redis did not know it any more: an emptied Redis must not make
//! each node take the whole of every limit.

use std::mem::replace;
use std::time::Duration;

use crate::algorithm::share::Share;
use crate::clock::{self, Instant};
use crate::store::fleet_share::SilentNode;
use crate::store::redis::heartbeat::member::{Beat, Member, SILENCE};

/// The others have announced themselves after so long.
const BELIEF: Duration = Duration::from_secs(3);

pub(super) struct KnownFleet {
    own_id: String,
    share: Share,
    /// In the order of their ids.
    members: Vec<Member>,
    answered_at: Instant,
    /// Until then a lower count is not believed.
    unsettled_until: Instant,
}

impl KnownFleet {
    /// The fleet before the first answer: `share` is what this node assumes.
    pub fn new(own_id: &str, share: Share) -> Self {
        Self {
            own_id: own_id.to_owned(),
            share,
            members: Vec::new(),
            answered_at: clock::now(),
            unsettled_until: clock::now() + BELIEF,
        }
    }

    pub fn share(&self) -> Share {
        self.share
    }

    /// The other nodes.
    pub fn others(&self) -> Vec<Member> {
        let mut others = self.members.clone();
        others.retain(|member| member.id() != self.own_id);
        others
    }

    /// For how long no beat was answered.
    pub fn unanswered_for(&self) -> Duration {
        clock::now().saturating_duration_since(self.answered_at)
    }

    /// Takes over the answer to a beat that began at `begun_at`. The nodes that are silent.
    pub fn learn(&mut self, beat: Beat, begun_at: Instant) -> Vec<SilentNode> {
        let was_away = begun_at.saturating_duration_since(self.answered_at) >= SILENCE;
        self.answered_at = clock::now();
        if was_away || !beat.was_known {
            self.unsettled_until = self.answered_at + BELIEF;
        }
        let mut fewest = 1;
        let before = replace(&mut self.members, beat.members);
        let mut silent = self.others();
        silent.retain(Member::is_silent);
        if self.answered_at < self.unsettled_until {
            fewest = self.share.nodes();
            for member in before {
                if let Err(place) = self.place(member.id()) {
                    self.members.insert(place, member);
                }
            }
        }
        let nodes = rank(self.members.len());
        self.share = match self.place(&self.own_id) {
            Ok(place) if nodes >= fewest => Share::new(nodes, rank(place)),
            _ => Share::unplaced(fewest),
        };
        if was_away {
            // Nobody may have reached Redis: those who look silent are heard of in a moment.
            silent.clear();
        }
        let silent = silent.iter().filter_map(|member| {
            Some(SilentNode {
                rank: rank(self.place(member.id()).ok()?),
                heard_us: member.heard_us(),
                gone_us: member.gone_us(),
            })
        });
        silent.collect()
    }

    /// Where the node with this id is among the members, or would be.
    fn place(&self, id: &str) -> Result<usize, usize> {
        self.members.binary_search_by(|member| member.id().cmp(id))
    }
}

fn rank(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer: nodes, and the milliseconds since each was heard of.
    fn beat(was_known: bool, nodes: &[(&str, u64)]) -> Beat {
        let member = |(id, age): &(&str, u64)| {
            Member::read(&[format!("{id}:15000:"), age.to_string()]).unwrap()
        };
        Beat {
            was_known,
            members: nodes.iter().map(member).collect(),
        }
    }

    async fn wait(time: Duration) {
        tokio::time::advance(time).await;
    }

    /// Node "b" of four, which has reached Redis for a while.
    async fn settled() -> KnownFleet {
        // Ages are times before now, which the clock must have.
        clock::monotonic_micros();
        wait(Duration::from_secs(60)).await;
        let mut fleet = KnownFleet::new("b", Share::unplaced(1));
        for _ in 0..8 {
            fleet.learn(beat(true, &ALL), clock::now());
            wait(Duration::from_millis(500)).await;
        }
        assert_eq!(fleet.share(), Share::new(4, 1));
        fleet
    }

    const ALL: [(&str, u64); 4] = [("a", 0), ("b", 0), ("c", 0), ("d", 0)];

    fn ranks(silent: &[SilentNode]) -> Vec<u32> {
        silent.iter().map(|node| node.rank).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_node_is_known_at_once_though_another_left() {
        let mut fleet = settled().await;
        let silent = fleet.learn(
            beat(true, &[("b", 0), ("c", 0), ("d", 1_300)]),
            clock::now(),
        );
        assert_eq!((fleet.share(), ranks(&silent)), (Share::new(3, 0), vec![2]));
        let [
            SilentNode {
                heard_us, gone_us, ..
            },
        ] = silent[..]
        else {
            panic!("{silent:?}");
        };
        assert_eq!(gone_us - heard_us, 15_000_000);
        assert_eq!(clock::monotonic_micros() - heard_us, 1_300_000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_node_is_gone_when_redis_says_so() {
        let mut fleet = settled().await;
        let silent = fleet.learn(beat(true, &ALL[..3]), clock::now());
        assert_eq!((fleet.share(), silent), (Share::new(3, 1), Vec::new()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_redis_that_forgot_this_node_is_not_believed_that_others_are_gone_until_they_had_time()
     {
        let mut fleet = settled().await;
        let few = [("b", 0), ("d", 1_300)];
        let silent = fleet.learn(beat(false, &few), clock::now());
        assert_eq!((fleet.share(), ranks(&silent)), (Share::new(4, 1), vec![3]));
        wait(BELIEF - Duration::from_millis(1)).await;
        fleet.answered_at = clock::now();
        fleet.learn(beat(true, &few), clock::now());
        assert_eq!(fleet.share(), Share::new(4, 1));
        wait(Duration::from_millis(1)).await;
        fleet.learn(beat(true, &few), clock::now());
        assert_eq!(fleet.share(), Share::new(2, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn nodes_that_were_all_away_are_not_silent_when_the_first_is_back() {
        let mut fleet = settled().await;
        wait(Duration::from_secs(5)).await;
        let all = ALL.map(|(id, age)| (id, if id == "b" { age } else { 5_500 }));
        assert_eq!(fleet.learn(beat(true, &all), clock::now()), []);
        let silent = fleet.learn(beat(true, &all), clock::now());
        assert_eq!(ranks(&silent), [0, 2, 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_starts_assumes_the_nodes_it_expects_until_they_had_time() {
        let mut fleet = KnownFleet::new("b", Share::unplaced(3));
        fleet.learn(beat(false, &[("b", 0)]), clock::now());
        assert_eq!(fleet.share(), Share::unplaced(3));
        fleet.learn(beat(true, &ALL), clock::now());
        assert_eq!(fleet.share(), Share::new(4, 1));
        fleet.learn(beat(true, &[("b", 0)]), clock::now());
        assert_eq!(fleet.share(), Share::new(4, 1));
    }
}
