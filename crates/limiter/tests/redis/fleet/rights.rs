//! The user in Redis: the rights that the documentation names are enough, and a lack of them is
//! told of.

use std::sync::Arc;
use std::time::Duration;

use tollgate_limiter::algorithm::calendar::Period;
use tollgate_limiter::algorithm::concurrency::PermitRequest;
use tollgate_limiter::algorithm::quota::Quota;
use tollgate_limiter::algorithm::window::Window;
use tollgate_limiter::limit::key::Key;
use tollgate_limiter::store::adjustment::{
    Adjustment, AdjustmentBatch, AdjustmentOutcome, BatchId, Change,
};
use tollgate_limiter::store::hash_reader::HashReader;
use tollgate_limiter::store::inspect::{ChangeNotice, Inspect, TokenGrant};
use tollgate_limiter::store::redis::RedisStore;
use tollgate_limiter::store::redis::inspect::{ChangePosition, RedisInspector};
use tollgate_limiter::store::redis::spec::RedisSpec;
use tollgate_limiter::store::{PermitClaim, Store, StoreError};
use tollgate_testing::node::{LimiterNode, connected};
use tollgate_testing::redis::{RedisServer, documented_rights};
use tollgate_testing::topology::CapturedLog;
use tollgate_testing::{HOUR, charge, decide, eventually, shape};

use super::{OtherNode, node_among, some_beats};

/// The store of the user `gate`, in a database of its own.
fn spec(server: &RedisServer) -> RedisSpec {
    RedisSpec {
        autonomy: Duration::from_secs(3_600),
        url: format!("redis://gate:hunter2@127.0.0.1:{}/3", server.port()).into(),
        ..server.spec()
    }
}

fn quotas() -> [Quota; 4] {
    let bucket = Quota::from(shape(100, HOUR, 100));
    [
        bucket,
        bucket.leased(1),
        Window::sliding(100, HOUR).unwrap().into(),
        Window::fixed(100, Period::every(HOUR)).unwrap().into(),
    ]
}

/// Takes, charges and refunds tokens, claims permits and reads a plan.
async fn use_all(store: &RedisStore) {
    for (place, quota) in (1..).zip(quotas()) {
        let tokens = charge(&format!("k{place}"), quota, 1);
        let at_us = store
            .take(std::slice::from_ref(&tokens), 2)
            .await
            .unwrap()
            .at_us;
        let change = |change| Adjustment {
            key: tokens.key.clone(),
            quota,
            change,
        };
        let debt = Change::Charge {
            charge: quota.charge(1),
            since_us: 0,
        };
        let refund = Change::Refund {
            charge: quota.charge(1),
            taken_at_us: at_us,
        };
        let id = BatchId {
            node: 7,
            number: place,
        };
        let batches = [
            AdjustmentBatch::new(id, vec![change(debt)]),
            AdjustmentBatch::once(vec![change(refund)]),
        ];
        for batch in batches {
            let results = store.adjust(&batch).await;
            assert_eq!(results, [Ok(AdjustmentOutcome::Applied)]);
        }
    }
    for (turn, wanted) in [(1, 1), (2, 0)] {
        let claim = PermitRequest {
            wanted,
            demand: wanted,
            turn,
            ..PermitRequest::default()
        };
        let claim = PermitClaim {
            key: Key::from("permits"),
            most: 5,
            node: 7,
            claim,
        };
        store.claim(&[claim]).await.unwrap();
    }
    let plan = store.read("plans", &[Key::from("acme")]).await;
    assert_eq!(plan, Ok(vec![None]));
}

/// Looks at buckets, permits and nodes, grants tokens, and publishes and reads changes.
async fn operate(inspector: &RedisInspector) {
    for (place, quota) in (1..).zip(quotas()) {
        let tokens = charge(&format!("k{place}"), quota, 1);
        inspector.peek(&tokens).await.unwrap();
        for grant in [TokenGrant::Tokens(1), TokenGrant::All] {
            inspector.grant(&tokens, grant).await.unwrap();
        }
    }
    inspector
        .permits_in_use(&Key::from("permits"))
        .await
        .unwrap();
    let notice = ChangeNotice {
        key: Key::from("k1"),
        full_in_us: 0,
    };
    inspector.publish(&notice).await.unwrap();
    let changes = inspector.poll(&mut ChangePosition::default()).await;
    assert_eq!(changes, Ok(vec![notice]));
    assert!(!inspector.nodes().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_user_with_the_documented_rights_lacks_none() {
    let server = RedisServer::start();
    server.add_user(&[&["-@all"][..], &documented_rights()].concat());
    let spec = spec(&server);
    let other = OtherNode::start(&spec).await;
    let node = node_among(2, &spec).await;
    use_all(&connected(&spec).await).await;
    let inspector = RedisInspector::connect(&spec).unwrap();
    eventually("the inspector connects", || async {
        inspector.nodes().await.is_ok()
    })
    .await;
    operate(&inspector).await;
    some_beats(&server).await;
    other.end();
    eventually("the node that ended is gone", || async {
        node.share.get().nodes() == 1
    })
    .await;
    assert_eq!(node.share.heartbeat_error(), None);
    assert_eq!(server.command(&["ACL", "LOG"]), "*0", "nothing was refused");
}

#[tokio::test]
async fn a_right_that_is_taken_away_is_an_outage_until_it_is_given_back() {
    let server = RedisServer::start();
    server.add_user(&[&["-@all"][..], &documented_rights()].concat());
    let spec = spec(&server);
    let node = LimiterNode::started(&spec).await;
    server.command(&["ACL", "SETUSER", "gate", "resetkeys"]);
    node.notices_the_outage().await;
    server.command(&["ACL", "SETUSER", "gate", "~t:*"]);
    node.recovers().await;
}

#[tokio::test]
async fn heartbeats_that_fail_are_warned_of_once_until_they_work_again() {
    let server = RedisServer::start();
    server.add_user(&["+@all", "-zadd"]);
    let (log, _guard) = CapturedLog::start();
    let node = Arc::new(LimiterNode::started(&spec(&server)).await);
    let has_failed = async || matches!(node.share.heartbeat_error(), Some(StoreError::Script(_)));
    eventually("it is known", has_failed).await;
    let beats = server.script_calls();
    eventually("further ones fail", || async {
        server.script_calls() > beats + 4
    })
    .await;
    let request = [charge("k", shape(5, HOUR, 5), 1)];
    assert!(decide(&node.limiter, &request).await.granted);
    let text = log.text();
    let warnings = text
        .lines()
        .filter(|line| line.contains("WARN") && line.contains("does not hear of this node"));
    assert_eq!(warnings.count(), 1, "{text}");
    server.command(&["ACL", "SETUSER", "gate", "+zadd"]);
    eventually("they work again", || async {
        node.share.heartbeat_error().is_none()
    })
    .await;
    assert_eq!(node.share.get().rank(), Some(0));
    assert!(log.text().contains("the fleet hears of this node again"));
}
