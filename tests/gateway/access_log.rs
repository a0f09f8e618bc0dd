//! The access log as an operator reads it: in a file, from a socket, by a program that knows its
//! format.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::thread;
use std::time::Duration;

use regex::Regex;
use serde_json::Value;
use tempfile::TempDir;

use crate::process::{Gateway, curl, eventually, status};

const ROUTES: &str = "
listeners: [{address: '127.0.0.1:0'}]
admin: {address: '127.0.0.1:0'}
limits:
  few: {key: {header: x-api-key}, rate: 1/h, burst: 1}
  polite: {key: client_ip, rate: 1/h, burst: 1, on_limit: {reject: {status: 503, body: later}}}
upstreams:
  orders: {endpoints: ['http://SERVER']}
  silent: {endpoints: ['http://SERVER']}
  two: {endpoints: ['http://BUSY', 'http://SERVER']}
  nobody: {endpoints: ['http://127.0.0.1:9']}
  busy: {endpoints: ['http://BUSY']}
  cut: {endpoints: ['http://CUT']}
routes:
  - {name: free, match: {path: '/free/*'}, respond: {status: 200, body: text}}
  - {name: quiet, match: {path: /quiet}, respond: {status: 200}, access_log: false}
  - {name: few, match: {path: /few}, respond: {status: 200}, limits: [few]}
  - {name: polite, match: {path: /polite}, respond: {status: 200}, limits: [polite]}
  - {name: orders, match: {path: /orders}, upstream: orders}
  - {name: again, match: {path: /again}, upstream: two, retry: {on: [503], attempts: 3, non_idempotent: true}}
  - {name: busy, match: {path: /busy}, upstream: busy}
  - {name: cut, match: {path: /cut}, upstream: cut}
  - {name: away, match: {path: /away}, upstream: nobody}
  - name: split
    match: {path: /split}
    upstream: [{to: orders, weight: 0%}, {to: two, weight: 100%}]
    mirror: {to: silent}
";

/// A line of Apache's `combined` format, and nothing besides: client, user, time, request, status,
/// bytes, referrer, agent.
const COMBINED: &str = r#"^([0-9a-f.:]+) - ([!-~]+) \[([0-9]{2}/[A-Z][a-z]{2}/[0-9]{4}:[0-9]{2}:[0-9]{2}:[0-9]{2} \+0000)\] "((?:[ !#-\[\]-~]|\\[\\"nrtbvf]|\\x[0-9a-f]{2})*)" ([0-9]{3}) ([0-9]+|-) "((?:[ !#-\[\]-~]|\\[\\"nrtbvf]|\\x[0-9a-f]{2})*)" "((?:[ !#-\[\]-~]|\\[\\"nrtbvf]|\\x[0-9a-f]{2})*)"$"#;

/// A server that answers each request with `status`, once all of `body` bytes of content are here.
fn server(status: &'static str, body: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let (mut read, mut buffer) = (Vec::new(), [0; 4096]);
                while let Ok(count @ 1..) = stream.read(&mut buffer) {
                    read.extend_from_slice(&buffer[..count]);
                    let head = read.windows(4).position(|window| window == b"\r\n\r\n");
                    let needed =
                        |head: usize| head + 4 + if read.starts_with(b"POST") { body } else { 0 };
                    if head.is_some_and(|head| read.len() >= needed(head)) {
                        read.clear();
                        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 5\r\n\r\nhello");
                        stream.write_all(answer.as_bytes()).unwrap();
                    }
                }
            });
        }
    });
    address
}

/// A server that breaks each answer off.
fn cutting_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            if stream.read(&mut [0; 4096]).unwrap_or(0) > 0 {
                stream
                    .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello")
                    .unwrap();
            }
        }
    });
    address
}

/// A gateway with the log that `access_log` describes.
fn start(access_log: &str) -> Gateway {
    Gateway::start(&routes(access_log))
}

fn routes(access_log: &str) -> String {
    let routes = ROUTES.replace("SERVER", &server("200 OK", 1000).to_string());
    let routes = routes.replace("CUT", &cutting_server().to_string());
    format!(
        "access_log: {access_log}\n{}",
        routes.replace("BUSY", &server("503 Busy", 1000).to_string())
    )
}

/// A folder, and a gateway that logs to `access.log` in it.
fn start_with_file(format: &str, more: &str) -> (TempDir, Gateway) {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("access.log");
    let gateway = start(&format!(
        "{{format: {format}, to: '{}'{more}}}",
        to.display()
    ));
    (folder, gateway)
}

/// The lines of the file, once there are `count`. There never are more.
fn lines(path: &Path, count: usize) -> Vec<String> {
    let lines = eventually("the lines are there", || {
        let text = fs::read_to_string(path).unwrap_or_default();
        (text.lines().count() >= count && text.ends_with('\n')).then_some(text)
    });
    let lines: Vec<String> = lines.lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), count, "{lines:#?}");
    lines
}

/// The only line of the file, as JSON. Others follow from an empty file.
fn line(folder: &TempDir) -> Value {
    let path = folder.path().join("access.log");
    let line = lines(&path, 1).remove(0);
    fs::File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(0)
        .unwrap();
    serde_json::from_str(&line).unwrap()
}

/// Sends `head` and two line ends by hand, and reads the answer to its end.
fn say(gateway: &Gateway, head: &[u8]) -> String {
    let mut client = TcpStream::connect(gateway.listeners[0]).unwrap();
    client
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    client
        .write_all(&[head, b"\r\nHost: a\r\nConnection: close\r\n\r\n"].concat())
        .unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn a_line_has_the_endpoint_its_times_and_the_bytes_both_ways() {
    let (folder, gateway) = start_with_file("json", "");
    let sent = "x".repeat(1000);
    assert_eq!(
        status(&[
            "-d",
            &sent,
            "-e",
            "https://a/b?token=1",
            &gateway.url("/orders?secret=2")
        ]),
        200
    );
    let line = line(&folder);
    let iso = Regex::new(
        "^20[0-9]{2}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9][.][0-9]{6}Z$",
    )
    .unwrap();
    assert!(iso.is_match(line["time"].as_str().unwrap()), "{line}");
    assert_eq!(line["upstream"], "orders");
    assert!(
        line["endpoint"]
            .as_str()
            .unwrap()
            .starts_with("http://127.0.0.1:"),
        "{line}"
    );
    assert_eq!(
        (&line["attempts"], &line["bytes"], &line["received_bytes"]),
        (&1.into(), &5.into(), &1000.into())
    );
    let millis = |name: &str| line[name].as_f64().unwrap();
    assert!(
        millis("endpoint_head_ms") <= millis("endpoint_ms")
            && millis("endpoint_ms") <= millis("duration_ms")
    );
    assert!(millis("endpoint_head_ms") > 0.0, "{line}");
    assert_eq!(
        (&line["path"], &line["referer"]),
        (&"/orders".into(), &"https://a/b".into())
    );
    assert!(
        line["user_agent"].as_str().unwrap().starts_with("curl/"),
        "{line}"
    );
}

#[test]
fn a_referer_with_a_user_is_left_out() {
    let (folder, gateway) = start_with_file("json", "");
    let logged = |referer: &str| {
        assert_eq!(
            status(&[
                "-H",
                &format!("Referer: {referer}"),
                &gateway.url("/orders")
            ]),
            200
        );
        line(&folder)["referer"].clone()
    };
    for referer in ["http://ada:secret@a/b", "//ada@a", "ada:secret@a/b"] {
        assert!(logged(referer).is_null(), "{referer}");
    }
    assert_eq!(logged("https://a/@ada"), "https://a/@ada");
}

#[test]
fn a_line_has_the_client_the_host_and_the_version_of_the_request() {
    let (folder, gateway) = start_with_file("json", "");
    let answer = curl(&[
        "-0",
        "-i",
        "-H",
        "Host: Shop.Example:8080",
        &gateway.url("/free/x"),
    ]);
    let line = line(&folder);
    let fields = [
        &line["client"],
        &line["host"],
        &line["protocol"],
        &line["method"],
        &line["route"],
    ];
    assert_eq!(
        fields,
        ["127.0.0.1", "shop.example", "HTTP/1.0", "GET", "free"]
    );
    let id = line["request_id"].as_str().unwrap();
    assert!(!id.is_empty() && answer.contains(id), "{line} {answer}");
    curl(&["--http2-prior-knowledge", &gateway.url("/free/x")]);
    assert_eq!(self::line(&folder)["protocol"], "HTTP/2");
}

#[test]
fn a_request_that_was_sent_again_names_its_last_endpoint_and_counts_the_attempts() {
    let (folder, gateway) = start_with_file("json", "");
    status(&[&gateway.url("/orders")]);
    let healthy = line(&folder)["endpoint"].clone();
    // Round robin begins with the busy one for one of two requests.
    let attempts: Vec<u64> = (0..2)
        .map(|_| {
            assert_eq!(status(&[&gateway.url("/again")]), 200);
            let line = line(&folder);
            assert_eq!(line["endpoint"], healthy, "{line}");
            line["attempts"].as_u64().unwrap()
        })
        .collect();
    assert_eq!(attempts.iter().max(), Some(&2), "{attempts:?}");
    // Nobody is there: the endpoint that could not be reached stands in the line.
    assert_eq!(status(&[&gateway.url("/away")]), 502);
    let away = line(&folder);
    assert_eq!(
        (&away["endpoint"], &away["problem"]),
        (&"http://127.0.0.1:9".into(), &"connect-failed".into())
    );
    assert!(
        away["attempts"].as_u64() >= Some(1) && away.get("endpoint_head_ms").is_none(),
        "{away}"
    );
}

#[test]
fn a_split_names_the_upstream_it_chose_and_copies_have_no_lines() {
    let (folder, gateway) = start_with_file("json", "");
    for _ in 0..3 {
        status(&[&gateway.url("/split")]);
        assert_eq!(line(&folder)["upstream"], "two");
    }
    let copies = "tollgate_mirrored_requests_total{route=\"split\",outcome=\"answered\"}";
    eventually("the copies are answered", || {
        (gateway.metric(copies) == 3.0).then_some(())
    });
    status(&[&gateway.url("/free/last")]);
    assert_eq!(line(&folder)["path"], "/free/last");
}

#[test]
fn a_denied_request_names_its_limit_and_the_hash_that_shows_its_bucket() {
    let (folder, gateway) = start_with_file("json", "");
    let ask = || status(&["-H", "x-api-key: sesame", &gateway.url("/few")]);
    assert_eq!(ask(), 200);
    assert_eq!(line(&folder).get("bucket"), None);
    assert_eq!(ask(), 429);
    let denied = line(&folder);
    assert_eq!(
        (&denied["limit"], &denied["problem"]),
        (&"few".into(), &"quota-exceeded".into())
    );
    let admin = format!(
        "http://{}/buckets/few?header.x-api-key=sesame",
        gateway.admin
    );
    let bucket: Value = serde_json::from_str(&curl(&[&admin])).unwrap();
    assert_eq!(denied["bucket"], bucket["logged_as"]);
    assert!(
        Regex::new("^few:#[0-9a-f]{16}$")
            .unwrap()
            .is_match(denied["bucket"].as_str().unwrap()),
        "{denied}"
    );
    assert!(!denied.to_string().contains("sesame"));
    // The command that shows the bucket in a terminal has the hash, too.
    let shown = std::process::Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args([
            "bucket",
            "peek",
            "few",
            "--header",
            "x-api-key=sesame",
            "--admin",
            &format!("http://{}", gateway.admin),
        ])
        .output()
        .unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(
        shown.contains(&format!(
            "in logs  {}\n",
            denied["bucket"].as_str().unwrap()
        )),
        "{shown}"
    );
    // A limit with an answer of its own.
    assert_eq!(
        [1, 2].map(|_| status(&[&gateway.url("/polite")])),
        [200, 503]
    );
    let both = lines(&folder.path().join("access.log"), 2);
    assert!(
        both[1].contains("\"limit\":\"polite\",\"bucket\":\"polite:#"),
        "{both:#?}"
    );
}

#[test]
fn an_extended_line_has_the_way_and_the_limit_behind_a_combined_one() {
    let (folder, gateway) = start_with_file("extended", "");
    let path = folder.path().join("access.log");
    let id = ["-H", "x-api-key: a\"b"];
    assert_eq!(
        [1, 2].map(|_| status(&[id[0], id[1], &gateway.url("/few")])),
        [200, 429]
    );
    assert_eq!(
        [
            status(&[&gateway.url("/orders")]),
            status(&[&gateway.url("/away")])
        ],
        [200, 502]
    );
    assert!(say(&gateway, b"GET /\x1b HTTP/1.1").starts_with("HTTP/1.1 400 "));
    let form = COMBINED.trim_end_matches('$').to_owned()
        + r#" route="([^"]*)" duration_ms=([0-9]+\.[0-9]{3}) upstream="([^"]*)" endpoint="([^"]*)" attempts=([0-9]+) endpoint_ms=(-|[0-9]+\.[0-9]{3}) problem="([^"]*)" limit="([^"]*)" bucket="([^"]*)" request_id="([^" -][^"]*)"$"#;
    let (form, lines) = (Regex::new(&form).unwrap(), lines(&path, 5));
    let lines: Vec<_> = lines
        .iter()
        .map(|line| form.captures(line).unwrap_or_else(|| panic!("{line}")))
        .collect();
    let fields = |line: usize, fields: &[usize]| {
        fields
            .iter()
            .map(|field| lines[line][*field].to_owned())
            .collect()
    };
    // Route, upstream, endpoint, attempts, problem, limit, bucket.
    let named = |line| -> Vec<String> { fields(line, &[9, 11, 12, 13, 15, 16, 17]) };
    assert_eq!(named(0), ["few", "-", "-", "0", "-", "-", "-"]);
    assert_eq!(&lines[0][14], "-");
    let bucket = &lines[1][17];
    assert!(
        Regex::new("^few:#[0-9a-f]{16}$").unwrap().is_match(bucket),
        "{bucket}"
    );
    assert_eq!(
        named(1)[..6],
        ["few", "-", "-", "0", "quota-exceeded", "few"]
    );
    assert!(lines[2][12].starts_with("http://127.0.0.1:"));
    let orders = named(2);
    assert_eq!(
        [&orders[..2], &orders[3..]].concat(),
        ["orders", "orders", "1", "-", "-", "-"]
    );
    let millis = |field: usize| lines[2][field].parse::<f64>().unwrap();
    assert!(millis(14) > 0.0 && millis(14) <= millis(10));
    assert_eq!(
        (&lines[3][12], &lines[3][15]),
        ("http://127.0.0.1:9", "connect-failed")
    );
    assert_eq!((&lines[4][9], &lines[4][4]), ("none", "-"));
}

#[test]
fn nothing_that_a_client_sends_breaks_a_line() {
    let hostile: &[u8] = b"a\"b\\c \xe9\x9b\xff\t\\x22\\\"}, 'evil': [1 - - [";
    let fields = [
        b"User-Agent: ".as_slice(),
        hostile,
        b"\r\nReferer: r",
        hostile,
    ]
    .concat();
    let target = b"GET /free/a'b%22%0a%1b[31m;%5C HTTP/1.1\r\n".as_slice();
    let (folder, gateway) = start_with_file("json", "");
    assert!(say(&gateway, &[target, &fields].concat()).starts_with("HTTP/1.1 200 "));
    let path = folder.path().join("access.log");
    assert!(
        lines(&path, 1)[0]
            .bytes()
            .all(|byte| (b' '..=b'~').contains(&byte))
    );
    let json = line(&folder);
    // Bytes that are no UTF-8 are those of ISO 8859-1.
    let latin: String = hostile.iter().map(|byte| char::from(*byte)).collect();
    assert_eq!(
        (&json["user_agent"], &json["referer"]),
        (&latin.clone().into(), &format!("r{latin}").into())
    );
    assert_eq!(json["path"], "/free/a'b%22%0a%1b[31m;%5C");

    let (folder, gateway) = start_with_file("combined", "");
    assert!(say(&gateway, &[target, &fields].concat()).starts_with("HTTP/1.1 200 "));
    assert!(say(&gateway, b"GET /\x1b[31m\" HTTP/1.1").starts_with("HTTP/1.1 400 "));
    assert_eq!(
        status(&["-A", &"x".repeat(5000), "-I", &gateway.url("/free/head")]),
        200
    );
    let combined = Regex::new(COMBINED).unwrap();
    let lines = lines(&folder.path().join("access.log"), 3);
    let fields: Vec<_> = lines
        .iter()
        .map(|line| combined.captures(line).unwrap_or_else(|| panic!("{line}")))
        .collect();
    let escaped = r#"a\"b\\c \xe9\x9b\xff\t\\x22\\\"}, 'evil': [1 - - ["#;
    assert_eq!(
        (&fields[0][7], &fields[0][8]),
        (&*format!("r{escaped}"), escaped)
    );
    assert!(fields[0][3].contains("/20"), "{}", &fields[0][3]);
    assert_eq!(
        (&fields[0][1], &fields[0][2], &fields[0][5], &fields[0][6]),
        ("127.0.0.1", "-", "200", "4")
    );
    assert_eq!(&fields[0][4], "GET /free/a'b%22%0a%1b[31m;%5C HTTP/1.1");
    assert_eq!(
        (&fields[1][4], &fields[1][5], &fields[1][8]),
        ("-", "400", "-")
    );
    assert_eq!(
        (&fields[2][4], &fields[2][6], &fields[2][8]),
        (
            "HEAD /free/head HTTP/1.1",
            "-",
            &*("x".repeat(1024) + "...")
        )
    );
}

/// rsyslog cuts after 8 KiB, and half an object is none: a client would choose whether its request
/// is seen.
#[test]
fn a_line_of_the_longest_texts_says_where_they_were_cut_and_stays_readable() {
    let (folder, gateway) = start_with_file("json", "");
    let long = [0xff_u8; 4000];
    let head = [
        b"GET /free/".as_slice(),
        &[b'x'; 5000],
        b" HTTP/1.1\r\nUser-Agent: ",
        &long,
        b"\r\nReferer: ",
        &long,
    ];
    assert!(say(&gateway, &head.concat()).starts_with("HTTP/1.1 200 "));
    let path = folder.path().join("access.log");
    assert!(lines(&path, 1)[0].len() < 8000);
    let json = line(&folder);
    for (name, begin) in [
        ("path", "/free/xxx"),
        ("user_agent", "ÿÿÿ"),
        ("referer", "ÿÿÿ"),
    ] {
        let text = json[name].as_str().unwrap();
        assert!(text.starts_with(begin) && text.ends_with("..."), "{text}");
    }
}

#[test]
fn a_sighup_opens_the_file_anew_whatever_becomes_of_the_configuration() {
    let (folder, gateway) = start_with_file("json", "");
    let (path, moved) = (
        folder.path().join("access.log"),
        folder.path().join("access.log.1"),
    );
    status(&[&gateway.url("/free/1")]);
    lines(&path, 1);
    fs::rename(&path, &moved).unwrap();
    status(&[&gateway.url("/free/2")]);
    assert!(
        lines(&moved, 2)[1].contains("/free/2"),
        "until the signal, lines follow the file"
    );
    gateway.rewrite("nonsense");
    gateway.signal("HUP");
    eventually("the file is there again", || path.exists().then_some(()));
    status(&[&gateway.url("/free/3")]);
    assert!(lines(&path, 1)[0].contains("/free/3"));
    lines(&moved, 2);
}

#[test]
fn a_reload_changes_format_and_destination_and_turns_it_off() {
    let (folder, gateway) = start_with_file("json", "");
    let (json, combined) = (
        folder.path().join("access.log"),
        folder.path().join("other.log"),
    );
    let reloads = || {
        gateway
            .find_metric("tollgate_config_reloads_total{outcome=\"applied\"}")
            .unwrap_or(0.0)
    };
    let reload = |access_log: &str, count: f64| {
        gateway.rewrite(&routes(access_log));
        gateway.signal("HUP");
        eventually("it is taken over", || (reloads() >= count).then_some(()));
        status(&[&gateway.url("/free/x")]);
    };
    status(&[&gateway.url("/free/x")]);
    reload(
        &format!("{{format: combined, to: '{}'}}", json.display()),
        1.0,
    );
    assert!(lines(&json, 2)[1].starts_with("127.0.0.1 - - ["));
    reload(
        &format!("{{format: combined, to: '{}'}}", combined.display()),
        2.0,
    );
    lines(&combined, 1);
    // A file that cannot be opened is a reload that changes nothing.
    gateway.rewrite(&routes("{to: /nowhere/access.log}"));
    gateway.signal("HUP");
    eventually("it is refused", || {
        gateway
            .log()
            .contains("cannot open the access log (/nowhere/access.log)")
            .then_some(())
    });
    status(&[&gateway.url("/free/x")]);
    lines(&combined, 2);
    reload("off", 3.0);
    reload(&format!("{{to: '{}'}}", combined.display()), 4.0);
    lines(&combined, 3);
    lines(&json, 2);
}

#[test]
fn a_full_disk_costs_lines_and_nothing_else() {
    let gateway = start("{to: /dev/full}");
    assert_eq!(gateway.metric("tollgate_access_log_dropped_total"), 0.0);
    for _ in 0..3 {
        assert_eq!(status(&[&gateway.url("/free/x")]), 200);
    }
    eventually("the lines are counted", || {
        (gateway.metric("tollgate_access_log_dropped_total") == 3.0).then_some(())
    });
    let told = gateway
        .log()
        .matches("the access log cannot be written")
        .count();
    assert_eq!(told, 1, "{}", gateway.log());
    assert!(gateway.log().contains("No space left on device"));
}

#[test]
fn a_syslog_may_be_away_and_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let gateway = start(&format!("{{to: 'unix:{}'}}", path.display()));
    let mut datagram = [0; 4096];
    for round in 0..2 {
        assert_eq!(status(&[&gateway.url("/free/away")]), 200);
        let lost = f64::from(round) + 1.0;
        eventually("it is counted", || {
            (gateway.metric("tollgate_access_log_dropped_total") == lost).then_some(())
        });
        let syslog = UnixDatagram::bind(&path).unwrap();
        syslog
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        assert_eq!(status(&[&gateway.url("/free/back")]), 200);
        let received = syslog.recv(&mut datagram).unwrap();
        let text = String::from_utf8_lossy(&datagram[..received]).into_owned();
        let (header, json) = text.split_at(text.find('{').unwrap());
        assert!(
            header.ends_with(&format!(" tollgate[{}]: ", gateway.pid())),
            "{header}"
        );
        assert_eq!(
            serde_json::from_str::<Value>(json).unwrap()["path"],
            "/free/back"
        );
        fs::remove_file(&path).unwrap();
    }
    eventually("its return is told", || {
        gateway
            .log()
            .contains("the access log is written again")
            .then_some(())
    });
}

#[test]
fn lines_go_over_udp_and_over_tcp() {
    let syslog = UdpSocket::bind("127.0.0.1:0").unwrap();
    syslog
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let gateway = start(&format!(
        "{{format: combined, to: 'udp://{}'}}",
        syslog.local_addr().unwrap()
    ));
    status(&[&gateway.url("/free/udp")]);
    let mut datagram = [0; 4096];
    let received = syslog.recv(&mut datagram).unwrap();
    let text = String::from_utf8_lossy(&datagram[..received]).into_owned();
    let (header, line) = text.split_once(" - ").unwrap();
    assert!(
        header.starts_with("<134>1 ") && header.ends_with(" access"),
        "{text}"
    );
    assert!(Regex::new(COMBINED).unwrap().is_match(line), "{text}");

    let collector = TcpListener::bind("127.0.0.1:0").unwrap();
    let gateway = start(&format!(
        "{{to: 'tcp://localhost:{}'}}",
        collector.local_addr().unwrap().port()
    ));
    status(&[&gateway.url("/free/tcp")]);
    let mut reader = std::io::BufReader::new(collector.accept().unwrap().0);
    let mut line = String::new();
    std::io::BufRead::read_line(&mut reader, &mut line).unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(&line).unwrap()["path"],
        "/free/tcp"
    );
}

#[test]
fn a_reader_that_reads_nothing_keeps_no_request() {
    let collector = TcpListener::bind("127.0.0.1:0").unwrap();
    let gateway = start(&format!(
        "{{to: 'tcp://{}'}}",
        collector.local_addr().unwrap()
    ));
    let mut client = TcpStream::connect(gateway.listeners[0]).unwrap();
    let (path, escaped) = ("x".repeat(4000), "\u{e9}".repeat(500));
    let request = format!(
        "GET /free/{path} HTTP/1.1\r\nHost: a\r\nUser-Agent: {escaped}\r\nReferer: {escaped}\r\n\r\n"
    );
    let mut answer = [0; 4096];
    let dropped = || gateway.metric("tollgate_access_log_dropped_total");
    // Lines of 10 KB: more than the queue and the buffers of a connection hold.
    for _ in 0..3_000 {
        client.write_all(request.as_bytes()).unwrap();
        assert!(client.read(&mut answer).unwrap() > 0);
        assert!(answer.starts_with(b"HTTP/1.1 200 "));
    }
    eventually("lines are lost", || (dropped() > 0.0).then_some(()));
}

#[test]
fn a_client_that_goes_away_within_its_body_is_logged_like_others_that_go_away() {
    let (folder, gateway) = start_with_file("json", "");
    let head = b"POST /orders HTTP/1.1\r\nHost: a\r\n";
    for framing in [
        &b"Content-Length: 1000\r\n\r\nhal"[..],
        b"Transfer-Encoding: chunked\r\n\r\n3\r\nhal",
    ] {
        let mut client = TcpStream::connect(gateway.listeners[0]).unwrap();
        client.write_all(&[head, framing].concat()).unwrap();
        drop(client);
        let left = line(&folder);
        assert_eq!(
            (&left["status"], left.get("problem"), &left["complete"]),
            (&499.into(), None, &false.into())
        );
    }
    // A client whose body is nonsense is told, and one that ends its half alone while that is read.
    for (framing, body, status) in [
        ("Transfer-Encoding: chunked", "zz\r\n", 400),
        ("Content-Length: 1000", "hal", 499),
    ] {
        let mut client = TcpStream::connect(gateway.listeners[0]).unwrap();
        client.write_all(head).unwrap();
        let rest = format!("Expect: 100-continue\r\n{framing}\r\n\r\n");
        client.write_all(rest.as_bytes()).unwrap();
        let mut interim = [0; 25];
        client.read_exact(&mut interim).unwrap();
        assert_eq!(interim, *b"HTTP/1.1 100 Continue\r\n\r\n");
        client.write_all(body.as_bytes()).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        assert_eq!(line(&folder)["status"], status);
    }
    let requests = |outcome: &str| {
        gateway.metric(&format!(
            "tollgate_upstream_requests_total{{upstream=\"orders\",outcome=\"{outcome}\"}}"
        ))
    };
    assert_eq!(["cancelled", "client_error"].map(requests), [3.0, 1.0]);
}

#[test]
fn a_sample_leaves_out_successes_alone() {
    let (folder, gateway) = start_with_file("json", ", sample: 0%");
    assert_eq!(
        [
            status(&[&gateway.url("/free/x")]),
            status(&[&gateway.url("/orders")])
        ],
        [200, 200]
    );
    status(&[&gateway.url("/nothing")]);
    assert_eq!(line(&folder)["status"], 404);
    assert_eq!(
        [1, 2].map(|_| status(&[&gateway.url("/polite")])),
        [200, 503]
    );
    assert_eq!(line(&folder)["limit"], "polite");
    status(&[&gateway.url("/away")]);
    assert_eq!(line(&folder)["status"], 502);
    // The upstream's own failure, and an answer that it broke off.
    status(&[&gateway.url("/busy")]);
    let busy = line(&folder);
    assert_eq!(
        (&busy["status"], busy.get("problem"), &busy["complete"]),
        (&503.into(), None, &true.into())
    );
    assert!(say(&gateway, b"GET /cut HTTP/1.1").ends_with("hello"));
    let cut = line(&folder);
    assert_eq!(
        (&cut["status"], &cut["bytes"], &cut["complete"]),
        (&200.into(), &5.into(), &false.into())
    );
    drop((folder, gateway));

    let (folder, gateway) = start_with_file("json", ", sample: 50%");
    let urls = gateway.url("/free/[1-400]");
    curl(&[&urls]);
    status(&[&gateway.url("/nothing")]);
    let path = folder.path().join("access.log");
    let text = eventually("the last line", || {
        fs::read_to_string(&path)
            .ok()
            .filter(|text| text.contains(":404,"))
    });
    // Outside of these bounds once in 10^24.
    assert!(
        (100..300).contains(&text.lines().count()),
        "{}",
        text.lines().count()
    );
}

#[test]
fn a_route_without_a_log_has_no_lines_and_the_others_have() {
    let (folder, gateway) = start_with_file("json", "");
    assert_eq!(status(&[&gateway.url("/quiet")]), 200);
    assert_eq!(
        status(&["-X", "BREW", "--path-as-is", &gateway.url("/a/../nothing")]),
        404
    );
    let line = line(&folder);
    // Method and path are as they were sent.
    assert_eq!(
        (&line["route"], &line["method"]),
        (&"none".into(), &"BREW".into())
    );
    assert_eq!(line["path"], "/a/../nothing");
}
