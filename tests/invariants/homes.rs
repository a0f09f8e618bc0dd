//! Crates, the clock, I/O, status codes and the rules about addresses are named where they belong
//! and nowhere else.

use crate::imports::Workspace;
use crate::paths::paths;
use crate::source::Source;

/// Crates that one place names, or one place of each crate, so that they can be replaced there.
const HOMES: [(&str, &[&str], &str); 10] = [
    (
        "x509_parser",
        &["crates/wire/src/transport/tls"],
        "ask for a `ClientIdentity`",
    ),
    (
        "hickory_resolver",
        &["crates/proxy/src/upstream/discovery/dns"],
        "take a `DnsOutcome`",
    ),
    (
        "jiff",
        &["crates/limiter/src/algorithm/calendar"],
        "ask for a `Period`",
    ),
    (
        "fred",
        &["crates/limiter/src/store/redis"],
        "ask for a `Store`",
    ),
    (
        "rustls",
        &[
            "crates/limiter/src/store/redis",
            "crates/wire/src/transport/tls",
        ],
        "describe it with a spec",
    ),
    (
        "rustls_native_certs",
        &[
            "crates/limiter/src/store/redis",
            "crates/wire/src/transport/tls",
        ],
        "describe it with a spec",
    ),
    (
        "tokio_rustls",
        &["crates/wire/src/transport/tls"],
        "take a `Stream`",
    ),
    (
        "httparse",
        &["crates/proxy/src/connection/response"],
        "take a `Head`",
    ),
    (
        "saphyr_parser",
        &["crates/config/src"],
        "take what `config` has built",
    ),
    (
        "sqlx",
        &["crates/policies/src/database/sql"],
        "ask a `Connection`",
    ),
];

/// Places that name hyper's client, so that it can be replaced there, and why each needs one.
const HTTP_CLIENTS: [(&str, &str); 4] = [
    (
        "crates/identity/src/jwt/fetch",
        "an issuer's keys: one request on one connection, on the control plane",
    ),
    (
        "crates/proxy/src/upstream/watch/probe",
        "a probe is one request on a connection of its own, from the control plane",
    ),
    (
        "src/cli/admin_client",
        "an operator's one request to the admin port, from a process that runs no gateway",
    ),
    (
        "crates/judge/src/drive/http",
        "is a client, of any gateway, and must not share what it judges",
    ),
];

/// Places that read time.
const CLOCKS: [(&str, &str); 2] = [
    ("crates/limiter/src/clock", "the clock of all crates"),
    ("crates/testing", "tests wait for real servers in real time"),
];

/// Files of `algorithm/` that may name words of [`NO_ARITHMETIC`], which, and why.
const MORE_THAN_ARITHMETIC: [(&str, &str, &str); 3] = [
    (
        "crates/limiter/src/algorithm/window",
        "SmallVec",
        "two entries stand in place, and only more are on the heap",
    ),
    (
        "crates/limiter/src/algorithm/concurrency",
        "Vec",
        "a store lends the list of those who hold permits",
    ),
    (
        "crates/limiter/src/algorithm/calendar",
        "Box Vec Mutex",
        "finds a time zone once, and remembers one period of it",
    ),
];

const NO_ARITHMETIC: [&str; 24] = [
    "async",
    "await",
    "Box",
    "Vec",
    "SmallVec",
    "vec!",
    "String",
    "format!",
    "to_string",
    "to_owned",
    "to_vec",
    "collect",
    "Arc",
    "Rc",
    "Mutex",
    "HashMap",
    "BTreeMap",
    "std::io",
    "std::fs",
    "std::net",
    "tokio",
    "tracing",
    "println!",
    "metrics",
];

/// Places whose whole purpose is an answer.
const ANSWERS: [&str; 3] = [
    "crates/wire/src/error",
    "crates/limiter/src/request/answer/denial",
    "crates/limiter/src/request/answer/problem",
];

/// Status codes outside of [`ANSWERS`]: where, which (`*`: any), and why that is no answer of the
/// data path's own.
const STATUS_CODES: [(&str, &str, &str); 14] = [
    (
        "crates/identity/src/jwt/fetch",
        "OK",
        "recognises that an issuer answered with its keys",
    ),
    (
        "crates/admin/src",
        "*",
        "the admin server's answers are its API, not the gateway's",
    ),
    (
        "crates/team/src/api",
        "PAYLOAD_TOO_LARGE",
        "recognises a body that the admin server's framework refused",
    ),
    (
        "crates/config/src",
        "*",
        "what an operator may write under `respond`",
    ),
    (
        "crates/proxy/src",
        "SWITCHING_PROTOCOLS",
        "recognises that the upstream agreed to an upgrade",
    ),
    (
        "crates/proxy/src",
        "UPGRADE_REQUIRED",
        "keeps the protocols that the upstream asks for",
    ),
    (
        "crates/proxy/src",
        "CONTINUE",
        "tells an interim response of the upstream from the final one",
    ),
    (
        "crates/server/src",
        "SWITCHING_PROTOCOLS",
        "recognises that a connection stops speaking HTTP",
    ),
    (
        "crates/wire/src/http/h2/websocket_proof",
        "SWITCHING_PROTOCOLS",
        "recognises that the upstream agreed to a WebSocket",
    ),
    (
        "crates/wire/src/http/response_rules",
        "NO_CONTENT",
        "such an answer has no content, whoever gives it",
    ),
    (
        "crates/wire/src/http/response_rules",
        "PARTIAL_CONTENT",
        "recognises a part of some content, whoever sends it",
    ),
    (
        "crates/wire/src/http/response_rules",
        "NOT_MODIFIED",
        "nor has such an answer, and its Content-Length is another's",
    ),
    (
        "crates/server/src",
        "CONTINUE",
        "asks a client for the body that it holds back",
    ),
    (
        "crates/server/src",
        "OK",
        "the status line that is written most is written as it is",
    ),
];

/// Only its home names a crate of [`HOMES`].
pub fn crates_at_home(workspace: &Workspace) -> Vec<String> {
    let found = HOMES.iter().flat_map(|(name, homes, instead)| {
        let outside = workspace
            .sources
            .iter()
            .filter(|source| !homes.iter().any(|home| source.is_in(home)));
        outside.flat_map(move |source| {
            let found = source.find(name).into_iter();
            let homes = homes.join(" or ");
            found.map(move |at| {
                format!(
                    "{}: names {name}, which only {homes} may: {instead}",
                    source.at(at)
                )
            })
        })
    });
    found.collect()
}

/// Only [`HTTP_CLIENTS`] name an HTTP client.
pub fn clients_at_home(workspace: &Workspace) -> Vec<String> {
    let elsewhere = workspace
        .sources
        .iter()
        .filter(|source| !HTTP_CLIENTS.iter().any(|(place, _)| source.is_in(place)));
    let found = elsewhere.filter_map(|source| {
        let at = names_a_client(source)?;
        Some(format!(
            "{}: names an HTTP client: ask crates/proxy/ to send",
            source.at(at)
        ))
    });
    found.collect()
}

fn names_a_client(source: &Source) -> Option<usize> {
    let found = paths(source).into_iter().find(|path| {
        let mut segments = path
            .segments
            .iter()
            .map(String::as_str)
            .filter(|segment| !segment.is_empty());
        matches!(
            (segments.next(), segments.next()),
            (Some("hyper" | "hyper_util"), Some("client"))
        )
    });
    found.map(|path| path.at)
}

/// Only the clock reads time. Waiting is not reading.
pub fn one_clock(workspace: &Workspace) -> Vec<String> {
    const READS: [&str; 3] = ["Instant::now", "SystemTime::now", ".elapsed("];
    let others = workspace
        .sources
        .iter()
        .filter(|source| !CLOCKS.iter().any(|(place, _)| source.is_in(place)));
    naming(others, &READS, "reads time: use the limiter's `clock`")
}

/// Only the rules about addresses ask what an address is: they ask its canonical form.
pub fn one_judge_of_addresses(workspace: &Workspace) -> Vec<String> {
    const ASKS: [&str; 4] = [
        ".is_unspecified(",
        ".is_loopback(",
        ".is_multicast(",
        ".is_broadcast(",
    ];
    let others = workspace
        .sources
        .iter()
        .filter(|source| !source.is_in("crates/wire/src/transport/address"));
    let instead = "does not know IPv4 addresses in the form of IPv6 ones: ask `transport::address`";
    naming(others, &ASKS, instead)
}

/// The algorithms neither allocate nor wait nor do I/O.
pub fn algorithms_are_arithmetic(workspace: &Workspace) -> Vec<String> {
    let algorithms = workspace
        .sources
        .iter()
        .filter(|source| source.is_in("crates/limiter/src/algorithm"));
    let found = algorithms.flat_map(|source| {
        let excepted = |word: &str| {
            let rows = MORE_THAN_ARITHMETIC
                .iter()
                .filter(|(place, _, _)| source.is_in(place));
            rows.flat_map(|(_, words, _)| words.split(' '))
                .any(|allowed| allowed == word)
        };
        let words: Vec<_> = NO_ARITHMETIC
            .into_iter()
            .filter(|word| !excepted(word))
            .collect();
        naming(
            [source].into_iter(),
            &words,
            "is not arithmetic: leave it to the limiter or a store",
        )
    });
    found.collect()
}

/// Answers of our own are in few tables.
pub fn status_codes_in_tables(workspace: &Workspace) -> Vec<String> {
    let others = || {
        workspace
            .sources
            .iter()
            .filter(|source| !ANSWERS.iter().any(|place| source.is_in(place)))
    };
    let codes =
        others().flat_map(|source| paths(source).into_iter().map(move |path| (source, path)));
    let codes = codes.filter_map(|(source, path)| {
        let at = path
            .segments
            .iter()
            .position(|segment| segment == "StatusCode")?;
        Some((source, path.at, path.segments.get(at + 1)?.clone()))
    });
    let constants = codes.filter(|(_, _, code)| {
        code.chars()
            .all(|c| c.is_ascii_uppercase() || "_*".contains(c))
    });
    let written = constants.filter(|(source, _, code)| {
        !STATUS_CODES.iter().any(|(place, allowed, _)| {
            source.is_in(place) && ["*", code.as_str()].contains(allowed)
        })
    });
    let written = written.map(|(source, at, code)| {
        format!(
            "{}: writes {code}: make it a `Failure` of error.rs",
            source.at(at)
        )
    });
    written
        .chain(naming(
            others(),
            &["StatusCode as"],
            "hides a status code: name it in full",
        ))
        .collect()
}

/// Rows of the tables above whose place is gone or does not do what the row says.
pub fn rows_without_need(workspace: &Workspace) -> Vec<String> {
    let within = |place: &'static str| {
        workspace
            .sources
            .iter()
            .filter(move |source| source.is_in(place))
    };
    let named = |place, word: &str| within(place).any(|source| !source.find(word).is_empty());
    let mut idle = Vec::new();
    let homes = HOMES
        .iter()
        .flat_map(|(name, homes, _)| homes.iter().map(move |home| (*name, *home)));
    idle.extend(homes.filter(|(name, home)| !named(home, name)));
    let asks = |place| within(place).any(|source| names_a_client(source).is_some());
    idle.extend(
        HTTP_CLIENTS
            .iter()
            .filter(|(place, _)| !asks(place))
            .map(|row| ("an HTTP client", row.0)),
    );
    let allowed = MORE_THAN_ARITHMETIC
        .iter()
        .flat_map(|row| row.1.split(' ').map(|word| (word, row.0)));
    idle.extend(allowed.filter(|(word, place)| !named(place, word)));
    idle.extend(
        ANSWERS
            .iter()
            .filter(|place| !named(place, "StatusCode"))
            .map(|place| ("StatusCode", *place)),
    );
    let codes = STATUS_CODES
        .iter()
        .filter(|(place, code, _)| !named(place, if *code == "*" { "StatusCode" } else { code }));
    idle.extend(codes.map(|row| (row.1, row.0)));
    idle.into_iter()
        .map(|(name, place)| format!("{place}: does not name {name}: drop its row"))
        .collect()
}

fn naming<'a>(
    sources: impl Iterator<Item = &'a Source>,
    words: &[&str],
    complaint: &str,
) -> Vec<String> {
    let found = sources.flat_map(|source| {
        words.iter().flat_map(move |word| {
            source
                .find(word)
                .into_iter()
                .map(move |at| (source, *word, at))
        })
    });
    found
        .map(|(source, word, at)| format!("{}: `{word}` {complaint}", source.at(at)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{assert_found, assert_none, assert_passes, tree, workspace};

    #[test]
    fn only_its_own_place_names_a_crate() {
        assert_none(&crates_at_home(workspace()));
        assert_none(&clients_at_home(workspace()));
    }

    #[test]
    fn a_crate_away_from_home_is_found() {
        assert_found(
            crates_at_home,
            "src/admin/mod.rs",
            "use fred::clients::Client;",
        );
        assert_found(
            crates_at_home,
            "crates/limiter/src/store/memory.rs",
            "fn f(c: &fred::prelude::Client) {}",
        );
        assert_found(
            crates_at_home,
            "crates/limiter/src/store/mod.rs",
            "use rustls::ClientConfig;",
        );
        assert_found(
            crates_at_home,
            "src/app/mod.rs",
            "use saphyr_parser::{Event, Parser};",
        );
        assert_passes(
            crates_at_home,
            "src/admin/mod.rs",
            "// fred\nconst NAME: &str = \"fred\"; fn alfred() {}",
        );
        assert_found(
            clients_at_home,
            "src/gateway/stack.rs",
            "use hyper::{body::Incoming, client::conn::http1};",
        );
        assert_found(
            clients_at_home,
            "src/gateway/stack.rs",
            "use hyper_util::client::legacy::Client;",
        );
        assert_found(
            clients_at_home,
            "crates/judge/src/drive/node.rs",
            "fn f() { hyper::client::conn::http1::handshake() }",
        );
        assert_passes(
            clients_at_home,
            "crates/judge/src/drive/http.rs",
            "use hyper::client::conn::http1::handshake;",
        );
        assert_passes(
            clients_at_home,
            "src/server/worker.rs",
            "use hyper::{body::Incoming, server::conn::http1};",
        );
    }

    #[test]
    fn only_clock_reads_time() {
        assert_none(&one_clock(workspace()));
        assert_found(
            one_clock,
            "src/proxy/retry.rs",
            "fn f() { let begun = std::time::Instant::now(); }",
        );
        assert_found(
            one_clock,
            "src/proxy/retry.rs",
            "fn f(begun: Instant) { begun.elapsed(); }",
        );
        assert_found(
            one_clock,
            "src/cli/run.rs",
            "use std::time::SystemTime as T; fn f() { SystemTime::now(); }",
        );
        assert_passes(
            one_clock,
            "src/proxy/retry.rs",
            "async fn f() { tokio::time::sleep(WAIT).await }",
        );
        assert_passes(
            one_clock,
            "crates/limiter/src/clock.rs",
            "fn now() -> Instant { Instant::now() }",
        );
    }

    #[test]
    fn addresses_are_judged_in_their_canonical_form() {
        assert_none(&one_judge_of_addresses(workspace()));
        let asks = "fn f(ip: IpAddr) -> bool { ip.is_loopback() }";
        assert_found(one_judge_of_addresses, "src/cli/health.rs", asks);
        let home = "crates/wire/src/transport/address.rs";
        assert_passes(one_judge_of_addresses, home, asks);
    }

    #[test]
    fn the_algorithms_do_arithmetic_and_nothing_else() {
        assert_none(&algorithms_are_arithmetic(workspace()));
        for misuse in [
            "fn f() -> Box<u8> { x }",
            "async fn f() {}",
            "fn f() -> T { format!() }",
            "use std::io;",
        ] {
            assert_found(
                algorithms_are_arithmetic,
                "crates/limiter/src/algorithm/window.rs",
                misuse,
            );
        }
        let list = "fn f(holders: &mut Vec<Holder>) {}";
        assert_found(
            algorithms_are_arithmetic,
            "crates/limiter/src/algorithm/token_bucket.rs",
            list,
        );
        assert_passes(
            algorithms_are_arithmetic,
            "crates/limiter/src/algorithm/concurrency.rs",
            list,
        );
    }

    #[test]
    fn only_the_tables_of_answers_write_a_status_code() {
        assert_none(&status_codes_in_tables(workspace()));
        let reply = "fn f() -> Response<Body> { respond(StatusCode::BAD_GATEWAY) }";
        assert_found(status_codes_in_tables, "src/proxy/forward.rs", reply);
        let in_full = "fn f() -> Response<Body> { respond(http::StatusCode::BAD_GATEWAY) }";
        assert_found(
            status_codes_in_tables,
            "crates/limiter/src/layer.rs",
            in_full,
        );
        assert_found(
            status_codes_in_tables,
            "src/proxy/forward.rs",
            "use http::StatusCode as S;",
        );
        assert_passes(status_codes_in_tables, "crates/wire/src/error.rs", reply);
        assert_passes(
            status_codes_in_tables,
            "src/proxy/forward.rs",
            "fn f(status: StatusCode) { status.as_u16(); }",
        );
    }

    #[test]
    fn each_row_of_the_tables_is_needed() {
        assert_none(&rows_without_need(workspace()));
        let idle = rows_without_need(&tree(&[(
            "src/cli/admin_client.rs",
            "use hyper::client::conn::http1;",
        )]));
        assert!(
            idle.iter()
                .any(|finding| finding.starts_with("crates/judge/src/drive/http: ")),
            "{idle:?}"
        );
        assert!(
            !idle
                .iter()
                .any(|finding| finding.starts_with("src/cli/admin_client: ")),
            "{idle:?}"
        );
    }
}
