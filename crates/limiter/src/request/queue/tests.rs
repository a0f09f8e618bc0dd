use std::num::{NonZeroU64, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use proptest::prelude::*;

use super::{ArrivalNumber, Queue, Ticket, TooLong, WaitingFor};
use crate::algorithm::token_bucket::TokenBucket;
use crate::clock;
use crate::decide::check::Checks;
use crate::decide::limiter::Limiter;
use crate::limit::key::Key;
use crate::limit::on_limit::Queueing;
use crate::node::breaker::Breaker;
use crate::request::queue::JoiningRequest;
use crate::store::fleet_share::FleetShare;
use crate::store::memory::MemoryStore;
use crate::store::{BucketCharge, ServerId, StoreError};

const SECOND: Duration = Duration::from_secs(1);

/// A queue before buckets of one token a second, with a burst of one.
struct Fixture {
    queue: Arc<Queue>,
    limiter: Limiter,
    bounds: Queueing,
}

impl Fixture {
    fn new(max_wait: Duration, max_waiting: usize) -> Self {
        let bounds = Queueing {
            max_wait,
            max_waiting: NonZeroUsize::new(max_waiting).unwrap(),
        };
        let limiter = Limiter::local(Arc::new(MemoryStore::new(100)));
        Self {
            queue: Arc::new(Queue::new(&"l".into())),
            limiter,
            bounds,
        }
    }

    fn checks(key: &str) -> Checks {
        let one = NonZeroU64::MIN;
        let second = NonZeroU64::new(1_000_000).unwrap();
        let bucket = TokenBucket::new(one, second, one).unwrap();
        Checks::from(BucketCharge {
            key: Key::from(key),
            quota: bucket.into(),
            cost: 1,
            largest_cost: 1,
            local_us: u64::MAX,
        })
    }

    /// Takes the burst of a key.
    async fn spend(&self, key: &str) {
        assert!(self.limiter.decide(&Self::checks(key)).wait().await.granted);
    }

    fn join(&self, key: &str, retry_after: Duration) -> Result<Ticket, TooLong> {
        self.join_as(ArrivalNumber::now(), key, retry_after)
    }

    fn join_as(
        &self,
        arrival: ArrivalNumber,
        key: &str,
        retry_after: Duration,
    ) -> Result<Ticket, TooLong> {
        let waiting_for = WaitingFor {
            key: &Key::from(key),
            bounds: self.bounds,
            charge_us: 1_000_000,
            refunded: false,
        };
        Ticket::join(
            &self.queue,
            &waiting_for,
            JoiningRequest {
                arrival,
                checks: &Self::checks(key),
                limiter: &self.limiter,
            },
            retry_after,
        )
    }

    /// Waits for a turn as long as it may come, and leaves the line: whether it came.
    async fn pass(&self, ticket: Ticket, key: &str) -> bool {
        let checks = Self::checks(key);
        while let Some(decision) = ticket.turn(&self.limiter, &checks).await {
            if decision.granted {
                return true;
            }
            ticket.put_off(Duration::from_micros(decision.levels[0].retry_after_us));
        }
        false
    }
}

#[tokio::test(start_paused = true)]
async fn first_come_first_served() {
    let fixture = Fixture::new(3 * SECOND, 4);
    fixture.spend("k").await;
    let started = clock::now();
    let tickets = [1, 2, 3].map(|_| fixture.join("k", SECOND).unwrap());
    let passed =
        join_all(tickets.map(async |ticket| (fixture.pass(ticket, "k").await, started.elapsed())))
            .await;
    assert_eq!(
        passed,
        [(true, SECOND), (true, 2 * SECOND), (true, 3 * SECOND)]
    );
    assert_eq!(fixture.queue.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_token_comes_just_before_its_time_is_over_does_not_ask_without_end() {
    let fixture = Fixture::new(SECOND, 4);
    fixture.spend("k").await;
    tokio::time::advance(Duration::from_millis(10)).await;
    let ticket = fixture.join("k", Duration::from_millis(990)).unwrap();
    assert!(fixture.pass(ticket, "k").await);
}

#[tokio::test(start_paused = true)]
async fn a_line_waits_for_its_tokens_while_the_store_is_away() {
    let memory = Arc::new(MemoryStore::new(100));
    let store = Arc::new(MemoryStore::new(100));
    let breaker = Arc::new(Breaker::new());
    breaker.trip(ServerId::ONLY, &StoreError::Io, String::new);
    let limiter = Limiter::shared(memory, store, breaker, Arc::new(FleetShare::expecting(1)));
    let fixture = Fixture {
        limiter,
        ..Fixture::new(3 * SECOND, 4)
    };
    fixture.spend("k").await;
    tokio::time::advance(Duration::from_millis(980)).await;
    let tickets = [20, 1_020].map(|wait| fixture.join("k", Duration::from_millis(wait)).unwrap());
    assert_eq!(
        join_all(tickets.map(async |ticket| fixture.pass(ticket, "k").await)).await,
        [true, true]
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_that_came_earlier_joins_before_later_ones() {
    let fixture = Fixture::new(3 * SECOND, 4);
    fixture.spend("k").await;
    let early = ArrivalNumber::now();
    let late = ArrivalNumber::now();
    let late = fixture.join_as(late, "k", SECOND).unwrap();
    let early = fixture.join_as(early, "k", SECOND).unwrap();
    let started = clock::now();
    let pass = async |ticket| (fixture.pass(ticket, "k").await, started.elapsed());
    let passed = tokio::join!(pass(late), pass(early));
    assert_eq!(passed, ((true, 2 * SECOND), (true, SECOND)));
}

#[tokio::test(start_paused = true)]
async fn a_grant_to_a_later_request_goes_to_the_first_in_line() {
    let fixture = Fixture::new(3 * SECOND, 4);
    let early = ArrivalNumber::now();
    let late = ArrivalNumber::now();
    let early = fixture.join_as(early, "k", SECOND).unwrap();
    // The later request was on its way when the earlier one was denied.
    let decision = fixture.limiter.decide(&Fixture::checks("k")).wait().await;
    let waiting_for = WaitingFor {
        key: &Key::from("k"),
        bounds: fixture.bounds,
        charge_us: 1_000_000,
        refunded: false,
    };
    let yielded = Ticket::yield_grant(
        &fixture.queue,
        &waiting_for,
        JoiningRequest {
            arrival: late,
            checks: &Fixture::checks("k"),
            limiter: &fixture.limiter,
        },
        decision,
    );
    let late = yielded.break_value().unwrap();
    assert_eq!(
        fixture.pass(early, "k").now_or_never(),
        Some(true),
        "with the grant of the later one"
    );
    let started = clock::now();
    assert!(fixture.pass(late, "k").await);
    assert_eq!(started.elapsed(), SECOND);

    let alone = fixture
        .limiter
        .decide(&Fixture::checks("other"))
        .wait()
        .await;
    let waiting_for = WaitingFor {
        key: &Key::from("other"),
        ..waiting_for
    };
    let checks = Fixture::checks("other");
    let kept = Ticket::yield_grant(
        &fixture.queue,
        &waiting_for,
        JoiningRequest {
            arrival: ArrivalNumber::now(),
            checks: &checks,
            limiter: &fixture.limiter,
        },
        alone,
    );
    assert!(
        kept.continue_value()
            .is_some_and(|decision| decision.granted),
        "where nobody came before"
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_that_leaves_makes_room_and_its_turn_goes_to_the_next() {
    let fixture = Fixture::new(3 * SECOND, 4);
    fixture.spend("k").await;
    let [first, second] = [1, 2].map(|_| fixture.join("k", SECOND).unwrap());
    let started = clock::now();
    {
        // Shortly before its turn, its token is charged already.
        let checks = Fixture::checks("k");
        let waiting = first.turn(&fixture.limiter, &checks);
        assert!(
            tokio::time::timeout(Duration::from_millis(990), waiting)
                .await
                .is_err()
        );
    }
    drop(first);
    assert_eq!(fixture.queue.waiting(), 1);
    assert!(fixture.pass(second, "k").await);
    assert_eq!(started.elapsed(), SECOND, "the turn of the one that left");
    assert_eq!(fixture.queue.waiting(), 0);
    assert!(!fixture.queue.has_line(&Key::from("k")));
}

#[tokio::test(start_paused = true)]
async fn keys_do_not_wait_for_each_other() {
    let fixture = Fixture::new(3 * SECOND, 4);
    fixture.spend("a").await;
    let _slow = fixture.join("a", 3 * SECOND).unwrap();
    let fast = fixture.join("b", Duration::ZERO).unwrap();
    assert_eq!(fixture.pass(fast, "b").now_or_never(), Some(true));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_would_wait_in_vain_does_not_join() {
    let fixture = Fixture::new(3 * SECOND, 10);
    let too_long = 3 * SECOND + Duration::from_micros(1);
    assert_eq!(fixture.join("k", too_long).err(), Some(TooLong(too_long)));
    let _line = [1, 2, 3].map(|_| fixture.join("k", SECOND).unwrap());
    assert_eq!(
        fixture.join("k", SECOND).err(),
        Some(TooLong(4 * SECOND)),
        "three go first, one of them in a second"
    );
}

#[tokio::test(start_paused = true)]
async fn a_lone_key_may_have_all_places_and_gives_them_up_to_others() {
    let fixture = Fixture::new(10 * SECOND, 4);
    for key in ["a", "b"] {
        fixture.spend(key).await;
    }
    let mut greedy: Vec<_> = (0..4).map(|_| fixture.join("a", SECOND).unwrap()).collect();
    assert_eq!(
        fixture.join("a", SECOND).err(),
        Some(TooLong(5 * SECOND)),
        "all places are taken"
    );
    let others = ["b", "b"].map(|key| fixture.join(key, SECOND).unwrap());
    assert_eq!(fixture.queue.waiting(), 4);
    assert!(fixture.join("b", SECOND).is_err(), "each has its half");
    let more = ["c", "d"].map(|key| fixture.join(key, SECOND).unwrap());
    assert!(fixture.join("e", SECOND).is_err(), "each has one place");
    for gave_way in greedy.split_off(1) {
        assert_eq!(fixture.pass(gave_way, "a").now_or_never(), Some(false));
    }
    for ticket in greedy {
        assert!(
            fixture.pass(ticket, "a").await,
            "the first one keeps its place"
        );
    }
    drop((others, more));
    assert_eq!(fixture.queue.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn no_request_waits_longer_than_the_bound() {
    let fixture = Fixture::new(3 * SECOND, 4);
    fixture.spend("k").await;
    let [first, second] = [1, 2].map(|_| fixture.join("k", SECOND).unwrap());
    let started = clock::now();
    first.put_off(2 * SECOND);
    // The second one's turn would come after its time, which is known when the first one has
    // passed.
    let passed = tokio::join!(fixture.pass(first, "k"), fixture.pass(second, "k"));
    assert_eq!(
        passed,
        (true, true),
        "the bucket had tokens for both by then"
    );
    let late = fixture.join("k", 2 * SECOND).unwrap();
    late.put_off(4 * SECOND);
    assert!(
        !fixture.pass(late, "k").await,
        "its turn would come after its time"
    );
    assert!(started.elapsed() <= 4 * SECOND);
}

/// An event in a queue of three keys.
#[derive(Clone, Debug)]
enum Event {
    Join {
        key: usize,
    },
    /// The n-th of those waiting leaves.
    Leave {
        nth: usize,
    },
    Wait {
        millis: u64,
    },
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0..3_usize).prop_map(|key| Event::Join { key }),
        1 => any::<usize>().prop_map(|nth| Event::Leave { nth }),
        2 => (0..1_500_u64).prop_map(|millis| Event::Wait { millis }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Whatever comes and leaves: each key is served in order, at most one a second, none after its
    /// time, and no place is lost.
    #[test]
    fn order_and_bounds_hold_whatever_comes_and_leaves(events in prop::collection::vec(event(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let fixture = Arc::new(Fixture::new(4 * SECOND, 6));
            let keys = ["a", "b", "c"];
            let served = Arc::new(parking_lot::Mutex::new(Vec::new()));
            let mut waiting = Vec::new();
            for (number, event) in events.into_iter().enumerate() {
                match event {
                    Event::Join { key } => {
                        let Ok(ticket) = fixture.join(keys[key], Duration::ZERO) else { continue };
                        let fixture = fixture.clone();
                        let served = served.clone();
                        let joined = clock::now();
                        waiting.push(tokio::spawn(async move {
                            if fixture.pass(ticket, keys[key]).await {
                                served.lock().push((key, number, joined, clock::now()));
                            }
                            assert!(joined.elapsed() <= fixture.bounds.max_wait);
                        }));
                    }
                    Event::Leave { nth } if !waiting.is_empty() => {
                        let nth = nth % waiting.len();
                        waiting.swap_remove(nth).abort();
                    }
                    Event::Leave { .. } => {}
                    Event::Wait { millis } => tokio::time::sleep(Duration::from_millis(millis)).await,
                }
                assert!(fixture.queue.waiting() <= 6);
                tokio::task::yield_now().await;
            }
            for task in waiting {
                if let Err(error) = task.await {
                    assert!(error.is_cancelled(), "{error}");
                }
            }
            assert_eq!(fixture.queue.waiting(), 0);
            for key in 0..keys.len() {
                let served: Vec<_> = served.lock().iter().filter(|one| one.0 == key).copied().collect();
                assert!(served.is_sorted_by_key(|one| one.1), "out of order: {served:?}");
                for pair in served.windows(2) {
                    assert!(pair[1].3 - pair[0].3 >= SECOND, "sooner than the limit allows: {served:?}");
                }
                for one in &served {
                    assert!(one.3 - one.2 <= fixture.bounds.max_wait, "too late: {one:?}");
                }
            }
        });
    }
}
