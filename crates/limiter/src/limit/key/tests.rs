use http::header::{AUTHORIZATION, COOKIE};
use http::{HeaderName, Request};
use proptest::prelude::*;

use super::*;
use crate::limit::key::host::RequestHost;

fn key_of(
    parts: Vec<KeyPart>,
    on_missing: OnMissing,
    request: &Request<()>,
    ip: &str,
) -> ExtractedKey {
    let facts = Facts {
        client_ip: ip.parse().ok(),
        client_certificate: None,
        client_identity: None,
        host: RequestHost::Known("h.example"),
        route: "orders",
        param: &|name| (name == "id").then_some("42"),
        ..Facts::from_request(request)
    };
    KeySpec { parts, on_missing }.extract("l", &facts)
}

fn text_of(parts: Vec<KeyPart>, request: &Request<()>, ip: &str) -> String {
    match key_of(parts, OnMissing::Share, request, ip) {
        ExtractedKey::Key(key) => String::from_utf8(key.0.to_vec()).unwrap(),
        other => panic!("{other:?}"),
    }
}

fn ip() -> KeyPart {
    KeyPart::ClientIp {
        ipv4_prefix: 32,
        ipv6_prefix: 64,
    }
}

#[test]
fn counts_ipv6_by_its_prefix_and_mapped_ipv4_as_ipv4() {
    let request = Request::new(());
    assert_eq!(text_of(vec![ip()], &request, "192.0.2.1"), "l:192.0.2.1");
    assert_eq!(
        text_of(vec![ip()], &request, "::ffff:192.0.2.1"),
        "l:192.0.2.1"
    );
    assert_eq!(
        text_of(vec![ip()], &request, "2001:db8:1:2:3:4:5:6"),
        "l:2001:db8:1:2::/64"
    );
    let wide = KeyPart::ClientIp {
        ipv4_prefix: 0,
        ipv6_prefix: 0,
    };
    assert_eq!(
        text_of(vec![wide.clone()], &request, "192.0.2.1"),
        "l:0.0.0.0/0"
    );
    assert_eq!(text_of(vec![wide], &request, "2001:db8::1"), "l:::/0");
}

#[test]
fn reads_every_part_of_a_request() {
    let request = Request::builder()
        .method("POST")
        .uri("/x?a=1&tenant=a+b%21&e")
        .header("x-tenant", "acme")
        .header("cookie", "a=1; sidx=no; sid=s3cret")
        .body(())
        .unwrap();
    let header = KeyPart::Header(HeaderName::from_static("x-tenant"));
    assert_eq!(
        text_of(vec![header, KeyPart::Route], &request, ""),
        "l:acme|orders"
    );
    assert_eq!(
        text_of(vec![KeyPart::Query("tenant".into())], &request, ""),
        "l:a%20b!"
    );
    assert_eq!(
        text_of(vec![KeyPart::Query("e".into())], &request, ""),
        "l:"
    );
    assert_eq!(
        text_of(
            vec![KeyPart::PathParam("id".into()), KeyPart::Method],
            &request,
            ""
        ),
        "l:42|POST"
    );
    assert_eq!(
        text_of(
            vec![KeyPart::Host, KeyPart::Constant("c".into())],
            &request,
            ""
        ),
        "l:h.example|c"
    );
    let sid = text_of(vec![KeyPart::Cookie("sid".into())], &request, "");
    assert!(sid.starts_with("l:#") && sid.len() == 35, "{sid}");
}

#[test]
fn secrets_and_long_values_leave_only_as_a_hash() {
    let long = "x".repeat(65);
    let request = Request::builder()
        .header("authorization", "Bearer abc")
        .header("x-api-key", "abc")
        .header("x-long", &long)
        .body(())
        .unwrap();
    for name in ["authorization", "x-api-key", "x-long"] {
        let key = text_of(
            vec![KeyPart::Header(HeaderName::from_static(name))],
            &request,
            "",
        );
        assert!(
            key.starts_with("l:#") && !key.contains("abc") && key.len() == 35,
            "{key}"
        );
    }
    let tenant = || KeyPart::Header(HeaderName::from_static("x-tenant"));
    let request = Request::builder()
        .header("x-tenant", "abc")
        .body(())
        .unwrap();
    assert_eq!(text_of(vec![tenant()], &request, ""), "l:abc");
    let of_key = KeyPart::Header(HeaderName::from_static("x-api-key"));
    let named = Request::builder()
        .header("x-api-key", "abc")
        .body(())
        .unwrap();
    let hashed = text_of(vec![KeyPart::Secret(Box::new(tenant()))], &request, "");
    assert_eq!(hashed, text_of(vec![of_key], &named, ""));
}

#[test]
fn an_operator_writes_a_value_as_it_is_or_its_hash() {
    let field = |name: &'static str, value: &str| {
        let request = Request::builder().header(name, value).body(()).unwrap();
        let key = KeyPart::Header(HeaderName::from_static(name))
            .field(&Facts::from_request(&request))
            .unwrap();
        assert!(!key.0.spilled());
        String::from_utf8(key.0.to_vec()).unwrap()
    };
    assert_eq!(field("x-tenant", "Acme | %"), "Acme | %");
    assert_eq!(field("x-tenant", &"x".repeat(64)), "x".repeat(64));
    // printf %s abc | sha256sum | cut -c -32
    assert_eq!(
        field("x-api-key", "abc"),
        "#ba7816bf8f01cfea414140de5dae2223"
    );
    assert_eq!(
        field("x-tenant", "#ba7816bf8f01cfea414140de5dae2223"),
        "#9493c5815da59faa5ecbd29f20540646"
    );
    assert_eq!(field("x-tenant", &"x".repeat(65)).len(), 33);
}

#[test]
fn a_missing_part_does_as_the_limit_says() {
    let request = Request::new(());
    let parts = || vec![KeyPart::Header(HeaderName::from_static("x-tenant"))];
    assert_eq!(
        key_of(parts(), OnMissing::Share, &request, ""),
        ExtractedKey::Key(Key::from("l:%"))
    );
    assert_eq!(
        key_of(parts(), OnMissing::Skip, &request, ""),
        ExtractedKey::Skip
    );
    assert_eq!(
        key_of(parts(), OnMissing::Refuse, &request, ""),
        ExtractedKey::Refuse
    );
}

#[test]
fn a_value_has_one_key_however_it_is_spelt() {
    let with = |part: &dyn Fn() -> KeyPart, name: &str, values: &[&[&str]]| {
        let keys: Vec<String> = values
            .iter()
            .map(|lines| {
                let request = lines.iter().fold(Request::builder(), |builder, line| {
                    builder.header(name, line.as_bytes())
                });
                text_of(vec![part()], &request.body(()).unwrap(), "")
            })
            .collect();
        assert!(keys.windows(2).all(|pair| pair[0] == pair[1]), "{keys:?}");
    };
    let header = |name: &'static str| move || KeyPart::Header(HeaderName::from_static(name));
    with(
        &header("authorization"),
        "authorization",
        &[
            &["Bearer k"],
            &["bearer k"],
            &["Bearer  k"],
            &["Bearer k", "BEARER k "],
        ],
    );
    with(
        &header("proxy-authorization"),
        "proxy-authorization",
        &[&["Basic YTpiYw=="], &["basic YTpiYw"]],
    );
    // HTTP/2 lets them through.
    with(
        &header("x-tenant"),
        "x-tenant",
        &[&["acme"], &[" acme\t"], &["acme", "acme "]],
    );
    let cookie = || KeyPart::Cookie("sid".into());
    with(
        &cookie,
        "cookie",
        &[
            &["sid=a"],
            &["sid= a"],
            &["x=1;sid =a"],
            &["sid=\"a\""],
            &["sid=%61"],
            &[r#"sid="\141""#],
            &["sid=a\u{a0}"],
            &["sid=a", "sid=\"a\""],
        ],
    );
    let one = |part: fn() -> KeyPart, requests: &[&str]| {
        let keys: Vec<String> = requests
            .iter()
            .map(|uri| {
                text_of(
                    vec![part()],
                    &Request::builder().uri(*uri).body(()).unwrap(),
                    "",
                )
            })
            .collect();
        assert!(keys.windows(2).all(|pair| pair[0] == pair[1]), "{keys:?}");
    };
    one(
        || KeyPart::Query("t".into()),
        &["/?t=a+b", "/?t=a%20b", "/?%74=%61%20b", "/?x&t=a+b"],
    );
}

#[test]
fn an_identity_counts_by_its_authenticator_and_id_and_what_it_lacks_is_missing() {
    let mut identity = CallerIdentity::new("users", "ada|7");
    identity.labels.insert("team".to_owned(), "web".to_owned());
    identity
        .claims
        .insert("api_token".to_owned(), "t".to_owned());
    assert_eq!(
        (identity.authenticator(), identity.id()),
        ("users", "ada|7")
    );
    let mut named = CallerIdentity::default();
    named.name_as("users/ada|7");
    assert_eq!((named.authenticator(), named.id()), ("users", "ada|7"));
    let mut request = Request::new(());
    let part = |part| vec![KeyPart::Identity(part)];
    assert_eq!(
        text_of(part(IdentityPart::Qualified), &request, ""),
        "l:%",
        "nobody has authenticated"
    );
    request.extensions_mut().insert(identity);
    let of_request = |request: &Request<()>, part| {
        let facts = Facts::from_request(request);
        let ExtractedKey::Key(key) = KeySpec::from(KeyPart::Identity(part)).extract("l", &facts)
        else {
            panic!()
        };
        String::from_utf8(key.0.to_vec()).unwrap()
    };
    assert_eq!(
        of_request(&request, IdentityPart::Qualified),
        "l:users/ada%7c7"
    );
    assert_eq!(
        of_request(&request, IdentityPart::Label("team".into())),
        "l:web"
    );
    assert_eq!(of_request(&request, IdentityPart::Plan), "l:%");
    assert_eq!(
        of_request(&request, IdentityPart::Claim("sub".into())),
        "l:%"
    );
    let secret = of_request(&request, IdentityPart::Claim("api_token".into()));
    assert!(
        secret.starts_with("l:#") && secret.len() == 35,
        "a claim called a token leaves as a hash: {secret}"
    );
}

#[test]
fn path_parameters_and_methods_have_one_key_however_they_are_spelt() {
    let key = |param: &'static str, method: &str| {
        let request = Request::builder().method(method).body(()).unwrap();
        let facts = Facts {
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            extensions: None,
            body_length: None,
            client_ip: None,
            client_certificate: None,
            client_identity: None,
            host: RequestHost::Known(""),
            route: "",
            param: &|_| Some(param),
        };
        let parts = vec![KeyPart::PathParam("id".into()), KeyPart::Method];
        match (KeySpec {
            parts,
            on_missing: OnMissing::Share,
        })
        .extract("l", &facts)
        {
            ExtractedKey::Key(key) => String::from_utf8(key.0.to_vec()).unwrap(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(key("a%3Ab", "X-1"), key("a:b", "X-2"));
    assert_eq!(key("a:b", "GET"), "l:a:b|GET");
    assert_ne!(key("a%2525", "GET"), key("a%25", "GET"));
}

#[test]
fn a_value_beside_another_is_no_way_to_a_bucket_of_ones_own() {
    let key = |part: KeyPart, uri: &str, lines: [(&str, &str); 2]| {
        let [(one, first), (other, second)] = lines;
        text_of(
            vec![part],
            &Request::builder()
                .uri(uri)
                .header(one, first.as_bytes())
                .header(other, second.as_bytes())
                .body(())
                .unwrap(),
            "",
        )
    };
    let header = || KeyPart::Header(HeaderName::from_static("x-t"));
    assert_eq!(key(header(), "/", [("x-t", "a"), ("x-t", "b")]), "l:%%");
    assert_eq!(key(header(), "/", [("x-t", "c"), ("x-t", "a")]), "l:%%");
    assert_eq!(key(header(), "/", [("x-t", "a"), ("x-t", "a")]), "l:a");
    assert_eq!(key(header(), "/", [("x-t", "a"), ("x_t", "b")]), "l:%%");
    assert_eq!(key(header(), "/", [("x_t", "a"), ("x.t", "a")]), "l:a");
    assert_eq!(key(header(), "/", [("x_ta", "a"), ("xt", "a")]), "l:%");
    assert_eq!(
        key(
            KeyPart::Cookie("sid".into()),
            "/",
            [("cookie", "sid=a"), ("cookie", "x=1; sid=b")]
        ),
        "l:%%"
    );
    assert_eq!(
        key(
            KeyPart::Header(AUTHORIZATION),
            "/",
            [("authorization", "Basic YTpi=c"), ("a", "b")]
        ),
        "l:%%"
    );
    let cookie = |pairs| {
        key(
            KeyPart::Cookie("s_id".into()),
            "/",
            [("cookie", pairs), ("a", "b")],
        )
    };
    assert_eq!(cookie("s.id=a; s_id=b"), "l:%%");
    assert_eq!(cookie("s.id=a"), "l:%%");
    assert_eq!(cookie("s_id=junk; \u{a0}s_id=a"), "l:%%");
    assert_eq!(cookie("s_id=a; s_id.sig=b"), cookie("s_id=a"));
    assert_eq!(cookie("sid=a; s.ids=a"), "l:%");
    let query = || KeyPart::Query("t".into());
    assert_eq!(
        key(query(), "/?t=a&%74=b", [("a", "b"), ("c", "d")]),
        "l:%%"
    );
    assert_eq!(key(query(), "/?t=a&t=%61", [("a", "b"), ("c", "d")]), "l:a");
    assert_eq!(
        key(query(), "/?t=+a%20%00", [("a", "b"), ("c", "d")]),
        "l:a"
    );
    assert_eq!(key(query(), "/?t=%u0061", [("a", "b"), ("c", "d")]), "l:%%");
}

#[test]
fn a_parameter_that_readers_may_read_in_two_ways_is_no_bucket_of_its_own() {
    let key = |uri: &str| {
        let request = Request::get(uri).body(()).unwrap();
        text_of(vec![KeyPart::Query("api_tier".into())], &request, "")
    };
    for ambiguous in [
        "/?api_tier=a;n=1",
        "/?api_tier=a;",
        "/?n=1;api_tier=a",
        "/?n=1;api_tier=a&api_tier=a",
        "/?api_tier=a&API_TIER=b",
        "/?api.tier=a",
        "/?api_tier[]=a",
    ] {
        assert_eq!(key(ambiguous), "l:%%", "{ambiguous}");
    }
    for (clear, expected) in [
        ("/?api_tier=a", "l:a"),
        ("/?n=1;m=2&api_tier=a", "l:a"),
        ("/?api_tier=a%3Bn", "l:a;n"),
        ("/?api_tiers=a&n=1;m", "l:%"),
    ] {
        assert_eq!(key(clear), expected, "{clear}");
    }
}

proptest! {
    #[test]
    fn different_parts_never_share_a_key(a in ".{0,80}", b in ".{0,80}", c in ".{0,80}", d in ".{0,80}") {
        let request = Request::new(());
        let key = |x: &str, y: &str| {
            text_of(vec![KeyPart::Constant(x.into()), KeyPart::Constant(y.into())], &request, "")
        };
        prop_assert_eq!(key(&a, &b) == key(&c, &d), (&a, &b) == (&c, &d));
        prop_assert!(key(&a, &b) != text_of(vec![KeyPart::Constant(a.as_str().into()), KeyPart::Header(COOKIE)], &request, ""));
    }
}
