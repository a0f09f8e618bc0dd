//! Reads a field of a form (WHATWG URL §5.1).

use std::borrow::Cow;

use percent_encoding::percent_decode;

use super::name::{NameLikeness, WantedName};

/// The field that names the character set of a form in some browsers and upstreams (WHATWG HTML §4.10.22.5).
const CHARSET: &str = "_charset_";

/// The value of the only field called `wanted`. `None`: there is none, or readers may differ about it.
pub fn value(content: &[u8], wanted: &str) -> Option<String> {
    // Some upstreams tell the format by the first character, whatever the type says, and the encoding by a mark of byte order
    // or by the place of a NUL.
    let first = content.trim_ascii_start().first();
    let is_text = first.is_some_and(|first| first.is_ascii_graphic() && !matches!(first, b'{' | b'[' | b'<'));
    if !is_text || content.contains(&0) {
        return None;
    }
    let (wanted, charset) = (WantedName::new(wanted), WantedName::new(CHARSET));
    let mut found = None;
    for field in fields(content) {
        let Field { name, value, is_first } = field;
        let name = decoded(name)?;
        if charset.compare(&name) != NameLikeness::Other && !value.eq_ignore_ascii_case(b"utf-8") {
            return None;
        }
        match wanted.compare(&name) {
            NameLikeness::Exact if is_first && found.is_none() => found = Some(value),
            NameLikeness::Other => {}
            NameLikeness::Exact | NameLikeness::Alike => return None,
        }
    }
    let value = found.filter(|value| !value.contains(&b';'))?;
    decoded(value).map(Cow::into_owned)
}

/// Whether a reader may find a field called `wanted` in a query.
pub fn may_have(query: &[u8], wanted: &str) -> bool {
    let wanted = WantedName::new(wanted);
    fields(query).any(|field| decoded(field.name).is_none_or(|name| wanted.compare(&name) != NameLikeness::Other))
}

/// Whether a reader who takes JSON for a form finds a field called `wanted` in it.
pub fn hides_in_json(content: &[u8], wanted: &str) -> bool {
    let wanted = WantedName::new(wanted);
    let mut behind_ampersands = fields(content).filter(|field| field.is_first).skip(1);
    behind_ampersands.any(|field| decoded(field.name).is_some_and(|name| wanted.compare(&name) != NameLikeness::Other))
}

struct Field<'a> {
    name: &'a [u8],
    value: &'a [u8],
    /// Every reader sees a field begin here.
    is_first: bool,
}

/// The fields. Some readers also end one at a semicolon, so what follows that may be one.
fn fields(content: &[u8]) -> impl Iterator<Item = Field<'_>> {
    content.split(|byte| *byte == b'&').flat_map(|pair| {
        let mut begin = 0;
        pair.split(|byte| *byte == b';').map(move |piece| {
            let at = begin;
            begin += piece.len() + 1;
            let split = piece.iter().position(|byte| *byte == b'=');
            let name = &piece[..split.unwrap_or(piece.len())];
            // Most readers let the value go on behind the semicolon.
            let value = split.and_then(|split| pair.get(at + split + 1..)).unwrap_or_default();
            Field { name, value, is_first: at == 0 }
        })
    })
}

/// A name or a value: `+` is a space, then percent-encoding. `None`: the encoding is malformed, or the text is not UTF-8;
/// readers drop, keep or replace such bytes.
fn decoded(text: &[u8]) -> Option<Cow<'_, str>> {
    if !text.iter().any(|byte| matches!(byte, b'+' | b'%')) {
        return str::from_utf8(text).ok().map(Cow::Borrowed);
    }
    let digits = |rest: &[u8]| rest.get(..2).is_some_and(|pair| pair.iter().all(u8::is_ascii_hexdigit));
    let is_sound = |(at, byte): (usize, &u8)| *byte != b'%' || digits(&text[at + 1..]);
    if !text.iter().enumerate().all(is_sound) {
        return None;
    }
    let spaced: Vec<u8> = text.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
    String::from_utf8(percent_decode(&spaced).collect()).ok().map(Cow::Owned)
}
