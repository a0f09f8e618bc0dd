//! Reads a field of a form (WHATWG URL §5.1), in a body or in a query.

use std::borrow::Cow;
use std::sync::Arc;

use percent_encoding::percent_decode;

use super::name::{NameLikeness, ReadName, WantedName};

/// The field that names the character set of a form in some browsers and upstreams (WHATWG HTML
/// §4.10.22.5).
const CHARSET: &str = "_charset_";

/// How far a field was found.
#[derive(Clone, Copy)]
enum FoundField<'a> {
    Absent,
    Value(&'a [u8]),
    /// Readers may differ about it.
    Ambiguous,
}

/// The values of the only fields called as `members` are. `None`: there is none, or readers may
/// differ about it. The content is read once for all of them.
pub fn values(content: &[u8], members: &[Arc<str>]) -> Vec<Option<String>> {
    found(content, members).map_or_else(
        || vec![None; members.len()],
        |found| found.into_iter().map(value).collect(),
    )
}

/// `None`: readers may differ about all of it.
fn found<'a>(content: &'a [u8], members: &[Arc<str>]) -> Option<Vec<FoundField<'a>>> {
    // Some upstreams tell the format by the first character, whatever the type says, and the
    // encoding by a mark of byte order or by the place of a NUL.
    let first = content.trim_ascii_start().first();
    let is_text =
        first.is_some_and(|first| first.is_ascii_graphic() && !matches!(first, b'{' | b'[' | b'<'));
    if !is_text || content.contains(&0) {
        return None;
    }
    let wanted = wanted(members);
    let charset = WantedName::new(CHARSET);
    let mut found = vec![FoundField::Absent; members.len()];
    for Field {
        name,
        value,
        is_first,
    } in fields(content)
    {
        let name = decoded(name)?;
        let name = ReadName::new(&name);
        if charset.compare(&name) != NameLikeness::Other && !value.eq_ignore_ascii_case(b"utf-8") {
            return None;
        }
        for (wanted, found) in wanted.iter().zip(&mut found) {
            *found = match (wanted.compare(&name), *found) {
                (NameLikeness::Other, found) => found,
                (NameLikeness::Exact, FoundField::Absent) if is_first => FoundField::Value(value),
                (NameLikeness::Exact | NameLikeness::Alike, _) => FoundField::Ambiguous,
            };
        }
    }
    Some(found)
}

fn value(found: FoundField<'_>) -> Option<String> {
    let FoundField::Value(value) = found else {
        return None;
    };
    decoded(Some(value).filter(|value| !value.contains(&b';'))?).map(Cow::into_owned)
}

/// The values of the query parameters called `name`. `None`: a reader may find one here, or another
/// value, and others do not. A name may be spelt in several ways, and some readers end a value at a
/// semicolon, or know other escapes.
///
/// ```
/// use tollgate_limiter::limit::key::parameters;
///
/// let values = |query| parameters(query, "key").collect::<Vec<_>>();
/// assert_eq!(values("a=1&k%65y=x+y"), [Some(b"x y".as_slice().into())]);
/// assert_eq!(values("key=x;a=1"), [None]);
/// assert_eq!(values("a=1;key=x"), [None]);
/// assert_eq!(values("key=%u0078"), [None]);
/// ```
pub fn parameters<'a>(query: &'a str, name: &str) -> impl Iterator<Item = Option<Cow<'a, [u8]>>> {
    let wanted = WantedName::new(name);
    fields(query.as_bytes()).filter_map(move |field| {
        let found = decoded_leniently(field.name);
        let likeness = match str::from_utf8(&found) {
            Ok(found) => wanted.compare(&ReadName::new(found)),
            Err(_) => NameLikeness::Other,
        };
        match likeness {
            NameLikeness::Other => None,
            NameLikeness::Exact if field.is_first && !field.value.contains(&b';') => {
                Some(decoded(field.value).map(into_bytes))
            }
            NameLikeness::Exact | NameLikeness::Alike => Some(None),
        }
    })
}

/// Whether a reader may find each of `members` in a query.
pub fn in_query<'a>(query: &[u8], members: impl IntoIterator<Item = &'a str>) -> Vec<bool> {
    let wanted: Vec<_> = members.into_iter().map(WantedName::new).collect();
    found_in(fields(query), &wanted, true)
}

/// Whether a reader who takes JSON for a form finds each of `members` in it.
pub fn hidden_in_json(content: &[u8], members: &[Arc<str>]) -> Vec<bool> {
    found_in(
        fields(content).filter(|field| field.is_first).skip(1),
        &wanted(members),
        false,
    )
}

/// Whether each name is among the fields. A name that is malformed `may_be_any`.
fn found_in<'a>(
    fields: impl Iterator<Item = Field<'a>>,
    wanted: &[WantedName<'_>],
    may_be_any: bool,
) -> Vec<bool> {
    let mut seen = vec![false; wanted.len()];
    for field in fields {
        match decoded(field.name) {
            Some(name) => {
                let name = ReadName::new(&name);
                for (wanted, seen) in wanted.iter().zip(&mut seen) {
                    *seen |= wanted.compare(&name) != NameLikeness::Other;
                }
            }
            None if may_be_any => seen.fill(true),
            None => {}
        }
    }
    seen
}

fn wanted(members: &[Arc<str>]) -> Vec<WantedName<'_>> {
    members
        .iter()
        .map(|member| WantedName::new(member))
        .collect()
}

struct Field<'a> {
    name: &'a [u8],
    value: &'a [u8],
    /// Every reader sees a field begin here.
    is_first: bool,
}

/// The fields. All readers pass over empty ones. Some readers also end one at a semicolon, so what
/// follows that may be one.
fn fields(content: &[u8]) -> impl Iterator<Item = Field<'_>> {
    content
        .split(|byte| *byte == b'&')
        .filter(|pair| !pair.is_empty())
        .flat_map(|pair| {
            let mut begin = 0;
            pair.split(|byte| *byte == b';').map(move |piece| {
                let at = begin;
                begin += piece.len() + 1;
                let split = piece.iter().position(|byte| *byte == b'=');
                let name = &piece[..split.unwrap_or(piece.len())];
                // Most readers let the value go on behind the semicolon.
                let value = split
                    .and_then(|split| pair.get(at + split + 1..))
                    .unwrap_or_default();
                Field {
                    name,
                    value,
                    is_first: at == 0,
                }
            })
        })
}

/// A name or a value: `+` is a space, then percent-encoding. `None`: the encoding is malformed, or
/// the text is not UTF-8; readers drop, keep or replace such bytes.
fn decoded(text: &[u8]) -> Option<Cow<'_, str>> {
    if !text.iter().any(|byte| matches!(byte, b'+' | b'%')) {
        return str::from_utf8(text).ok().map(Cow::Borrowed);
    }
    for (at, byte) in text.iter().enumerate() {
        if *byte == b'%' && !text.get(at + 1..at + 3)?.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
    }
    String::from_utf8(decoded_leniently(text).into_owned())
        .ok()
        .map(Cow::Owned)
}

fn into_bytes(text: Cow<'_, str>) -> Cow<'_, [u8]> {
    match text {
        Cow::Borrowed(text) => text.as_bytes().into(),
        Cow::Owned(text) => text.into_bytes().into(),
    }
}

/// A name or a value whose malformed bytes are kept.
fn decoded_leniently(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.iter().any(|byte| matches!(byte, b'+' | b'%')) {
        return text.into();
    }
    let spaced: Vec<u8> = text
        .iter()
        .map(|byte| if *byte == b'+' { b' ' } else { *byte })
        .collect();
    percent_decode(&spaced).collect::<Vec<_>>().into()
}
