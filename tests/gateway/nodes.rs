//! The nodes of a fleet, as each of them knows the others.

use serde_json::Value as Json;
use tollgate_testing::redis::RedisServer;

use crate::process::{Gateway, curl, eventually};

const DEAD: &str = "http://127.0.0.1:1";

fn gateway(name: &str, redis: &str, upstreams: &str) -> Gateway {
    let limited = if redis.contains("tries:") {
        "  - {name: limited, match: {path: /limited}, limits: [tries], echo: true}"
    } else {
        ""
    };
    Gateway::start(&format!(
        "workers: 1
node_name: {name}
listeners: [{{address: '127.0.0.1:0'}}]
admin: {{address: '127.0.0.1:0'}}
{redis}
{upstreams}
routes:
  - {{name: all, match: {{path: '/*'}}, echo: true}}
{limited}"
    ))
}

fn list(gateway: &Gateway) -> Json {
    let text = curl(&["-s", &format!("http://{}/nodes", gateway.admin)]);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// The name and the rest of what each node says, with whether it is the one that answers.
fn reports(gateway: &Gateway) -> Vec<(String, bool, Json)> {
    let list = list(gateway);
    let nodes = list["nodes"].as_array().unwrap().iter();
    let name = |node: &Json| {
        node["report"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let mut reports: Vec<_> = nodes
        .map(|node| {
            (
                name(node),
                node["answering"] == true,
                node["report"].clone(),
            )
        })
        .collect();
    reports.sort_by(|one, other| one.0.cmp(&other.0));
    reports
}

fn names(gateway: &Gateway) -> Vec<String> {
    reports(gateway)
        .into_iter()
        .map(|(name, ..)| name)
        .collect()
}

#[test]
fn each_node_knows_what_the_others_say_of_themselves() {
    let mut redis = RedisServer::start();
    let store = format!("store: {{redis: '{}', timeout: 1s}}", redis.url());
    let sick = format!(
        "upstreams: {{sick: {{endpoints: ['{DEAD}'], health: {{tcp: true, interval: 100ms, unhealthy_after: 1}}}}}}"
    );
    let sick = format!("{sick}\nlimits: {{unused: {{key: client_ip, rate: 1/s}}}}");
    let one = gateway("one", &store, "");
    let mut two = gateway("two", &store, &sick);

    eventually("the first knows both", || {
        (names(&one) == ["one", "two"]).then_some(())
    });
    let trouble = eventually(
        "the first knows that an upstream of the second is sick",
        || {
            let [_, (_, _, report)] = reports(&one).try_into().ok()?;
            (report["endpoints_in_service"] == 0).then_some(report)
        },
    );
    assert_eq!(
        (&trouble["endpoints"], &trouble["troubled_upstreams"][0]),
        (&1.into(), &"sick".into())
    );
    assert_eq!(
        (&trouble["store_up"], &trouble["version"]),
        (&true.into(), &env!("CARGO_PKG_VERSION").into())
    );
    assert_eq!(
        reports(&two)
            .iter()
            .map(|(_, answering, _)| *answering)
            .collect::<Vec<_>>(),
        [false, true]
    );
    let page = curl(&["-s", &format!("http://{}/console/nodes", one.admin)]);
    assert!(
        page.contains("<code>two</code>") && page.contains("0 of 1") && page.contains("sick"),
        "{page}"
    );

    two.signal("TERM");
    two.wait();
    eventually("who leaves is gone at once", || {
        (names(&one) == ["one"]).then_some(())
    });
    redis.kill9();
    let alone = eventually("without the store there is nobody else to know", || {
        let list = list(&one);
        list["store_error"].is_string().then_some(list)
    });
    assert_eq!(
        (
            alone["nodes"].as_array().unwrap().len(),
            &alone["nodes"][0]["answering"]
        ),
        (1, &true.into())
    );
    let page = curl(&["-s", &format!("http://{}/console/nodes", one.admin)]);
    assert!(page.contains("Other nodes are not shown"), "{page}");
}

#[test]
fn a_node_without_a_store_is_called_like_its_machine_and_knows_itself() {
    let file = "listeners: [{address: '127.0.0.1:0'}]\nadmin: {address: '127.0.0.1:0'}\nroutes: [{name: all, match: {path: '/*'}, echo: true}]\n";
    let gateway = Gateway::start(file);
    let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let list = list(&gateway);
    assert_eq!(list["nodes"][0]["report"]["name"], machine.trim());
    assert!(
        list["nodes"][0]["rank"].is_null() && list["store_error"].is_null(),
        "{list}"
    );
    gateway.rewrite(&file.replace("echo: true", "ecko: true"));
    eventually("a refused file is told of", || {
        (self::list(&gateway)["nodes"][0]["report"]["file_refused"] == true).then_some(())
    });
}

#[test]
fn a_gateway_that_is_killed_is_gone_and_no_new_client_is_denied_for_it() {
    let redis = RedisServer::start();
    // Longer than a test may take.
    let store = format!(
        "store: {{redis: '{}', timeout: 1s, autonomy: 1h}}
limits: {{tries: {{key: {{header: x-client}}, rate: 1/h}}}}",
        redis.url()
    );
    let one = gateway("one", &store, "");
    let mut others = ["two", "three", "four"].map(|name| gateway(name, &store, ""));
    for gateway in others.iter().chain([&one]) {
        eventually("each hears of the others", || {
            (gateway.metric("tollgate_fleet_nodes") == 4.0).then_some(())
        });
    }
    // The first beat of a gateway may not have all that the others need to know.
    eventually("all have been heard of again", || {
        let members = redis.command(&["ZRANGE", "tollgate:!nodes", "0", "-1"]);
        let beats = redis.script_calls();
        (members == "*4" && beats > 40).then_some(())
    });
    others[0].signal("KILL");
    others[0].wait();
    eventually("the killed one is gone", || {
        (one.metric("tollgate_fleet_nodes") == 3.0).then_some(())
    });
    for client in 0..20 {
        let header = format!("x-client: {client}");
        let answer = curl(&["-s", "-i", "-H", &header, &one.url("/limited")]);
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
}

#[test]
fn a_gateway_whose_heartbeats_are_refused_shows_it() {
    let redis = RedisServer::start();
    redis.add_user(&["+@all", "-zadd"]);
    let address = format!("redis://gate:hunter2@127.0.0.1:{}", redis.port());
    let store = format!("store: {{redis: '{address}', timeout: 1s, key_prefix: 't:'}}");
    let gateway = gateway("mute", &store, "");
    let reason = eventually("it knows that nobody hears of it", || {
        let list = list(&gateway);
        let reason = list["nodes"][0]["report"]["heartbeat_error"].as_str()?;
        Some(reason.to_owned())
    });
    assert!(reason.contains("can't run this command"), "{reason}");
    assert_eq!(gateway.metric("tollgate_fleet_heartbeat_up"), 0.0);
    assert_eq!(gateway.metric("tollgate_store_up"), 1.0);
    for page in ["/nodes", ""] {
        let page = curl(&["-s", &format!("http://{}/console{page}", gateway.admin)]);
        assert!(
            page.contains("the other nodes do not hear of this one"),
            "{page}"
        );
    }
    redis.command(&["ACL", "SETUSER", "gate", "+zadd"]);
    eventually("it is heard of", || {
        (gateway.metric("tollgate_fleet_heartbeat_up") == 1.0).then_some(())
    });
}
