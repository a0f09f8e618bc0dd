//! Paths as they are written: patterns to match, prefixes to strip and paths to put in their place.
//!
//! Literals are kept the way a request's path is compared: percent-encoded, with upper-case digits
//! and without encodings of characters that need none (RFC 3986 §6.2.2).

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::{Value as Json, json};

use crate::report::{ValueProblem, quote};
use crate::yaml::decode::Scalar;
use crate::yaml::schema::or_variable;
use tollgate_spec::route::{PathPattern, Segment};

/// Segments of a path, and its bytes: each segment is a node of the table of routes.
const MOST_SEGMENTS: usize = 128;

const MOST_BYTES: usize = 4_096;

/// A path without parameters, wildcards and trailing slash; `/` alone has no segments.
#[derive(Clone)]
pub struct PathPrefix(pub Arc<str>);

/// A whole path to put in place of another.
#[derive(Clone)]
pub struct FullPath(pub Arc<str>);

impl Scalar for PathPattern {
    const WHAT: &'static str = "a path";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        let mut parts = split(text)?;
        let rest = parts.last().is_some_and(|last| *last == "*");
        if rest {
            parts.pop();
        }
        let mut names = HashSet::new();
        let mut segments = Vec::with_capacity(parts.len());
        for part in parts {
            let segment = segment(text, part)?;
            if let Segment::Param(name) = &segment
                && !names.insert(name.clone())
            {
                return Err(
                    wrong(text, &format!("has two parameters called {}", quote(name)))
                        .hint("give each parameter a name of its own"),
                );
            }
            segments.push(segment);
        }
        Ok(Self { segments, rest })
    }

    fn schema() -> Json {
        json!({ "type": "string", "pattern": or_variable("/.*") })
    }
}

impl Scalar for PathPrefix {
    const WHAT: &'static str = "a path";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        // A prefix is for everything below it without saying so.
        let path = text.trim_end_matches('/');
        if path != text && path.starts_with('/') {
            return Err(wrong(text, ENDS_IN_SLASH).hint(format!("write {}", quote(path))));
        }
        let parts = split(text)?;
        let literals = parts
            .into_iter()
            .map(|part| literal(text, part))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self(format!("/{}", literals.join("/")).into()))
    }

    fn schema() -> Json {
        json!({ "type": "string", "pattern": or_variable("/.*") })
    }
}

impl Scalar for FullPath {
    const WHAT: &'static str = "a path";

    /// Refuses characters that end a path in a request line, and dot segments.
    fn read(text: &str) -> Result<Self, ValueProblem> {
        split(
            text.strip_suffix('/')
                .filter(|shorter| !shorter.is_empty())
                .unwrap_or(text),
        )?;
        let is_sound = text
            .split('/')
            .all(|part| normalise(part).is_some_and(|part| part != "." && part != ".."));
        if is_sound {
            Ok(Self(text.into()))
        } else {
            Err(characters(text))
        }
    }

    fn schema() -> Json {
        json!({ "type": "string", "pattern": or_variable("/.*") })
    }
}

const ENDS_IN_SLASH: &str = "ends in /";

/// The segments between the slashes; none for `/`.
fn split(text: &str) -> Result<Vec<&str>, ValueProblem> {
    if text.len() > MOST_BYTES {
        return Err(
            wrong(text, &format!("has more than {MOST_BYTES} bytes")).hint("shorten the path")
        );
    }
    let Some(below) = text.strip_prefix('/') else {
        let hint = format!("did you mean {}?", quote(&format!("/{text}")));
        return Err(wrong(text, "does not start with /").hint(hint));
    };
    if text.contains(['?', '#']) {
        return Err(wrong(text, "has more than a path").hint("leave out everything from ? or # on"));
    }
    if below.is_empty() {
        return Ok(Vec::new());
    }
    let parts: Vec<&str> = below.split('/').collect();
    if parts.len() > MOST_SEGMENTS {
        return Err(
            wrong(text, &format!("has more than {MOST_SEGMENTS} segments"))
                .hint("write /prefix/* for everything below a prefix"),
        );
    }
    if parts.last() == Some(&"") {
        let path = text.trim_end_matches('/');
        let all_below = quote(&format!("{path}/*"));
        let hint = format!(
            "write {all_below} for everything below it, {} for it alone",
            quote(path)
        );
        return Err(wrong(text, ENDS_IN_SLASH).hint(hint));
    }
    if parts.contains(&"") {
        return Err(wrong(text, "has an empty segment").hint("write each / once"));
    }
    Ok(parts)
}

fn segment(text: &str, part: &str) -> Result<Segment, ValueProblem> {
    if part == "*" {
        return Err(
            wrong(text, "goes on after *").hint("* stands last, for everything below: /prefix/*")
        );
    }
    if let Some(name) = part
        .strip_prefix('{')
        .and_then(|part| part.strip_suffix('}'))
    {
        return param(text, name);
    }
    if part.contains('*') {
        return Err(wrong(text, "has a * that is not a whole segment").hint("write /prefix/*"));
    }
    if part.contains(['{', '}']) {
        return Err(
            wrong(text, "has a parameter that is not a whole segment").hint("write /users/{id}")
        );
    }
    literal(text, part).map(|literal| Segment::Literal(literal.into()))
}

fn param(text: &str, name: &str) -> Result<Segment, ValueProblem> {
    let is_plain = name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    if is_plain && (1..=64).contains(&name.len()) {
        return Ok(Segment::Param(name.into()));
    }
    Err(
        wrong(text, &format!("has a parameter called {}", quote(name)))
            .hint("1 to 64 letters, digits, dashes and underscores: /users/{id}"),
    )
}

fn literal(text: &str, part: &str) -> Result<String, ValueProblem> {
    let literal = normalise(part).ok_or_else(|| characters(text))?;
    if literal == "." || literal == ".." {
        return Err(
            wrong(text, "has a segment of dots").hint("a request's path is compared without them")
        );
    }
    Ok(literal)
}

/// The characters of a path segment (RFC 3986 §3.3), in their one form. `None`: another character,
/// or half an encoding.
fn normalise(part: &str) -> Option<String> {
    let mut normal = String::with_capacity(part.len());
    let mut bytes = part.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let digits =
                    [bytes.next()?, bytes.next()?].map(|digit| char::from(digit).to_digit(16));
                let byte = u8::try_from(digits[0]? * 16 + digits[1]?).ok()?;
                if is_unreserved(byte) {
                    normal.push(byte.into())
                } else {
                    normal.push_str(&format!("%{byte:02X}"))
                }
            }
            _ if is_unreserved(byte) || b"!$&'()*+,;=:@".contains(&byte) => {
                normal.push(byte.into())
            }
            _ => return None,
        }
    }
    Some(normal)
}

/// RFC 3986 §2.3.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

fn wrong(text: &str, what: &str) -> ValueProblem {
    ValueProblem::new(format!("{} {what}", quote(text)))
}

fn characters(text: &str) -> ValueProblem {
    wrong(text, "has a character that no path has").hint("percent-encode it: %20 for a space")
}
