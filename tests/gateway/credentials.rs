//! Credentials that are wrong, or in disguise.

use std::fs;
use std::io::Write as _;
use std::net::TcpStream;

use tempfile::TempDir;

use crate::authenticators::key_entry;
use crate::fields::upstream_until;
use crate::process::{Gateway, curl, status};

/// A gateway with three authenticators, and the folder with their files. `rest` has the limits, the
/// listeners and routes.
fn start(rest: &str) -> (Gateway, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("keys.yaml"),
        key_entry("right", "id: ada"),
    )
    .unwrap();
    let password = bcrypt::hash("right", 4)
        .unwrap()
        .replacen("$2b$", "$2y$", 1);
    fs::write(folder.path().join("htpasswd"), format!("ada:{password}\n")).unwrap();
    let authenticators = "
workers: 1
admin: {address: '127.0.0.1:0'}
authenticators:
  keys: {api_key: {header: x-api-key, keys: 'FOLDER/keys.yaml'}}
  kept: {api_key: {header: x-api-key, keys: 'FOLDER/keys.yaml'}, forward_credential: true}
  users: {basic: {users: 'FOLDER/htpasswd'}}
";
    let text =
        format!("{authenticators}{rest}").replace("FOLDER", &folder.path().display().to_string());
    (Gateway::start(&text), folder)
}

#[test]
fn refused_requests_are_charged_to_the_limits_of_the_listener_and_accepted_ones_once() {
    let (gateway, _folder) = start(
        "limits: {all: {key: {constant: all}, rate: 6/h}, own: {key: identity, rate: 100/h}}\n\
         listeners: [{address: '127.0.0.1:0', limits: [all]}]\n\
         routes: [{name: a, authenticate: [keys, users], limits: [own], echo: true}]\n",
    );
    let url = gateway.url("/");
    let with = |fields: &[&str]| status(&[fields, &[&url]].concat());
    assert_eq!(with(&["-H", "x-api-key: wrong"]), 401);
    assert_eq!(with(&[]), 401);
    assert_eq!(with(&["-u", "ada:wrong"]), 401);
    for _ in 0..2 {
        assert_eq!(with(&["-H", "x-api-key: right"]), 200);
    }
    assert_eq!(with(&["-u", "ada:right"]), 200);
    for fields in [
        &["-H", "x-api-key: wrong"][..],
        &[],
        &["-u", "bob:wrong"],
        &["-H", "x-api-key: right"],
    ] {
        assert_eq!(with(fields), 429, "{fields:?}");
    }
    let answer = curl(&["-i", "-H", "x-api-key: wrong", &url]);
    assert!(
        answer.contains("ratelimit") && answer.contains("retry-after"),
        "{answer}"
    );
}

#[test]
fn a_credential_in_disguise_counts_as_sent_twice() {
    let (gateway, _folder) = start(
        "listeners: [{address: '127.0.0.1:0'}]\n\
         routes: [{name: a, authenticate: [keys], echo: true}, {name: b, match: {path: /kept}, authenticate: [kept], echo: true}]\n",
    );
    for path in ["/", "/kept"] {
        let url = gateway.url(path);
        for disguise in ["x_api_key: other", "x-api-key;", "connection: x-api-key"] {
            assert_eq!(
                status(&["-H", "x-api-key: right", "-H", disguise, &url]),
                401,
                "{path} {disguise}"
            );
        }
        assert_eq!(status(&["-H", "x-api-key: right", &url]), 200);
    }
}

#[test]
fn no_credential_comes_in_trailers() {
    for authenticator in ["keys", "kept"] {
        let answer = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        let (address, seen) = upstream_until("0\r\nx-sum: 1\r\n\r\n", answer);
        let (gateway, _folder) = start(&format!(
            "listeners: [{{address: '127.0.0.1:0'}}]\nupstreams: {{up: {{endpoints: ['http://{address}']}}}}\n\
             routes: [{{name: a, authenticate: [{authenticator}], upstream: up}}]\n"
        ));
        let mut client = TcpStream::connect(gateway.listeners[0]).unwrap();
        let request = "POST / HTTP/1.1\r\nHost: a\r\nX-API-Key: right\r\nTransfer-Encoding: chunked\r\n\
                       Trailer: x-api-key, x_api_key, x-sum\r\n\r\n1\r\na\r\n0\r\nx-api-key: evil\r\nx_api_key: evil\r\nx-sum: 1\r\n\r\n";
        client.write_all(request.as_bytes()).unwrap();
        let seen = seen.join().unwrap();
        assert!(!seen.contains("evil"), "{authenticator}: {seen}");
    }
}
