//! Which bodies can be read: by type, character set and coding.

use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};

/// The format of a body that members are read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFormat {
    /// `application/x-www-form-urlencoded`.
    Form,
    /// `application/json`, or a type that ends in `+json`.
    Json,
}

impl BodyFormat {
    /// The format that the fields of a request tell. `None`: the body is of another type, in
    /// another character set than UTF-8, or compressed.
    pub fn from_headers(headers: &HeaderMap) -> Option<Self> {
        if !headers.get_all(CONTENT_ENCODING).iter().all(|coding| {
            coding
                .as_bytes()
                .trim_ascii()
                .eq_ignore_ascii_case(b"identity")
        }) {
            return None;
        }
        let mut types = headers.get_all(CONTENT_TYPE).iter();
        let only = types.next().filter(|_| types.next().is_none())?;
        Self::of_type(only.to_str().ok()?)
    }

    fn of_type(text: &str) -> Option<Self> {
        // A comma joins two fields, of which readers take either.
        if text.contains(',') {
            return None;
        }
        let (essence, parameters) = text.split_once(';').unwrap_or((text, ""));
        let essence = essence.trim_ascii().to_ascii_lowercase();
        let format = match essence.as_str() {
            "application/x-www-form-urlencoded" => Self::Form,
            "application/json" => Self::Json,
            other if other.starts_with("application/") && other.ends_with("+json") => Self::Json,
            _ => return None,
        };
        parameters.split(';').all(is_harmless).then_some(format)
    }
}

/// Whether a parameter of a type leaves the text one of UTF-8.
fn is_harmless(parameter: &str) -> bool {
    let Some((name, value)) = parameter.split_once('=') else {
        return parameter.trim_ascii().is_empty();
    };
    if !name.trim_ascii().eq_ignore_ascii_case("charset") {
        // A quoted value may hide another parameter from one reader and not from the next.
        return !value.contains(['"', '\\']) && !name.to_ascii_lowercase().contains("charset");
    }
    let value = value.trim_ascii();
    let bare = value
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
        .unwrap_or(value);
    ["utf-8", "utf8", "us-ascii"]
        .iter()
        .any(|known| bare.eq_ignore_ascii_case(known))
}
