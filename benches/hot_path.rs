//! Times a request on its way to a decision, piece by piece: `make bench`.

#![expect(
    clippy::unwrap_used,
    reason = "a benchmark that cannot be set up fails"
)]

use std::num::NonZeroU64;
use std::sync::Arc;

use bytes::BytesMut;
use divan::{Bencher, black_box};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, Version};
use tollgate_limiter::algorithm::share::Share;
use tollgate_limiter::algorithm::token_bucket as bucket;
use tollgate_limiter::algorithm::token_bucket::TokenBucket;
use tollgate_limiter::limit::client_address::TrustedProxies;
use tollgate_limiter::limit::key::Facts;
use tollgate_limiter::limit::key::Key;
use tollgate_limiter::limit::key::KeyPart;
use tollgate_limiter::limit::key::KeySpec;
use tollgate_limiter::limit::key::OnMissing;
use tollgate_limiter::limit::key::host::RequestHost;
use tollgate_limiter::request::headers::RateLimitFields;
use tollgate_limiter::request::headers::Standing;
use tollgate_limiter::store::BucketCharge;
use tollgate_limiter::store::memory::MemoryStore;
use tollgate_proxy::message::additions::{self, Additions, HopFields};
use tollgate_proxy::message::forwarded::ClientOrigin;
use tollgate_proxy::message::headers;
use tollgate_spec::route::path;
use tollgate_spec::route::table::RouteTable;
use tollgate_spec::route::{
    Action, FixedResponse, HostMatch, Match, PathMatch, PathPattern, Route, Segment,
};

fn main() {
    divan::main();
}

fn shape(per_second: u64) -> TokenBucket {
    let number = |number| NonZeroU64::new(number).unwrap();
    TokenBucket::new(number(per_second), number(1_000_000), number(per_second)).unwrap()
}

fn charge(key: &str, per_second: u64) -> BucketCharge {
    BucketCharge {
        key: Key::from(key),
        quota: shape(per_second).into(),
        cost: 1,
        largest_cost: 1,
    }
}

/// `/service-7/*` and so on, as an edge gateway has them.
fn routes(count: usize) -> Vec<Arc<Route>> {
    let route = |index: usize| {
        let segments = vec![Segment::Literal(format!("service-{index}").into())];
        Arc::new(Route {
            name: format!("service-{index}").into(),
            counted_as: format!("service-{index}").into(),
            matches: Match {
                hosts: vec![HostMatch::Any],
                paths: vec![PathMatch::Pattern(PathPattern {
                    segments,
                    rest: true,
                })],
                methods: vec![],
                headers: vec![],
            },
            listeners: vec![],
            takes_ambiguous_paths: false,
            action: Action::Respond(FixedResponse {
                status: StatusCode::OK,
                headers: vec![],
                body: bytes::Bytes::new(),
            }),
            networks: Default::default(),
            authenticate: None,
            cors: None,
            request_fields: Arc::default(),
            response_fields: Arc::default(),
            compression: None,
            error_pages: None,
            maintenance: None,
            limits: vec![],
            is_logged: true,
            max_body: None,
            answer_time: Default::default(),
            retry: None,
            upstream_time: Default::default(),
        })
    };
    (0..count).map(route).collect()
}

#[divan::bench(args = [1, 100, 1000])]
fn find_a_route(bencher: Bencher<'_, '_>, count: usize) {
    let table = RouteTable::build(&routes(count));
    let target = format!("/service-{}/orders/7", count / 2);
    let headers = HeaderMap::new();
    bencher.bench(|| {
        let path = path::normalize(black_box(&target));
        table.find(black_box("api.example.com"), &path, &Method::GET, &headers)
    });
}

#[divan::bench(args = ["client_ip", "header", "secret"])]
fn extract_a_key(bencher: Bencher<'_, '_>, part: &str) {
    let part = match part {
        "client_ip" => KeyPart::ClientIp {
            ipv4_prefix: 32,
            ipv6_prefix: 64,
        },
        "header" => KeyPart::Header(http::HeaderName::from_static("x-tenant")),
        _ => KeyPart::Header(http::header::AUTHORIZATION),
    };
    let spec = KeySpec {
        parts: vec![part],
        on_missing: OnMissing::Share,
    };
    let request = Request::builder()
        .uri(Uri::from_static("/orders/7"))
        .header("x-tenant", "acme")
        .header(
            "authorization",
            HeaderValue::from_static("Bearer 0123456789abcdef0123456789abcdef"),
        )
        .body(())
        .unwrap();
    let client_ip = Some("203.0.113.77".parse().unwrap());
    let host = RequestHost::Known("api.example.com");
    let facts = Facts {
        client_ip,
        host,
        route: "orders",
        ..Facts::from_request(&request)
    };
    bencher.bench_local(|| spec.extract(black_box("per-client"), black_box(&facts)));
}

#[divan::bench]
fn take_from_a_bucket(bencher: Bencher<'_, '_>) {
    let shape = shape(1_000_000);
    bencher.bench(|| {
        let granted = bucket::fitting(shape, black_box(17), 1, 1);
        bucket::charge(shape, black_box(17), 1, granted, 1)
    });
}

/// All threads on one key: the worst there is.
#[divan::bench(threads = [1, 2])]
fn decide_in_process_on_one_key(bencher: Bencher<'_, '_>) {
    let store = MemoryStore::new(100_000);
    let charges = [charge("per-client:203.0.113.77", 1_000_000)];
    bencher.bench(|| store.take_at(black_box(&charges), 1, 1_000_000, Share::WHOLE));
}

#[divan::bench(threads = [1, 2], args = [1_000, 1_000_000])]
fn decide_in_process_on_many_keys(bencher: Bencher<'_, '_>, keys: usize) {
    let store = MemoryStore::new(keys);
    let charges: Vec<[BucketCharge; 1]> = (0..keys)
        .map(|key| [charge(&format!("per-client:{key}"), 1_000_000)])
        .collect();
    bencher.bench(|| {
        store.take_at(
            black_box(&charges[fastrand::usize(..keys)]),
            1,
            1_000_000,
            Share::WHOLE,
        )
    });
}

#[divan::bench]
fn tell_what_is_left(bencher: Bencher<'_, '_>) {
    let policy = Some(HeaderValue::from_static("\"per-client\";q=20;w=2"));
    let standing = Standing {
        quota: 20,
        remaining: 7,
        reset_secs: Some(2),
    };
    bencher.bench(|| {
        let mut headers = HeaderMap::with_capacity(8);
        let standings = std::iter::once(("per-client", black_box(standing)));
        RateLimitFields::render(policy.clone(), standings, false).apply(&mut headers);
        headers
    });
}

/// The fields of a browser's request, and a connection's own among them.
fn request_fields() -> HeaderMap {
    fields(&[
        ("host", "api.example.com"),
        (
            "user-agent",
            "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
        ),
        (
            "accept",
            "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
        ),
        ("accept-language", "en"),
        ("accept-encoding", "gzip, deflate, br"),
        ("connection", "keep-alive"),
        ("cookie", "session=0123456789abcdef; theme=dark"),
        ("x-forwarded-for", "198.51.100.7"),
    ])
}

fn fields(of: &[(&'static str, &'static str)]) -> HeaderMap {
    of.iter()
        .map(|&(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        })
        .collect()
}

/// Removes and adds fields of a request on its way to the upstream.
#[divan::bench]
fn rewrite_the_fields_of_a_request(bencher: Bencher<'_, '_>) {
    let peer = "203.0.113.77".parse().unwrap();
    let trusted = TrustedProxies::default();
    let id = HeaderValue::from_static("0123456789abcdef0123456789abcdef");
    let mut out = BytesMut::with_capacity(4096);
    bencher
        .with_inputs(request_fields)
        .bench_local_refs(|fields| {
            let origin = ClientOrigin::resolve(fields, black_box(peer), &trusted);
            let found = headers::strip_request(fields, origin.peer_trusted, false);
            let host = fields.get(http::header::HOST).cloned();
            out.clear();
            Additions {
                origin: &origin,
                host,
                request_id: &id,
                received: Version::HTTP_11,
                hop: HopFields::Nothing,
            }
            .write(&mut out, fields);
            found
        });
}

#[divan::bench]
fn rewrite_the_fields_of_a_response(bencher: Bencher<'_, '_>) {
    let answer = || {
        fields(&[
            ("date", "Thu, 01 Jan 2026 00:00:00 GMT"),
            ("content-type", "application/json"),
            ("content-length", "1234"),
            ("connection", "keep-alive"),
            ("keep-alive", "timeout=5"),
        ])
    };
    let id = HeaderValue::from_static("0123456789abcdef0123456789abcdef");
    bencher.with_inputs(answer).bench_refs(|fields| {
        let found = headers::strip_response(fields);
        additions::add_to_response(fields, Version::HTTP_11, &id, None);
        found
    });
}
