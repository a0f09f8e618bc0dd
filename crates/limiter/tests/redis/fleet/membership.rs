//! Members of the fleet: a node that crashed is gone at once, one that is cut off or suspended is
//! held to its own time, and a Redis that lost its data is told who was there.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tollgate_limiter::algorithm::concurrency::{ConcurrencyLimit, LEASE_US, Scope};
use tollgate_limiter::clock;
use tollgate_limiter::decide::check::{Checks, PermitCheck};
use tollgate_limiter::decide::decision::DecidedBy;
use tollgate_limiter::limit::definition::OnOutage;
use tollgate_limiter::limit::key::Key;
use tollgate_limiter::node::permits::PermitNeed;
use tollgate_limiter::store::redis::spec::RedisSpec;
use tollgate_testing::node::LimiterNode;
use tollgate_testing::redis::{RedisServer, spec_at};
use tollgate_testing::{HOUR, charge, decide, eventually, shape, until};

use super::{OtherNode, node_among, some_beats};
use crate::outage::SwallowingProxy;

/// Longer than a test may take.
const FOREVER: Duration = Duration::from_secs(3_600);

fn spec(server: &RedisServer) -> RedisSpec {
    RedisSpec {
        autonomy: FOREVER,
        ..server.spec()
    }
}

async fn falls_silent(node: &LimiterNode) {
    eventually("the other is silent", || async {
        node.share.silent_ranks().len() == 1
    })
    .await;
}

#[tokio::test]
async fn a_node_whose_process_ended_is_gone_and_nothing_is_held_back_for_it() {
    let server = RedisServer::start();
    let spec = spec(&server);
    let other = OtherNode::start(&spec).await;
    let node = node_among(2, &spec).await;
    some_beats(&server).await;
    other.end();
    eventually("it is gone", || async { node.share.get().nodes() == 1 }).await;
    for client in 0..20 {
        let request = [charge(&format!("k{client}"), shape(1, HOUR, 1), 1)];
        let decision = decide(&node.limiter, &request).await;
        assert!(decision.granted, "client {client} of {decision:?}");
    }
}

#[tokio::test]
async fn a_node_that_is_suspended_keeps_its_share() {
    let server = RedisServer::start();
    let spec = spec(&server);
    let other = OtherNode::start(&spec).await;
    let node = node_among(2, &spec).await;
    some_beats(&server).await;
    other.suspend();
    falls_silent(&node).await;
    some_beats(&server).await;
    assert_eq!(node.share.silent_ranks().len(), 1);
    other.end();
    eventually("its process ends later", || async {
        node.share.get().nodes() == 1
    })
    .await;
}

/// The connection by which the only node lets others see that its process ends, once it has one.
async fn announced_connection(server: &RedisServer) -> String {
    let mut member = String::new();
    until("the node announces a connection", || {
        let script = "return redis.call('ZRANGE', KEYS[1], 0, 0)[1]";
        member = server.command(&["EVAL", script, "1", "t:!nodes"]);
        member.contains('@')
    })
    .await;
    member.rsplit(':').next().unwrap().to_owned()
}

/// Packets are lost before a network fails. A node that closed its connection for that would look
/// like one that ended.
#[tokio::test]
async fn a_node_keeps_its_connection_though_answers_are_late() {
    let server = Arc::new(RedisServer::start());
    let _node = LimiterNode::started(&spec(&server)).await;
    let before = announced_connection(&server).await;
    let late = "local a = redis.call('TIME')
        repeat local b = redis.call('TIME')
        until (b[1] - a[1]) * 1000000 + b[2] - a[2] > 260000";
    let mut busy = JoinSet::new();
    for _ in 0..2 {
        let server = server.clone();
        busy.spawn_blocking(move || {
            for _ in 0..8 {
                server.command(&["EVAL", late, "0"]);
            }
        });
    }
    busy.join_all().await;
    some_beats(&server).await;
    assert_eq!(announced_connection(&server).await, before);
}

/// Another server, or the same one before it was restarted, has numbers of its own.
#[tokio::test]
async fn only_the_server_that_knew_a_connection_is_believed_that_it_has_ended() {
    let server = RedisServer::start();
    let node = LimiterNode::started(&spec(&server)).await;
    let info = server.command(&["INFO", "server"]);
    let mut lines = info.lines();
    let run = lines.find_map(|line| line.strip_prefix("run_id:")).unwrap();
    let script = "local now = redis.call('TIME')[1] * 1000
        return redis.call('ZADD', KEYS[1], now - 2000, ARGV[1], now - 2000, ARGV[2])";
    let here = format!("0:3600000:999999@{run}");
    let elsewhere = "1:3600000:999999@elsewhere";
    let added = server.command(&["EVAL", script, "1", "t:!nodes", &here, elsewhere]);
    assert_eq!(added, ":2");
    eventually("one has ended", || async {
        server.command(&["ZSCORE", "t:!nodes", &here]) == "$-1"
    })
    .await;
    some_beats(&server).await;
    assert_eq!(
        (node.share.get().nodes(), node.share.silent_ranks().len()),
        (2, 1)
    );
}

#[tokio::test]
async fn a_node_is_held_to_its_own_time_not_to_that_of_another() {
    let server = RedisServer::start();
    let other = OtherNode::start(&spec(&server)).await;
    let brief = RedisSpec {
        autonomy: Duration::from_secs(3),
        ..server.spec()
    };
    let node = node_among(2, &brief).await;
    other.suspend();
    falls_silent(&node).await;
    let since = clock::now();
    eventually("this node's own time is over", || async {
        since.elapsed() > 2 * brief.autonomy
    })
    .await;
    assert_eq!(node.share.get().nodes(), 2);
    assert_eq!(node.share.silent_ranks().len(), 1);
    other.end();
}

#[tokio::test]
async fn a_node_behind_a_proxy_that_ends_is_not_taken_for_dead() {
    let server = RedisServer::start();
    let proxy = SwallowingProxy::to(server.port()).await;
    let through_proxy = RedisSpec {
        url: spec_at(proxy.address.port()).url,
        ..spec(&server)
    };
    let _other = LimiterNode::started(&through_proxy).await;
    let node = node_among(2, &spec(&server)).await;
    some_beats(&server).await;
    // The end of its tasks closes the connections on both sides.
    drop(proxy);
    falls_silent(&node).await;
    some_beats(&server).await;
    assert_eq!(node.share.silent_ranks().len(), 1);
}

/// A request in flight of a limit of twenty.
fn in_flight() -> Checks {
    Checks {
        permits: vec![PermitCheck {
            need: PermitNeed {
                key: Key::from("in-flight"),
                limit: ConcurrencyLimit::new(20, Scope::Fleet),
                cost: 1,
            },
            largest_cost: 1,
            on_outage: OnOutage::Local,
        }],
        ..Checks::default()
    }
}

/// Whether Redis admits a request in flight, which then ends. A busy machine may make a node decide
/// alone.
async fn is_admitted(node: &LimiterNode) -> bool {
    let decision = node.limiter.decide(&in_flight()).wait().await;
    decision.granted && decision.decided_by != DecidedBy::Local
}

#[tokio::test]
async fn a_redis_that_lost_its_data_admits_no_requests_in_flight_twice() {
    let server = RedisServer::start();
    let spec = spec(&server);
    let busy = LimiterNode::started(&spec).await;
    let node = node_among(2, &spec).await;
    let since = clock::now();
    eventually("both have been heard of for a while", || async {
        since.elapsed() > Duration::from_micros(2 * LEASE_US)
    })
    .await;
    let mut held = Vec::new();
    for _ in 0..20 {
        held.push(busy.limiter.decide(&in_flight()).wait().await);
    }
    assert!(held.iter().all(|decision| decision.granted));
    assert!(!is_admitted(&node).await);
    assert_eq!(server.command(&["FLUSHALL"]), "+OK");
    let since = clock::now();
    eventually("all claims have been made again", || async {
        assert!(!is_admitted(&node).await, "after {:?}", since.elapsed());
        since.elapsed() > Duration::from_micros(2 * LEASE_US)
    })
    .await;
    drop(held);
    eventually("permits that come back are granted", || is_admitted(&node)).await;
}

#[tokio::test]
async fn a_redis_that_lost_its_data_is_told_of_a_node_that_is_cut_off() {
    let server = RedisServer::start();
    let spec = spec(&server);
    let other = OtherNode::start(&spec).await;
    let node = node_among(2, &spec).await;
    other.suspend();
    falls_silent(&node).await;
    assert_eq!(server.command(&["FLUSHALL"]), "+OK");
    eventually("both are there again", || async {
        server.command(&["ZCARD", "t:!nodes"]) == ":2"
    })
    .await;
    some_beats(&server).await;
    assert_eq!(node.share.get().nodes(), 2);
    assert_eq!(node.share.silent_ranks().len(), 1);
    other.end();
}
