//! How many calls a request costs at full speed, against a real Redis. `--nocapture` shows the
//! figures.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tollgate_limiter::algorithm::share::Share;
use tollgate_limiter::clock;
use tollgate_limiter::decide::decision::DecidedBy;
use tollgate_limiter::decide::limiter::Limiter;
use tollgate_limiter::node::breaker::Breaker;
use tollgate_limiter::store::BucketCharge;
use tollgate_limiter::store::fleet_share::FleetShare;
use tollgate_limiter::store::memory::MemoryStore;

use super::TURN;

use tollgate_testing::node::{CountingStore, connected};
use tollgate_testing::redis::RedisServer;
use tollgate_testing::{PATIENCE, SECOND, charge, decide, shape};

const REQUESTS_AT_A_TIME: usize = 32;

/// A node of a fleet of two.
struct MeasuredNode {
    limiter: Limiter,
    store: Arc<CountingStore>,
}

#[derive(Clone, Copy, Default, Debug)]
struct Figures {
    requests: u64,
    granted: u64,
    calls: u64,
    by: [u64; 4],
    seconds: f64,
}

/// The least that ratios are told from, however slow the machine is.
const LEAST_REQUESTS: u64 = 4_000;

impl MeasuredNode {
    async fn start(server: &RedisServer) -> Self {
        let store = Arc::new(CountingStore::new(connected(&server.spec()).await));
        let share = Arc::new(FleetShare::expecting(2));
        share.set(Share::new(2, 0), Vec::new());
        let memory = Arc::new(MemoryStore::new(1_000));
        let limiter = Limiter::shared(memory, store.clone(), Arc::new(Breaker::new()), share);
        Self { limiter, store }
    }

    /// Requests one after the other, from many clients, for so long and not fewer than
    /// [`LEAST_REQUESTS`].
    async fn flat_out(&self, charges: &[BucketCharge], time: Duration) -> Figures {
        let (started, before) = (clock::now(), self.store.calls());
        let sent = Cell::new(0);
        let client = || async {
            let mut figures = Figures::default();
            while started.elapsed() < time || sent.get() < LEAST_REQUESTS {
                sent.set(sent.get() + 1);
                let decision = decide(&self.limiter, charges).await;
                figures.requests += 1;
                figures.granted += u64::from(decision.granted);
                figures.by[by(decision.decided_by)] += 1;
                // A decision in process must not keep the others from running.
                tokio::task::yield_now().await;
            }
            figures
        };
        let all = join_all((0..REQUESTS_AT_A_TIME).map(|_| client())).await;
        let mut sum = all.into_iter().fold(Figures::default(), Figures::plus);
        sum.calls = self.store.calls() - before;
        sum.seconds = started.elapsed().as_secs_f64();
        sum
    }
}

impl Figures {
    fn plus(mut self, other: Self) -> Self {
        self.requests += other.requests;
        self.granted += other.granted;
        self.calls += other.calls;
        self.by
            .iter_mut()
            .zip(other.by)
            .for_each(|(sum, more)| *sum += more);
        self.seconds = self.seconds.max(other.seconds);
        self
    }

    /// Calls per request, beside those that come with time, however few the requests are.
    fn calls_per_request(&self, calls_per_second: f64) -> f64 {
        let calls = (self.calls as f64 - calls_per_second * self.seconds).max(0.0);
        calls / self.requests as f64
    }
}

/// Measures until requests cost no more than `most` calls, beside so many per second. A busy machine
/// makes calls late, and tokens are not taken ahead by calls that take long.
async fn await_cost(
    what: &str,
    most: f64,
    calls_per_second: f64,
    measure: impl AsyncFn() -> Figures,
) {
    let started = clock::now();
    loop {
        let figures = measure().await;
        let ratio = figures.calls_per_request(calls_per_second);
        println!(
            "{what}: {ratio:.4} calls per request; {figures:?} (by: redis, lease, denial cache, local)"
        );
        if ratio <= most {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "{what}: more than {most}");
    }
}

fn by(who: DecidedBy) -> usize {
    [
        DecidedBy::Redis,
        DecidedBy::Lease,
        DecidedBy::DenialCache,
        DecidedBy::Local,
    ]
    .iter()
    .position(|known| *known == who)
    .unwrap()
}

const WHILE: Duration = Duration::from_secs(1);

/// A lease ends after 50 ms, and may be renewed when half of it is used.
const RENEWALS_PER_SECOND: f64 = 40.0;

#[tokio::test]
async fn a_hot_key_costs_a_quarter_of_a_call_per_request() {
    let _turn = TURN.lock().await;
    let server = RedisServer::start();
    let node = MeasuredNode::start(&server).await;
    let charges = [charge("k", shape(1_000_000, SECOND, 1_000_000), 1)];
    await_cost("exact", 0.25, 0.0, async || {
        let figures = node.flat_out(&charges, WHILE).await;
        assert_eq!(figures.granted, figures.requests);
        figures
    })
    .await;
}

#[tokio::test]
async fn a_hot_leased_key_costs_next_to_nothing() {
    let _turn = TURN.lock().await;
    let server = RedisServer::start();
    let node = MeasuredNode::start(&server).await;
    let charges = [charge(
        "k",
        shape(1_000_000, SECOND, 1_000_000).leased(1),
        1,
    )];
    await_cost("leased", 0.02, RENEWALS_PER_SECOND, async || {
        let figures = node.flat_out(&charges, WHILE).await;
        assert_eq!(figures.granted, figures.requests);
        figures
    })
    .await;
}

#[tokio::test]
async fn denied_traffic_costs_next_to_nothing() {
    let _turn = TURN.lock().await;
    let server = RedisServer::start();
    let node = MeasuredNode::start(&server).await;
    let charges = [charge("k", shape(10, SECOND, 10), 1)];
    // A denial holds until a token has come in.
    await_cost("denied", 0.01, 20.0, async || {
        let figures = node.flat_out(&charges, WHILE).await;
        assert!(
            figures.granted as f64 <= 10.0 + 10.0 * figures.seconds,
            "{figures:?}"
        );
        figures
    })
    .await;
}

/// Two nodes, each with more demand than the limit admits: what passed, of what the limit admits.
async fn overload(limit: BucketCharge, rate: f64, burst: f64) -> Figures {
    let server = RedisServer::start();
    let nodes = [
        MeasuredNode::start(&server).await,
        MeasuredNode::start(&server).await,
    ];
    let charges = [limit];
    let figures = join_all(nodes.iter().map(|node| node.flat_out(&charges, 2 * WHILE))).await;
    let figures = figures.into_iter().fold(Figures::default(), Figures::plus);
    let bound = burst + rate * figures.seconds;
    println!(
        "admitted {} of {bound:.0}, {:.2} %",
        figures.granted,
        100.0 * figures.granted as f64 / bound
    );
    assert!(figures.granted > 0 && figures.granted as f64 <= bound);
    figures
}

#[tokio::test]
async fn two_nodes_in_overload_admit_no_more_than_an_exact_limit_does() {
    let _turn = TURN.lock().await;
    let limit = charge("k", shape(500, SECOND, 200), 1);
    await_cost("exact, overload", 0.25, 0.0, async || {
        overload(limit.clone(), 500.0, 200.0).await
    })
    .await;
}

#[tokio::test]
async fn two_nodes_in_overload_admit_no_more_than_a_leased_limit_does() {
    let _turn = TURN.lock().await;
    let limit = charge("k", shape(1_000, SECOND, 1_000).leased(1), 1);
    let renewals = 2.0 * RENEWALS_PER_SECOND;
    await_cost("leased, overload", 0.02, renewals, async || {
        overload(limit.clone(), 1_000.0, 1_000.0).await
    })
    .await;
}
