//! The page `/metrics`: the names and forms that Prometheus asks for, each with its help, of a
//! gateway that has done all kinds of things.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::process::{Gateway, eventually, status};
use tollgate_testing::redis::RedisServer;

/// Answers with what it cost.
const PRICED: &str = "
workers: 1
listeners: [{address: '127.0.0.1:0'}]
admin: off
routes: [{name: priced, match: {path: '/*'}, respond: {status: 200, headers: {x-used: '3'}, body: ok}}]
";

fn routes(redis: &str, priced: &str) -> String {
    format!(
        "workers: 1
access_log: json
listeners: [{{address: '127.0.0.1:0', limits: [everyone]}}]
admin: {{address: '127.0.0.1:0'}}
store: {{redis: '{redis}', timeout: 1s}}
limits:
  everyone: {{key: client_ip, rate: 1000/s, exempt: {{headers: {{x-free: {{present: true}}}}}}}}
  few: {{key: {{constant: all}}, rate: 1/h}}
  lined: {{key: {{constant: all}}, rate: 20/s, burst: 1, on_limit: {{queue: {{max_wait: 1s}}}}}}
  open: {{key: {{constant: all}}, algorithm: concurrency, max_in_flight: 5}}
  paid: {{key: {{constant: all}}, rate: 1000/h, cost: {{response_header: x-used, reserve: 5}}}}
  planned: {{key: {{header: x-tenant}}, rate: 5/h, plans: {{redis: {{hash: plans}}}}}}
  named: {{key: {{header: x-tenant}}, rate: 5/h, on_missing: refuse}}
upstreams:
  priced: {{endpoints: ['http://{priced}']}}
  nobody: {{endpoints: ['http://127.0.0.1:9']}}
routes:
  - {{name: few, match: {{path: /few}}, respond: {{status: 200}}, limits: [few]}}
  - {{name: lined, match: {{path: /lined}}, respond: {{status: 200}}, limits: [lined, open]}}
  - {{name: paid, match: {{path: /paid}}, upstream: priced, limits: [paid]}}
  - {{name: planned, match: {{path: /planned}}, respond: {{status: 200}}, limits: [planned]}}
  - {{name: named, match: {{path: /named}}, respond: {{status: 200}}, limits: [named]}}
  - {{name: broken, match: {{path: /broken}}, upstream: nobody}}
"
    )
}

/// A gateway on its own buckets, which needs nothing.
const ALONE: &str = "
workers: 1
listeners: [{address: '127.0.0.1:0'}]
admin: {address: '127.0.0.1:0'}
routes: [{name: all, echo: true}]
";

#[test]
fn the_metrics_of_a_busy_gateway_are_as_prometheus_wants_them() {
    let mut redis = RedisServer::start();
    let upstream = Gateway::start(PRICED);
    let text = routes(&redis.url(), &upstream.listeners[0].to_string());
    let gateway = Gateway::start(&text);
    redis.command(&["HSET", "tollgate:plans", "gold", "100/s", "odd", "nonsense"]);
    let ask = |more: &[&str], path: &str| status(&[more, &[&gateway.url(path)]].concat());
    assert_eq!(
        (
            ask(&[], "/few"),
            ask(&[], "/few"),
            ask(&["-H", "x-free: 1"], "/nothing")
        ),
        (200, 429, 404)
    );
    assert_eq!(
        (
            ask(&[], "/lined"),
            ask(&[], "/lined"),
            ask(&[], "/paid"),
            ask(&[], "/broken")
        ),
        (200, 200, 200, 502)
    );
    for tenant in ["x-tenant: gold", "x-tenant: odd", "x-tenant: none"] {
        assert_eq!(
            (
                ask(&["-H", tenant], "/planned"),
                ask(&["-H", tenant], "/named")
            ),
            (200, 200)
        );
    }
    assert_eq!(
        (
            ask(&[], "/named"),
            ask(&["--http2-prior-knowledge"], "/few")
        ),
        (400, 429)
    );
    let bucket = format!("http://{}/buckets/few?key=few:all", gateway.admin);
    assert_eq!(
        status(&["-X", "DELETE", "-H", "x-tollgate-operator: ada", &bucket]),
        200
    );
    gateway.rewrite(&text.replace("limits: [few]", "limits: [fewer]"));
    gateway.signal("HUP");
    let rejected = || gateway.metric("tollgate_config_reloads_total{outcome=\"rejected\"}");
    eventually("the file is refused", || (rejected() == 1.0).then_some(()));
    let settled =
        || gateway.metric("tollgate_ratelimit_settlements_total{limit=\"paid\",outcome=\"less\"}");
    eventually("the cost is settled", || (settled() == 1.0).then_some(()));
    redis.kill9();
    eventually("the store is away", || {
        ask(&[], "/few");
        (gateway.metric("tollgate_store_up") == 0.0).then_some(())
    });

    let page = gateway.metrics();
    let (_, page) = page.split_once("\r\n\r\n").unwrap();
    assert_linted(page);
    let names = |mark: &str| -> BTreeSet<&str> {
        let lines = page.lines().filter_map(|line| line.strip_prefix(mark));
        lines.filter_map(|line| line.split(' ').next()).collect()
    };
    let (helped, typed) = (names("# HELP "), names("# TYPE "));
    assert_eq!(
        typed.difference(&helped).collect::<Vec<_>>(),
        Vec::<&&str>::new(),
        "without help"
    );
    for name in [
        "tollgate_ratelimit_settlements_total",
        "tollgate_store_debts_waived_total",
        "tollgate_ratelimit_queue_wait_seconds",
        "tollgate_admin_changes_total",
        "tollgate_upstream_connects_total",
    ] {
        assert!(
            typed.contains(name),
            "the gateway did not come by {name}:\n{page}"
        );
    }
}

/// `promtool check metrics` finds nothing.
fn assert_linted(page: &str) {
    let mut command = Command::new("promtool");
    command
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .expect("promtool is there: `make test` installs it");
    child
        .stdin
        .take()
        .unwrap()
        .write_all(page.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.trim().is_empty(),
        "{said}\n{page}"
    );
}

#[test]
fn reloads_are_counted_from_nothing_and_the_last_one_is_told() {
    let before = std::time::SystemTime::UNIX_EPOCH
        .elapsed()
        .unwrap()
        .as_secs_f64();
    let gateway = Gateway::start(ALONE);
    let page = gateway.metrics();
    for outcome in ["applied", "rejected"] {
        let series = format!("tollgate_config_reloads_total{{outcome=\"{outcome}\"}} 0");
        assert!(page.lines().any(|line| line == series), "{page}");
    }
    let successful = || gateway.metric("tollgate_config_last_reload_successful");
    let time = || gateway.metric("tollgate_config_last_reload_success_timestamp_seconds");
    let (started, at) = (successful(), time());
    assert!(
        started == 1.0 && at >= before.floor() && at < before + 60.0,
        "{started} at {at}"
    );
    gateway.rewrite("nonsense");
    gateway.signal("HUP");
    eventually("the file is refused", || {
        (successful() == 0.0).then_some(())
    });
    assert_eq!(time(), at, "nothing was taken over");
    gateway.rewrite(ALONE);
    gateway.signal("HUP");
    eventually("the file is taken over", || {
        (successful() == 1.0).then_some(())
    });
    assert!(time() > at);
}

#[test]
fn the_process_says_what_it_takes_of_the_machine() {
    let gateway = Gateway::start(ALONE);
    let memory = gateway.metric("process_resident_memory_bytes");
    assert!(memory > 1e6 && memory < 1e9, "{memory}");
    assert!(gateway.metric("process_virtual_memory_bytes") > memory);
    assert!(gateway.metric("process_open_fds") > 3.0);
    assert!(gateway.metric("process_max_fds") >= gateway.metric("process_open_fds"));
    assert!(
        gateway.metric("process_threads") >= 2.0,
        "a worker and the control plane"
    );
    assert!(gateway.metric("process_start_time_seconds") > 1.6e9);
    assert!(
        gateway
            .metrics()
            .contains("# TYPE process_cpu_seconds_total counter")
    );
}
