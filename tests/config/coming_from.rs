//! Every spelling on the page for people who come from other gateways is one that the file takes,
//! where the page says.

use std::collections::BTreeSet;

use super::{check, root};

/// Places that a fragment may be written at, each the rest of a file. The words tell whether the
/// file already has one.
const PLACES: [&str; 14] = [
    "listeners: [{address: '127.0.0.1:0'}]\nupstreams: {auth: {endpoints: ['http://10.0.0.9'] }}\nFRAGMENT\nroutes: [{name: r, echo: true}]",
    "listeners: [{address: '127.0.0.1:0'}]\nFRAGMENT\nroutes: [{name: r, echo: true}]",
    "listeners: [{address: '127.0.0.1:0', FRAGMENT}]\nAUTH\nroutes: [{name: r, echo: true}]",
    "listeners: [{address: '127.0.0.1:0', FRAGMENT}, {address: '127.0.0.1:1', tls: TLS}]\nroutes: [{name: r, echo: true}]",
    "listeners: [{address: '127.0.0.1:0', tls: {CERTIFICATES, FRAGMENT}}]\nroutes: [{name: r, echo: true}]",
    "LIMIT, burst: 20000, FRAGMENT}}",
    "LIMIT, FRAGMENT}}",
    "listeners: [{address: '127.0.0.1:0'}]\nlimits: {x: {rate: 10/s, FRAGMENT}}\nroutes: [{name: r, echo: true, limits: [x]}]",
    "listeners: [{address: '127.0.0.1:0'}]\nlimits: {x: {key: client_ip, FRAGMENT}}\nroutes: [{name: r, echo: true, limits: [x]}]",
    "UPSTREAMS\nroutes: [{name: r, match: {path: /orders/*}, upstream: up, FRAGMENT}]",
    "UPSTREAMS\nroutes: [{name: r, FRAGMENT}]",
    "UPSTREAMS\nroutes: [{name: r, upstream: up, FRAGMENT}]",
    "listeners: [{address: '127.0.0.1:0'}]\nupstreams: {u: {endpoints: ['http://10.0.0.1'], FRAGMENT}}\nroutes: [{name: r, upstream: u}]",
    "listeners: [{address: '127.0.0.1:0'}]\nupstreams: {u: {FRAGMENT}}\nroutes: [{name: r, upstream: u}]",
];

/// Of files that the check reads, and of what belongs to another fragment of its row.
const ELSEWHERE: [&str; 5] = [
    "include: conf.d",
    "tls: {ca: /etc/tollgate/ca.pem}",
    "error_pages: [{status: [502], type: text/html, file: 502.html}]",
    "redis: {hash: api-keys}",
    "split_by: {header: x-user}",
];

fn file(place: &str, fragment: &str) -> String {
    place
        .replace("LIMIT", "listeners: [{address: '127.0.0.1:0'}]\nstore: {redis: 'redis://127.0.0.1:6379'}\nroutes: [{name: r, echo: true, limits: [x]}]\nlimits: {x: {key: client_ip, rate: 10000/s")
        .replace("UPSTREAMS", "listeners: [{name: internal, address: '127.0.0.1:0'}]\nupstreams: {up: E, orders: E, canary: E, shadow: E}\nlimits: {a: {key: client_ip, rate: 10/s}}\nAUTH")
        .replace("AUTH", "authenticators: {staff: {basic: {users: /etc/tollgate/users, realm: Staff}}}")
        .replace("TLS", "{CERTIFICATES}")
        .replace("CERTIFICATES", "certificates: [{cert: /etc/tollgate/a.pem, key: /etc/tollgate/a.key}]")
        .replace(" E,", " {endpoints: ['http://10.0.0.1']},")
        .replace(" E}", " {endpoints: ['http://10.0.0.1']}}")
        .replace("FRAGMENT", &fragment.replace("${SECRET}", "0123456789abcdef"))
}

/// The code in the last column of the tables.
fn spellings(page: &str) -> BTreeSet<String> {
    let rows = page
        .lines()
        .filter(|line| line.starts_with("| ") && !line.ends_with("| here |"));
    let code = |row: &str| -> Vec<String> {
        let last = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        last.split('`')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect()
    };
    rows.flat_map(code)
        .filter(|code| code.contains(": "))
        .collect()
}

#[test]
fn every_spelling_for_those_who_come_from_other_gateways_is_one_that_the_file_takes() {
    let page = std::fs::read_to_string(root().join("docs/coming-from.md")).unwrap();
    let spellings = spellings(&page);
    assert!(spellings.len() > 60, "{}", spellings.len());
    let wrong: Vec<_> = spellings
        .iter()
        .filter(|spelling| !ELSEWHERE.contains(&spelling.as_str()))
        .filter_map(|spelling| {
            let refusals: Vec<_> = PLACES
                .iter()
                .filter_map(|place| check(&file(place, spelling)).err())
                .collect();
            // The shortest says most likely what is wrong.
            let shortest = refusals
                .iter()
                .map(ToString::to_string)
                .min_by_key(String::len);
            (refusals.len() == PLACES.len())
                .then(|| format!("{spelling}: {}", shortest.unwrap_or_default()))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(
        ELSEWHERE
            .iter()
            .all(|elsewhere| spellings.contains(*elsewhere)),
        "one is gone from the page"
    );
}
