//! Changes of header fields with the values of one request.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, Request};

use crate::client_fields;
use tollgate_spec::route::fields::FieldChanges;
use tollgate_spec::route::template::Template;
use tollgate_wire::body::Body;

/// Changes of header fields with the values of one request.
pub struct RenderedFields {
    removed: Arc<[HeaderName]>,
    append: Vec<(HeaderName, HeaderValue)>,
}

impl RenderedFields {
    /// The `changes`, of which `render` fills in the templates. A value that is empty, or that no
    /// field can have, is left out.
    pub fn new(changes: &FieldChanges, render: impl Fn(&Template) -> String) -> Self {
        let mut append = Vec::with_capacity(changes.appended.len());
        for (name, template) in &changes.appended {
            if let Ok(value) = HeaderValue::try_from(render(template))
                && !value.is_empty()
            {
                append.push((name.clone(), value));
            }
        }
        let removed = changes.removed.clone();
        Self { removed, append }
    }

    /// Like [`RenderedFields::apply`], for a request: its client has no other way to say what is
    /// changed here.
    pub fn apply_to_request(self, request: &mut Request<Body>) {
        client_fields::remove(request, &self.removed);
        self.append_to(request.headers_mut());
    }

    /// The names of the fields that are taken away.
    pub fn removed(&self) -> &Arc<[HeaderName]> {
        &self.removed
    }

    pub fn apply(self, headers: &mut HeaderMap) {
        for name in &*self.removed {
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
