//! Looking at buckets in Redis and giving tokens back, against the store that requests take from.

use std::time::Duration;

use tollgate_limiter::limit::key::Key;
use tollgate_limiter::store::inspect::{ChangeNotice, Inspect, TokenGrant};
use tollgate_limiter::store::redis::RedisStore;
use tollgate_limiter::store::redis::inspect::{ChangePosition, RedisInspector};
use tollgate_limiter::store::{BucketCharge, Store, StoreError};
use tollgate_testing::node::connected;
use tollgate_testing::redis::{RedisServer, free_port, spec_at};
use tollgate_testing::{HOUR, PATIENCE, SECOND, charge, eventually, shape};

struct Fixture {
    server: RedisServer,
    store: RedisStore,
    inspector: RedisInspector,
}

impl Fixture {
    async fn start() -> Self {
        let server = RedisServer::start();
        let store = connected(&server.spec()).await;
        let inspector = RedisInspector::connect(&server.spec()).unwrap();
        let warm_up = charge("warm-up", shape(1, SECOND, 1), 1);
        eventually("the inspector connects", || async {
            inspector.peek(&warm_up).await.is_ok()
        })
        .await;
        Self {
            server,
            store,
            inspector,
        }
    }

    async fn take(&self, bucket: &BucketCharge, units: u32) -> u32 {
        self.store
            .take(std::slice::from_ref(bucket), units)
            .await
            .unwrap()
            .units
    }

    async fn left(&self, bucket: &BucketCharge) -> u64 {
        self.inspector
            .peek(bucket)
            .await
            .unwrap()
            .level(bucket.cost)
            .remaining
    }

    fn stored(&self, key: &str) -> String {
        self.server.command(&["GET", &format!("t:{key}")])
    }
}

#[tokio::test]
async fn a_peek_agrees_with_the_last_decision_and_writes_nothing() {
    let redis = Fixture::start().await;
    for (key, shape) in [
        ("a", shape(10, HOUR, 20)),
        ("b", shape(7, HOUR, 100)),
        ("c", shape(999, 1_000 * HOUR, 50)),
    ] {
        let bucket = charge(key, shape, 3);
        assert_eq!(
            redis.left(&bucket).await,
            shape.burst(),
            "a bucket that is not there is full"
        );
        assert_eq!(redis.server.command(&["EXISTS", &format!("t:{key}")]), ":0");
        let told = redis
            .store
            .take(std::slice::from_ref(&bucket), 2)
            .await
            .unwrap()
            .levels[0];
        let before = redis.stored(key);
        let seen = redis.inspector.peek(&bucket).await.unwrap().level(3);
        assert_eq!(redis.stored(key), before);
        assert_eq!((seen.remaining, seen.retry_after_us), (told.remaining, 0));
        assert!(
            seen.reset_after_us <= told.reset_after_us
                && seen.reset_after_us > told.reset_after_us - 10 * SECOND
        );
    }
}

#[tokio::test]
async fn a_peek_at_an_empty_bucket_says_when_to_come_back() {
    let redis = Fixture::start().await;
    let bucket = charge("k", shape(10, HOUR, 10), 2);
    assert_eq!(redis.take(&bucket, 9).await, 5);
    let level = redis.inspector.peek(&bucket).await.unwrap().level(2);
    assert_eq!(level.remaining, 0);
    assert!(
        level.retry_after_us > 700 * SECOND && level.retry_after_us <= 720 * SECOND,
        "{level:?}"
    );
}

#[tokio::test]
async fn tokens_are_given_back_exactly_and_never_beyond_full() {
    let redis = Fixture::start().await;
    let bucket = charge("k", shape(10, HOUR, 20), 1);
    assert_eq!(redis.take(&bucket, 20).await, 20);
    let changed = redis
        .inspector
        .grant(&bucket, TokenGrant::Tokens(5))
        .await
        .unwrap();
    assert_eq!(
        (
            changed.before.level(1).remaining,
            changed.after.level(1).remaining
        ),
        (0, 5)
    );
    assert_eq!(
        (redis.take(&bucket, 20).await, redis.take(&bucket, 1).await),
        (5, 0)
    );
    let changed = redis
        .inspector
        .grant(&bucket, TokenGrant::Tokens(u64::MAX))
        .await
        .unwrap();
    assert_eq!(changed.after.level(1).remaining, 20);
    assert_eq!(
        redis.server.command(&["EXISTS", "t:k"]),
        ":0",
        "a full bucket is none"
    );
    assert_eq!(redis.take(&bucket, 50).await, 20, "full, and not more");
    redis
        .inspector
        .grant(&bucket, TokenGrant::All)
        .await
        .unwrap();
    assert_eq!(redis.take(&bucket, 50).await, 20);
}

#[tokio::test]
async fn what_is_given_back_expires_when_it_is_full() {
    let redis = Fixture::start().await;
    let bucket = charge("k", shape(10, HOUR, 10), 1);
    redis.take(&bucket, 10).await;
    redis
        .inspector
        .grant(&bucket, TokenGrant::Tokens(5))
        .await
        .unwrap();
    let ttl: u64 = redis
        .server
        .command(&["PTTL", "t:k"])
        .trim_start_matches(':')
        .parse()
        .unwrap();
    assert!(ttl > 1_790_000 && ttl <= 1_800_002, "{ttl}");
}

#[tokio::test]
async fn a_grant_counts_in_tokens_of_the_changed_limit() {
    let redis = Fixture::start().await;
    let old = charge("k", shape(10, HOUR, 20), 1);
    let new = charge("k", shape(7, 3 * HOUR, 10), 1);
    redis.take(&old, 15).await;
    assert_eq!(
        redis.left(&new).await,
        0,
        "more was taken than the new burst"
    );
    let changed = redis
        .inspector
        .grant(&new, TokenGrant::Tokens(4))
        .await
        .unwrap();
    assert_eq!(
        (
            changed.before.level(1).remaining,
            changed.after.level(1).remaining
        ),
        (0, 4)
    );
    assert_eq!(redis.take(&new, 20).await, 4);
}

#[tokio::test]
async fn a_foreign_value_is_reported_and_left_alone() {
    let redis = Fixture::start().await;
    redis.server.command(&["SET", "t:k", "hello"]);
    let bucket = charge("k", shape(10, HOUR, 20), 1);
    assert!(matches!(
        redis.inspector.peek(&bucket).await,
        Err(StoreError::Script(_))
    ));
    assert!(matches!(
        redis.inspector.grant(&bucket, TokenGrant::All).await,
        Err(StoreError::Script(_))
    ));
    assert_eq!(redis.stored("k"), "hello");
}

#[tokio::test]
async fn a_grant_that_timed_out_is_not_made_later() {
    let redis = Fixture::start().await;
    let bucket = charge("k", shape(10, HOUR, 20), 1);
    redis.take(&bucket, 20).await;
    redis.server.stop();
    let started = tollgate_limiter::clock::now();
    let refused = redis.inspector.grant(&bucket, TokenGrant::All).await;
    assert!(refused.is_err(), "{refused:?}");
    // Its deadline is a time limit of 500 ms away, and by as much as the reply before it took
    // further.
    eventually("the grant is late", || async {
        started.elapsed() > Duration::from_millis(1_500)
    })
    .await;
    redis.server.cont();
    eventually("redis answers again", || async {
        redis.inspector.peek(&bucket).await.is_ok()
    })
    .await;
    assert_eq!(redis.left(&bucket).await, 0);
}

#[tokio::test]
async fn without_redis_the_answer_comes_in_time_and_is_an_error() {
    let inspector = RedisInspector::connect(&spec_at(free_port())).unwrap();
    let bucket = charge("k", shape(10, HOUR, 20), 1);
    let peek = tokio::time::timeout(PATIENCE, inspector.peek(&bucket)).await;
    assert!(peek.expect("it has an end").is_err());
}

fn notice(key: &str, full_in_us: u64) -> ChangeNotice {
    ChangeNotice {
        key: Key::from(key),
        full_in_us,
    }
}

#[tokio::test]
async fn every_node_receives_each_change_once_and_a_new_node_those_that_are_kept() {
    let redis = Fixture::start().await;
    let inspector = &redis.inspector;
    inspector.publish(&notice("old", 0)).await.unwrap();
    let mut one = ChangePosition::default();
    let mut other = ChangePosition::default();
    assert_eq!(inspector.poll(&mut one).await.unwrap(), [notice("old", 0)]);
    inspector.publish(&notice("l:a|b", 0)).await.unwrap();
    inspector.publish(&notice("l:c", 3 * HOUR)).await.unwrap();
    let heard = inspector.poll(&mut one).await.unwrap();
    assert_eq!(heard[0], notice("l:a|b", 0));
    assert!(
        heard[1].key == Key::from("l:c")
            && heard[1].full_in_us > 2 * HOUR
            && heard[1].full_in_us <= 3 * HOUR
    );
    assert_eq!(heard.len(), 2);
    assert_eq!(inspector.poll(&mut one).await.unwrap(), []);
    assert_eq!(
        inspector.poll(&mut other).await.unwrap().len(),
        3,
        "it may have served before it asked"
    );
    let ttl: u64 = redis
        .server
        .command(&["PTTL", "t:!changes"])
        .trim_start_matches(':')
        .parse()
        .unwrap();
    assert!(ttl > 0 && ttl <= 600_000, "{ttl}");
}

#[tokio::test]
async fn changes_are_delivered_after_redis_lost_the_earlier_ones() {
    let redis = Fixture::start().await;
    let mut heard = ChangePosition::default();
    redis.inspector.poll(&mut heard).await.unwrap();
    redis.inspector.publish(&notice("a", 0)).await.unwrap();
    assert_eq!(redis.inspector.poll(&mut heard).await.unwrap().len(), 1);
    redis.server.command(&["DEL", "t:!changes"]);
    // Redis has restarted with a clock that is behind.
    redis
        .server
        .command(&["XADD", "t:!changes", "5-1", "bucket", "b", "full_at", "0"]);
    assert_eq!(
        redis.inspector.poll(&mut heard).await.unwrap(),
        [notice("b", 0)]
    );
    assert_eq!(redis.inspector.poll(&mut heard).await.unwrap(), []);
}
