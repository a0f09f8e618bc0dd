//! Running for long: reloads, signals, health, logs.

use std::fs;
use std::io::{BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::sync::mpsc::channel;
use std::thread;

use crate::process::{Gateway, curl, eventually, status};
use tollgate_testing::redis::{RedisServer, free_port};

fn answering(body: &str) -> String {
    format!(
        "workers: 1
listeners: [{{address: '127.0.0.1:0'}}]
admin: {{address: '127.0.0.1:0'}}
limits: {{few: {{key: {{constant: all}}, rate: 2/h, burst: 2}}}}
routes:
  - {{name: free, match: {{path: /free}}, respond: {{status: 200, body: {body}}}}}
  - {{name: limited, match: {{path: /limited}}, respond: {{status: 200, body: {body}}}, limits: [few]}}
"
    )
}

#[test]
fn a_changed_file_is_reloaded_and_buckets_survive_it() {
    let gateway = Gateway::start(&answering("before"));
    let ask = |path| status(&[&gateway.url(path)]);
    assert_eq!(
        (ask("/limited"), ask("/limited"), ask("/limited")),
        (200, 200, 429)
    );
    gateway.rewrite(&answering("after"));
    eventually("the file is taken over", || {
        (curl(&[&gateway.url("/free")]) == "after").then_some(())
    });
    assert_eq!(ask("/limited"), 429, "a reload refills nothing");
    let applied = || gateway.find_metric("tollgate_config_reloads_total{outcome=\"applied\"}");
    eventually("it is counted", || (applied() == Some(1.0)).then_some(()));
}

#[test]
fn sighup_reloads_the_file() {
    let gateway = Gateway::start(&answering("same"));
    let reloads = || gateway.find_metric("tollgate_config_reloads_total{outcome=\"applied\"}");
    // A look at the file finds no change: what reloads it is the signal.
    for count in [1.0, 2.0] {
        gateway.signal("HUP");
        eventually("the file is read again", || {
            (reloads() == Some(count)).then_some(())
        });
    }
    gateway.rewrite(&answering("after"));
    gateway.signal("HUP");
    eventually("the file is taken over", || {
        (curl(&[&gateway.url("/free")]) == "after").then_some(())
    });
}

#[test]
fn a_bad_file_changes_nothing_and_is_reported() {
    let gateway = Gateway::start(&answering("before"));
    let rejected = || gateway.find_metric("tollgate_config_reloads_total{outcome=\"rejected\"}");
    gateway.rewrite(&answering("after").replace("limits: [few]", "limits: [feww]"));
    gateway.signal("HUP");
    eventually("it is rejected", || (rejected() == Some(1.0)).then_some(()));
    let mistake = eventually("the mistake is logged", || {
        gateway
            .log()
            .lines()
            .find(|line| line.contains("did you mean"))
            .map(ToOwned::to_owned)
    });
    let mistake: serde_json::Value = serde_json::from_str(&mistake).unwrap();
    assert!(
        mistake["message"]
            .as_str()
            .unwrap()
            .contains("routes[1].limits[0]: "),
        "{mistake}"
    );
    assert_eq!(mistake["hint"], "did you mean \"few\"?");
    assert_eq!(curl(&[&gateway.url("/free")]), "before");
    gateway.rewrite(&answering("after").replace("workers: 1", "workers: 2"));
    gateway.signal("HUP");
    eventually("it is rejected", || {
        (gateway
            .log()
            .contains("workers can only be changed by a restart"))
        .then_some(())
    });
    assert_eq!(curl(&[&gateway.url("/free")]), "before");
    gateway.rewrite(&answering("mended"));
    gateway.signal("HUP");
    eventually("it is taken over", || {
        (curl(&[&gateway.url("/free")]) == "mended").then_some(())
    });
}

#[test]
fn a_file_that_vanishes_is_told_of_once_and_changes_nothing() {
    let gateway = Gateway::start(&answering("before"));
    let told = |what: &str| gateway.log().matches(what).count();
    gateway.remove_file();
    eventually("that is told", || {
        (told("the configuration file is gone") == 1).then_some(())
    });
    assert!(
        gateway
            .log()
            .lines()
            .any(|line| line.contains("is gone") && line.contains("\"WARN\""))
    );
    gateway.signal("HUP");
    eventually("a reload says why not", || {
        gateway.log().contains("No such file").then_some(())
    });
    assert_eq!(curl(&[&gateway.url("/free")]), "before");
    gateway.rewrite(&answering("after"));
    eventually("it is back", || {
        (told("the configuration file is back") == 1).then_some(())
    });
    eventually("it is taken over", || {
        (curl(&[&gateway.url("/free")]) == "after").then_some(())
    });
    assert_eq!(told("the configuration file is gone"), 1);
    gateway.rewrite("");
    eventually("an empty file is refused", || {
        (told("not reloaded") == 2).then_some(())
    });
    assert_eq!(curl(&[&gateway.url("/free")]), "after");
}

#[test]
fn files_that_are_included_are_followed_through_changes_and_the_swap_of_a_config_map() {
    // Kubernetes mounts it so: each file is a link through `..data`, a link that changes.
    let mount = tempfile::tempdir().unwrap();
    let version = |name: &str, file: &str, body: &str| {
        let folder = mount.path().join(name);
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join(file), included(body)).unwrap();
        let new = mount.path().join("..data_tmp");
        symlink(name, &new).unwrap();
        fs::rename(new, mount.path().join("..data")).unwrap();
    };
    version("..one", "a.yaml", "one");
    symlink("..data/a.yaml", mount.path().join("a.yaml")).unwrap();
    let gateway = Gateway::start(&format!(
        "include: '{}'\n{}",
        mount.path().display(),
        answering("same")
    ));
    let answers = |body: &str| (curl(&[&gateway.url("/included")]) == body).then_some(());
    assert!(answers("one").is_some());
    version("..two", "a.yaml", "two");
    eventually("the other version is taken over", || answers("two"));
    fs::write(mount.path().join("..two/a.yaml"), included("three")).unwrap();
    eventually("the changed file is taken over", || answers("three"));
    fs::write(mount.path().join("b.yaml"), "routes: [{name: b}]").unwrap();
    eventually("a bad file is refused", || {
        gateway
            .log()
            .contains("b.yaml:1:10: routes[0]: ")
            .then_some(())
    });
    assert!(answers("three").is_some());
    fs::write(
        mount.path().join("b.yaml"),
        "routes: [{name: b, match: {path: /b}, respond: {body: b}}]",
    )
    .unwrap();
    eventually("the mended file is taken over", || {
        (curl(&[&gateway.url("/b")]) == "b").then_some(())
    });
    fs::remove_file(mount.path().join("b.yaml")).unwrap();
    eventually("its route goes with it", || {
        (status(&[&gateway.url("/b")]) == 404).then_some(())
    });
    assert!(!gateway.log().contains("is gone"), "{}", gateway.log());
}

fn included(body: &str) -> String {
    format!("routes: [{{name: included, match: {{path: /included}}, respond: {{body: {body}}}}}]")
}

#[test]
fn the_store_is_told_of_once_when_it_is_reached_and_in_plain_words() {
    let port = free_port();
    let url = format!("redis://anyone:hunter2@127.0.0.1:{port}/3");
    let store = format!("store: {{redis: '{url}', timeout: 2s}}\n");
    let gateway = Gateway::start(&format!("{store}{}", answering("text")));
    eventually("it says what is wrong", || {
        gateway
            .log()
            .contains("it refuses the connection")
            .then_some(())
    });
    assert!(!gateway.log().contains("the store is reached"));
    let mut redis = RedisServer::start_at(port);
    redis.command(&["ACL", "SETUSER", "anyone", "on", ">hunter2", "~*", "+@all"]);
    eventually("it is reached", || {
        gateway.log().contains("the store is reached").then_some(())
    });
    eventually("it decides", || {
        (gateway.metric("tollgate_store_up") == 1.0).then_some(())
    });
    redis.kill9();
    eventually("it is lost", || {
        gateway
            .log()
            .contains("it closed the connection")
            .then_some(())
    });
    redis.restart();
    redis.command(&["ACL", "SETUSER", "anyone", "on", ">hunter2", "~*", "+@all"]);
    eventually("it is back", || {
        (gateway.log().matches("connected to Redis").count() == 2).then_some(())
    });
    let log = gateway.log();
    let reached: Vec<_> = log
        .lines()
        .filter(|line| line.contains("the store is reached"))
        .collect();
    assert_eq!(reached.len(), 1, "{log}");
    assert!(
        reached[0].contains("\"INFO\"") && reached[0].contains(&format!("127.0.0.1:{port}/3")),
        "{log}"
    );
    for jargon in ["fred", "Os {", "Broadcasting", "hunter2"] {
        assert!(!log.contains(jargon), "{jargon} in:\n{log}");
    }
}

/// An upstream that answers when it is told to.
fn slow_upstream() -> (
    std::net::SocketAddr,
    std::sync::mpsc::Receiver<()>,
    std::sync::mpsc::Sender<()>,
) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (asked, was_asked) = channel();
    let (answer, may_answer) = channel();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut head = [0; 4096];
        assert!(stream.read(&mut head).unwrap() > 0);
        asked.send(()).unwrap();
        may_answer.recv().unwrap();
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone")
            .unwrap();
    });
    (address, was_asked, answer)
}

fn forwarding(upstream: std::net::SocketAddr) -> String {
    format!(
        "workers: 2
drain_timeout: 15s
access_log: json
listeners: [{{address: '127.0.0.1:0'}}]
admin: {{address: '127.0.0.1:0'}}
upstreams: {{slow: {{endpoints: ['http://{upstream}']}}}}
routes: [{{name: slow, match: {{path: '/*'}}, upstream: slow}}]
"
    )
}

#[test]
fn sigterm_lets_requests_end_and_takes_no_new_ones() {
    let (upstream, was_asked, answer) = slow_upstream();
    let mut gateway = Gateway::start(&forwarding(upstream));
    assert_eq!(status(&[&format!("http://{}/readyz", gateway.admin)]), 200);
    let mut client = TcpStream::connect(gateway.listeners[0]).unwrap();
    client
        .write_all(b"GET /x?secret=1 HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    was_asked.recv().unwrap();
    gateway.signal("TERM");
    eventually("it is not ready any more", || {
        (status(&[&format!("http://{}/readyz", gateway.admin)]) == 503).then_some(())
    });
    assert_eq!(status(&[&format!("http://{}/livez", gateway.admin)]), 200);
    eventually("no new connection is taken", || {
        TcpStream::connect(gateway.listeners[0])
            .is_err()
            .then_some(())
    });
    assert!(!gateway.has_ended());
    answer.send(()).unwrap();
    let mut text = String::new();
    BufReader::new(client).read_to_string(&mut text).unwrap();
    assert!(
        text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("done"),
        "{text}"
    );
    assert!(gateway.wait().success());
    let line = eventually("the request is logged", || {
        gateway
            .log()
            .lines()
            .find(|line| line.contains("\"route\":\"slow\""))
            .map(ToOwned::to_owned)
    });
    let entry: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(
        (
            entry["status"].as_u64(),
            entry["bytes"].as_u64(),
            entry["path"].as_str()
        ),
        (Some(200), Some(4), Some("/x"))
    );
    assert!(!gateway.log().contains("secret"), "{}", gateway.log());
}

#[test]
fn the_access_log_has_the_outcome_of_each_request() {
    let gateway = Gateway::start(&answering("text").replace("workers: 1", "access_log: json"));
    let line = |what: &str| {
        let line = eventually("it is logged", || {
            gateway
                .log()
                .lines()
                .find(|line| line.contains(what))
                .map(ToOwned::to_owned)
        });
        serde_json::from_str::<serde_json::Value>(&line).unwrap()
    };
    assert_eq!(status(&["-I", &gateway.url("/free")]), 200);
    let head = line("\"method\":\"HEAD\"");
    assert_eq!(
        (head["complete"].as_bool(), head["bytes"].as_u64()),
        (Some(true), Some(0)),
        "{head}"
    );
    assert_eq!(status(&[&gateway.url("/nothing")]), 404);
    assert_eq!(line("\"status\":404")["problem"], "no-route");
    let mut client = TcpStream::connect(gateway.listeners[0]).unwrap();
    client
        .write_all(b"GET /secret HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n")
        .unwrap();
    let unread = line("\"status\":400");
    // Not the stand-in's: nobody said GET / to us.
    assert_eq!(
        (unread["method"].as_str(), unread["path"].as_str()),
        (Some("OTHER"), Some("")),
        "{unread}"
    );
}

#[test]
fn sigterm_during_the_start_stops_the_gateway_and_sighup_does_not() {
    // Nobody is there: the start waits for the store for a while.
    let routes = answering("late") + "store: {redis: 'redis://127.0.0.1:9'}\n";
    let mut gateway = Gateway::start_unready(&routes);
    eventually("it listens", || {
        gateway.log().contains("listening").then_some(())
    });
    gateway.signal("HUP");
    gateway.signal("TERM");
    assert!(gateway.wait().success(), "{}", gateway.log());
}

#[test]
fn a_second_sigterm_stops_at_once() {
    let (upstream, was_asked, _answer) = slow_upstream();
    let mut gateway = Gateway::start(&forwarding(upstream));
    let mut client = TcpStream::connect(gateway.listeners[0]).unwrap();
    client
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    was_asked.recv().unwrap();
    gateway.signal("TERM");
    eventually("it drains", || {
        gateway.log().contains("draining").then_some(())
    });
    gateway.signal("TERM");
    // A drain that goes on ends with success.
    assert!(!gateway.wait().success());
}
