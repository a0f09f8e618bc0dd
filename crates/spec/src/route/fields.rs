//! Header fields that a route removes, sets and adds, as an operator writes them.

use http::HeaderName;

use super::template::{Template, Variable};

/// Changes of header fields, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldChanges {
    pub remove: Vec<HeaderName>,
    /// In place of all that have the name. An empty value, or one that no field can have, leaves
    /// none.
    pub set: Vec<(HeaderName, Template)>,
    /// Besides others that have the name.
    pub add: Vec<(HeaderName, Template)>,
}

impl FieldChanges {
    pub fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.set.is_empty() && self.add.is_empty()
    }

    /// Whether they say who the client is.
    pub fn name_the_client(&self) -> bool {
        self.templates()
            .flat_map(Template::variables)
            .any(Variable::is_of_identity)
    }

    pub fn templates(&self) -> impl Iterator<Item = &Template> {
        self.set
            .iter()
            .chain(&self.add)
            .map(|(_, template)| template)
    }
}
