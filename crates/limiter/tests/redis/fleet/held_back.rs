//! Shares that nodes which reach Redis hold back for silent ones, and what clients are told of them.

use std::sync::Arc;

use tollgate_limiter::algorithm::level::Level;
use tollgate_limiter::algorithm::quota::Quota;
use tollgate_limiter::algorithm::share::Share;
use tollgate_limiter::algorithm::window::Window;
use tollgate_limiter::clock;
use tollgate_limiter::store::fleet_share::{FleetShare, SilentNode};
use tollgate_limiter::store::redis::RedisStore;
use tollgate_limiter::store::{BucketCharge, Store};
use tollgate_testing::node::connected;
use tollgate_testing::redis::RedisServer;
use tollgate_testing::{HOUR, SECOND, charge, shape};

const DAY: u64 = 24 * HOUR;

/// The time after which a hold-back ends: not within a test.
const LEFT_US: u64 = HOUR;

struct Fixture {
    _server: RedisServer,
    store: RedisStore,
}

impl Fixture {
    /// The store of one of four nodes. Those with these ranks have been silent for a minute.
    async fn among_silent(ranks: &[u32]) -> Self {
        let server = RedisServer::start();
        let share = Arc::new(FleetShare::expecting(4));
        let store = connected(&server.spec()).await.in_fleet(share.clone());
        let now_us = clock::monotonic_micros();
        let silent = |rank: &u32| SilentNode {
            rank: *rank,
            heard_us: now_us,
            gone_us: now_us + LEFT_US,
        };
        share.set(Share::new(4, 3), ranks.iter().map(silent).collect());
        Self {
            _server: server,
            store,
        }
    }

    /// The units of a request that are granted, and the level after it.
    async fn take(&self, request: &BucketCharge, units: u32) -> (u32, Level) {
        let grant = self
            .store
            .take(std::slice::from_ref(request), units)
            .await
            .unwrap();
        (grant.units, grant.levels[0])
    }
}

fn windows(tokens: u64) -> [Quota; 2] {
    [
        shape(tokens, DAY, tokens).into(),
        Window::sliding(tokens, DAY).unwrap().into(),
    ]
}

#[tokio::test]
async fn clients_are_told_of_as_many_tokens_as_pass() {
    let fixture = Fixture::among_silent(&[0]).await;
    for (place, quota) in windows(36).into_iter().enumerate() {
        let request = charge(&format!("k{place}"), quota, 1);
        let (granted, level) = fixture.take(&request, 1).await;
        assert_eq!((granted, level.remaining), (1, 26), "{quota:?}");
        let (granted, level) = fixture.take(&request, 36).await;
        assert_eq!((granted, level.remaining), (26, 0), "{quota:?}");
    }
}

#[tokio::test]
async fn a_denial_for_lack_of_what_is_held_back_ends_with_it() {
    let fixture = Fixture::among_silent(&[0, 1, 2]).await;
    for tokens in [1, 3, 9] {
        for (place, quota) in windows(tokens).into_iter().enumerate() {
            for client in 0..8 {
                let request = charge(&format!("{tokens}-{place}-{client}"), quota, 1);
                let (granted, level) = fixture.take(&request, 9).await;
                assert!(granted < 9);
                assert_eq!(level.remaining, 0);
                let wait_us = level.retry_after_us;
                // A token of a bucket weighs more meanwhile, and as much afterwards.
                if u64::from(granted) < tokens && (granted == 0 || quota.tokens_expire()) {
                    assert!(0 < wait_us && wait_us <= LEFT_US, "{wait_us} of {quota:?}");
                } else if u64::from(granted) == tokens {
                    assert!(wait_us > 2 * LEFT_US, "{wait_us} of {quota:?}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_denial_for_lack_of_tokens_lasts_until_they_are_back() {
    let fixture = Fixture::among_silent(&[0]).await;
    let healthy = Fixture::among_silent(&[]).await;
    for (place, quota) in windows(12).into_iter().enumerate() {
        let request = charge(&format!("k{place}"), quota, 1);
        let direct =
            RedisStore::in_fleet(fixture.store.clone(), Arc::new(FleetShare::expecting(4)));
        direct
            .take(std::slice::from_ref(&request), 12)
            .await
            .unwrap();
        healthy.take(&request, 12).await;
        let (granted, level) = fixture.take(&request, 1).await;
        let (_, usual) = healthy.take(&request, 1).await;
        assert_eq!((granted, level.remaining), (0, 0));
        assert!(level.retry_after_us.abs_diff(usual.retry_after_us) < 60 * SECOND);
    }
}

#[tokio::test]
async fn a_limit_that_a_node_without_redis_does_not_admit_is_not_held_back() {
    let fixture = Fixture::among_silent(&[0, 1, 2]).await;
    for (place, quota) in windows(36).into_iter().enumerate() {
        let denied = BucketCharge {
            local_us: 0,
            ..charge(&format!("denied{place}"), quota, 1)
        };
        assert_eq!(fixture.take(&denied, 50).await.0, 36);
        let limited = BucketCharge {
            local_us: 1,
            ..charge(&format!("limited{place}"), quota, 1)
        };
        assert_eq!(fixture.take(&limited, 50).await.0, 36, "its time is over");
        let local = charge(&format!("local{place}"), quota, 1);
        assert_eq!(fixture.take(&local, 50).await.0, 9);
    }
}

#[tokio::test]
async fn what_is_held_back_does_not_count_as_used_in_an_outage() {
    let fixture = Fixture::among_silent(&[0, 1, 2]).await;
    for (place, quota) in windows(12).into_iter().enumerate() {
        let request = charge(&format!("k{place}"), quota, 1);
        let grant = fixture.store.take(&[request], 12).await.unwrap();
        assert_eq!(grant.units, 3, "{quota:?}");
        let used = 12 - grant.whole[0].remaining;
        // A bucket is charged by weight.
        assert!(used == 3 || used == 12, "{used} of {quota:?}");
    }
}
