//! Rewrites the request target for an upstream: into origin-form, with the path as the route says
//! (RFC 9112 §3.2).
//!
//! Guarantees that everything that is not rewritten stays byte for byte. The query always stays.

use std::borrow::Cow;

use http::Uri;
use http::uri::PathAndQuery;

use tollgate_spec::route::{Rewrite, path};
use tollgate_wire::error::Failure;

/// Brings `uri` into the form in which it is sent. `*` stays as it is.
pub fn rewrite(uri: &mut Uri, rewrite: &Rewrite) -> Result<(), Failure> {
    if let Some(path) = rewritten(uri.path(), rewrite) {
        let target = match uri.query() {
            Some(query) => PathAndQuery::try_from(format!("{path}?{query}")),
            None => PathAndQuery::try_from(path.as_ref()),
        };
        *uri = target
            .map_err(|_| Failure::BadRequest("the rewritten path is not a path"))?
            .into();
    } else if uri.authority().is_some() {
        *uri = match uri.path_and_query() {
            Some(target) => target.clone().into(),
            None => Uri::from_static("/"),
        };
    }
    Ok(())
}

/// The rewritten path. `None`: the path stays.
fn rewritten<'a>(path: &'a str, rewrite: &'a Rewrite) -> Option<Cow<'a, str>> {
    if path == "*" {
        return None;
    }
    match rewrite {
        Rewrite::Keep => None,
        Rewrite::Replace(whole) => Some(rooted(whole)),
        Rewrite::StripPrefix(prefix) => below(path, prefix).map(rooted),
        Rewrite::ReplacePrefix { from, to } => {
            let rest = below(path, from)?;
            if rest.is_empty() {
                return Some(rooted(to));
            }
            let path = format!("{}{rest}", to.trim_end_matches('/'));
            Some(rooted(&path).into_owned().into())
        }
    }
}

/// The path behind one slash: with two, readers of `Location` would take its first segment for a
/// host.
fn rooted(path: &str) -> Cow<'_, str> {
    match path.strip_prefix('/') {
        Some(rest) if !rest.starts_with('/') => path.into(),
        _ => format!("/{}", path.trim_start_matches('/')).into(),
    }
}

/// The rest of `path` after `prefix`: empty, or beginning with `/`. Segments are compared as routes
/// match them: empty segments and needless encodings make no difference. `None`: the path is not
/// below the prefix.
fn below<'a>(path: &'a str, prefix: &str) -> Option<&'a str> {
    let mut rest = path;
    for wanted in prefix
        .trim_matches('/')
        .split('/')
        .filter(|segment| !segment.is_empty())
    {
        let inner = rest.strip_prefix('/')?.trim_start_matches('/');
        let end = inner.find('/').unwrap_or(inner.len());
        let (segment, after) = inner.split_at(end);
        if !path::is_spelling(segment, wanted) {
            return None;
        }
        rest = after;
    }
    Some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(uri: &str, rule: &Rewrite) -> String {
        let mut uri = uri.parse().unwrap();
        rewrite(&mut uri, rule).unwrap();
        uri.to_string()
    }

    #[test]
    fn a_kept_path_stays_byte_for_byte() {
        for target in [
            "/",
            "/a%2Fb/%7Euser/../x//y;v=1?q=%20&&a=?b",
            "*",
            "/?",
            "/a?",
        ] {
            assert_eq!(sent(target, &Rewrite::Keep), target);
        }
    }

    #[test]
    fn absolute_form_becomes_origin_form() {
        assert_eq!(
            sent("http://user@a.example:8080/x%2f?y", &Rewrite::Keep),
            "/x%2f?y"
        );
        assert_eq!(sent("http://a.example", &Rewrite::Keep), "/");
        assert_eq!(sent("http://a.example?q", &Rewrite::Keep), "/?q");
    }

    #[test]
    fn a_prefix_is_stripped_in_whole_segments() {
        let strip = Rewrite::StripPrefix("/api/v1".into());
        assert_eq!(sent("/api/v1/x%2Fy?q=%41", &strip), "/x%2Fy?q=%41");
        assert_eq!(sent("/api/v1", &strip), "/");
        assert_eq!(sent("/api/v1?q", &strip), "/?q");
        assert_eq!(sent("/api/v1/", &strip), "/");
        assert_eq!(sent("/api/v10/x", &strip), "/api/v10/x");
        assert_eq!(sent("/%61pi/v1/x", &strip), "/x");
        assert_eq!(sent("//api///v1//x", &strip), "/x");
        assert_eq!(sent("/other", &strip), "/other");
        assert_eq!(
            sent("/api/v1/x", &Rewrite::StripPrefix("/api/v1/".into())),
            "/x"
        );
        assert_eq!(
            sent("/a%2fb/x", &Rewrite::StripPrefix("/a%2Fb".into())),
            "/x"
        );
    }

    #[test]
    fn a_prefix_is_replaced_in_whole_segments() {
        let replace = Rewrite::ReplacePrefix {
            from: "/a".into(),
            to: "/b/c/".into(),
        };
        assert_eq!(sent("/a/x?q", &replace), "/b/c/x?q");
        assert_eq!(sent("/a", &replace), "/b/c/");
        assert_eq!(sent("/ab", &replace), "/ab");
        let root = Rewrite::ReplacePrefix {
            from: "/a".into(),
            to: "/".into(),
        };
        assert_eq!(sent("/a/x", &root), "/x");
        let under = Rewrite::ReplacePrefix {
            from: "/".into(),
            to: "/b".into(),
        };
        assert_eq!(sent("/x/y", &under), "/b/x/y");
    }

    #[test]
    fn a_replaced_path_keeps_the_query() {
        assert_eq!(
            sent("/x/y?q=%2F", &Rewrite::Replace("/z".into())),
            "/z?q=%2F"
        );
        assert_eq!(sent("*", &Rewrite::Replace("/z".into())), "*");
    }
}
