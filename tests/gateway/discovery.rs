//! Endpoints that DNS and files name: how they come and go, as clients and operators see it.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tollgate_testing::dns::{DnsMood, DnsServer, Service};
use tollgate_testing::nginx::NginxServer;
use tollgate_testing::topology::CertificateAuthority;
use tollgate_testing::{pace, turns};

use crate::load::Load;
use crate::process::{Gateway, curl, eventually, status};

/// A server at a loopback address of its own, which answers with that. It holds answers back
/// halfway while it is told to.
struct Server {
    address: SocketAddr,
    state: Arc<ServerState>,
}

#[derive(Default)]
struct ServerState {
    stopped: AtomicBool,
    holds: AtomicBool,
    open: AtomicUsize,
    accepted: AtomicUsize,
    requests: AtomicUsize,
}

impl Server {
    /// On `port`, or on any if that is 0.
    fn start(port: u16) -> Self {
        // Every address of 127.0.0.0/8 is this machine's.
        static NEXT: AtomicU8 = AtomicU8::new(2);
        let listener = eventually("an address with this port is free", || {
            let ip = Ipv4Addr::new(127, 53, 0, NEXT.fetch_add(1, Ordering::SeqCst));
            TcpListener::bind((ip, port)).ok()
        });
        let (address, state) = (
            listener.local_addr().unwrap(),
            Arc::<ServerState>::default(),
        );
        let of_thread = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if of_thread.stopped.load(Ordering::SeqCst) {
                    return;
                }
                let (stream, state) = (stream.unwrap(), Arc::clone(&of_thread));
                state.open.fetch_add(1, Ordering::SeqCst);
                state.accepted.fetch_add(1, Ordering::SeqCst);
                thread::spawn(move || {
                    converse(stream, address, &state);
                    state.open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { address, state }
    }

    /// Takes no connection any more. Those that are open end.
    fn stop(&self) {
        self.state.stopped.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
    }

    fn ip(&self) -> IpAddr {
        self.address.ip()
    }

    fn open(&self) -> usize {
        self.state.open.load(Ordering::SeqCst)
    }

    fn requests(&self) -> usize {
        self.state.requests.load(Ordering::SeqCst)
    }

    /// Its name in answers.
    fn name(&self) -> String {
        self.ip().to_string()
    }
}

fn converse(mut stream: TcpStream, address: SocketAddr, state: &ServerState) {
    let mut buffer = [0; 4096];
    let name = address.ip().to_string();
    while matches!(stream.read(&mut buffer), Ok(read) if read > 0) {
        state.requests.fetch_add(1, Ordering::SeqCst);
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", name.len());
        let (first, rest) = name.split_at(3);
        if stream.write_all((head + first).as_bytes()).is_err() {
            return;
        }
        while state.holds.load(Ordering::SeqCst) {
            pace::pause(Duration::from_millis(5));
        }
        if stream.write_all(rest.as_bytes()).is_err() || state.stopped.load(Ordering::SeqCst) {
            return;
        }
    }
}

fn routes(upstream: &str) -> String {
    format!(
        "workers: 2
listeners: [{{address: '127.0.0.1:0'}}]
admin: {{address: '127.0.0.1:0'}}
upstreams: {{orders: {{{upstream}}}}}
routes: [{{name: all, upstream: orders}}]
"
    )
}

/// The endpoints of `orders.test`, asked for as often as may be.
fn by_dns(dns: &DnsServer, port: u16, more: &str) -> String {
    let resolver = dns.address;
    format!(
        "discover: {{dns: orders.test, port: {port}, resolvers: ['{resolver}'], min_ttl: 100ms{more}}}"
    )
}

fn page(gateway: &Gateway) -> serde_json::Value {
    serde_json::from_str(&curl(&[&format!("http://{}/upstreams", gateway.admin)])).unwrap()
}

/// The URLs of all endpoints.
fn urls(gateway: &Gateway) -> BTreeSet<String> {
    let page = page(gateway);
    let endpoints = page[0]["endpoints"].as_array().unwrap();
    endpoints
        .iter()
        .map(|endpoint| endpoint["url"].as_str().unwrap().to_owned())
        .collect()
}

fn are(gateway: &Gateway, servers: &[&Server]) {
    let expected = servers
        .iter()
        .map(|server| format!("http://{}", server.address))
        .collect();
    eventually("these are the endpoints", || {
        (urls(gateway) == expected).then_some(())
    });
}

fn lookups(gateway: &Gateway, outcome: &str) -> f64 {
    gateway.metric(&format!(
        "tollgate_discovery_lookups_total{{upstream=\"orders\",outcome=\"{outcome}\"}}"
    ))
}

/// Waits for another lookup with this outcome.
fn after_one(gateway: &Gateway, outcome: &str) {
    let before = lookups(gateway, outcome);
    eventually(outcome, || {
        (lookups(gateway, outcome) > before).then_some(())
    });
}

#[test]
fn names_that_nobody_answers_for_take_a_bounded_number_of_sockets_and_keep_no_other_waiting() {
    let (silent, dns, server) = (DnsServer::start(), DnsServer::start(), Server::start(0));
    silent.set_mood(DnsMood::Silent);
    dns.set_addresses("orders.test", 0, &[server.ip()]);
    let mut upstreams = by_dns(&dns, server.address.port(), "");
    for number in 0..100 {
        let other = by_dns(&silent, 1, "").replace("orders.test", &format!("silent{number}.test"));
        upstreams.push_str(&format!("}}, silent{number}: {{{other}"));
    }
    let gateway = Gateway::start(&routes(&upstreams));
    are(&gateway, &[&server]);
    let sockets = || {
        let links = std::fs::read_dir(format!("/proc/{}/fd", gateway.pid())).unwrap();
        let links = links.filter_map(|link| std::fs::read_link(link.ok()?.path()).ok());
        links
            .filter(|link| link.to_string_lossy().starts_with("socket:"))
            .count()
    };
    let before = lookups(&gateway, "answered");
    let mut most = 0;
    eventually("the other name is asked for again and again", || {
        most = most.max(sockets());
        (silent.questions() > 400 && lookups(&gateway, "answered") > before + 5.0).then_some(())
    });
    // Each of 64 questions has a socket or two. Without a bound these names have 400.
    assert!(most < 200, "{most}");
}

#[test]
fn every_endpoint_is_replaced_by_dns_twice_under_load_without_a_failed_request() {
    let _turn = turns::among_few();
    let mut servers = vec![Server::start(0)];
    let port = servers[0].address.port();
    servers.extend([(), ()].map(|()| Server::start(port)));
    let dns = DnsServer::start();
    let tell = |servers: &[Server]| {
        dns.set_addresses(
            "orders.test",
            0,
            &servers.iter().map(Server::ip).collect::<Vec<_>>(),
        );
    };
    tell(&servers);
    let gateway = Gateway::start(&routes(&by_dns(&dns, port, "")));
    let load = Load::start(&[gateway.listeners[0]], 8, Duration::from_millis(1));
    let mut retired = Vec::new();
    for place in [0, 1, 2, 0, 1, 2] {
        let new = Server::start(port);
        let old = std::mem::replace(&mut servers[place], new);
        tell(&servers);
        are(&gateway, &servers.iter().collect::<Vec<_>>());
        // Its requests have ended, and the gateway has let go of the idle connections by itself.
        eventually("nobody is connected to the old one", || {
            (old.open() == 0).then_some(())
        });
        let (accepted, requests) = (old.state.accepted.load(Ordering::SeqCst), old.requests());
        eventually("the new one has its share", || {
            (servers[place].requests() > 20).then_some(())
        });
        assert_eq!(
            (old.state.accepted.load(Ordering::SeqCst), old.requests()),
            (accepted, requests)
        );
        old.stop();
        retired.push(old);
    }
    let samples = load.stop();
    let failed = samples.iter().filter(|sample| sample.status != 200).count();
    assert_eq!(failed, 0, "of {}", samples.len());
    for outcome in ["connect_failed", "upstream_closed", "no_endpoint"] {
        let series = format!(
            "tollgate_upstream_requests_total{{upstream=\"orders\",outcome=\"{outcome}\"}}"
        );
        assert_eq!(
            gateway.find_metric(&series).unwrap_or(0.0),
            0.0,
            "{outcome}"
        );
    }
    assert!(retired.iter().all(|old| old.requests() > 0));
}

#[test]
fn an_endpoint_that_leaves_ends_its_requests_and_its_probes_and_metrics_stop() {
    let old = Server::start(0);
    let new = Server::start(old.address.port());
    let dns = DnsServer::start();
    dns.set_addresses("orders.test", 0, &[old.ip()]);
    let more = ", health: {path: /, interval: 100ms}, keepalive_timeout: 1h, slow_start: 1h";
    let gateway = Gateway::start(&routes(&(by_dns(&dns, old.address.port(), "") + more)));
    old.state.holds.store(true, Ordering::SeqCst);
    let url = gateway.url("/");
    let held = thread::spawn(move || curl(&[&url]));
    let in_flight = || {
        page(&gateway)[0]["endpoints"][0]["in_flight"]
            .as_u64()
            .filter(|count| *count > 0)
    };
    eventually("a request is under way", in_flight);
    dns.set_addresses("orders.test", 0, &[new.ip()]);
    are(&gateway, &[&new]);
    assert_eq!(curl(&[&gateway.url("/")]), new.name());
    old.state.holds.store(false, Ordering::SeqCst);
    assert_eq!(held.join().unwrap(), old.name());
    eventually("nobody is connected to it", || {
        (old.open() == 0).then_some(())
    });
    let asked = old.requests();
    let passed = |server: &Server| {
        let endpoint = format!("upstream=\"orders\",endpoint=\"http://{}\"", server.address);
        gateway.find_metric(&format!(
            "tollgate_upstream_endpoint_probes_total{{{endpoint},outcome=\"passed\"}}"
        ))
    };
    let before = passed(&new).unwrap_or(0.0);
    eventually("the new one is probed", || {
        passed(&new).filter(|passed| *passed > before + 3.0)
    });
    assert_eq!((old.requests(), passed(&old)), (asked, None));
}

#[test]
fn an_answer_is_used_for_as_long_as_it_says() {
    let (server, dns) = (Server::start(0), DnsServer::start());
    dns.set_addresses("orders.test", 0, &[server.ip()]);
    dns.set_addresses("lasting.test", 3600, &[server.ip()]);
    let brief = by_dns(&dns, server.address.port(), "");
    let lasting = brief.replace("orders.test", "lasting.test");
    let gateway = Gateway::start(&routes(&format!("{brief}}}, lasting: {{{lasting}")));
    (0..5).for_each(|_| after_one(&gateway, "answered"));
    let lookups = "tollgate_discovery_lookups_total{upstream=\"lasting\",outcome=\"answered\"}";
    assert_eq!(gateway.metric(lookups), 1.0);
}

#[test]
fn an_endpoint_that_stays_keeps_the_count_of_its_requests() {
    let stays = Server::start(0);
    let new = Server::start(stays.address.port());
    let dns = DnsServer::start();
    dns.set_addresses("orders.test", 0, &[stays.ip()]);
    let gateway = Gateway::start(&routes(&by_dns(&dns, stays.address.port(), "")));
    stays.state.holds.store(true, Ordering::SeqCst);
    let url = gateway.url("/");
    let held = thread::spawn(move || curl(&[&url]));
    let in_flight = || {
        let page = page(&gateway);
        let of = page[0]["endpoints"]
            .as_array()
            .unwrap()
            .iter()
            .find(|of| of["url"] == format!("http://{}", stays.address));
        of.unwrap()["in_flight"].as_u64().unwrap()
    };
    eventually("a request is under way", || {
        (in_flight() == 1).then_some(())
    });
    dns.set_addresses("orders.test", 0, &[stays.ip(), new.ip()]);
    are(&gateway, &[&stays, &new]);
    assert_eq!(in_flight(), 1);
    stays.state.holds.store(false, Ordering::SeqCst);
    assert_eq!(held.join().unwrap(), stays.name());
    eventually("it has ended", || (in_flight() == 0).then_some(()));
}

#[test]
fn the_last_list_holds_while_lookups_fail_and_goes_when_dns_says_that_there_is_none() {
    let server = Server::start(0);
    let dns = DnsServer::start();
    dns.set_addresses("orders.test", 0, &[server.ip()]);
    let gateway = Gateway::start(&routes(&by_dns(&dns, server.address.port(), "")));
    assert_eq!(curl(&[&gateway.url("/")]), server.name());
    dns.set_mood(DnsMood::ServFail);
    after_one(&gateway, "failed");
    after_one(&gateway, "failed");
    assert_eq!(curl(&[&gateway.url("/")]), server.name());
    dns.set_mood(DnsMood::Unclear);
    after_one(&gateway, "failed");
    after_one(&gateway, "failed");
    assert_eq!(curl(&[&gateway.url("/")]), server.name());
    let discovery = page(&gateway)[0]["discovery"].clone();
    assert_eq!(discovery["state"], "failing");
    assert_eq!(
        discovery["source"],
        format!("dns orders.test:{}", server.address.port())
    );
    assert!(
        discovery["confirmed_at"].as_f64().unwrap() > 1.7e9 && discovery["error"].is_string(),
        "{discovery}"
    );
    dns.set_mood(DnsMood::NxDomain);
    eventually("the list is empty", || {
        urls(&gateway).is_empty().then_some(())
    });
    let answer = curl(&["-i", &gateway.url("/")]);
    assert!(
        answer.starts_with("HTTP/1.1 503 ") && answer.contains("no-endpoint"),
        "{answer}"
    );
    after_one(&gateway, "empty");
    dns.set_mood(DnsMood::Answers);
    are(&gateway, &[&server]);
    assert_eq!(curl(&[&gateway.url("/")]), server.name());
    for line in [
        "endpoints cannot be looked up",
        "DNS says that there is no endpoint",
        "endpoints are found again",
    ] {
        let lines = || gateway.log().matches(line).count();
        eventually(line, || (lines() > 0).then_some(()));
        assert_eq!(lines(), 1, "{line}: once per turn, not per lookup");
    }
}

#[test]
fn a_name_that_flaps_has_few_lines_in_the_log() {
    let one = Server::start(0);
    let two = Server::start(one.address.port());
    let dns = DnsServer::start();
    dns.set_addresses("orders.test", 0, &[one.ip()]);
    let gateway = Gateway::start(&routes(&by_dns(&dns, one.address.port(), "")));
    for _ in 0..4 {
        are(&gateway, &[&one]);
        dns.set_mood(DnsMood::ServFail);
        after_one(&gateway, "failed");
        dns.set_mood(DnsMood::Answers);
        dns.set_addresses("orders.test", 0, &[two.ip()]);
        are(&gateway, &[&two]);
        dns.set_addresses("orders.test", 0, &[one.ip()]);
    }
    let lines = |text: &str| gateway.log().matches(text).count();
    assert_eq!(
        lines("endpoints cannot be looked up") + lines("endpoints are found again"),
        4,
        "{}",
        gateway.log()
    );
    assert_eq!(lines("endpoints have changed"), 4, "{}", gateway.log());
}

#[test]
fn a_list_is_kept_as_long_as_the_operator_says() {
    let server = Server::start(0);
    let dns = DnsServer::start();
    dns.set_addresses("orders.test", 0, &[server.ip()]);
    let keep = ", keep_on_empty: 1d, keep_on_failure: 1s";
    let gateway = Gateway::start(&routes(&by_dns(&dns, server.address.port(), keep)));
    are(&gateway, &[&server]);
    // The name is there, and has no address.
    dns.set_addresses("orders.test", 0, &[]);
    after_one(&gateway, "empty");
    after_one(&gateway, "empty");
    are(&gateway, &[&server]);
    dns.set_mood(DnsMood::ServFail);
    after_one(&gateway, "failed");
    are(&gateway, &[&server]);
    are(&gateway, &[]);
}

#[test]
fn a_gateway_whose_dns_is_silent_starts_and_says_that_it_has_no_endpoint() {
    let server = Server::start(0);
    let dns = DnsServer::start();
    dns.set_mood(DnsMood::Silent);
    let gateway = Gateway::start(&routes(&by_dns(&dns, server.address.port(), "")));
    let answer = curl(&["-i", &gateway.url("/")]);
    assert!(
        answer.starts_with("HTTP/1.1 503 ") && answer.contains("application/problem+json"),
        "{answer}"
    );
    dns.set_addresses("orders.test", 0, &[server.ip()]);
    dns.set_mood(DnsMood::Answers);
    are(&gateway, &[&server]);
    assert_eq!(curl(&[&gateway.url("/")]), server.name());
}

#[test]
fn long_answers_come_over_tcp_and_are_cut_at_a_thousand_endpoints() {
    let dns = DnsServer::start();
    let address = |n: u16| IpAddr::from([10, 7, (n / 250) as u8, (n % 250) as u8 + 1]);
    dns.set_addresses(
        "orders.test",
        0,
        &(0..3000).map(address).collect::<Vec<_>>(),
    );
    dns.set_mood(DnsMood::Truncates);
    let gateway = Gateway::start(&routes(&by_dns(&dns, 80, "")));
    eventually("the endpoints", || {
        (urls(&gateway).len() == 1000).then_some(())
    });
    assert!(dns.over_tcp() > 0 && lookups(&gateway, "cut") > 0.0);
    assert_eq!(
        gateway.metric("tollgate_discovery_endpoints{upstream=\"orders\"}"),
        1000.0
    );
}

#[test]
fn addresses_of_the_kind_that_cannot_be_looked_up_stay() {
    let v4 = |last| IpAddr::from([10, 8, 0, last]);
    let v6: IpAddr = "fd00::1".parse().unwrap();
    let dns = DnsServer::start();
    dns.set_addresses("orders.test", 0, &[v4(1), v6]);
    let gateway = Gateway::start(&routes(&by_dns(&dns, 80, "")));
    let are = |expected: &[&str]| {
        let expected = expected.iter().map(ToString::to_string).collect();
        eventually("these are the endpoints", || {
            (urls(&gateway) == expected).then_some(())
        });
    };
    are(&["http://10.8.0.1:80", "http://[fd00::1]:80"]);
    dns.set_mood(DnsMood::FailsOnIpv6);
    dns.set_addresses("orders.test", 0, &[v4(2)]);
    are(&["http://10.8.0.2:80", "http://[fd00::1]:80"]);
    dns.set_mood(DnsMood::Answers);
    are(&["http://10.8.0.2:80"]);
}

#[test]
fn the_admin_server_is_no_endpoint_whatever_dns_says() {
    let (server, dns) = (Server::start(0), DnsServer::start());
    dns.set_addresses("a.orders.test", 0, &[server.ip()]);
    // Each reaches a socket that listens on 127.0.0.1.
    let hostile = ["127.0.0.1", "::ffff:127.0.0.1", "0.0.0.0", "::ffff:0.0.0.0"];
    dns.set_addresses("b.orders.test", 0, &hostile.map(|ip| ip.parse().unwrap()));
    let service = |port, target: &str| Service {
        priority: 10,
        weight: 1,
        port,
        target: target.to_owned(),
    };
    let own = service(server.address.port(), "a.orders.test");
    dns.set_services("_http._tcp.orders.test", 0, std::slice::from_ref(&own));
    let discover = format!(
        "discover: {{srv: _http._tcp.orders.test, resolvers: ['{}'], min_ttl: 100ms}}",
        dns.address
    );
    let gateway = Gateway::start(&routes(&discover));
    are(&gateway, &[&server]);
    dns.set_services(
        "_http._tcp.orders.test",
        0,
        &[own, service(gateway.admin.port(), "b.orders.test")],
    );
    let line = "an answer of DNS names the admin server of this process";
    eventually(line, || gateway.log().contains(line).then_some(()));
    (0..2).for_each(|_| after_one(&gateway, "answered"));
    are(&gateway, &[&server]);
}

#[test]
fn endpoints_that_dns_exchanges_all_the_time_do_not_flood_the_log() {
    let begun = std::time::Instant::now();
    let dns = DnsServer::start();
    // Nothing listens there, and each is another endpoint.
    let exchange = |turn: u8| {
        let ips = (1..=40).map(|last| IpAddr::from([127, 54, turn, last]));
        dns.set_addresses("orders.test", 0, &ips.collect::<Vec<_>>());
    };
    exchange(0);
    let health = ", health: {tcp: true, interval: 100ms, unhealthy_after: 1}";
    let mut gateway = Gateway::start(&routes(&(by_dns(&dns, 1, "") + health)));
    for turn in 1..=5 {
        exchange(turn);
        let probed = format!("endpoint=\"http://127.54.{turn}.40:1\",outcome=\"failed\"");
        eventually("the last one was probed", || {
            let probed =
                format!("tollgate_upstream_endpoint_probes_total{{upstream=\"orders\",{probed}}}");
            gateway.find_metric(&probed).filter(|probes| *probes > 0.0)
        });
    }
    gateway.signal("TERM");
    gateway.wait();
    let text = "lines of this log were left out";
    eventually(text, || gateway.log().contains(text).then_some(()));
    let log = gateway.log();
    let minutes = begun.elapsed().as_secs() / 60 + 1;
    let lines = log
        .matches("\"message\":\"an endpoint is unhealthy\"")
        .count() as u64;
    assert!(lines <= 120 * minutes, "{lines} in {minutes} minutes");
}

#[test]
fn servers_of_a_service_have_weights_and_backups() {
    let [heavy, light, spare] = [(); 3].map(|()| Server::start(0));
    let dns = DnsServer::start();
    let service = |priority, weight, server: &Server, target: &str| {
        dns.set_addresses(target, 0, &[server.ip()]);
        Service {
            priority,
            weight,
            port: server.address.port(),
            target: target.to_owned(),
        }
    };
    let services = [
        service(20, 1, &spare, "c.orders.test"),
        service(10, 30, &heavy, "a.orders.test"),
        service(10, 10, &light, "b.orders.test"),
    ];
    dns.set_services("_http._tcp.orders.test", 0, &services);
    let discover = format!(
        "discover: {{srv: _http._tcp.orders.test, resolvers: ['{}'], min_ttl: 100ms}}",
        dns.address
    );
    let gateway = Gateway::start(&routes(&discover));
    let mut answers = Vec::new();
    for _ in 0..40 {
        answers.push(curl(&[&gateway.url("/")]));
    }
    let count = |server: &Server| {
        answers
            .iter()
            .filter(|answer| **answer == server.name())
            .count()
    };
    assert_eq!((count(&heavy), count(&light), count(&spare)), (30, 10, 0));
    dns.set_services("_http._tcp.orders.test", 0, &services[..1]);
    are(&gateway, &[&spare]);
    assert_eq!(curl(&[&gateway.url("/")]), spare.name());
    // A server whose address nobody can tell may well be there.
    dns.set_mood(DnsMood::FailsOnIpv6);
    after_one(&gateway, "failed");
    are(&gateway, &[&spare]);
    dns.set_mood(DnsMood::Answers);
    dns.set_services(
        "_http._tcp.orders.test",
        0,
        &[Service {
            target: ".".to_owned(),
            ..services[0].clone()
        }],
    );
    are(&gateway, &[]);
}

#[test]
fn a_file_of_endpoints_that_cannot_be_read_is_read_again() {
    let server = Server::start(0);
    let folder = tempfile::tempdir().unwrap();
    let (file, good) = (
        folder.path().join("orders.yaml"),
        folder.path().join("good.yaml"),
    );
    std::fs::write(&good, format!("['http://{}']", server.address)).unwrap();
    std::os::unix::fs::symlink(&good, &file).unwrap();
    let gateway = Gateway::start(&routes(&format!(
        "discover: {{file: '{}'}}",
        file.display()
    )));
    are(&gateway, &[&server]);
    // Reading fails with an error of input: that of a disk, or of a mount, may pass.
    let broken = folder.path().join("broken");
    std::os::unix::fs::symlink("/proc/self/mem", &broken).unwrap();
    std::fs::rename(&broken, &file).unwrap();
    let refused = || {
        gateway
            .log()
            .matches("endpoints not reloaded: nothing has changed")
            .count()
    };
    eventually("it is read again and again", || {
        (refused() >= 3).then_some(())
    });
    are(&gateway, &[&server]);
}

#[test]
fn endpoints_of_a_file_are_followed_and_a_bad_file_changes_nothing() {
    let [one, two] = [(); 2].map(|()| Server::start(0));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("orders.yaml");
    let write = |text: &str| {
        std::fs::write(folder.path().join("next"), text).unwrap();
        std::fs::rename(folder.path().join("next"), &file).unwrap();
    };
    write(&format!("- http://{}\n", one.address));
    let gateway = Gateway::start(&routes(&format!(
        "discover: {{file: '{}'}}",
        file.display()
    )));
    assert_eq!(curl(&[&gateway.url("/")]), one.name());
    let both = format!(
        "- {{url: 'http://{}', backup: true}}\n- http://{}\n",
        one.address, two.address
    );
    write(&both);
    are(&gateway, &[&one, &two]);
    assert_eq!(curl(&[&gateway.url("/")]), two.name());
    for (bad, why) in [
        ("", "the file is empty"),
        ("- http://a:1/path\n", "has more than a host and a port"),
        ("- https://a\n", "the upstream says nothing of TLS"),
        (
            "- {url: 'http://a', backup: true}\n",
            "every endpoint is a backup",
        ),
        (&*"- http://a\n".repeat(1001), "1001 endpoints are too many"),
    ] {
        let before = lookups(&gateway, "failed");
        write(bad);
        eventually("the bad file is refused", || {
            (lookups(&gateway, "failed") > before).then_some(())
        });
        eventually("it says why", || gateway.log().contains(why).then_some(()));
        assert_eq!(curl(&[&gateway.url("/")]), two.name());
    }
    std::fs::remove_file(&file).unwrap();
    eventually("it is missed", || {
        gateway
            .log()
            .contains("a file of endpoints is gone")
            .then_some(())
    });
    are(&gateway, &[&one, &two]);
    write("[]\n");
    are(&gateway, &[]);
    assert_eq!(status(&[&gateway.url("/")]), 503);
}

#[test]
fn a_reload_keeps_what_was_found() {
    let server = Server::start(0);
    let dns = DnsServer::start();
    dns.set_addresses("orders.test", 0, &[server.ip()]);
    let upstream = by_dns(&dns, server.address.port(), "");
    let gateway = Gateway::start(&routes(&upstream));
    are(&gateway, &[&server]);
    dns.set_mood(DnsMood::ServFail);
    after_one(&gateway, "failed");
    gateway.rewrite(&routes(&(upstream + ", connect_timeout: 1s")));
    eventually("the reload", || {
        assert_eq!(
            curl(&[&gateway.url("/")]),
            server.name(),
            "no request fails meanwhile"
        );
        gateway.log().contains("reloaded").then_some(())
    });
    assert_eq!(curl(&[&gateway.url("/")]), server.name());
    // Another name is another list, which is waited for.
    dns.set_mood(DnsMood::Answers);
    let other = Server::start(server.address.port());
    dns.set_addresses("carts.test", 0, &[other.ip()]);
    gateway.rewrite(&routes(
        &by_dns(&dns, server.address.port(), "").replace("orders.test", "carts.test"),
    ));
    eventually("the other upstream", || {
        let answer = curl(&["-f", &gateway.url("/")]);
        assert!([server.name(), other.name()].contains(&answer), "{answer}");
        (answer == other.name()).then_some(())
    });
}

#[test]
fn endpoints_that_dns_names_are_spoken_to_over_tls_and_by_the_name_that_was_asked_for() {
    let (authority, stranger) = (
        CertificateAuthority::create(),
        CertificateAuthority::create(),
    );
    authority.issue("named", "DNS:orders.test");
    authority.issue("other", "DNS:other.test");
    let path = |file: &str| authority.path(file).display().to_string();
    let server = |name: &str| {
        let (cert, key) = (path(&format!("{name}.pem")), path(&format!("{name}.key")));
        NginxServer::start(
            "ssl",
            &format!(
                "ssl_certificate {cert}; ssl_certificate_key {key}; location / {{ return 200 $ssl_server_name; }}"
            ),
        )
    };
    let dns = DnsServer::start();
    dns.set_addresses("orders.test", 1, &[Ipv4Addr::LOCALHOST.into()]);
    let (named, other) = (server("named"), server("other"));
    let start = |port: u16, ca: String, more: &str| {
        let upstream = by_dns(&dns, port, ", scheme: https");
        Gateway::start(&routes(&format!("{upstream}, tls: {{ca: '{ca}'{more}}}")))
    };
    let get = |gateway: &Gateway| curl(&[&gateway.url("/")]);
    assert_eq!(
        get(&start(named.address.port(), path("ca.pem"), "")),
        "orders.test"
    );
    assert_eq!(
        get(&start(
            other.address.port(),
            path("ca.pem"),
            ", server_name: other.test"
        )),
        "other.test"
    );
    let strange = stranger.path("ca.pem").display().to_string();
    for (port, ca) in [
        (other.address.port(), path("ca.pem")),
        (named.address.port(), strange),
    ] {
        let gateway = start(port, ca, "");
        assert_eq!(
            status(&[&gateway.url("/")]),
            502,
            "a server that cannot prove its name gets no request"
        );
    }
}

#[test]
fn answers_may_hold_for_less_than_a_second_by_their_longest_time_alone() {
    let server = Server::start(0);
    let dns = DnsServer::start();
    dns.set_addresses("orders.test", 60, &[server.ip()]);
    let (port, resolver) = (server.address.port(), dns.address);
    let discover = format!(
        "discover: {{dns: orders.test, port: {port}, resolvers: ['{resolver}'], max_ttl: 100ms}}"
    );
    let gateway = Gateway::start(&routes(&discover));
    assert_eq!(curl(&[&gateway.url("/")]), server.name());
    let other = Server::start(port);
    dns.set_addresses("orders.test", 60, &[other.ip()]);
    are(&gateway, &[&other]);
}
