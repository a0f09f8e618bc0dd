//! Changes of header fields with the values of one request.

use http::{HeaderMap, HeaderName, HeaderValue};

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

    pub fn apply(self, headers: &mut HeaderMap) {
        for name in self.remove {
            headers.remove(name);
        }
        for (name, value) in self.append {
            headers.append(name, value);
        }
    }
}
