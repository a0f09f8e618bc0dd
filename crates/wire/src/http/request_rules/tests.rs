use super::*;

const BOUNDS: SectionBounds = SectionBounds {
    bytes: 256,
    fields: 8,
};

fn checked(
    method: &str,
    uri: &str,
    fields: &[(&'static str, &str)],
) -> Result<Option<HeaderValue>, Failure> {
    let mut request = Request::builder().method(method).uri(uri);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    let mut request = request.body(()).unwrap();
    check(&mut request, &BOUNDS)?;
    assert_eq!(request.headers().get_all(HOST).iter().count(), 1);
    Ok(request.headers().get(HOST).cloned())
}

#[test]
fn a_request_names_one_host() {
    assert_eq!(named_host("http://a:1/", &[]).unwrap(), "a:1");
    assert_eq!(named_host("/", &[("host", "b")]).unwrap(), "b");
    assert_eq!(named_host("http://a/", &[("host", "A")]).unwrap(), "A");
    for (uri, fields) in [
        ("/", &[][..]),
        ("http://a/", &[("host", "b")][..]),
        ("http://a/", &[("host", "a"), ("host", "a")]),
        ("/", &[("host", "a"), ("host", "a")]),
        ("/", &[("host", "")]),
        ("/", &[("host", "a/b")]),
        ("http://u@a/", &[]),
        ("http://a:99999/", &[("host", "a:99999")]),
    ] {
        assert_eq!(named_host(uri, fields), None, "{uri} {fields:?}");
    }
}

fn named_host(uri: &str, fields: &[(&'static str, &str)]) -> Option<HeaderValue> {
    checked("GET", uri, fields).ok().flatten()
}

#[test]
fn targets_are_paths_or_an_asterisk_for_options() {
    for good in ["/", "/?`", "/a", "//a", "/a?b?c"] {
        assert_eq!(path(&Method::GET, good.as_bytes()), Ok(()), "{good}");
    }
    for bad in ["*", "", "?a", "a", "/`", "/\"", "/#", "*a", "http://a/"] {
        assert!(path(&Method::GET, bad.as_bytes()).is_err(), "{bad}");
    }
    assert_eq!(
        checked("OPTIONS", "*", &[("host", "a")]).unwrap().unwrap(),
        "a"
    );
    assert!(checked("GET", "*", &[("host", "a")]).is_err());
}

#[test]
fn a_request_without_a_path_is_refused() {
    let empty = PathAndQuery::try_from("#x").unwrap();
    for path in [None, Some(empty), Some(PathAndQuery::from_static("/"))] {
        let is_path = path == Some(PathAndQuery::from_static("/"));
        let mut parts = http::uri::Parts::default();
        parts.path_and_query = path;
        let mut request = Request::new(());
        *request.uri_mut() = Uri::from_parts(parts).unwrap();
        let fields = request.headers_mut();
        fields.insert(HOST, HeaderValue::from_static("a"));
        assert_eq!(check(&mut request, &BOUNDS).is_ok(), is_path);
    }
}

#[test]
fn lengths_are_bounded() {
    let long = format!("/{}", "x".repeat(BOUNDS.bytes / 2));
    assert_eq!(
        checked("GET", &long, &[("host", "a")]),
        Err(Failure::UriTooLong)
    );
    assert!(matches!(
        checked(&"M".repeat(33), "/", &[("host", "a")]),
        Err(Failure::NotImplemented(_))
    ));
    assert!(matches!(
        checked("CONNECT", "/", &[("host", "a")]),
        Err(Failure::NotImplemented(_))
    ));
}

#[test]
fn crumbs_of_a_cookie_count_as_one_field() {
    let mut fields = vec![("host", "a")];
    fields.extend([("cookie", "a=b"); 100]);
    fields.extend([("x", "y"); 6]);
    assert!(checked("GET", "/", &fields).is_ok());
    fields.push(("x", "y"));
    assert_eq!(checked("GET", "/", &fields), Err(Failure::HeadersTooLarge));
}

#[test]
fn a_value_has_no_white_space_around_it() {
    for bad in [" a", "a ", "\ta", "a\t", " "] {
        assert!(
            checked("GET", "/", &[("host", "a"), ("x", bad)]).is_err(),
            "{bad:?}"
        );
    }
    assert!(checked("GET", "/", &[("host", "a"), ("x", "a b"), ("y", "")]).is_ok());
}

#[test]
fn a_request_has_one_length() {
    for bad in [
        &["1", "1"][..],
        &["+1"],
        &["1,1"],
        &["99999999999999999999"],
    ] {
        let fields: Vec<_> = bad
            .iter()
            .map(|length| ("content-length", *length))
            .chain([("host", "a")])
            .collect();
        assert!(checked("POST", "/", &fields).is_err(), "{bad:?}");
    }
}
