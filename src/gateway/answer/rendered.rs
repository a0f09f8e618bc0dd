//! Changes of header fields with the values of one request.

use http::{HeaderMap, HeaderName, HeaderValue, Request};

use crate::body::Body;
use crate::gateway::client_fields;
use crate::route::fields::FieldChanges;
use crate::route::template::Template;

/// Changes of header fields with the values of one request.
pub struct RenderedFields {
    /// Also those that are set, before they are.
    remove: Vec<HeaderName>,
    append: Vec<(HeaderName, HeaderValue)>,
}

impl RenderedFields {
    /// The `changes`, of which `render` fills in the templates. A value that is empty, or that no
    /// field can have, is left out.
    pub fn new(changes: &FieldChanges, render: impl Fn(&Template) -> String) -> Self {
        let set = changes.set.iter().map(|(name, _)| name);
        let rendered = changes
            .set
            .iter()
            .chain(&changes.add)
            .filter_map(|(name, template)| {
                let value = HeaderValue::try_from(render(template))
                    .ok()
                    .filter(|value| !value.is_empty())?;
                Some((name.clone(), value))
            });
        Self {
            remove: changes.remove.iter().chain(set).cloned().collect(),
            append: rendered.collect(),
        }
    }

    /// Like [`RenderedFields::apply`], for a request: its client has no other way to say what is
    /// changed here.
    pub fn apply_to_request(self, request: &mut Request<Body>) {
        client_fields::remove(request, &self.remove);
        self.append_to(request.headers_mut());
    }

    /// The names of the fields that are taken away.
    pub fn removed(&self) -> &[HeaderName] {
        &self.remove
    }

    pub fn apply(self, headers: &mut HeaderMap) {
        for name in &self.remove {
            headers.remove(name);
        }
        self.append_to(headers);
    }

    fn append_to(self, headers: &mut HeaderMap) {
        for (name, value) in self.append {
            headers.append(name, value);
        }
    }
}
