use std::net::Ipv4Addr;
use std::num::NonZeroU64;
use std::time::Duration;

use futures_util::future::{BoxFuture, poll_immediate};
use proptest::prelude::*;

use super::known_networks::MOST_OF_A_NAME;
use super::table::{MAX_WAITING, MAX_WAITING_OF_CLIENT};
use super::*;

const EMISSION: Duration = Duration::from_secs(10);

const BURST: u64 = 2;

const LONG: Duration = Duration::from_secs(3_600);

/// Two at once, one more every ten seconds.
fn attempts() -> Arc<FailedAttempts> {
    let number = |number| NonZeroU64::new(number).unwrap();
    let emission = number(u64::try_from(EMISSION.as_micros()).unwrap());
    Arc::new(FailedAttempts::new(
        TokenBucket::new(number(1), emission, number(BURST)).unwrap(),
    ))
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// An attempt that is under way, or the seconds until the next.
fn begin(attempts: &Arc<FailedAttempts>, ip: IpAddr, name: Option<&[u8]>) -> Result<Attempt, u64> {
    match attempts.place(ip, name) {
        Ok(PendingAttempt::Placed(mut attempt)) => {
            attempt.begin();
            Ok(attempt)
        }
        Ok(PendingAttempt::Waiting(_)) => panic!("it waits"),
        Err(AuthenticationRefusal::TooManyAttempts(seconds)) => Err(seconds),
        Err(other) => panic!("{other:?}"),
    }
}

fn fail(attempts: &Arc<FailedAttempts>, ip: IpAddr, name: Option<&[u8]>) -> Result<(), u64> {
    begin(attempts, ip, name).map(drop)
}

/// Fails as a name from so many addresses, each as often as that may. How often it could.
fn fail_from_everywhere(attempts: &Arc<FailedAttempts>, name: &[u8], addresses: u32) -> u64 {
    let mut failed = 0;
    for address in 0..addresses {
        let ip = Ipv4Addr::from_bits((198 << 24) | (18 << 16) | address).into();
        while fail(attempts, ip, Some(name)).is_ok() {
            failed += 1;
        }
    }
    failed
}

#[tokio::test(start_paused = true)]
async fn whoever_fails_as_somebody_elsewhere_keeps_them_out_of_no_network_that_is_theirs() {
    let attempts = attempts();
    let home = ip("192.0.2.1");
    begin(&attempts, home, Some(b"ada")).unwrap().succeeded();
    let failed = fail_from_everywhere(&attempts, b"ada", 2 * NETWORKS_OF_A_NAME);
    assert_eq!(failed, u64::from(NETWORKS_OF_A_NAME) * BURST);
    assert!(
        fail(&attempts, ip("192.0.2.2"), Some(b"ada")).is_err(),
        "a stranger does not guess on"
    );
    assert!(fail(&attempts, ip("192.0.2.2"), Some(b"bob")).is_ok());
    for _ in 0..BURST {
        assert!(fail(&attempts, home, Some(b"ada")).is_ok());
    }
    assert_eq!(
        fail(&attempts, home, Some(b"ada")),
        Err(10),
        "it has the bound of any network"
    );
    assert!(
        fail(&attempts, home, Some(b"bob")).is_err(),
        "whatever the name"
    );
}

#[tokio::test(start_paused = true)]
async fn a_few_networks_of_a_name_are_known() {
    let attempts = attempts();
    let at = |host: usize| ip(&format!("192.0.2.{host}"));
    for host in 0..=MOST_OF_A_NAME {
        begin(&attempts, at(host), Some(b"ada"))
            .unwrap()
            .succeeded();
    }
    fail_from_everywhere(&attempts, b"ada", 2 * NETWORKS_OF_A_NAME);
    assert!(fail(&attempts, at(0), Some(b"ada")).is_err(), "the oldest");
    assert!(fail(&attempts, at(1), Some(b"ada")).is_ok());
    assert!(fail(&attempts, at(MOST_OF_A_NAME), Some(b"ada")).is_ok());
}

type Placing = BoxFuture<'static, Result<Attempt, AuthenticationRefusal>>;

fn wait(attempts: &Arc<FailedAttempts>, ip: IpAddr) -> Placing {
    let pending = attempts.place(ip, None).expect("there is room to wait");
    assert!(
        matches!(pending, PendingAttempt::Waiting(_)),
        "it does not wait"
    );
    Box::pin(pending.placed(clock::now() + LONG))
}

#[tokio::test(start_paused = true)]
async fn an_address_fails_a_few_times_and_then_waits() {
    let attempts = attempts();
    assert!(fail(&attempts, ip("192.0.2.1"), Some(b"ada")).is_ok());
    assert!(fail(&attempts, ip("192.0.2.1"), Some(b"bob")).is_ok());
    assert_eq!(
        fail(&attempts, ip("192.0.2.1"), Some(b"cyd")),
        Err(10),
        "the address has failed twice"
    );
    assert!(
        fail(&attempts, ip("192.0.2.2"), Some(b"cyd")).is_ok(),
        "others have their own"
    );
    tokio::time::advance(EMISSION).await;
    assert!(fail(&attempts, ip("192.0.2.1"), None).is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_succeeds_or_that_nobody_began_costs_nothing() {
    let attempts = attempts();
    for _ in 0..5 {
        begin(&attempts, ip("192.0.2.1"), Some(b"ada"))
            .unwrap()
            .succeeded();
        drop(attempts.place(ip("192.0.2.1"), Some(b"ada")).unwrap());
    }
    assert!(attempts.table.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn attempts_that_succeed_cost_nothing_however_long_they_take() {
    let attempts = attempts();
    fail(&attempts, ip("192.0.2.1"), None).unwrap();
    for _ in 0..50 {
        let attempt =
            begin(&attempts, ip("192.0.2.1"), None).expect("one has failed, and another may");
        let mut waiting = wait(&attempts, ip("192.0.2.1"));
        tokio::time::advance(Duration::from_millis(90)).await;
        attempt.succeeded();
        poll_immediate(&mut waiting)
            .await
            .expect("it is its turn")
            .ok()
            .unwrap()
            .succeeded();
    }
}

#[tokio::test(start_paused = true)]
async fn the_addresses_of_a_network_of_ipv6_fail_together() {
    let attempts = attempts();
    for host in ["2001:db8::1", "2001:db8::2"] {
        assert!(fail(&attempts, ip(host), None).is_ok());
    }
    assert!(fail(&attempts, ip("2001:db8::3"), None).is_err());
    assert!(fail(&attempts, ip("2001:db8:0:1::3"), None).is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_with_many_networks_of_ipv6_has_a_bound_as_well() {
    let attempts = attempts();
    let failed = |networks: &mut dyn Iterator<Item = u128>| {
        let addresses = networks
            .map(|network| std::net::Ipv6Addr::from_bits((0x2001_0db8 << 96) | (network << 64)));
        addresses
            .filter(|address| fail(&attempts, (*address).into(), None).is_ok())
            .count() as u64
    };
    assert_eq!(failed(&mut (0..256)), 4 * BURST, "a /56");
    assert_eq!(
        failed(&mut (256..65_536)),
        12 * BURST,
        "the rest of its /48"
    );
    assert_eq!(failed(&mut (65_536..65_537)), 1, "another one");
}

#[tokio::test(start_paused = true)]
async fn attempts_wait_for_those_under_way_in_their_order() {
    let attempts = attempts();
    let mut under_way: Vec<Attempt> = (0..BURST)
        .map(|_| begin(&attempts, ip("192.0.2.1"), None).unwrap())
        .collect();
    let mut waiting: Vec<Placing> = (0..3).map(|_| wait(&attempts, ip("192.0.2.1"))).collect();
    for place in &mut waiting {
        assert!(poll_immediate(place).await.is_none());
    }
    assert!(
        begin(&attempts, ip("192.0.2.2"), None).is_ok(),
        "others do not wait"
    );
    under_way.pop().unwrap().succeeded();
    let mut first = poll_immediate(&mut waiting[0])
        .await
        .expect("it is its turn")
        .ok()
        .unwrap();
    first.begin();
    assert!(poll_immediate(&mut waiting[1]).await.is_none());
    drop(waiting.remove(1));
    first.succeeded();
    let last = poll_immediate(&mut waiting[1])
        .await
        .expect("the one before it has gone away");
    last.ok().unwrap().succeeded();
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_are_refused_once_all_before_them_have_failed() {
    let attempts = attempts();
    let mut under_way: Vec<Attempt> = (0..BURST)
        .map(|_| begin(&attempts, ip("192.0.2.1"), None).unwrap())
        .collect();
    let mut waiting = wait(&attempts, ip("192.0.2.1"));
    drop(under_way.pop());
    assert!(
        poll_immediate(&mut waiting).await.is_none(),
        "one may still succeed"
    );
    drop(under_way.pop());
    let refusal = poll_immediate(&mut waiting)
        .await
        .expect("none may succeed any more")
        .err();
    assert_eq!(refusal, Some(AuthenticationRefusal::TooManyAttempts(10)));
    drop(waiting);
    assert!(attempts.table.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_place_that_comes_too_late_is_the_next_ones() {
    let attempts = attempts();
    let mut under_way: Vec<Attempt> = (0..BURST)
        .map(|_| begin(&attempts, ip("192.0.2.1"), None).unwrap())
        .collect();
    let (late, mut next) = (
        wait(&attempts, ip("192.0.2.1")),
        wait(&attempts, ip("192.0.2.1")),
    );
    under_way.pop().unwrap().succeeded();
    assert!(poll_immediate(&mut next).await.is_none());
    drop(late);
    assert!(poll_immediate(&mut next).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_wait_has_an_end_and_only_so_many_wait() {
    let attempts = attempts();
    let address = |client: usize| IpAddr::from([10, 0, 0, u8::try_from(client).unwrap()]);
    let clients = MAX_WAITING / MAX_WAITING_OF_CLIENT;
    let under_way: Vec<Attempt> = (0..=clients)
        .flat_map(|client| (0..BURST).map(move |_| client))
        .map(|client| begin(&attempts, address(client), None).unwrap())
        .collect();
    let mut waiting: Vec<Placing> = Vec::new();
    for client in 0..clients {
        waiting.extend((0..MAX_WAITING_OF_CLIENT).map(|_| wait(&attempts, address(client))));
        assert_eq!(attempts.place(address(client), None).err(), Some(CROWDED));
    }
    assert_eq!(
        attempts.place(address(clients), None).err(),
        Some(CROWDED),
        "there is a bound in sum"
    );
    let began = clock::now();
    assert_eq!(waiting.pop().unwrap().await.err(), Some(CROWDED));
    assert!(clock::now() - began >= LONG);
    drop(waiting);
    assert!(
        attempts.place(address(clients), None).is_ok(),
        "they have made room"
    );
    drop(under_way);
    assert!(attempts.table.lock().is_empty());
}

/// Clients, some of them of one network.
const CLIENTS: [&str; 7] = [
    "192.0.2.1",
    "192.0.2.2",
    "2001:db8::1",
    "2001:db8::2",
    "2001:db8:0:1::1",
    "2001:db8:0:100::1",
    "2001:db8:1::1",
];

#[derive(Clone, Debug)]
enum AttemptStep {
    Arrive { client: usize, name: Option<u8> },
    End { place: usize, succeeds: bool },
    Leave { place: usize },
    Advance { seconds: u64 },
}

fn step() -> impl Strategy<Value = AttemptStep> {
    prop_oneof![
        6 => (0..CLIENTS.len(), prop::option::weighted(0.3, 0..3_u8))
            .prop_map(|(client, name)| AttemptStep::Arrive { client, name }),
        4 => (0..64_usize, any::<bool>())
            .prop_map(|(place, succeeds)| AttemptStep::End { place, succeeds }),
        1 => (0..64_usize).prop_map(|place| AttemptStep::Leave { place }),
        1 => (1..25_u64).prop_map(|seconds| AttemptStep::Advance { seconds }),
    ]
}

/// The state that the steps have led to, by a reckoning of the model's own.
struct AttemptModel {
    attempts: Arc<FailedAttempts>,
    under_way: Vec<(ModelledClient, Attempt)>,
    waiting: Vec<(ModelledClient, Placing)>,
    /// And when.
    failed: Vec<(ModelledClient, u64)>,
}

type ModelledClient = (usize, Option<u8>);

impl AttemptModel {
    async fn take(&mut self, step: AttemptStep) {
        match step {
            AttemptStep::Arrive { client, name } => {
                let name = name.map(|name| [name]);
                let pending = self
                    .attempts
                    .place(ip(CLIENTS[client]), name.as_ref().map(|name| &name[..]));
                let client = (client, name.map(|[name]| name));
                match pending {
                    Ok(PendingAttempt::Placed(attempt)) => self.begin(client, attempt),
                    Ok(pending) => self
                        .waiting
                        .push((client, Box::pin(pending.placed(clock::now() + LONG)))),
                    Err(_) => {}
                }
            }
            AttemptStep::End { place, succeeds } if !self.under_way.is_empty() => {
                let (client, attempt) = self.under_way.remove(place % self.under_way.len());
                if succeeds {
                    attempt.succeeded();
                } else {
                    self.failed.push((client, clock::monotonic_micros()));
                }
            }
            AttemptStep::Leave { place } if !self.waiting.is_empty() => {
                drop(self.waiting.remove(place % self.waiting.len()));
            }
            AttemptStep::End { .. } | AttemptStep::Leave { .. } => {}
            AttemptStep::Advance { seconds } => {
                tokio::time::advance(Duration::from_secs(seconds)).await
            }
        }
        self.follow().await;
    }

    fn begin(&mut self, client: ModelledClient, mut attempt: Attempt) {
        attempt.begin();
        self.under_way.push((client, attempt));
    }

    /// Takes note of waits that have ended.
    async fn follow(&mut self) {
        let mut still_waiting: Vec<(ModelledClient, Placing)> = Vec::new();
        for (client, mut wait) in std::mem::take(&mut self.waiting) {
            match poll_immediate(&mut wait).await {
                None => still_waiting.push((client, wait)),
                Some(Err(_)) => {}
                Some(Ok(attempt)) => {
                    let overtaken = still_waiting
                        .iter()
                        .any(|(before, _)| networks(*before)[0] == networks(client)[0]);
                    assert!(!overtaken, "it was not its turn");
                    self.begin(client, attempt);
                }
            }
        }
        self.waiting = still_waiting;
    }

    /// Failures and attempts under way are within the bound, everywhere and at all times.
    fn check(&self) {
        // Each of these may fail now.
        let now_us = clock::monotonic_micros();
        let under_way = self.under_way.iter().map(|(client, _)| (*client, now_us));
        let counted: Vec<(ModelledClient, u64)> =
            self.failed.iter().copied().chain(under_way).collect();
        let mut buckets: Vec<String> = counted
            .iter()
            .flat_map(|(client, _)| networks(*client))
            .collect();
        buckets.extend(
            counted
                .iter()
                .filter_map(|((_, name), _)| name.map(bucket_of_name)),
        );
        for bucket in buckets {
            let (times, _) = bucket.split_once(' ').unwrap();
            let times: u64 = times.parse().unwrap();
            let of_bucket = counted.iter().filter(|(client, _)| {
                networks(*client).contains(&bucket)
                    || client.1.is_some_and(|name| bucket == bucket_of_name(name))
            });
            let mut at: Vec<u64> = of_bucket.map(|(_, at)| *at).collect();
            at.sort_unstable();
            for (first, begun) in at.iter().enumerate() {
                for (last, ended) in at.iter().enumerate().skip(first) {
                    let flow =
                        (ended - begun) * times / u64::try_from(EMISSION.as_micros()).unwrap();
                    assert!(
                        (last - first + 1) as u64 <= BURST * times + flow,
                        "{bucket}: {at:?}"
                    );
                }
            }
        }
        for (client, _) in &self.waiting {
            let may_succeed = self.under_way.iter().any(|(other, _)| {
                networks(*other)
                    .iter()
                    .any(|network| networks(*client).contains(network))
            });
            assert!(may_succeed, "{} waits for nothing", CLIENTS[client.0]);
        }
    }
}

/// A name, after how many times the bound it has.
fn bucket_of_name(name: u8) -> String {
    format!("{NETWORKS_OF_A_NAME} name {name}")
}

/// The networks of a client, each after how many times the bound it has.
fn networks((client, _): ModelledClient) -> Vec<String> {
    match ip(CLIENTS[client]) {
        IpAddr::V4(address) => vec![format!("1 {address}")],
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            [(1, 64), (4, 72), (16, 80)]
                .map(|(times, rest)| format!("{times} {:x}/{rest}", bits >> rest))
                .into()
        }
    }
}

proptest! {
    #[test]
    fn those_that_failed_and_those_under_way_stay_within_the_bound(steps in prop::collection::vec(step(), 1..120)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let attempts = attempts();
            let (under_way, waiting, failed) = (Vec::new(), Vec::new(), Vec::new());
            let mut model = AttemptModel { attempts: attempts.clone(), under_way, waiting, failed };
            for step in steps {
                model.take(step).await;
                model.check();
            }
            model.waiting.clear();
            model.under_way.clear();
            assert!(attempts.table.lock().is_empty());
        });
    }
}
