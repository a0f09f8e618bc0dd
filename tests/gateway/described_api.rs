//! The admin port's description of itself, as programs read it, and the example client that calls
//! by it.

use std::process::{Command, Output};

use serde_json::Value;

use crate::process::{Gateway, curl, status};

const ROUTES: &str = "
workers: 1
listeners: [{address: '127.0.0.1:0'}]
admin: {address: '127.0.0.1:0'}
limits: {per-client: {key: client_ip, rate: 10/h}}
routes: [{name: all, match: {path: '/*'}, respond: {status: 200}, limits: [per-client]}]
";

fn client(gateway: &Gateway, args: &[&str]) -> Output {
    let mut command = Command::new("python3");
    command
        .args([
            "examples/admin_client.py",
            &format!("http://{}", gateway.admin),
        ])
        .args(args);
    command
        .env("TOLLGATE_OPERATOR", "ada")
        .env_remove("TOLLGATE_TOKEN")
        .output()
        .expect("python3 is installed")
}

fn answer(gateway: &Gateway, args: &[&str]) -> Value {
    let output = client(gateway, args);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_port_serves_its_description_and_every_path_in_it_leads_to_a_page() {
    let gateway = Gateway::start(ROUTES);
    let url = |path: &str| format!("http://{}{path}", gateway.admin);
    let document: Value = serde_json::from_str(&curl(&[&url("/openapi.json")])).unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    for path in document["paths"].as_object().unwrap().keys() {
        let wrong_method = status(&[
            "-X",
            "OPTIONS",
            "-H",
            "X-Tollgate-Operator: ada",
            &url(&path.replace("{limit}", "a")),
        ]);
        assert_eq!(wrong_method, 405, "{path} is no page: that would be 404");
    }
    assert!(
        curl(&[&url("/")]).contains("/openapi.json"),
        "the index links it"
    );
}

#[test]
fn the_example_client_calls_operations_by_their_names() {
    let gateway = Gateway::start(ROUTES);
    let listed = String::from_utf8(client(&gateway, &[]).stdout).unwrap();
    assert!(
        listed.contains("peekBucket") && listed.contains("/buckets/{limit}"),
        "{listed}"
    );
    assert_eq!(answer(&gateway, &["listLimits"])[0]["limit"], "per-client");
    assert_eq!(status(&[&gateway.url("/")]), 200);
    let bucket = ["limit=per-client", "client_ip=127.0.0.1"];
    assert_eq!(
        answer(&gateway, &[&["peekBucket"], &bucket[..]].concat())["remaining"],
        9
    );
    assert_eq!(
        answer(&gateway, &[&["resetBucket"], &bucket[..]].concat())["after"]["remaining"],
        10
    );
    assert_eq!(
        answer(&gateway, &[&["peekBucket"], &bucket[..]].concat())["remaining"],
        10
    );
    let refused = client(&gateway, &["peekBucket", "limit=per-clint"]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(
        !refused.status.success() && said.contains("did you mean \"per-client\"?"),
        "{said}"
    );
}
