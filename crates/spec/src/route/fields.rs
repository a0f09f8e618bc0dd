//! Header fields that a route removes, sets and adds, as an operator writes them.

use std::sync::Arc;

use http::HeaderName;

use super::template::{Template, Variable};

/// Changes of header fields, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldChanges {
    /// Fields that are set are removed first.
    pub removed: Arc<[HeaderName]>,
    /// An empty value, or one that no field can have, leaves no field.
    pub appended: Vec<(HeaderName, Template)>,
}

impl FieldChanges {
    /// Removes fields, sets others in place of all that have the name, and adds some besides those
    /// that have the name.
    pub fn new(
        remove: Vec<HeaderName>,
        set: Vec<(HeaderName, Template)>,
        add: Vec<(HeaderName, Template)>,
    ) -> Self {
        let is_set = set.iter().map(|(name, _)| name.clone());
        Self {
            removed: remove.into_iter().chain(is_set).collect(),
            appended: set.into_iter().chain(add).collect(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.appended.is_empty()
    }

    /// Whether they say who the client is.
    pub fn name_the_client(&self) -> bool {
        self.templates()
            .flat_map(Template::variables)
            .any(Variable::is_of_identity)
    }

    pub fn templates(&self) -> impl Iterator<Item = &Template> {
        self.appended.iter().map(|(_, template)| template)
    }
}
