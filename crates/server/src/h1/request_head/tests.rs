use proptest::prelude::*;

use super::*;

const BOUNDS: SectionBounds = SectionBounds {
    bytes: 256,
    fields: 8,
};

/// Reads a section that arrives in pieces with these `ends`: the request, its refusal, or `None`
/// while it is incomplete.
fn read(
    bytes: &[u8],
    ends: &[usize],
) -> Result<Option<(Request<()>, ConnectionOptions, usize)>, Failure> {
    let mut head = RequestHead::default();
    for end in ends.iter().copied().chain([bytes.len()]) {
        if let Some(length) = head.read(&bytes[..end], &BOUNDS)? {
            let mut request = Request::new(());
            let options = head.finish(&Bytes::copy_from_slice(&bytes[..length]), &mut request)?;
            assert!(head.is_blank() && head.fields.is_empty());
            return Ok(Some((request, options, length)));
        }
    }
    Ok(None)
}

fn whole(section: &str) -> (Request<()>, ConnectionOptions) {
    let (request, options, length) = read(section.as_bytes(), &[]).unwrap().unwrap();
    assert_eq!(length, section.len());
    (request, options)
}

fn options(line: &str, fields: &str) -> ConnectionOptions {
    whole(&format!("{line}\r\nHost: a\r\n{fields}\r\n")).1
}

/// Bytes that look like HTTP, more or less.
fn almost_http() -> impl Strategy<Value = Vec<u8>> {
    let word = prop::sample::select(vec![
        "GET / HTTP/1.1\r\n",
        "POST /a HTTP/1.1\r\n",
        "GET / HTTP/1.0\r\n",
        "GET http://b/c HTTP/1.1\r\n",
        "Host: a\r\n",
        "Content-Length: 5\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Connection: close\r\n",
        "X: y\r\n",
        "X:\t \r\n",
        "Upgrade: z\r\n",
        "\r\n",
        "\n",
        "\r",
        " ",
        ":",
        "\0",
        "GET",
        "/",
        "HTTP/1.1",
    ]);
    prop::collection::vec(word, 0..20).prop_map(|words| words.concat().into_bytes())
}

fn shown(bytes: &[u8], ends: &[usize]) -> String {
    format!("{:?}", read(bytes, ends))
}

proptest! {
    #[test]
    fn a_request_does_not_depend_on_how_its_bytes_arrive(
        bytes in almost_http(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..10),
    ) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.sort_unstable();
        let at_once = shown(&bytes, &[]);
        prop_assert_eq!(&shown(&bytes, &cuts), &at_once);
        let singly: Vec<usize> = (0..bytes.len()).collect();
        prop_assert_eq!(&shown(&bytes, &singly), &at_once);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let _ = read(&bytes, &[]);
    }

    #[test]
    fn any_value_is_taken_by_the_rule_or_refused(value in prop::collection::vec(any::<u8>(), 1..20)) {
        prop_assume!(!value.contains(&b'\n'));
        let section = [b"GET / HTTP/1.1\r\nHost: a\r\nx: ", &*value, b"\r\n\r\n"].concat();
        let taken = read(&section, &[]).is_ok_and(|read| read.is_some_and(|(request, ..)| {
            request.headers()["x"].as_bytes() == syntax::trim(&value)
        }));
        prop_assert_eq!(taken, value.iter().all(|byte| syntax::is_value_byte(*byte)));
    }
}

#[test]
fn a_name_or_method_is_a_token_and_nothing_else() {
    for byte in (0..=u8::MAX).filter(|byte| !b"\n: ".contains(byte)) {
        let good = syntax::is_token(&[byte]);
        let name = [
            b"GET / HTTP/1.1\r\nHost: a\r\n",
            &[byte][..],
            b"x: 1\r\n\r\n",
        ]
        .concat();
        let method = [b"G", &[byte][..], b" / HTTP/1.1\r\nHost: a\r\n\r\n"].concat();
        let taken = |section: &[u8]| matches!(read(section, &[]), Ok(Some(_)));
        assert_eq!(taken(&name), good, "{byte}");
        assert_eq!(taken(&method), good && !byte.is_ascii_lowercase(), "{byte}");
    }
}

#[test]
fn a_request_has_what_its_section_has() {
    let (request, _) =
        whole("\r\nPUT /a?b HTTP/1.1\r\nHost: c\r\nX-Y:  1 2\t\r\nempty:\r\nx-y: 3\r\n\r\n");
    assert_eq!(
        (request.method(), request.uri().to_string()),
        (&Method::PUT, "/a?b".to_owned())
    );
    assert_eq!(request.version(), Version::HTTP_11);
    assert_eq!(request.headers().len(), 4);
    assert_eq!(
        request.headers().get_all("x-y").iter().collect::<Vec<_>>(),
        ["1 2", "3"]
    );
    assert_eq!(
        (&request.headers()["host"], request.headers()["empty"].len()),
        (&HeaderValue::from_static("c"), 0)
    );
}

#[test]
fn the_authority_of_the_target_is_the_host() {
    let (request, _) = whole("GET http://b:81/c HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(
        request.headers().get_all(HOST).iter().collect::<Vec<_>>(),
        ["b:81"]
    );
}

#[test]
fn a_connection_is_kept_by_the_rules_of_its_version() {
    for (version, fields, kept) in [
        ("1.1", "", true),
        ("1.1", "Connection: keep-alive\r\n", true),
        ("1.1", "Connection: x, CLOSE\r\n", false),
        (
            "1.1",
            "Connection: close\r\nConnection: keep-alive\r\n",
            false,
        ),
        ("1.0", "", false),
        ("1.0", "Connection: Keep-Alive\r\n", true),
        ("1.0", "Connection: keep-alive, close\r\n", false),
    ] {
        assert_eq!(
            options(&format!("GET / HTTP/{version}"), fields).keeps_alive,
            kept,
            "{version} {fields}"
        );
    }
}

#[test]
fn only_http_1_1_upgrades_and_awaits_a_100() {
    let fields =
        "Upgrade: x\r\nExpect: 100-Continue\r\nTE: gzip, trailers\r\nContent-Length: 7\r\n";
    let new = options("POST / HTTP/1.1", fields);
    assert_eq!(
        (new.upgrade, new.awaits_continue, new.takes_trailers),
        (true, true, true)
    );
    assert_eq!(new.framing, BodyFraming::Length(7));
    let old = options("POST / HTTP/1.0", fields);
    assert_eq!((old.upgrade, old.awaits_continue), (false, false));
}
