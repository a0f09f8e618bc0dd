use std::sync::mpsc;
use std::thread;

use super::*;
use crate::upstream::UpstreamSpec;
use crate::upstream::spec::health::Percentage;

const HOUR: Duration = Duration::from_secs(3600);

/// An upstream with so many endpoints that ejects at the first failure.
fn upstream(endpoints: usize) -> Upstream {
    Upstream::new(
        Arc::new(spec((0..endpoints).map(|n| format!("http://10.0.0.{n}")))),
        None,
    )
}

/// An upstream with these endpoints that ejects at the first failure.
pub fn spec(endpoints: impl Iterator<Item = String>) -> UpstreamSpec {
    let at_most = Percentage::new(50);
    let endpoints = endpoints.map(|url| url.parse().unwrap()).collect();
    UpstreamSpec {
        eject: Some(EjectSpec {
            after: 1,
            base: HOUR,
            longest: HOUR,
            at_most,
            latency: None,
        }),
        connect_timeout: HOUR,
        response_timeout: HOUR,
        idle_timeout: HOUR,
        keepalive_timeout: HOUR,
        tunnel_idle_timeout: HOUR,
        keepalive_connections: 1,
        ..UpstreamSpec::new("orders".into(), endpoints)
    }
}

#[test]
fn a_failure_that_ejects_nobody_waits_for_no_lock() {
    let upstream = upstream(2);
    let endpoints: Vec<_> = upstream.endpoints().iter().cloned().collect();
    upstream.record_failure(&endpoints[0], "it broke");
    assert!(endpoints[0].condition().ejection().is_out());
    let Rotations::Changing(changing) = &upstream.rotations else {
        panic!("nothing changes")
    };
    // An endpoint of these is out already, and another is not ours.
    let stranger = Arc::clone(&self::upstream(1).endpoints()[0]);
    for endpoint in [&endpoints[1], &endpoints[0], &stranger] {
        let changes = changing.lock();
        thread::scope(|scope| {
            let (done, is_done) = mpsc::channel();
            let upstream = &upstream;
            scope.spawn(move || {
                upstream.record_failure(endpoint, "it broke");
                done.send(()).unwrap();
            });
            let waits = is_done.recv_timeout(Duration::from_secs(10)).is_err();
            drop(changes);
            assert!(!waits, "{}", endpoint.url());
        });
    }
    assert!(!endpoints[1].condition().ejection().is_out());
}
