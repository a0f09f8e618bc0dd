//! Paths as routes see them.
//!
//! Guarantees that two spellings of one path (RFC 3986 §6.2.2) match the same routes, so that no spelling walks
//! around a limit. The path that is forwarded is not touched here.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use super::route::{PathPattern, Segment};

/// A copy for matching: unreserved characters decoded, dot segments resolved, slashes merged. Borrows when there is
/// nothing to do. `%2F` stays as it is: it is not a separator.
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

fn is_normal(path: &[u8]) -> bool {
    let mut previous = 0;
    path.iter().all(|&byte| {
        let odd = byte == b'%' || (previous == b'/' && (byte == b'/' || byte == b'.'));
        previous = byte;
        !odd
    })
}

fn decode_unreserved(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        let escape = rest.get(at..at + 3).unwrap_or(&rest[at..]);
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

/// RFC 3986 §2.3.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// The segments of a normalized path; `/` has none.
pub fn segments(path: &str) -> impl Iterator<Item = &str> + Clone {
    let rest = path.strip_prefix('/').unwrap_or(path);
    let whole = if rest.is_empty() { None } else { Some(rest) };
    whole.into_iter().flat_map(|rest| rest.split('/'))
}

impl PathPattern {
    /// The value of `{name}` in a normalized path that this pattern matched.
    pub fn param<'p>(&self, name: &str, path: &'p str) -> Option<&'p str> {
        let at =
            self.segments.iter().position(|segment| matches!(segment, Segment::Param(param) if **param == *name))?;
        segments(path).nth(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_a_normal_path_alone() {
        for path in ["/", "/a", "/a/b/", "/a.b/c..d"] {
            assert!(matches!(normalize(path), Cow::Borrowed(same) if same == path), "{path}");
        }
    }

    #[test]
    fn brings_every_spelling_to_one() {
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
            ("/a%zz", "/a%ZZ"),
            ("/a%", "/a%"),
            ("/a%4", "/a%4"),
            ("/..", "/"),
            ("/é%41", "/éA"),
            ("/%é", "/%é"),
        ] {
            assert_eq!(normalize(spelling), normal, "{spelling}");
        }
    }

    #[test]
    fn splits_into_segments() {
        assert_eq!(segments("/").count(), 0);
        assert_eq!(segments("/a/b/").collect::<Vec<_>>(), ["a", "b", ""]);
    }
}
