//! More clients and more tenants than a gateway has room for.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use crate::plans::{self, HASH, TenantClient, lookups};
use crate::process::Gateway;
use tollgate_testing::redis::RedisServer;

#[test]
fn made_up_tenants_push_no_known_plan_out_of_the_cache() {
    const TENANTS: u64 = 1_000;
    const FLOOD: u64 = 5_000;
    let redis = RedisServer::start();
    let plan = |n: u64| 6 + n % 97;
    let fields = (0..TENANTS).flat_map(|n| [format!("tenant-{n}"), format!("{}/h", plan(n))]);
    let words: Vec<String> = ["HSET".to_owned(), HASH.to_owned()]
        .into_iter()
        .chain(fields)
        .collect();
    redis.command(&words.iter().map(String::as_str).collect::<Vec<_>>());
    let gateway = Gateway::start(&plans::routes(&redis, "1h"));
    let all = |told: &str| {
        let began = Instant::now();
        // A connection that waits for the flood may be idle for too long.
        let mut client = TenantClient::of(&gateway);
        for (n, quota) in (0..TENANTS).zip(client.quotas_of("tenant", TENANTS)) {
            assert_eq!(quota, plan(n), "tenant {n}, {told}");
        }
        println!("{TENANTS} tenants, {told}: {:?}", began.elapsed());
    };
    let before = gateway.memory();
    all("for the first time");
    assert_eq!(lookups(&gateway, "found"), TENANTS as f64);
    let known = gateway.memory();
    println!(
        "{} bytes a tenant, buckets included",
        known.saturating_sub(before) / TENANTS
    );
    all("again");
    let mut flood = TenantClient::of(&gateway);
    assert_eq!(flood.quotas_of("made-up", FLOOD), [5; FLOOD as usize]);
    all("after a flood");
    assert_eq!(
        lookups(&gateway, "found"),
        TENANTS as f64,
        "none was read twice"
    );
    assert_eq!(lookups(&gateway, "none"), FLOOD as f64);
    let grown = gateway.memory().saturating_sub(known);
    assert!(grown < 16 << 20, "{grown} bytes");
}

/// Sends one GET for each value of `X-Client`, all over one connection; who passed.
fn visit(gateway: &Gateway, clients: impl Iterator<Item = String>) -> Vec<bool> {
    let stream = TcpStream::connect(gateway.listeners[0]).unwrap();
    stream.set_nodelay(true).unwrap();
    let (mut writer, mut reader) = (stream.try_clone().unwrap(), BufReader::new(stream));
    let clients: Vec<String> = clients.collect();
    let mut passed = Vec::new();
    // A few at a time, so that neither side waits for the other to read.
    for some in clients.chunks(32) {
        let ask =
            |client: &String| format!("GET / HTTP/1.1\r\nHost: h\r\nX-Client: {client}\r\n\r\n");
        writer
            .write_all(some.iter().map(ask).collect::<String>().as_bytes())
            .unwrap();
        passed.extend(some.iter().map(|_| read_status(&mut reader) == 200));
    }
    passed
}

/// Of an answer with a length, which is read to its end.
fn read_status(reader: &mut BufReader<TcpStream>) -> u16 {
    let mut next = || {
        let mut line = String::new();
        assert!(
            reader.read_line(&mut line).unwrap() > 0,
            "closed within an answer"
        );
        line.trim_end().to_ascii_lowercase()
    };
    let status = next()[9..12].parse().unwrap();
    let fields: Vec<String> = std::iter::repeat_with(next)
        .take_while(|line| !line.is_empty())
        .collect();
    let length = fields
        .iter()
        .find_map(|field| field.strip_prefix("content-length: "))
        .unwrap()
        .parse()
        .unwrap();
    reader.read_exact(&mut vec![0; length]).unwrap();
    status
}

#[test]
fn more_clients_than_local_buckets_take_no_more_memory_and_stay_limited() {
    let redis = RedisServer::start();
    let store = format!("store: {{redis: '{}', timeout: 1s}}\n", redis.url());
    for store in ["", &store] {
        let gateway = Gateway::start(&format!(
            "{store}workers: 1
listeners: [{{address: '127.0.0.1:0'}}]
admin: {{address: '127.0.0.1:0'}}
max_local_buckets: 2000
limits: {{each: {{key: {{header: x-client}}, rate: 5/h, burst: 5}}}}
routes: [{{name: all, match: {{path: '/*'}}, respond: {{status: 200, body: ok}}, limits: [each]}}]
"
        ));
        // Every tenth request is of one client.
        let visitors = |from: u32| {
            let name = |number: u32| {
                if number.is_multiple_of(10) {
                    "busy".to_owned()
                } else {
                    format!("c{number}")
                }
            };
            (from..from + 10_000).map(name)
        };
        let mut busy = 0;
        let mut memory = Vec::new();
        for round in 0..3 {
            let passed = visit(&gateway, visitors(round * 10_000));
            busy += passed.iter().step_by(10).filter(|passed| **passed).count();
            memory.push(gateway.memory());
        }
        println!("with {store:?}: {busy} of the busy client passed, memory was {memory:?}");
        assert_eq!(busy, 5);
        // The first round fills what it may fill, and what the allocator keeps of that.
        assert!(memory[2] < memory[1] + (4 << 20), "{memory:?}");
    }
}
