//! The adaptive bound of an upstream: as many requests wait for it as it answers fast, and others
//! are refused.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::proxy_server::{ForwarderConfig, ProxyServer};
use futures_util::future::join_all;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tollgate_limiter::clock;
use tollgate_limiter::limit::status_set::StatusRange;
use tollgate_proxy::upstream::Upstream;
use tollgate_proxy::upstream::adaptive::AdaptiveBound;
use tollgate_proxy::upstream::adaptive::gradient::AdaptiveRule;
use tollgate_proxy::upstream::health::Percentage;
use tollgate_spec::route::retry::RetryCondition;
use tollgate_testing::until;
use tollgate_testing::upstream::{OK, RawConnection, ScriptedUpstream, values};

use super::attempts::on;

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
/// Of each request, while it is worked on.
const SERVICE: Duration = Duration::from_millis(40);

fn rule() -> AdaptiveRule {
    let (buffer, interval) = (Percentage::new(25), Duration::from_secs(3600));
    AdaptiveRule {
        min: 3,
        max: 100,
        buffer,
        interval,
        requests: 20,
    }
}

fn adaptive(plan: &mut ForwarderConfig) {
    plan.spec.bounds.adaptive = Some(rule());
}

fn bound(front: &ProxyServer) -> &AdaptiveBound {
    front.gate.upstream.adaptive_bound().unwrap()
}

/// Works on a few requests at a time, while others wait in a queue.
struct QueueingUpstream {
    server: ScriptedUpstream,
    servers: Arc<Semaphore>,
    /// The requests that it has.
    present: Arc<AtomicUsize>,
    /// The most that it had at a time.
    peak: Arc<AtomicUsize>,
}

impl QueueingUpstream {
    async fn start(servers: usize) -> Self {
        let (present, peak) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let servers = Arc::new(Semaphore::new(servers));
        let shared = (
            Arc::clone(&servers),
            Arc::clone(&peak),
            Arc::clone(&present),
        );
        let server = ScriptedUpstream::start(move |mut wire, _| {
            let (servers, peak, present) = shared.clone();
            async move {
                while wire.try_head().await.is_some() {
                    peak.fetch_max(present.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    let turn = servers.acquire().await.unwrap();
                    sleep(SERVICE).await;
                    drop(turn);
                    present.fetch_sub(1, Ordering::SeqCst);
                    // The client may have left.
                    if wire.stream.write_all(OK.as_bytes()).await.is_err() {
                        return;
                    }
                }
            }
        })
        .await;
        Self {
            server,
            servers,
            present,
            peak,
        }
    }
}

/// Clients that ask again and again, and wait after a refusal. Stopped when dropped.
struct Clients {
    tasks: Vec<JoinHandle<()>>,
    /// The times of answers in microseconds.
    answered: Arc<parking_lot::Mutex<Vec<u64>>>,
    refused: Arc<AtomicUsize>,
}

impl Clients {
    fn start(front: &ProxyServer, count: usize) -> Self {
        let (answered, refused) = (
            Arc::<parking_lot::Mutex<Vec<u64>>>::default(),
            Arc::<AtomicUsize>::default(),
        );
        let client = |_| {
            let (address, answered, refused) =
                (front.address, Arc::clone(&answered), Arc::clone(&refused));
            tokio::spawn(async move {
                let mut client = RawConnection::connect(address).await;
                loop {
                    let begun = clock::now();
                    match ask(&mut client).await.as_str() {
                        "200" => answered
                            .lock()
                            .push(u64::try_from(begun.elapsed().as_micros()).unwrap()),
                        "503" => {
                            refused.fetch_add(1, Ordering::SeqCst);
                            sleep(3 * SERVICE).await;
                        }
                        other => panic!("{other}"),
                    }
                }
            })
        };
        Self {
            tasks: (0..count).map(client).collect(),
            answered,
            refused,
        }
    }

    /// The median time of the next so many answers.
    async fn median_of(&self, count: usize) -> Duration {
        self.answered.lock().clear();
        until("they are answered", || self.answered.lock().len() >= count).await;
        let mut times = std::mem::take(&mut *self.answered.lock());
        times.sort_unstable();
        Duration::from_micros(times[times.len() / 2])
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// The status of an answer, read to its end.
async fn ask(client: &mut RawConnection) -> String {
    client.send(GET).await;
    let head = client.head().await;
    client
        .exactly(values(&head, "content-length")[0].parse().unwrap())
        .await;
    head.split(' ').nth(1).unwrap().to_owned()
}

/// The control plane.
fn control(front: &ProxyServer) -> JoinHandle<()> {
    let upstream = Arc::clone(&front.gate.upstream);
    tokio::spawn(async move {
        loop {
            upstream.tend(clock::monotonic_micros());
            sleep(Duration::from_millis(100)).await;
        }
    })
}

#[tokio::test(start_paused = true)]
async fn the_limit_finds_what_an_upstream_takes_and_keeps_its_answers_fast() {
    let upstream = QueueingUpstream::start(4).await;
    let unbounded = ProxyServer::to(&[upstream.server.address]).await;
    let clients = Clients::start(&unbounded, 32);
    let slow = clients.median_of(64).await;
    drop(clients);
    until("its queue is empty", || {
        upstream.present.load(Ordering::SeqCst) == 0
    })
    .await;
    upstream.peak.store(0, Ordering::SeqCst);

    let front = ProxyServer::with(&[upstream.server.address], adaptive).await;
    let control = control(&front);
    let clients = Clients::start(&front, 32);
    until("it is measured", || {
        bound(&front).shortest_latency().is_some()
    })
    .await;
    until("the limit has risen", || bound(&front).limit() > 4).await;
    clients.median_of(100).await;
    let (fast, limit) = (clients.median_of(100).await, bound(&front).limit());
    let (refused, peak) = (
        clients.refused.load(Ordering::SeqCst),
        upstream.peak.load(Ordering::SeqCst),
    );
    eprintln!(
        "unbounded {slow:?}, with a limit of {limit} {fast:?}, {refused} refused, at most {peak} at a time"
    );
    assert!((3..=12).contains(&limit), "{limit} for four servers");
    assert!(2 * fast < slow, "{fast:?} with the limit, {slow:?} without");
    assert!(
        refused > 0 && peak <= 24,
        "{refused} refused, {peak} at a time"
    );

    upstream.servers.add_permits(28);
    until("the limit rises with the upstream", || {
        bound(&front).limit() >= 16
    })
    .await;

    // Nobody asks any more: nothing is learnt.
    drop(clients);
    until("all have left", || bound(&front).in_flight() == 0).await;
    control.abort();
    bound(&front).tend(clock::monotonic_micros() + 1_000_000);
    let limit = bound(&front).limit();
    for hours in 2..9 {
        bound(&front).tend(clock::monotonic_micros() + hours * 3_600_000_000);
    }
    assert_eq!(bound(&front).limit(), limit);
}

/// Clients whose requests arrive one after another. The upstream has those that were let in, and
/// answers none.
async fn arrive(front: &ProxyServer, count: usize) -> Vec<RawConnection> {
    let mut clients = Vec::new();
    for number in 1..=count {
        let mut client = RawConnection::connect(front.address).await;
        client.send(GET).await;
        until("it has its place", || bound(front).in_flight() == number).await;
        clients.push(client);
    }
    clients
}

#[tokio::test]
async fn a_request_beyond_the_limit_is_refused_until_another_is_answered_or_leaves() {
    let turns = Arc::new(Semaphore::new(0));
    let released = Arc::clone(&turns);
    let server = ScriptedUpstream::start(move |mut wire, _| {
        let turns = Arc::clone(&released);
        async move {
            wire.head().await;
            turns.acquire().await.unwrap().forget();
            // Its body does not end.
            // The gateway may have left.
            wire.stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok")
                .await
                .ok();
            wire.rest().await;
        }
    })
    .await;
    let front = ProxyServer::with(&[server.address], adaptive).await;
    let mut clients = arrive(&front, 3).await;
    let mut refused = RawConnection::connect(front.address).await;
    refused.send(GET).await;
    let head = refused.head().await;
    assert!(head.starts_with("HTTP/1.1 503"), "{head}");
    assert_eq!(values(&head, "retry-after"), ["1"]);
    assert!(
        refused
            .until(b"}")
            .await
            .unwrap()
            .contains("concurrency-limited")
    );

    // A client that leaves gives its place back.
    drop(clients.pop());
    until("it has left", || bound(&front).in_flight() == 2).await;
    let mut third = RawConnection::connect(front.address).await;
    third.send(GET).await;
    until("it has the place", || bound(&front).in_flight() == 3).await;

    // An answer gives its place back with its head: a client that reads slowly keeps no place.
    turns.add_permits(4);
    let heads = join_all(
        clients
            .iter_mut()
            .chain([&mut third])
            .map(RawConnection::head),
    )
    .await;
    assert!(heads.iter().all(|head| head.starts_with("HTTP/1.1 200")));
    assert_eq!(bound(&front).in_flight(), 0);
    arrive(&front, 3).await;
}

#[tokio::test]
async fn a_request_that_is_sent_again_has_one_place() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let server = ScriptedUpstream::start(move |mut wire, _| {
        let count = Arc::clone(&count);
        async move {
            while wire.try_head().await.is_some() {
                if count.fetch_add(1, Ordering::SeqCst) > 0 {
                    wire.rest().await;
                    return;
                }
                wire.send("HTTP/1.1 500 Broken\r\ncontent-length: 0\r\n\r\n")
                    .await;
            }
        }
    })
    .await;
    let front = ProxyServer::with(&[server.address], |plan| {
        adaptive(plan);
        plan.retry = Some(on([RetryCondition::Status(StatusRange::from(500))]));
    })
    .await;
    let mut client = RawConnection::connect(front.address).await;
    client.send(GET).await;
    until("it is sent again", || asked.load(Ordering::SeqCst) == 2).await;
    assert_eq!(bound(&front).in_flight(), 1);
    drop(client);
    until("it has left", || bound(&front).in_flight() == 0).await;
}

#[tokio::test]
async fn fast_failures_do_not_count_as_answers_and_slow_clients_cost_no_latency() {
    let broken = Arc::new(AtomicBool::new(true));
    let state = Arc::clone(&broken);
    let server = ScriptedUpstream::start(move |mut wire, _| {
        let state = Arc::clone(&state);
        async move {
            while let Some(head) = wire.try_head().await {
                if head.contains("content-length: 8") {
                    wire.exactly(8).await;
                }
                let is_broken = state.load(Ordering::SeqCst);
                wire.send(if is_broken {
                    "HTTP/1.1 503 Full\r\ncontent-length: 0\r\n\r\n"
                } else {
                    OK
                })
                .await;
            }
        }
    })
    .await;
    let front = ProxyServer::with(&[server.address], adaptive).await;
    let mut client = RawConnection::connect(front.address).await;
    for _ in 0..30 {
        assert_eq!(ask(&mut client).await, "503");
    }
    bound(&front).tend(clock::monotonic_micros());
    assert_eq!(bound(&front).shortest_latency(), None);
    broken.store(false, Ordering::SeqCst);
    for _ in 0..10 {
        let uploads = (0..2).map(|_| async {
            let mut client = RawConnection::connect(front.address).await;
            client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\nConnection: close\r\n\r\nabcd").await;
            sleep(2 * SERVICE).await;
            client.send("efgh").await;
            assert!(client.rest().await.starts_with("HTTP/1.1 200"));
        });
        join_all(uploads).await;
    }
    bound(&front).tend(clock::monotonic_micros());
    let shortest = bound(&front).shortest_latency().unwrap();
    assert!(shortest < SERVICE, "{shortest:?}");
}

#[tokio::test]
async fn a_reload_keeps_the_limit_and_another_rule_what_was_measured() {
    let server = ScriptedUpstream::answering(OK).await;
    let front = ProxyServer::with(&[server.address], adaptive).await;
    let mut client = RawConnection::connect(front.address).await;
    for _ in 0..20 {
        assert_eq!(ask(&mut client).await, "200");
    }
    front.gate.upstream.tend(clock::monotonic_micros());
    let measured = bound(&front).shortest_latency();
    assert!(measured.is_some());
    let mut spec = (**front.gate.upstream.spec()).clone();
    spec.idle_timeout = Duration::from_secs(9);
    spec.bounds.requests = NonZeroUsize::new(50);
    let anew = Upstream::new(Arc::new(spec.clone()), Some(&front.gate.upstream));
    assert_eq!(anew.adaptive_bound().unwrap().shortest_latency(), measured);
    let anew = anew.adaptive_bound().unwrap();
    let under_way = anew.enter().unwrap();
    for min in [1, 4] {
        spec.bounds.adaptive = Some(AdaptiveRule {
            min,
            max: 5,
            ..rule()
        });
        let other = Upstream::new(Arc::new(spec.clone()), Some(&front.gate.upstream));
        let other = other.adaptive_bound().unwrap();
        assert_eq!(other.shortest_latency(), measured);
        assert_eq!(
            (other.limit(), other.in_flight()),
            (min.max(3), 1),
            "it does not begin at its least"
        );
    }
    drop(under_way);
    assert_eq!(bound(&front).in_flight(), 0);
}
