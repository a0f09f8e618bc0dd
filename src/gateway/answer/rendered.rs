//! Changes of header fields with the values of one request.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::proxy::message::headers::settle_connection;
use crate::route::fields::FieldChanges;
use crate::route::template::Template;

/// Changes of header fields with the values of one request.
pub struct RenderedFields {
    /// Also those that are set, before they are.
    remove: Vec<HeaderName>,
    append: Vec<(HeaderName, HeaderValue)>,
}

impl RenderedFields {
    /// The `changes`, of which `render` fills in the templates. A value that is empty, or that no field can have, is left out.
    pub fn new(changes: &FieldChanges, render: impl Fn(&Template) -> String) -> Self {
        let set = changes.set.iter().map(|(name, _)| name);
        let rendered = changes.set.iter().chain(&changes.add).filter_map(|(name, template)| {
            let value = HeaderValue::try_from(render(template)).ok().filter(|value| !value.is_empty())?;
            Some((name.clone(), value))
        });
        Self { remove: changes.remove.iter().chain(set).cloned().collect(), append: rendered.collect() }
    }

    /// Like [`RenderedFields::apply`], for a request: a client has no other way to say or to remove what is changed here.
    pub fn apply_to_request(self, headers: &mut HeaderMap) {
        settle_connection(headers);
        // Upstreams that turn field names into variables cannot tell `_` from `-`.
        let is_same =
            |name: &HeaderName| self.remove.iter().any(|removed| is_same_variable(name.as_str(), removed.as_str()));
        let disguised: Vec<HeaderName> = headers.keys().filter(|name| is_same(name)).cloned().collect();
        for name in disguised {
            headers.remove(name);
        }
        self.apply(headers);
    }

    pub fn apply(self, headers: &mut HeaderMap) {
        for name in self.remove {
            headers.remove(name);
        }
        for (name, value) in self.append {
            headers.append(name, value);
        }
    }
}

fn is_same_variable(one: &str, other: &str) -> bool {
    let dash = |byte: u8| if byte == b'_' { b'-' } else { byte };
    one.len() == other.len() && one.bytes().map(dash).eq(other.bytes().map(dash))
}
