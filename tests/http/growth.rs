//! Walks over what a peer has written: sixteen times as much takes about sixteen times the time,
//! whatever the peer writes. Time is that of the processor for this thread.

use bytes::BytesMut;
use http::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, COOKIE, TRAILER, UPGRADE, VARY, VIA,
};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use rustix::time::{ClockId, clock_gettime};
use tollgate_identity::credential::{self, CredentialPlace};
use tollgate_limiter::limit::client_address::{TrustedProxies, X_FORWARDED_FOR};
use tollgate_proxy::connection::response::{self, HeadReader};
use tollgate_proxy::message::{additions, forwarded, headers};
use tollgate_server::h1::request_head::RequestHead;
use tollgate_wire::body::Body;
use tollgate_wire::http::h1::body_decoder::BodyDecoder;
use tollgate_wire::http::h1::{BodyFraming, SectionBounds};
use tollgate_wire::http::trailers::{self, AnnouncedTrailers};
use tollgate_wire::http::{preferences, request_rules, response_rules, upgrade_rules};

/// Fields or elements of the smaller input, and how many times as many the larger has.
const FEW: usize = 400;
const TIMES: usize = 16;

/// How many times as long the larger input may take. A walk within a walk takes 256 times as long.
const MOST: f64 = 64.0;

const BOUNDS: SectionBounds = SectionBounds {
    bytes: 1 << 20,
    fields: 10_000,
};

/// Prepares an input of so many parts. The result is the walk over it.
type Walk = fn(usize) -> Box<dyn FnOnce()>;

fn joined(count: usize, element: impl Fn(usize) -> String) -> HeaderValue {
    let all: Vec<String> = (0..count).map(element).collect();
    all.join(", ").parse().unwrap()
}

/// One field with a list of so many elements.
fn list(name: HeaderName, count: usize, element: impl Fn(usize) -> String) -> HeaderMap {
    HeaderMap::from_iter([(name, joined(count, element))])
}

/// So many elements of a field, in a few lines. In debug builds, a `HeaderMap` checks all lines for
/// each that it removes.
fn few_lines(name: &HeaderName, count: usize, value: &str) -> HeaderMap {
    lines(name, 8, |_| value.repeat(count / 8))
}

/// So many lines of one field.
fn lines(name: &HeaderName, count: usize, value: impl Fn(usize) -> String) -> HeaderMap {
    let mut fields = HeaderMap::new();
    for number in 0..count {
        fields.append(name, value(number).parse().unwrap());
    }
    fields
}

/// So many fields with names of their own.
fn named(count: usize, name: impl Fn(usize) -> String) -> HeaderMap {
    let mut fields = HeaderMap::new();
    for number in 0..count {
        let name = HeaderName::from_bytes(name(number).as_bytes()).unwrap();
        fields.append(name, HeaderValue::from_static("1"));
    }
    fields
}

/// So many fields, half of them with these names, behind the others: a search for each of them
/// passes all others.
fn behind_others(count: usize, name: impl Fn(usize) -> String) -> HeaderMap {
    named(count, |number| match number.checked_sub(count / 2) {
        Some(number) => name(number),
        None => option(number),
    })
}

/// `a-b-c-d-e`, as some servers read it: with other characters for `-`.
fn disguised(number: usize) -> String {
    let separators = b"!#$%&'*+.^_`|~-";
    let separator = |digit: u32| separators[number / 15_usize.pow(digit) % 15] as char;
    format!(
        "a{}b{}c{}d{}e",
        separator(0),
        separator(1),
        separator(2),
        separator(3)
    )
}

/// The walk of `walk` over `fields`.
fn over(mut fields: HeaderMap, walk: impl FnOnce(&mut HeaderMap) + 'static) -> Box<dyn FnOnce()> {
    Box::new(move || walk(&mut fields))
}

fn option(number: usize) -> String {
    format!("x-{number}")
}

/// Options of `Connection`, and the fields that they name.
fn connection_options(count: usize) -> HeaderMap {
    let mut fields = named(count, option);
    fields.insert(CONNECTION, joined(count, option));
    fields
}

fn section(first: &str, count: usize) -> Vec<u8> {
    let fields: String = (0..count)
        .map(|number| format!("x-{number}: 1\r\n"))
        .collect();
    format!("{first}{fields}\r\n").into_bytes()
}

const WALKS: [(&str, Walk); 25] = [
    ("trailers that belong before the content", |count| {
        let fields = behind_others(count, |number| format!("content_{number}"));
        over(fields, |fields| {
            let others = fields.len() / 2;
            trailers::admit(fields, usize::MAX).unwrap();
            assert_eq!(fields.len(), others);
        })
    }),
    ("trailers that are announced", |count| {
        let mut fields = named(count, option);
        fields.insert(TRAILER, joined(count, option));
        over(fields, |fields| {
            let announced = AnnouncedTrailers::from_headers(fields);
            assert!(announced.filter(fields).count() > 0);
        })
    }),
    ("options of Connection in a request", |count| {
        over(connection_options(count), |fields| {
            headers::strip_request(fields, false, false);
            assert!(fields.is_empty());
        })
    }),
    ("options of Connection in a response", |count| {
        over(connection_options(count), |fields| {
            headers::strip_response(fields);
        })
    }),
    ("options of Connection before fields are set", |count| {
        over(connection_options(count), headers::settle_connection)
    }),
    ("the option for an upgrade, again and again", |count| {
        let mut fields = few_lines(&UPGRADE, count, "a, ");
        fields.insert(CONNECTION, joined(count, |_| "upgrade".to_owned()));
        over(fields, |fields| {
            assert!(
                headers::strip_request(fields, false, false)
                    .upgrade
                    .is_some()
            );
        })
    }),
    ("protocols that are offered and chosen", |count| {
        let offered = joined(count, |number| format!("p{number}"));
        let chosen = joined(count, |number| format!("P{}/1", count - 1 - number));
        Box::new(move || assert!(upgrade_rules::is_offered(&chosen, &offered)))
    }),
    ("lines of Upgrade", |count| {
        over(lines(&UPGRADE, count, option), |fields| {
            assert!(upgrade_rules::protocols(fields).is_some());
        })
    }),
    ("claims about the origin", |count| {
        let fields = behind_others(count, |number| format!("x_forwarded-{number}"));
        over(fields, |fields| headers::strip_claims(fields, false))
    }),
    ("fields of a request that is sent on", |count| {
        let fields = behind_others(count, |number| format!("x_forwarded_{number}"));
        over(fields, |fields| {
            headers::strip_request(fields, false, false);
        })
    }),
    ("fields of a response for HTTP/2", |count| {
        let mut response = Response::new(Body::empty());
        *response.headers_mut() = named(count, option);
        Box::new(move || response_rules::prepare(&mut response, false))
    }),
    ("fields of a request of HTTP/2", |count| {
        let mut request = Request::get("http://a/").body(()).unwrap();
        *request.headers_mut() = named(count, option);
        request.headers_mut().extend(lines(&COOKIE, count, option));
        Box::new(move || request_rules::check(&mut request, &BOUNDS).unwrap())
    }),
    ("crumbs of cookies", |count| {
        over(few_lines(&COOKIE, count, "a=1; "), additions::join_cookies)
    }),
    ("a cookie that is a credential", |count| {
        let mut request = Request::new(Body::empty());
        *request.headers_mut() = few_lines(&COOKIE, count, "k0=1; k1=1; ");
        let place = CredentialPlace::Cookie("k1".into());
        Box::new(move || credential::remove(&place, &mut request))
    }),
    ("other spellings of a credential's field", |count| {
        let mut request = Request::new(Body::empty());
        *request.headers_mut() = behind_others(count, disguised);
        let others = count / 2;
        let place = CredentialPlace::Header(HeaderName::from_static("a-b-c-d-e"));
        Box::new(move || {
            credential::remove(&place, &mut request);
            assert_eq!(request.headers().len(), others);
        })
    }),
    ("Vary", |count| {
        over(list(VARY, count, option), |fields| {
            preferences::vary_on(fields, &ACCEPT_ENCODING)
        })
    }),
    ("Accept-Encoding", |count| {
        let fields = list(ACCEPT_ENCODING, count, |number| format!("c{number};q=0.1"));
        over(fields, |fields| {
            assert_eq!(preferences::weight_of_coding(fields, "gzip"), 0);
        })
    }),
    ("elements of X-Forwarded-For", |count| {
        let fields = list(X_FORWARDED_FOR, count, |_| "10.0.0.1".to_owned());
        over(fields, read_client)
    }),
    ("lines of X-Forwarded-For", |count| {
        let fields = lines(&X_FORWARDED_FOR, count, |_| "10.0.0.1".to_owned());
        over(fields, read_client)
    }),
    ("Forwarded", |count| {
        let element = |number| format!("for=\"_\\\"{number}\";proto=http");
        let list = joined(count, element);
        Box::new(move || assert!(forwarded::is_forwarded(list.as_bytes())))
    }),
    ("comments of Via", |count| {
        over(few_lines(&VIA, count, "1.1 a (b (, "), |fields| {
            headers::strip_response(fields);
            assert!(fields.is_empty());
        })
    }),
    ("lengths of a response", |count| {
        let fields = list(CONTENT_LENGTH, count, |_| "5".to_owned());
        over(fields, |fields| {
            assert_eq!(response::content_length(fields), Ok(Some(5)));
        })
    }),
    ("the head of a request that comes byte by byte", |count| {
        let bytes = section("GET / HTTP/1.1\r\nhost: a\r\n", count);
        Box::new(move || {
            let mut head = RequestHead::default();
            for end in 1..bytes.len() {
                assert_eq!(head.read(&bytes[..end], &BOUNDS), Ok(None));
            }
        })
    }),
    ("the head of a response that comes byte by byte", |count| {
        let bytes = section("HTTP/1.1 200 OK\r\n", count);
        Box::new(move || {
            let mut reader = HeadReader::default();
            let mut read = BytesMut::new();
            for byte in &bytes[..bytes.len() - 1] {
                read.extend_from_slice(&[*byte]);
                assert!(reader.take(&mut read, false, &BOUNDS).unwrap().is_none());
            }
        })
    }),
    ("trailers that come byte by byte", |count| {
        let bytes = section("0\r\n", count);
        Box::new(move || {
            let mut decoder = BodyDecoder::new(BodyFraming::Chunked, BOUNDS);
            let mut read = BytesMut::new();
            for byte in &bytes {
                read.extend_from_slice(&[*byte]);
                decoder.decode(&mut read).unwrap();
            }
            assert!(decoder.is_over());
        })
    }),
];

fn read_client(fields: &mut HeaderMap) {
    let trusted: TrustedProxies = vec!["10.0.0.0/8".parse().unwrap()].into();
    let peer = [10, 0, 0, 2].into();
    assert_eq!(
        trusted.client_address(fields, peer),
        std::net::IpAddr::from([10, 0, 0, 1])
    );
}

/// Nanoseconds of the processor that this thread has used.
fn used() -> i128 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
}

/// The least time of a few runs.
fn time(walk: Walk, count: usize) -> f64 {
    let mut least = i128::MAX;
    for _ in 0..5 {
        let run = walk(count);
        let begun = used();
        run();
        least = least.min(used() - begun);
    }
    least as f64
}

#[test]
fn a_walk_over_sixteen_times_as_much_takes_about_sixteen_times_as_long() {
    let mut slow = String::new();
    for (name, walk) in WALKS {
        let growth = time(walk, TIMES * FEW) / time(walk, FEW);
        if growth > MOST {
            slow += &format!("{name}: {growth:.0} times\n");
        }
    }
    assert!(slow.is_empty(), "{slow}");
}
