//! The syntax of a page, by its type of content: how text is written in it.
//!
//! Guarantees that text which is put into a page stays text: it opens no element of HTML and ends
//! no string of JSON.

use bytes::{BufMut as _, BytesMut};
use http::HeaderValue;

/// The syntax of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageSyntax {
    /// HTML, XML and SVG.
    Markup,
    Json,
    /// Any other syntax: text has no marks in it.
    Plain,
}

impl PageSyntax {
    /// The syntax of content of this type.
    pub fn new(content_type: &HeaderValue) -> Self {
        let essence = content_type
            .to_str()
            .unwrap_or_default()
            .split(';')
            .next()
            .unwrap_or_default();
        let essence = essence.trim().to_ascii_lowercase();
        let subtype = essence.split_once('/').map_or("", |(_, subtype)| subtype);
        match subtype.rsplit('+').next().unwrap_or_default() {
            "html" | "xml" => Self::Markup,
            "json" | "javascript" => Self::Json,
            _ => Self::Plain,
        }
    }

    /// Writes `text` so that it is text in the page.
    pub fn write(self, text: &[u8], page: &mut BytesMut) {
        for byte in text {
            match (self, byte) {
                (Self::Markup, b'&') => page.put_slice(b"&amp;"),
                (Self::Markup, b'<') => page.put_slice(b"&lt;"),
                (Self::Markup, b'>') => page.put_slice(b"&gt;"),
                (Self::Markup, b'"') => page.put_slice(b"&quot;"),
                (Self::Markup, b'\'') => page.put_slice(b"&#39;"),
                // Markup as well: a string of JSON may stand in a script of HTML.
                (Self::Json, b'"' | b'\\' | b'<' | b'>' | b'&' | b'\'' | ..b' ') => {
                    page.put_slice(format!("\\u{byte:04x}").as_bytes());
                }
                (_, byte) => page.put_u8(*byte),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(content_type: &'static str, text: &str) -> String {
        let mut page = BytesMut::new();
        PageSyntax::new(&HeaderValue::from_static(content_type)).write(text.as_bytes(), &mut page);
        String::from_utf8(page.to_vec()).unwrap()
    }

    #[test]
    fn text_stays_text_in_pages_of_every_type() {
        let text = "<a b=\"c\" d='e'>&\\\n{f}";
        let of_markup = "&lt;a b=&quot;c&quot; d=&#39;e&#39;&gt;&amp;\\\n{f}";
        for markup in [
            "text/html",
            "Text/HTML; charset=utf-8",
            "application/xhtml+xml",
            "text/xml",
            "image/svg+xml",
        ] {
            assert_eq!(show(markup, text), of_markup, "{markup}");
        }
        for json in [
            "application/json",
            "application/problem+json",
            "text/javascript",
        ] {
            let shown = show(json, text);
            assert!(!shown.contains(['<', '&', '\n']), "{shown}");
            assert_eq!(
                serde_json::from_str::<String>(&format!("\"{shown}\"")).unwrap(),
                text,
                "{json}"
            );
        }
        assert_eq!(show("text/plain", text), text);
    }
}
