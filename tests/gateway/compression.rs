//! Compressed answers, as curl asks for them and reads them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use crate::process::{Gateway, curl, eventually};

const CODINGS: [&str; 3] = ["zstd", "br", "gzip"];

/// A text that becomes shorter.
fn text() -> String {
    (0..400)
        .map(|line| format!("line {line} of a text that says the same again and again\n"))
        .collect()
}

/// An upstream that answers each path with the pieces of its answer, the second and later ones once
/// the test says so.
fn upstream(answers: Vec<(&'static str, Vec<String>)>) -> (SocketAddr, Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (go, gone): (_, Receiver<()>) = channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut line = String::new();
            let mut head = BufReader::new(stream.try_clone().unwrap());
            head.read_line(&mut line).unwrap();
            let mut rest = String::new();
            while head.read_line(&mut rest).unwrap_or(0) > 2 {}
            let path = line.split(' ').nth(1).unwrap_or_default();
            let (_, pieces) = answers.iter().find(|(known, _)| *known == path).unwrap();
            for (index, piece) in pieces.iter().enumerate() {
                if index > 0 && gone.recv().is_err() {
                    return;
                }
                let _ = stream.write_all(piece.as_bytes());
            }
        }
    });
    (address, go)
}

fn with_head(fields: &str, body: &str) -> Vec<String> {
    vec![format!(
        "HTTP/1.1 200 OK\r\n{fields}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )]
}

fn start(answers: Vec<(&'static str, Vec<String>)>) -> (Gateway, Sender<()>) {
    let (address, go) = upstream(answers);
    let body = text().replace('\n', "\\n");
    let gateway = Gateway::start(&format!(
        "
workers: 1
listeners: [{{address: '127.0.0.1:0'}}]
admin: {{address: '127.0.0.1:0'}}
limits:
  used: {{key: {{constant: all}}, rate: 1000/d, cost: {{response_json: used, reserve: 1, max: 500}}}}
upstreams: {{up: {{endpoints: ['http://{address}']}}}}
routes:
  - name: own
    match: {{path: /own}}
    respond: {{status: 200, headers: {{content-type: text/plain, etag: '\"v1\"', accept-ranges: bytes}}, body: \"{body}\"}}
    compress: true
  - name: narrow
    match: {{path: /narrow/*}}
    upstream: up
    strip_prefix: /narrow
    compress: {{codings: [gzip, br], min_size: 10B, types: [application/json]}}
  - {{name: used, match: {{path: /used}}, upstream: up, limits: [used], compress: true}}
  - {{name: plain, match: {{path: /plain/*}}, upstream: up, strip_prefix: /plain}}
  - {{name: rest, upstream: up, compress: true}}
"
    ));
    (gateway, go)
}

/// The answer's head in lower case.
fn head(url: &str, accepted: &str, more: &[&str]) -> String {
    let accepted = format!("accept-encoding: {accepted}");
    let fields = ["-o", "/dev/null", "-D", "-", "-H", &accepted];
    curl(&[&fields[..], more, &[url]].concat()).to_ascii_lowercase()
}

fn coding(head: &str) -> Option<&str> {
    head.lines()
        .find_map(|line| line.strip_prefix("content-encoding: "))
}

#[test]
fn an_answer_is_compressed_as_its_client_takes_it() {
    let (gateway, _go) = start(Vec::new());
    let url = gateway.url("/own");
    for name in CODINGS {
        let accepted = format!("accept-encoding: {name}");
        assert_eq!(
            curl(&["--compressed", "-H", &accepted, &url]),
            text(),
            "{name}"
        );
        let length = curl(&[
            "-H",
            &accepted,
            "-o",
            "/dev/null",
            "-w",
            "%{size_download}",
            &url,
        ]);
        assert!(
            length.parse::<usize>().unwrap() < text().len() / 10,
            "{name}: {length}"
        );
        for more in [&["--http1.1"][..], &["--http2-prior-knowledge"], &["-I"]] {
            let head = head(&url, name, more);
            assert_eq!(coding(&head), Some(name), "{head}");
            assert!(head.contains("vary: accept-encoding\r\n"), "{head}");
            assert!(head.contains("etag: w/\"v1\"\r\n"), "{head}");
            assert!(
                !head.contains("content-length") && !head.contains("accept-ranges"),
                "{head}"
            );
        }
    }
    let counted = |side: &str| {
        gateway.metric(&format!(
            "tollgate_compression_{side}_bytes_total{{route=\"own\"}}"
        ))
    };
    eventually("the sizes are counted", || {
        (counted("original") >= 6.0 * text().len() as f64).then_some(())
    });
    assert!(counted("compressed") * 10.0 < counted("original"));
}

#[test]
fn a_client_gets_the_coding_that_it_prefers_and_else_the_best_of_the_route() {
    let (gateway, _go) = start(vec![(
        "/json",
        with_head("Content-Type: application/json\r\n", "[1, 2, 3, 4]"),
    )]);
    for (path, accepted, chosen) in [
        ("/own", "gzip, deflate, br, zstd", Some("zstd")),
        ("/own", "gzip, br;q=0.9", Some("gzip")),
        ("/own", "*", Some("zstd")),
        ("/own", "*, zstd;q=0", Some("br")),
        ("/own", "gzip;q=0, *;q=0", None),
        ("/own", "identity, gzip;q=0.5", None),
        ("/own", "identity;q=0.5, gzip;q=0.5", Some("gzip")),
        ("/own", "deflate", None),
        ("/narrow/json", "zstd, br, gzip", Some("gzip")),
        ("/narrow/json", "zstd", None),
    ] {
        let head = head(&gateway.url(path), accepted, &[]);
        assert_eq!(coding(&head), chosen, "{path} {accepted}: {head}");
        assert!(
            head.contains("vary: accept-encoding\r\n"),
            "{path} {accepted}: {head}"
        );
    }
}

#[test]
fn an_answer_that_should_stay_as_it_is_does() {
    let (text, small) = (text(), "small".to_owned());
    let as_it_is = [
        ("/small", "Content-Type: text/plain\r\n", &small),
        (
            "/encoded",
            "Content-Type: text/plain\r\nContent-Encoding: deflate\r\n",
            &text,
        ),
        (
            "/events",
            "Content-Type: Text/Event-Stream;charset=utf-8\r\n",
            &text,
        ),
        ("/image", "Content-Type: image/png\r\n", &text),
        ("/untyped", "", &text),
        (
            "/kept",
            "Content-Type: text/plain\r\nCache-Control: public, No-Transform\r\n",
            &text,
        ),
        (
            "/ranged",
            "Content-Type: text/plain\r\nContent-Range: bytes 0-9/90\r\n",
            &text,
        ),
        ("/plain/text", "Content-Type: text/plain\r\n", &text),
    ];
    let mut answers: Vec<_> = as_it_is
        .iter()
        .map(|(path, fields, body)| (path.trim_start_matches("/plain"), with_head(fields, body)))
        .collect();
    let range = format!(
        "HTTP/1.1 206 Partial Content\r\nContent-Type: text/plain\r\nContent-Range: bytes 0-9999/90000\r\nContent-Length: 10000\r\nConnection: close\r\n\r\n{}",
        &text[..10_000]
    );
    answers.push((
        "/bare-range",
        vec![range.replace("Content-Range: bytes 0-9999/90000\r\n", "")],
    ));
    answers.push(("/range", vec![range]));
    let empty = "HTTP/1.1 204 No Content\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n";
    answers.push(("/empty", vec![empty.to_owned()]));
    let tagged = with_head(
        "Content-Type: text/html\r\nVary: Accept-Encoding, Origin\r\nETag: W/\"a\"\r\nContent-Digest: sha-256=:a:\r\nRepr-Digest: sha-256=:a:\r\nDigest: sha-256=a\r\n",
        &text,
    );
    answers.push(("/tagged", tagged));
    answers.push((
        "/same",
        vec!["HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\nConnection: close\r\n\r\n".to_owned()],
    ));
    let (gateway, _go) = start(answers);
    for path in as_it_is.iter().map(|(path, ..)| *path) {
        let head = head(&gateway.url(path), "gzip, br, zstd", &[]);
        assert!(
            coding(&head).is_none_or(|coding| coding == "deflate"),
            "{path}: {head}"
        );
        assert!(
            head.contains("content-length: ") && !head.contains("vary"),
            "{path}: {head}"
        );
    }
    // A part stays as it is, and the whole that it is from differs from coding to coding.
    for path in ["/range", "/bare-range"] {
        let head = head(&gateway.url(path), "gzip", &[]);
        assert!(
            coding(&head).is_none() && head.contains("vary: accept-encoding\r\n"),
            "{path}: {head}"
        );
    }
    // The answer to a HEAD has no content whose length could tell.
    for method in [&[][..], &["-I"]] {
        let empty = head(&gateway.url("/empty"), "gzip", method);
        assert!(
            empty.contains(" 204 ") && coding(&empty).is_none() && !empty.contains("vary"),
            "{empty}"
        );
    }
    let of_head = head(&gateway.url("/tagged"), "gzip", &["-I"]);
    assert!(
        coding(&of_head) == Some("gzip") && !of_head.contains("content-length"),
        "{of_head}"
    );
    let head = head(&gateway.url("/tagged"), "gzip", &[]);
    assert!(
        coding(&head) == Some("gzip") && head.contains("etag: w/\"a\"\r\n"),
        "{head}"
    );
    assert!(
        head.matches("accept-encoding").count() == 1 && !head.contains("digest"),
        "{head}"
    );
    assert!(!head.contains("content-length"), "{head}");
    // A 304 is about the compressed answer that the client has.
    let same = |tag: &str| {
        self::head(
            &gateway.url("/same"),
            "gzip",
            &["-H", &format!("if-none-match: {tag}")],
        )
    };
    assert!(
        same("W/\"x\"").contains("etag: w/\"x\"\r\n") && same("\"x\"").contains("etag: \"x\"\r\n")
    );
    assert!(same("W/\"x\"").contains("vary: accept-encoding\r\n"));
    assert!(
        same("\"b\", W/\"x\"").contains("etag: w/\"x\"\r\n")
            && same("W/\"b\", \"x\"").contains("etag: \"x\"\r\n")
    );
    let lines = ["-H", "if-none-match: \"b\"", "-H", "if-none-match: W/\"x\""];
    assert!(self::head(&gateway.url("/same"), "gzip", &lines).contains("etag: w/\"x\"\r\n"));
}

#[test]
fn a_stream_arrives_piece_by_piece_in_every_coding() {
    let stream = |fields: &str| {
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nConnection: close\r\n{fields}\r\n"
        );
        vec![
            format!("{head}{{\"event\":1}}\n"),
            "{\"event\":2}\n".to_owned(),
        ]
    };
    let (gateway, go) = start(vec![("/stream", stream(""))]);
    for name in CODINGS {
        let mut client = Command::new("curl")
            .args([
                "-sSN",
                "--compressed",
                "-H",
                &format!("accept-encoding: {name}"),
                &gateway.url("/stream"),
            ])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(client.stdout.take().unwrap());
        let mut line = String::new();
        // The upstream says no more until this was read.
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "{\"event\":1}\n", "{name}");
        go.send(()).unwrap();
        let mut rest = String::new();
        output.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "{\"event\":2}\n", "{name}");
        assert!(client.wait().unwrap().success(), "{name}");
    }
}

#[test]
fn a_response_settles_its_limit_by_what_it_says_and_is_compressed_afterwards() {
    let body = format!("{{\"used\": 300, \"text\": \"{}\"}}", "again ".repeat(1000));
    let (gateway, _go) = start(vec![(
        "/used",
        with_head("Content-Type: application/json\r\n", &body),
    )]);
    assert_eq!(
        curl(&[
            "--compressed",
            "-H",
            "accept-encoding: br",
            &gateway.url("/used")
        ]),
        body
    );
    // Of 1000, one is reserved and 300 are used.
    let bucket = format!("http://{}/buckets/used", gateway.admin);
    eventually("the response is settled", || {
        curl(&[&bucket])
            .contains("\"remaining\": 700")
            .then_some(())
    });
    assert_eq!(
        gateway.metric("tollgate_compression_original_bytes_total{route=\"used\"}"),
        body.len() as f64
    );
}
