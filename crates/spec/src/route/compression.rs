//! Which answers a route compresses, and how.

use std::fmt;

/// Which answers a route compresses, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompressionRules {
    /// The codings, the best first.
    pub codings: Vec<ContentCoding>,
    /// Content that is known to be shorter is sent as it is.
    pub min_size: u64,
    pub types: Vec<MediaRange>,
}

/// A content coding (RFC 9110 §8.4.1) that answers are compressed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentCoding {
    /// RFC 8878
    Zstd,
    /// RFC 7932
    Brotli,
    /// RFC 1952
    Gzip,
}

/// A type of content such as `text/html`, `text/*` for all of a kind, or `application/*+json` for
/// those of a suffix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaRange {
    kind: String,
    /// `None`: any.
    subtype: Option<String>,
    suffix: Option<String>,
}

/// The codings in use, the best first: they compress about alike, and take more time from one to
/// the next.
pub const CODINGS: [ContentCoding; 3] = [
    ContentCoding::Zstd,
    ContentCoding::Brotli,
    ContentCoding::Gzip,
];

/// Content that compression makes much shorter. Images, videos and archives are compressed already.
pub const COMPRESSED_TYPES: [&str; 13] = [
    "text/*",
    "application/json",
    "application/*+json",
    "application/x-ndjson",
    "application/javascript",
    "application/xml",
    "application/*+xml",
    "application/yaml",
    "application/wasm",
    "application/graphql-response+json",
    "application/vnd.ms-fontobject",
    "font/ttf",
    "image/svg+xml",
];

/// Below this, the gain is less than a packet.
pub const MIN_SIZE: u64 = 1024;

impl ContentCoding {
    /// The name in `Accept-Encoding`, `Content-Encoding` and the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Brotli => "br",
            Self::Gzip => "gzip",
        }
    }
}

impl MediaRange {
    /// Reads a range in lower case. `None`: it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, subtype) = text.split_once('/')?;
        if !is_name(kind) {
            return None;
        }
        let mut range = Self {
            kind: kind.to_ascii_lowercase(),
            subtype: None,
            suffix: None,
        };
        match subtype.strip_prefix('*') {
            Some("") => {}
            Some(suffix) => {
                let name = suffix.strip_prefix('+')?;
                if !is_name(name) {
                    return None;
                }
                range.suffix = Some(suffix.to_ascii_lowercase());
            }
            None => {
                if !is_name(subtype) {
                    return None;
                }
                range.subtype = Some(subtype.to_ascii_lowercase());
            }
        }
        Some(range)
    }

    /// Whether it has the type of content that a `Content-Type` names. Parameters do not matter.
    pub fn contains(&self, content_type: &str) -> bool {
        let essence = content_type.split(';').next().unwrap_or_default().trim();
        let Some((kind, subtype)) = essence.split_once('/') else {
            return false;
        };
        kind.eq_ignore_ascii_case(&self.kind)
            && self
                .subtype
                .as_ref()
                .is_none_or(|own| subtype.eq_ignore_ascii_case(own))
            && self.suffix.as_ref().is_none_or(|own| {
                let at = subtype.len().checked_sub(own.len()).filter(|at| *at > 0);
                at.and_then(|at| subtype.get(at..))
                    .is_some_and(|end| end.eq_ignore_ascii_case(own))
            })
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte))
}

impl fmt::Display for MediaRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}/{}",
            self.kind,
            self.subtype.as_deref().unwrap_or("*")
        )?;
        f.write_str(self.suffix.as_deref().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_contains_types_of_its_kind_and_suffix_whatever_their_case_and_parameters() {
        for (range, within, outside) in [
            (
                "text/*",
                &["text/html", "Text/HTML; charset=utf-8", "text/plain ;q=1"][..],
                &["textual/html", "text"][..],
            ),
            (
                "application/json",
                &["application/json", "application/JSON;charset=utf-8"],
                &["application/json5", "text/json"],
            ),
            (
                "application/*+json",
                &["application/problem+json", "application/LD+JSON"],
                &["application/json", "application/+json", "image/x+json"],
            ),
        ] {
            let range = MediaRange::parse(range).unwrap();
            assert!(within.iter().all(|name| range.contains(name)), "{range}");
            assert!(outside.iter().all(|name| !range.contains(name)), "{range}");
        }
    }

    #[test]
    fn the_types_compressed_by_default_are_ranges() {
        for text in COMPRESSED_TYPES {
            assert_eq!(
                MediaRange::parse(text)
                    .map(|range| range.to_string())
                    .as_deref(),
                Some(text)
            );
        }
        for none in [
            "",
            "text",
            "*/*",
            "text/",
            "/html",
            "text/*html",
            "text/*+",
            "text/html;q=1",
            "te xt/html",
        ] {
            assert_eq!(MediaRange::parse(none), None, "{none}");
        }
    }
}
