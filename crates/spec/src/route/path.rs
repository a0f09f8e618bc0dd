//! Normal spellings of paths, to find routes by.
//!
//! Guarantees that two spellings of one path (RFC 3986 §6.2.2) match the same routes: no spelling
//! evades a limit. Dot segments are resolved or refused here, so an upstream cannot resolve a path
//! to another than the one that was matched. The rest of the path is forwarded byte for byte.

use std::borrow::Cow;
use std::fmt;

use http::Uri;
use http::uri::PathAndQuery;
use percent_encoding::percent_decode_str;

use super::{Match, PathMatch, PathPattern, Segment};
use tollgate_wire::error::Failure;

/// Resolves the dot segments of a request's path. Returns the path to match, where that differs
/// from the path left in `uri`.
///
/// # Errors
/// When a dot segment is disguised, or the path has a NUL: see [`resolve_dots`].
pub fn settle(uri: &mut Uri) -> Result<Option<String>, Failure> {
    // Nearly every path is normal: one pass over it is enough.
    if is_normal(uri.path().as_bytes()) {
        return Ok(None);
    }
    resolve_dots(uri)?;
    Ok(Some(normalize(uri.path()).into_owned()))
}

/// Resolves the dot segments of a request's path, as every client should have done (RFC 3986
/// §6.2.2.3). An upstream that resolved them itself would serve another path than the one that is
/// matched and limited here.
///
/// # Errors
/// When a dot segment is disguised, as `..%2F`, `..\\` or `..;`: some servers take that for a dot
/// segment, some do not. When the path has a NUL, where some servers end it.
pub fn resolve_dots(uri: &mut Uri) -> Result<(), Failure> {
    let path = uri.path();
    if is_normal(path.as_bytes()) {
        return Ok(());
    }
    if memchr::memchr_iter(b'%', path.as_bytes()).any(|at| !is_escape(&path.as_bytes()[at..])) {
        return Err(Failure::BadRequest(
            "a percent sign in the path is not followed by two hexadecimal digits",
        ));
    }
    let decoded = decode_unreserved(path);
    // Some servers end the path there.
    if decoded.contains("%00") {
        return Err(Failure::BadRequest("the path has a NUL"));
    }
    if decoded.split('/').any(hides_dots) {
        return Err(Failure::BadRequest(
            "the path has a dot segment in disguise",
        ));
    }
    if !decoded.split('/').any(is_dots) {
        return Ok(());
    }
    let resolved = normalize(path);
    let target = match uri.query() {
        Some(query) => PathAndQuery::try_from(format!("{resolved}?{query}")),
        None => PathAndQuery::try_from(&*resolved),
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = target.ok();
    *uri = Uri::from_parts(parts).map_err(|_| Failure::BadRequest("the path is malformed"))?;
    Ok(())
}

fn is_dots(segment: &str) -> bool {
    matches!(segment, "." | "..")
}

/// Whether a segment holds a dot segment, to servers that take `%2F`, `\` or `%5C` for a slash or
/// cut parameters off.
fn hides_dots(segment: &str) -> bool {
    !is_dots(segment)
        && segment
            .split('\\')
            .flat_map(|part| part.split("%2F"))
            .flat_map(|part| part.split("%5C"))
            .flat_map(|part| part.split("%3B").take(1))
            .any(|part| is_dots(part.split(';').next().unwrap_or_default()))
}

/// A copy for matching: unreserved characters decoded, dot segments resolved, slashes merged.
/// Borrows when there is nothing to do. `%2F` stays: it is not a separator.
pub fn normalize(path: &str) -> Cow<'_, str> {
    if is_normal(path.as_bytes()) {
        return Cow::Borrowed(path);
    }
    let decoded = decode_unreserved(path);
    let mut segments: Vec<&str> = Vec::new();
    let mut parts = decoded.split('/').skip(1).peekable();
    while let Some(part) = parts.next() {
        let last = parts.peek().is_none();
        match part {
            "." | ".." => {
                if part == ".." {
                    segments.pop();
                }
                if last {
                    segments.push("");
                }
            }
            "" if !last => {}
            _ => segments.push(part),
        }
    }
    Cow::Owned(format!("/{}", segments.join("/")))
}

/// A path that a normalized one is to some servers, though not to routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OtherReading {
    Path(String),
    /// Each of several kinds of servers reads another path.
    Many,
}

/// The path that a normalized `path` is to servers which take `%2F`, `%5C` or `\` for a slash, or
/// cut off the parameters of a segment (`;…`). `None`: those servers read no other path.
pub fn other_reading(path: &str) -> Option<OtherReading> {
    const SLASHES: [&str; 3] = ["%2F", "%5C", "\\"];
    const PARAMETERS: [&str; 2] = [";", "%3B"];
    let mut kinds = SLASHES
        .into_iter()
        .chain(PARAMETERS)
        .filter(|kind| path.contains(kind));
    let kind = kinds.next()?;
    if kinds.next().is_some() {
        return Some(OtherReading::Many);
    }
    let read = if SLASHES.contains(&kind) {
        path.replace(kind, "/")
    } else {
        let segments = path.split('/');
        let bare = segments.map(|segment| segment.split(kind).next().unwrap_or_default());
        bare.collect::<Vec<_>>().join("/")
    };
    Some(OtherReading::Path(normalize(&read).into_owned()))
}

fn is_normal(path: &[u8]) -> bool {
    !path.iter().enumerate().any(|(at, &byte)| match byte {
        // The first comparison decides most bytes.
        b'0'.. => byte == b'\\' || byte == b';',
        b'/' => matches!(path.get(at + 1), Some(b'/' | b'.')),
        _ => byte == b'%',
    })
}

fn decode_unreserved(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        let escape = &rest[at..at
            + if is_escape(&rest.as_bytes()[at..]) {
                3
            } else {
                1
            }];
        let mut decoded = percent_decode_str(escape);
        match (decoded.next(), decoded.next()) {
            (Some(byte), None) if is_unreserved(byte) => out.push(char::from(byte)),
            _ => out.push_str(&escape.to_ascii_uppercase()),
        }
        rest = &rest[at + escape.len()..];
    }
    out.push_str(rest);
    out
}

/// Whether `bytes` begins with a percent sign and two hexadecimal digits (RFC 3986 §2.1).
fn is_escape(bytes: &[u8]) -> bool {
    matches!(bytes, [b'%', first, second, ..] if first.is_ascii_hexdigit() && second.is_ascii_hexdigit())
}

/// RFC 3986 §2.3.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// Whether `spelling` is a spelling of the normal segment `normal`.
pub fn is_spelling(spelling: &str, normal: &str) -> bool {
    spelling == normal || (spelling.contains('%') && decode_unreserved(spelling) == normal)
}

/// The segments of a normalized path; `/` has none.
pub fn segments(path: &str) -> Segments<'_> {
    let rest = path.strip_prefix('/').unwrap_or(path);
    Segments(Some(rest).filter(|rest| !rest.is_empty()))
}

/// The segments left of a path. Small: a look-up copies it at every step.
#[derive(Clone, Copy, Debug)]
pub struct Segments<'p>(Option<&'p str>);

impl<'p> Iterator for Segments<'p> {
    type Item = &'p str;

    fn next(&mut self) -> Option<&'p str> {
        let rest = self.0?;
        // Segments are short: setting up a search costs more than a plain loop.
        let (segment, behind) = match rest.bytes().position(|byte| byte == b'/') {
            Some(at) => (&rest[..at], Some(&rest[at + 1..])),
            None => (rest, None),
        };
        self.0 = behind;
        Some(segment)
    }
}

impl PathPattern {
    /// The value of `{name}` in a normalized path that this pattern matched.
    pub fn param<'p>(&self, name: &str, path: &'p str) -> Option<&'p str> {
        let at = self
            .segments
            .iter()
            .position(|segment| matches!(segment, Segment::Param(param) if **param == *name))?;
        segments(path).nth(at)
    }

    fn params(&self) -> impl Iterator<Item = &str> {
        self.segments.iter().filter_map(|segment| match segment {
            Segment::Param(name) => Some(&**name),
            Segment::Literal(_) => None,
        })
    }

    /// Whether it takes a normalized path.
    pub fn takes(&self, path: &str) -> bool {
        let mut left = segments(path);
        let fits = self
            .segments
            .iter()
            .all(|segment| match (segment, left.next()) {
                (Segment::Literal(literal), Some(found)) => **literal == *found,
                (Segment::Param(_), Some(found)) => !found.is_empty(),
                (_, None) => false,
            });
        fits && (self.rest || left.next().is_none())
    }
}

/// The form in which a file has it.
impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for segment in &self.segments {
            match segment {
                Segment::Literal(literal) => write!(f, "/{literal}")?,
                Segment::Param(name) => write!(f, "/{{{name}}}")?,
            }
        }
        match (self.rest, self.segments.is_empty()) {
            (true, _) => f.write_str("/*"),
            (false, true) => f.write_str("/"),
            (false, false) => Ok(()),
        }
    }
}

impl fmt::Display for PathMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pattern(pattern) => pattern.fmt(f),
            Self::Expression(expression) => f.write_str(expression.text()),
        }
    }
}

impl PathMatch {
    /// Whether every path that it takes has a value for `{name}`.
    pub fn has_param(&self, name: &str) -> bool {
        self.params().any(|param| param == name)
    }

    fn params(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        match self {
            Self::Pattern(pattern) => Box::new(pattern.params()),
            Self::Expression(expression) => Box::new(expression.params()),
        }
    }

    fn param<'p>(&self, name: &str, path: &'p str) -> Option<&'p str> {
        match self {
            Self::Pattern(pattern) => pattern.param(name, path),
            Self::Expression(expression) => expression.param(name, path),
        }
    }

    fn takes(&self, path: &str) -> bool {
        match self {
            Self::Pattern(pattern) => pattern.takes(path),
            Self::Expression(expression) => expression.takes(path),
        }
    }
}

impl Match {
    /// The value of `{name}` in a normalized path that this takes.
    pub fn param<'p>(&self, name: &str, path: &'p str) -> Option<&'p str> {
        match self.paths.as_slice() {
            [only] => only.param(name, path),
            several => several
                .iter()
                .find(|one| one.takes(path))?
                .param(name, path),
        }
    }

    /// Whether `{name}` has a value in every path that this takes.
    pub fn has_param(&self, name: &str) -> bool {
        self.paths.iter().all(|path| path.has_param(name))
    }

    /// Whether each `{name}` has one value in two normalized paths that this takes.
    pub fn has_same_params(&self, one: &str, other: &str) -> bool {
        let mut names = self.paths.iter().flat_map(PathMatch::params);
        names.all(|name| self.param(name, one) == self.param(name, other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_normal_path_stays_as_it_is() {
        for path in ["/", "/a", "/a/b/", "/a.b/c..d"] {
            assert!(
                matches!(normalize(path), Cow::Borrowed(same) if same == path),
                "{path}"
            );
        }
    }

    #[test]
    fn every_spelling_has_one_normal_form() {
        for (spelling, normal) in [
            ("/%61dmin", "/admin"),
            ("//admin", "/admin"),
            ("/x/../admin", "/admin"),
            ("/./admin", "/admin"),
            ("/%2e%2E/admin", "/admin"),
            ("/../../admin", "/admin"),
            ("/admin/.", "/admin/"),
            ("/admin/x/..", "/admin/"),
            ("/a%2fb", "/a%2Fb"),
            ("/a%zz", "/a%zz"),
            ("/a%", "/a%"),
            ("/a%4", "/a%4"),
            ("/..", "/"),
            ("/é%41", "/éA"),
            ("/%é", "/%é"),
        ] {
            assert_eq!(normalize(spelling), normal, "{spelling}");
        }
    }

    fn resolved(uri: &str) -> Result<String, Failure> {
        let mut uri = uri.parse().unwrap();
        resolve_dots(&mut uri).map(|()| uri.to_string())
    }

    #[test]
    fn resolves_dot_segments_and_touches_nothing_else() {
        for (sent, forwarded) in [
            ("/a/../b", "/b"),
            ("/a/%2e%2E/b?c=/../d", "/b?c=/../d"),
            ("/a/.", "/a/"),
            ("http://h:1/a/./b", "http://h:1/a/b"),
            ("/%61//b;c=../d", "/%61//b;c=../d"),
            ("/a%2Fb\\c", "/a%2Fb\\c"),
            ("/a%5Cb/..c/c..", "/a%5Cb/..c/c.."),
            ("/%252e%252e/a", "/%252e%252e/a"),
            ("*", "*"),
        ] {
            assert_eq!(resolved(sent).as_deref(), Ok(forwarded), "{sent}");
        }
    }

    #[test]
    fn disguised_dot_segments_are_refused() {
        for sent in [
            "/a/..%2fb",
            "/a/%2e%2e%2Fb",
            "/a/b%2F..",
            "/a%2F..%2Fb",
            "/a/..\\b",
            "/a/..%5cb",
            "/a/..;/b",
            "/.;x/b",
            "/a/.%2Fb",
            "/a/..;x=y%2Fb",
            "/a/..%3bx/b",
            "/a%00",
            "/a/%00/b",
        ] {
            assert!(
                matches!(resolved(sent), Err(Failure::BadRequest(_))),
                "{sent}"
            );
        }
    }

    /// `%/%2e` must not be read as an escape that ends in `%`, and hide the one behind it.
    #[test]
    fn a_percent_sign_that_begins_no_escape_is_refused() {
        for sent in [
            "/%",
            "/100%",
            "/a%zz",
            "/%2",
            "/a/%/%2e%2e/b",
            "/a/%%2e%2e/%2e%2e/b",
        ] {
            assert!(
                matches!(resolved(sent), Err(Failure::BadRequest(_))),
                "{sent}"
            );
        }
        assert_eq!(resolved("/a?100%&%zz").as_deref(), Ok("/a?100%&%zz"));
    }

    #[test]
    fn a_path_that_some_servers_read_otherwise_has_another_reading() {
        for (path, read) in [
            ("/admin%2Fx", "/admin/x"),
            ("/admin%5Cx", "/admin/x"),
            ("/admin\\x", "/admin/x"),
            ("/admin;a=1/x;b", "/admin/x"),
            ("/admin%3Bx", "/admin"),
            ("/a%2F%2Fb", "/a/b"),
        ] {
            let read = OtherReading::Path(read.to_owned());
            assert_eq!(other_reading(path), Some(read), "{path}");
        }
        assert_eq!(other_reading("/a;b%2Fc"), Some(OtherReading::Many));
        assert_eq!(other_reading("/a%5Cb\\c"), Some(OtherReading::Many));
        assert_eq!(other_reading("/a%20b/c"), None);
    }

    #[test]
    fn a_segment_is_spelt_like_itself_or_with_needless_encodings() {
        for (spelling, normal, same) in [
            ("api", "api", true),
            ("%61pi", "api", true),
            ("a%2fb", "a%2Fb", true),
            ("a%2Fb", "a/b", false),
            ("API", "api", false),
        ] {
            assert_eq!(is_spelling(spelling, normal), same, "{spelling}");
        }
    }

    #[test]
    fn a_path_splits_into_segments() {
        assert_eq!(segments("/").count(), 0);
        assert_eq!(segments("/a/b/").collect::<Vec<_>>(), ["a", "b", ""]);
    }
}
