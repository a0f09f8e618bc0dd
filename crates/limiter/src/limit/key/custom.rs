//! A part of a key that a closure reads, for programs that use the limiter as a library.

use std::sync::Arc;

use crate::limit::key::facts::Facts;

/// A part of a key that a closure reads from a request.
///
/// Made by [`key_fn`](crate::key_fn) and [`extension`](crate::extension), which have examples.
#[derive(Clone)]
pub struct CustomKey {
    name: Arc<str>,
    read: Arc<ReadKey>,
}

type ReadKey = dyn Fn(&Facts<'_>) -> Option<String> + Send + Sync;

impl CustomKey {
    /// `name` stands in messages.
    pub fn new(
        name: &str,
        read: impl Fn(&Facts<'_>) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            read: Arc::new(read),
        }
    }

    pub(super) fn read(&self, facts: &Facts<'_>) -> Option<String> {
        (self.read)(facts)
    }

    /// The name of the part in messages.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl std::fmt::Debug for CustomKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("CustomKey").field(&self.name).finish()
    }
}

/// Equal are clones of one closure; two closures that do alike are not.
impl PartialEq for CustomKey {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && Arc::ptr_eq(&self.read, &other.read)
    }
}

impl Eq for CustomKey {}
