//! Paths: one meaning for routes, limits and upstreams.

use http::Uri;

use tollgate_spec::route::path;

/// A path that passes has no dot segments left, in no spelling, and settling it again changes
/// nothing.
pub fn a_settled_path_has_one_meaning(data: &[u8]) {
    let Ok(mut uri) = Uri::try_from(data) else {
        return;
    };
    let query = uri.query().map(str::to_owned);
    let Ok(normalized) = path::settle(&mut uri) else {
        return;
    };
    assert_eq!(uri.query(), query.as_deref());
    let matched = normalized.unwrap_or_else(|| uri.path().to_owned());
    for segment in matched.split(['/', '\\']) {
        let decoded = percent_encoding::percent_decode_str(segment).decode_utf8_lossy();
        let name = decoded.split(';').next().unwrap_or_default();
        assert!(!matches!(name, "." | ".."), "{matched:?} of {uri}");
    }
    let mut again = uri.clone();
    let before = uri.to_string();
    match path::settle(&mut again) {
        Ok(Some(path)) => assert_eq!(path, matched, "{uri}"),
        Ok(None) => {}
        Err(_) => panic!("{uri} is refused the second time"),
    }
    assert_eq!(again.to_string(), before);
}
