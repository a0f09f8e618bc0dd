//! What requests of different clients ask at the same time goes to Redis together, and nobody's
//! failure is another's.

use std::task::Poll;

use futures_util::future::join_all;
use tollgate_limiter::algorithm::window::Window;
use tollgate_limiter::store::redis::RedisStore;
use tollgate_limiter::store::{BucketCharge, Store, StoreError};
use tollgate_testing::node::connected;
use tollgate_testing::redis::RedisServer;
use tollgate_testing::topology::{RedisCluster, patient};
use tollgate_testing::{HOUR, SECOND, charge, eventually, in_time, shape};

fn bucket(name: &str, burst: u64) -> BucketCharge {
    charge(name, shape(1, HOUR, burst), 1)
}

/// The units that each was granted of one, and what is left.
async fn taken(store: &RedisStore, charges: &[BucketCharge]) -> Vec<(u32, u64)> {
    let calls = charges
        .iter()
        .map(|one| store.take(std::slice::from_ref(one), 1));
    let grants = in_time("all are answered", join_all(calls)).await;
    let grants = grants.into_iter().map(Result::unwrap);
    grants
        .map(|grant| (grant.units, grant.levels[0].remaining))
        .collect()
}

#[tokio::test]
async fn clients_of_one_turn_share_a_command_and_each_has_its_own_answer() {
    let server = RedisServer::start();
    let store = connected(&patient(server.spec())).await;
    let clients: Vec<_> = (0..48)
        .map(|n| bucket(&format!("k{n}"), 1 + n % 5))
        .collect();
    let before = server.script_calls();
    let expected: Vec<_> = (0..48).map(|n| (1, n % 5)).collect();
    assert_eq!(taken(&store, &clients).await, expected);
    assert_eq!(server.script_calls(), before + 1);
    // Some are denied now.
    let expected = (0..48_u64).map(|n| (u32::from(n % 5 > 0), (n % 5).saturating_sub(1)));
    assert_eq!(taken(&store, &clients).await, expected.collect::<Vec<_>>());
    assert_eq!(server.script_calls(), before + 2);
}

#[tokio::test]
async fn a_command_has_so_much_work_that_redis_is_not_held_for_long() {
    let server = RedisServer::start();
    let store = connected(&patient(server.spec())).await;
    let window = Window::sliding(100, 60 * SECOND).unwrap();
    for (limit, calls) in [
        (bucket("", 3), 3),
        (charge("", window, 1), 50),
        (charge("", Window::sliding(8, SECOND).unwrap(), 1), 7),
    ] {
        let clients: Vec<_> = (0..100)
            .map(|n| charge(&format!("{calls}:{n}"), limit.quota, 1))
            .collect();
        // The server learns the script.
        taken(&store, &[charge("warm-up", limit.quota, 1)]).await;
        let before = server.script_calls();
        let granted = taken(&store, &clients).await;
        assert!(granted.iter().all(|(units, _)| *units == 1));
        assert_eq!(server.script_calls() - before, calls);
    }
}

#[tokio::test]
async fn a_foreign_key_is_nobody_elses_failure() {
    let server = RedisServer::start();
    let store = connected(&patient(server.spec())).await;
    server.command(&["RPUSH", "t:list", "x"]);
    server.command(&["SET", "t:text", "x"]);
    // Entries that no window of Tollgate's has in this order.
    let far = "9999999999999999999999999=1,2000000000000000=1";
    server.command(&["SET", "t:window", far]);
    let sliding = Window::sliding(2, 10 * SECOND).unwrap();
    let clients = [
        bucket("a", 3),
        bucket("list", 3),
        bucket("b", 4),
        charge("window", sliding, 1),
        bucket("text", 3),
        bucket("c", 5),
    ];
    // The server learns the script.
    let mixed = [bucket("x", 3), charge("y", sliding, 1)];
    store.take(&mixed, 1).await.unwrap();
    let before = server.script_calls();
    let calls = clients
        .iter()
        .map(|one| store.take(std::slice::from_ref(one), 1));
    let grants: Vec<_> = join_all(calls)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    assert_eq!(server.script_calls(), before + 1);
    let foreign: Vec<bool> = grants
        .iter()
        .map(|grant| !grant.foreign.is_empty())
        .collect();
    assert_eq!(foreign, [false, true, false, true, true, false]);
    let left = [0, 2, 5].map(|place: usize| grants[place].levels[0].remaining);
    assert_eq!(left, [2, 3, 4]);
}

#[tokio::test]
async fn clients_whose_hash_slot_moves_are_asked_for_one_by_one() {
    let cluster = RedisCluster::start().await;
    let store = connected(&patient(cluster.spec())).await;
    let clients = ["{t}a", "{t}b", "{t}c"].map(|name| bucket(name, 3));
    taken(&store, &clients).await;
    let home = cluster.owner("t:{t}a");
    cluster.begin_to_move("t:{t}a", home, (home + 1) % 3);
    cluster.move_key("t:{t}a", home, (home + 1) % 3);
    assert_eq!(taken(&store, &clients).await, [(1, 1); 3]);
}

/// A thread that asked first may be busy with something else from then on.
#[tokio::test]
async fn calls_are_made_where_the_connections_are() {
    let server = RedisServer::start();
    let store = connected(&patient(server.spec())).await;
    let (asked, has_asked) = tokio::sync::oneshot::channel();
    let (done, until_done) = std::sync::mpsc::channel::<()>();
    let other = store.clone();
    let busy = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let charges = [bucket("busy", 3)];
            let mut call = std::pin::pin!(other.take(&charges, 1));
            let first = std::future::poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx))).await;
            asked.send(()).unwrap();
            until_done.recv().unwrap();
            let grant = match first {
                Poll::Ready(grant) => grant,
                Poll::Pending => in_time("its own call was made", call).await,
            };
            assert_eq!(grant.unwrap().units, 1);
        });
    });
    has_asked.await.unwrap();
    let charges = [bucket("free", 3)];
    let grant = in_time("the other is answered", store.take(&charges, 1)).await;
    assert_eq!(grant.unwrap().units, 1);
    done.send(()).unwrap();
    busy.join().unwrap();
}

#[test]
fn a_store_whose_runtime_has_ended_says_so() {
    let server = RedisServer::start();
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let ended = runtime();
    let store = ended.block_on(connected(&patient(server.spec())));
    drop(ended);
    let failure = runtime().block_on(async {
        let charges = [bucket("k", 3)];
        in_time("it is answered", store.take(&charges, 1)).await
    });
    assert!(matches!(failure.unwrap_err().error, StoreError::Io));
}

/// A server with hash slots behind the URL of one without: it takes keys one by one.
#[tokio::test]
async fn clients_of_different_hash_slots_are_asked_for_one_by_one_where_a_server_demands_it() {
    let cluster = RedisCluster::start().await;
    let node = &cluster.nodes[0];
    let keys: Vec<_> = (0..)
        .map(|n| format!("k{n}"))
        .filter(|key| cluster.owner(&format!("t:{key}")) == 0)
        .take(3)
        .collect();
    let store = RedisStore::connect(&patient(node.spec())).unwrap();
    let clients: Vec<_> = keys.iter().map(|key| bucket(key, 3)).collect();
    eventually("the store connects", || async {
        store.take(&clients[..1], 0).await.is_ok()
    })
    .await;
    assert_eq!(taken(&store, &clients).await, [(1, 2); 3]);
}
