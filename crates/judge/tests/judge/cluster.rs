//! A cluster of which one master stops answering: its keys have an outage, the others none.

use std::time::Duration;

use tollgate_judge::{Backing, Scenario};
use tollgate_limiter::store::redis::spec::RedisSpec;
use tollgate_testing::topology::RedisCluster;

use crate::{plan, run, with_faults};

#[test]
fn a_master_that_stops_answering_costs_the_keys_of_the_others_nothing() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let cluster = runtime.block_on(RedisCluster::start());
    let spec = RedisSpec {
        expected_nodes: 2,
        timeout: Duration::from_millis(500),
        ..cluster.spec()
    };
    let backing = Backing::Redis(spec);
    let report = with_faults(|| run(&plan(2, 4_500), Scenario::ClusterNodeDown, &backing));
    let [by_redis, openings] = report.requirements.as_slice() else {
        panic!("{report:#?}")
    };
    assert!(
        by_redis.is_met() && openings.is_met() && openings.found > 0.0,
        "{report:#?}"
    );
}
