//! Requests that need permits at the same time: all for whom there is room enter, in few calls.

use std::thread;

use super::*;

/// How many of `requests` at the same time are admitted. They have ended when this returns.
async fn admitted(node: &Limiter, key: &str, most: u64, requests: usize) -> usize {
    let checks = permits(key, most);
    join_all((0..requests).map(|_| enter(node, &checks)))
        .await
        .iter()
        .flatten()
        .count()
}

#[tokio::test]
async fn simultaneous_first_requests_on_a_new_key_enter_up_to_the_limit() {
    for delay_ms in [0, 5] {
        for (requests, due) in [(1, 1), (2, 2), (5, 5), (8, 5), (80, 5)] {
            let store = SharedStore::memory();
            store.slow.store(delay_ms, Ordering::Relaxed);
            let one = node(&store, 1);
            assert_eq!(
                admitted(&one, "new", 5, requests).await,
                due,
                "{requests} at once, {delay_ms} ms"
            );
            assert_eq!(
                store.claims.load(Ordering::Relaxed),
                1,
                "one claim for all of them"
            );
            assert_eq!(
                admitted(&one, "new", 5, requests).await,
                due,
                "the same again"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn requests_that_come_while_a_claim_is_under_way_go_with_the_next() {
    for (most, due) in [(10, 10), (6, 6)] {
        let store = SharedStore::memory();
        let one = node(&store, 1);
        let checks = permits("k", most);
        store.slow.store(100, Ordering::Relaxed);
        let late = async || {
            tokio::time::sleep(Duration::from_millis(50)).await;
            join_all((0..9).map(|_| enter(&one, &checks))).await
        };
        let started = clock::now();
        let (first, late) = tokio::join!(enter(&one, &checks), late());
        assert_eq!(late.iter().chain([&first]).flatten().count(), due);
        assert_eq!(store.claims.load(Ordering::Relaxed), 2);
        assert!(
            started.elapsed() < Duration::from_millis(250),
            "{:?}",
            started.elapsed()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_keeps_the_permit_that_was_asked_for_it() {
    let store = SharedStore::memory();
    let one = node(&store, 2);
    let two = node(&store, 2);
    let checks = permits("k", 4);
    let _others = [
        enter(&two, &checks).await.unwrap(),
        enter(&two, &checks).await.unwrap(),
    ];
    store.slow.store(100, Ordering::Relaxed);
    let late = async || {
        tokio::time::sleep(Duration::from_millis(99)).await;
        join_all((0..5).map(|_| enter(&one, &checks))).await
    };
    let (first, second, late) = tokio::join!(enter(&one, &checks), enter(&one, &checks), late());
    assert!(first.is_some() && second.is_some());
    assert_eq!(
        late.iter().flatten().count(),
        0,
        "there is no permit left for those"
    );
}

#[tokio::test(start_paused = true)]
async fn permits_and_tokens_are_waited_for_by_one_deadline() {
    let store = SharedStore::memory();
    let one = node(&store, 1);
    let both = Checks {
        permits: permits("s", 2).permits,
        ..Checks::from(charge("b", shape(3, HOUR, 3), 1))
    };
    store.slow.store(1_600, Ordering::Relaxed);
    let started = clock::now();
    let decision = one.decide(&both).wait().await;
    assert_eq!(
        (decision.granted, decision.decided_by),
        (true, DecidedBy::Local)
    );
    assert!(
        started.elapsed() < Duration::from_millis(2_010),
        "{:?}, and 2 s are the limit",
        started.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_learned_when_its_request_is_gone() {
    let store = SharedStore::memory();
    let one = node(&store, 1);
    let checks = permits("k", 1);
    store.slow.store(100, Ordering::Relaxed);
    let gone = tokio::time::timeout(Duration::from_millis(50), enter(&one, &checks)).await;
    assert!(gone.is_err());
    tokio::time::sleep(Duration::from_millis(51)).await;
    let next = one.decide(&checks).done().unwrap();
    assert_eq!((next.granted, next.decided_by), (true, DecidedBy::Lease));
}

#[tokio::test(start_paused = true)]
async fn permits_granted_in_an_answer_that_was_lost_are_given_back_soon() {
    let store = SharedStore::memory();
    let one = node(&store, 2);
    let two = node(&store, 2);
    let checks = permits("k", 1);
    store.loses_answers.store(true, Ordering::Relaxed);
    let alone = enter(&one, &permits("k", 4)).await.unwrap();
    assert_eq!(alone.decided_by, DecidedBy::Local);
    drop(alone);
    store.loses_answers.store(false, Ordering::Relaxed);
    // The upkeep visits a part of the keys at a time, so it may have put this right already.
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert!(enter(&two, &checks).await.is_some());
}

/// Rounds of bursts that all nodes get at the same time, each on two workers: on new keys, then on
/// known ones.
#[test]
fn bursts_on_all_workers_of_all_nodes_are_admitted_up_to_the_limit() {
    const ROUNDS: usize = 40;
    const EACH: usize = 6;
    let server = RedisServer::start();
    for nodes in [1_usize, 3] {
        let due = ROUNDS * (10_usize).min(nodes * 2 * EACH);
        let barrier = tokio::sync::Barrier::new(nodes * 2);
        let cold: AtomicUsize = AtomicUsize::new(0);
        let warm: AtomicUsize = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..nodes {
                let state = state(nodes as u32);
                for _ in 0..2 {
                    let (state, barrier, server, cold, warm) =
                        (state.clone(), &barrier, &server, &cold, &warm);
                    scope.spawn(move || {
                        let runtime = tokio::runtime::Builder::new_current_thread()
                            .enable_all()
                            .build()
                            .unwrap();
                        runtime.block_on(async {
                            let worker =
                                Limiter::for_node(state, Arc::new(connected(&server.spec()).await));
                            for round in 0..2 * ROUNDS {
                                let (key, counted) = match round % 2 {
                                    0 => (format!("{nodes}:{round}"), cold),
                                    _ => (format!("{nodes}:{}", round - 1), warm),
                                };
                                barrier.wait().await;
                                let checks = permits(&key, 10);
                                let inside =
                                    join_all((0..EACH).map(|_| enter(&worker, &checks))).await;
                                counted
                                    .fetch_add(inside.iter().flatten().count(), Ordering::Relaxed);
                                // Nobody leaves before all have tried.
                                barrier.wait().await;
                                drop(inside);
                                // Permits of the round before come back: they may be on another
                                // node.
                                tokio::time::sleep(Duration::from_millis(40)).await;
                            }
                        });
                    });
                }
            }
        });
        for admitted in [cold, warm] {
            let admitted = admitted.into_inner();
            assert!(
                admitted <= due && 100 * admitted >= 97 * due,
                "{nodes} nodes admitted {admitted} of {due}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_watcher_hears_of_permits_that_come_back_here_and_on_other_nodes() {
    let store = SharedStore::memory();
    let state = state(2);
    let two = node(&store, 2);
    let one = Limiter::for_node(state.clone(), store.clone());
    let checks = permits("k", 2);
    let need = &checks.permits[0].need;
    let here = enter(&one, &checks).await.unwrap();
    let there = enter(&two, &checks).await.unwrap();
    let watches = [state.permits.watch(need), state.permits.watch(need)];
    assert!(enter(&one, &checks).await.is_none());
    let woken = async |watch: &FreePermitWatch, ms| {
        tokio::time::timeout(Duration::from_millis(ms), watch.until_free())
            .await
            .is_ok()
    };
    assert!(!woken(&watches[0], 200).await, "nothing is free");
    drop(here);
    assert!(woken(&watches[0], 1).await);
    let here = enter(&one, &checks).await.unwrap();
    assert!(!woken(&watches[0], 200).await, "nothing is free");
    drop(there);
    assert!(
        woken(&watches[1], 50).await,
        "the node asks the store for those who watch"
    );
    let again = enter(&one, &checks).await.unwrap();
    drop((here, again, watches));
    eventually("all are given back", || async {
        admitted(&two, "k", 2, 2).await == 2
    })
    .await;
}

#[tokio::test]
async fn watchers_of_a_limit_of_one_process_are_woken_in_their_order() {
    let table = Arc::new(PermitTable::default());
    let one = Limiter::for_process(Arc::new(MemoryStore::new(10)), table.clone());
    let checks = permits("k", 1);
    let held = enter(&one, &checks).await.unwrap();
    let first = table.watch(&checks.permits[0].need);
    let second = table.watch(&checks.permits[0].need);
    let (mut one_waits, mut other_waits) =
        (Box::pin(first.until_free()), Box::pin(second.until_free()));
    assert!(
        futures_util::poll!(&mut one_waits).is_pending()
            && futures_util::poll!(&mut other_waits).is_pending()
    );
    drop(held);
    assert!(
        futures_util::poll!(&mut other_waits).is_pending()
            && futures_util::poll!(&mut one_waits).is_ready()
    );
    drop(one_waits);
    drop(first);
    assert!(
        futures_util::poll!(&mut other_waits).is_ready(),
        "one that leaves passes its chance on"
    );
}

#[tokio::test(start_paused = true)]
async fn a_node_that_leaves_gives_its_permits_back_at_once() {
    let store = SharedStore::memory();
    let one = node(&store, 2);
    let two = node(&store, 2);
    let checks = permits("k", 4);
    let running = enter(&one, &checks).await.unwrap();
    assert_eq!(admitted(&one, "k", 4, 3).await, 3);
    one.leave_permits().await;
    assert_eq!(
        admitted(&two, "k", 4, 4).await,
        3,
        "all but the one that a request still holds"
    );
    drop(running);
}
