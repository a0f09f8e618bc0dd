//! Calls of gRPC through the gateway, by tonic's client and by curl.

use std::net::TcpListener;

use tokio::runtime::Runtime;
use tollgate_testing::raw_http2::{END_STREAM, FrameClient};
use tonic::transport::Endpoint;
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::process::{Gateway, curl, eventually};

const CHECK: &str = "/grpc.health.v1.Health/Check";

fn routes(rest: &str) -> String {
    format!(
        "workers: 1
listeners: [{{address: '127.0.0.1:0'}}]
admin: {{address: '127.0.0.1:0'}}
access_log: json
{rest}"
    )
}

/// Calls the health service through the gateway.
fn check(gateway: &Gateway) -> Result<(), Status> {
    let endpoint = Endpoint::from_shared(format!("http://{}", gateway.listeners[0])).unwrap();
    Runtime::new().unwrap().block_on(async {
        let mut client = HealthClient::new(endpoint.connect().await.unwrap());
        client.check(HealthCheckRequest::default()).await.map(drop)
    })
}

/// The header section that curl gets for a call with these fields.
fn head(gateway: &Gateway, fields: &[&str]) -> String {
    let url = gateway.url(CHECK);
    let mut args = vec![
        "--http2-prior-knowledge",
        "-D",
        "-",
        "--data-binary",
        "",
        "-H",
        "content-type: application/grpc",
    ];
    for field in fields {
        args.extend(["-H", field]);
    }
    args.push(&url);
    curl(&args)
}

/// The access log's line of the only call.
fn logged(gateway: &Gateway) -> serde_json::Value {
    let line = |text: &str| {
        serde_json::from_str(text)
            .ok()
            .filter(|line: &serde_json::Value| line["path"] == CHECK)
    };
    eventually("the call is logged", || {
        gateway.log().lines().find_map(line)
    })
}

#[test]
fn a_call_without_a_route_is_unimplemented() {
    let gateway = Gateway::start(&routes(
        "routes: [{name: a, match: {path: /a}, echo: true}]\n",
    ));
    let status = check(&gateway).unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::Unimplemented, "no route takes this host and path")
    );
    let line = logged(&gateway);
    assert_eq!(
        (&line["grpc_status"], &line["status"], &line["problem"]),
        (&12.into(), &200.into(), &"no-route".into())
    );
    assert_eq!(
        gateway.metric("tollgate_grpc_calls_total{route=\"none\",grpc_status=\"12\"}"),
        1.0
    );
}

#[tokio::test]
async fn a_call_that_breaks_a_rule_is_answered_as_a_call() {
    let gateway = Gateway::start(&routes("routes: [{name: a, echo: true}]\n"));
    let many: Vec<_> = (0..150).map(|number| format!("x-{number}")).collect();
    let many: Vec<_> = many.iter().map(|name| (name.as_str(), "1")).collect();
    let mut client = FrameClient::connect(gateway.listeners[0]).await;
    let pseudo = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", CHECK),
        (":authority", "a"),
    ];
    let calls: [(&[(&str, &str)], u8); 3] = [
        (&[("host", "b")], 13),
        (&[("grpc-timeout", " 1S")], 13),
        (&many, 8),
    ];
    for (stream, (fields, status)) in (1..).step_by(2).zip(calls) {
        let request = [&pseudo[..], &[("content-type", "application/grpc")], fields].concat();
        client.request(stream, END_STREAM, &request).await;
        let head = client.of_stream(stream).await;
        assert_eq!((head.status(), head.ends_stream()), (200, true), "{status}");
    }
    for (status, count) in [(13, 2.0), (8, 1.0)] {
        let metric =
            format!("tollgate_grpc_calls_total{{route=\"none\",grpc_status=\"{status}\"}}");
        eventually("the calls are counted", || {
            (gateway.metric(&metric) == count).then_some(())
        });
    }
}

#[test]
fn a_call_over_its_limit_is_told_when_to_come_back() {
    let gateway = Gateway::start(&routes(
        "limits: {l: {key: client_ip, rate: 1/h}}
routes: [{name: a, echo: true, limits: [l]}]\n",
    ));
    let _ = check(&gateway);
    let status = check(&gateway).unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(String::from_utf8_lossy(status.details()).contains("google.rpc.RetryInfo"));
    let pushback: u64 = status
        .metadata()
        .get("grpc-retry-pushback-ms")
        .unwrap()
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!((1_000..=3_600_000).contains(&pushback), "{pushback}");
    assert!(status.metadata().contains_key("ratelimit"));
}

#[test]
fn a_call_to_an_upstream_that_is_away_may_be_tried_again() {
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let gateway = Gateway::start(&routes(&format!(
        "upstreams: {{u: {{endpoints: ['http://{closed}']}}}}\nroutes: [{{name: a, upstream: u}}]\n"
    )));
    assert_eq!(check(&gateway).unwrap_err().code(), Code::Unavailable);
    // Other requests are answered as ever.
    let head = curl(&[
        "--http2-prior-knowledge",
        "-D",
        "-",
        "-d",
        "",
        &gateway.url(CHECK),
    ]);
    assert!(head.starts_with("HTTP/2 502"), "{head}");
}

#[test]
fn a_call_ends_at_its_own_deadline() {
    // It accepts connections, by its kernel, and answers nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let gateway = Gateway::start(&routes(&format!(
        "upstreams: {{u: {{endpoints: ['http://{}']}}}}\nroutes: [{{name: a, upstream: u}}]\n",
        silent.local_addr().unwrap()
    )));
    let head = head(&gateway, &["grpc-timeout: 200m", "te: trailers"]);
    assert!(
        head.starts_with("HTTP/2 200") && head.contains("grpc-status: 4\r\n"),
        "{head}"
    );
    assert_eq!(logged(&gateway)["problem"], "call-overdue");
    // The request that waited is gone from the upstream too.
    eventually("the upstream connection is closed", || {
        (gateway.metric("tollgate_upstream_connections{upstream=\"u\"}") == 0.0).then_some(())
    });
}
