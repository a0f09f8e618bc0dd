//! How large a request's header section is, as HTTP/2 counts it (RFC 9113 §6.5.2).
//!
//! Guarantees that a section is never taken for smaller than it is: all fields count uncompressed.

use http::{HeaderMap, Uri};

/// Bytes that count for each field besides its name and its value.
const PER_FIELD: usize = 32;

/// The fields in front of the others: `:method`, `:scheme`, `:authority`, `:path`. Room for their
/// names, a method, and a scheme.
const PSEUDO_FIELDS: usize =
    4 * PER_FIELD + ":method:scheme:authority:path".len() + "PROPPATCH".len() + "https".len();

/// The largest request heads that a server takes. `None`: any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeadBound {
    /// Bytes of all fields, with 32 for each.
    pub size: Option<usize>,
    /// Bytes of a field's name and value, or of the target.
    pub field: Option<usize>,
}

impl HeadBound {
    /// Whether there is any bound.
    pub fn is_bound(&self) -> bool {
        self.size.is_some() || self.field.is_some()
    }

    /// Whether the server takes a request with this target and these fields.
    pub fn admits(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        let authority = uri
            .authority()
            .map_or(0, |authority| authority.as_str().len());
        let target = uri
            .path_and_query()
            .map_or(1, |target| target.as_str().len());
        let mut largest = target;
        let mut size = PSEUDO_FIELDS + authority + target;
        for (name, value) in headers {
            let length = name.as_str().len() + value.len();
            largest = largest.max(length);
            size += length + PER_FIELD;
        }
        is_within(largest, self.field) && is_within(size, self.size)
    }
}

fn is_within(size: usize, most: Option<usize>) -> bool {
    match most {
        Some(most) => size <= most,
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_head_counts_with_its_target_and_thirty_two_bytes_for_each_field() {
        let uri = Uri::from_static("http://a.example/path");
        let mut headers = HeaderMap::new();
        headers.append("cookie", HeaderValue::from_static("a=1"));
        headers.append("cookie", HeaderValue::from_static("b=2"));
        let size = PSEUDO_FIELDS + "a.example/path".len() + 2 * (9 + 32);
        for (size, field, admitted) in [
            (None, None, true),
            (Some(size), None, true),
            (Some(size - 1), None, false),
            (None, Some(9), true),
            (None, Some(8), false),
            (Some(size), Some(4), false),
        ] {
            let bound = HeadBound { size, field };
            assert_eq!(bound.admits(&uri, &headers), admitted, "{bound:?}");
        }
        let long = format!("/{}", "a".repeat(100)).parse().unwrap();
        let bound = HeadBound {
            size: None,
            field: Some(100),
        };
        assert!(!bound.admits(&long, &HeaderMap::new()));
    }
}
