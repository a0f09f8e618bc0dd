//! Which endpoint a request goes to, as clients see it: by weight, by key, by cookie, and to
//! backups.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::process::{Gateway, curl, eventually};

/// A server that answers with its name, or with 500 while it is ill.
struct NamedServer {
    address: SocketAddr,
    ill: Arc<AtomicBool>,
}

impl NamedServer {
    fn start(name: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let ill = Arc::new(AtomicBool::new(false));
        let state = Arc::clone(&ill);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, state) = (stream.unwrap(), Arc::clone(&state));
                thread::spawn(move || converse(stream, name, &state));
            }
        });
        Self { address, ill }
    }

    fn url(&self) -> String {
        format!("'http://{}'", self.address)
    }
}

fn converse(mut stream: TcpStream, name: &str, ill: &AtomicBool) {
    let mut buffer = [0; 4096];
    while matches!(stream.read(&mut buffer), Ok(read) if read > 0) {
        let status = if ill.load(Ordering::SeqCst) {
            "500 Ill"
        } else {
            "200 OK"
        };
        let answer = format!(
            "HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{name}",
            name.len()
        );
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

fn start(upstream: &str) -> Gateway {
    Gateway::start(&format!(
        "workers: 1
listeners: [{{address: '127.0.0.1:0'}}]
admin: {{address: '127.0.0.1:0'}}
upstreams: {{up: {{{upstream}}}}}
routes: [{{name: all, upstream: up}}]
"
    ))
}

/// How many of `count` requests each server answers.
fn spread(gateway: &Gateway, count: usize) -> BTreeMap<String, usize> {
    let urls = vec![gateway.url("/"); count];
    let mut args = vec!["-w", "\n"];
    args.extend(urls.iter().map(String::as_str));
    let mut counts = BTreeMap::new();
    for name in curl(&args).split_whitespace() {
        *counts.entry(name.to_owned()).or_default() += 1;
    }
    counts
}

fn counts<const N: usize>(expected: [(&str, usize); N]) -> BTreeMap<String, usize> {
    expected
        .into_iter()
        .map(|(name, count)| (name.to_owned(), count))
        .collect()
}

#[test]
fn endpoints_get_requests_by_their_weight() {
    let [one, two] = ["one", "two"].map(NamedServer::start);
    let gateway = start(&format!(
        "endpoints: [{{url: {}, weight: 3}}, {}]",
        one.url(),
        two.url()
    ));
    assert_eq!(spread(&gateway, 40), counts([("one", 30), ("two", 10)]));
}

#[test]
fn backups_get_requests_only_while_no_other_endpoint_is_in_service() {
    let [one, two, spare] = ["one", "two", "spare"].map(NamedServer::start);
    let endpoints = format!(
        "[{}, {}, {{url: {}, backup: true}}]",
        one.url(),
        two.url(),
        spare.url()
    );
    let gateway = start(&format!(
        "endpoints: {endpoints}, health: {{path: /, interval: 100ms}}"
    ));
    assert_eq!(spread(&gateway, 20), counts([("one", 10), ("two", 10)]));
    one.ill.store(true, Ordering::SeqCst);
    eventually("the other has all", || {
        (spread(&gateway, 20) == counts([("two", 20)])).then_some(())
    });
    two.ill.store(true, Ordering::SeqCst);
    eventually("the backup has all", || {
        (spread(&gateway, 20) == counts([("spare", 20)])).then_some(())
    });
    one.ill.store(false, Ordering::SeqCst);
    eventually("the first is back", || {
        (spread(&gateway, 20) == counts([("one", 20)])).then_some(())
    });
}

#[test]
fn a_backup_answers_where_no_connection_can_be_opened_to_any_other() {
    let spare = NamedServer::start("spare");
    let gone = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let gateway = start(&format!(
        "endpoints: ['http://{gone}', {{url: {}, backup: true}}]",
        spare.url()
    ));
    assert_eq!(spread(&gateway, 5), counts([("spare", 5)]));
}

#[test]
fn requests_with_one_key_go_to_one_endpoint_and_its_keys_alone_move_when_it_drops_out() {
    let servers = ["one", "two", "three"].map(NamedServer::start);
    let endpoints = servers.each_ref().map(NamedServer::url).join(", ");
    let eject = "eject: {after: 1, for: 1h, at_most: 50%}";
    let gateway = start(&format!(
        "endpoints: [{endpoints}], balance: {{hash: {{header: x-user}}}}, {eject}"
    ));
    let home = |user: usize| curl(&["-H", &format!("x-user: user-{user}"), &gateway.url("/")]);
    let before: Vec<_> = (0..30).map(home).collect();
    assert_eq!(before, (0..30).map(home).collect::<Vec<_>>());
    for name in ["one", "two", "three"] {
        assert!(before.iter().any(|home| home == name), "{before:?}");
    }
    servers[0].ill.store(true, Ordering::SeqCst);
    let user = before.iter().position(|home| home == "one").unwrap();
    // Its last request.
    home(user);
    for (user, before) in before.iter().enumerate() {
        let now = home(user);
        assert_eq!(now == *before, before != "one", "{user}: {before} → {now}");
    }
    // Requests without the key have their turns.
    assert_eq!(spread(&gateway, 20), counts([("three", 10), ("two", 10)]));
}

#[test]
fn a_cookie_keeps_a_client_at_its_endpoint_and_is_set_anew_when_that_drops_out() {
    let [one, two] = ["one", "two"].map(NamedServer::start);
    let cookie = "balance: {cookie: {name: stick, secret: 0123456789abcdef, ttl: 1h}}";
    let eject = "eject: {after: 1, for: 1h}";
    let gateway = start(&format!(
        "endpoints: [{}, {}], {cookie}, {eject}",
        one.url(),
        two.url()
    ));
    let ask = |cookie: &str| {
        let answer = curl(&[
            "-i",
            "-H",
            &format!("cookie: a=b; stick={cookie}"),
            &gateway.url("/"),
        ]);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let set = head
            .lines()
            .find_map(|line| line.strip_prefix("set-cookie: stick="));
        (
            set.map(|set| set.split_once(';').unwrap())
                .map(|(value, rest)| (value.to_owned(), rest.to_owned())),
            body.to_owned(),
        )
    };
    let (set, home) = ask("");
    let (value, attributes) = set.unwrap();
    assert_eq!(attributes, " Path=/; HttpOnly; SameSite=Lax; Max-Age=3600");
    for _ in 0..10 {
        assert_eq!(ask(&value), (None, home.clone()));
    }
    // A value that the gateway has not signed is as good as none.
    let guesses: Vec<_> = (0..4)
        .map(|number| ask(&format!("{number:032x}")))
        .collect();
    assert!(
        guesses.iter().all(|(set, _)| set.is_some())
            && guesses.iter().any(|(_, body)| *body != home),
        "{guesses:?}"
    );
    let server = if home == "one" { &one } else { &two };
    server.ill.store(true, Ordering::SeqCst);
    ask(&value);
    let (set, other) = ask(&value);
    assert_ne!(other, home);
    assert_ne!(set.unwrap().0, value);
}
