//! Texts and bodies that stand many times, kept once: a hundred thousand assignments name a dozen
//! plans.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value as Json;

/// Longer bodies are hardly alike.
const MOST_SHARED_BYTES: usize = 256;

/// Lives while a state is read.
#[derive(Default)]
pub struct SharedParts {
    texts: HashMap<Box<str>, Arc<str>>,
    bodies: HashMap<Box<str>, Arc<Json>>,
}

impl SharedParts {
    pub fn text(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return Arc::clone(known);
        }
        let shared = Arc::from(text);
        self.texts.insert(text.into(), Arc::clone(&shared));
        shared
    }

    /// Reads a body.
    pub fn body(&mut self, text: &str) -> Result<Arc<Json>, serde_json::Error> {
        if let Some(known) = self.bodies.get(text) {
            return Ok(Arc::clone(known));
        }
        let body = Arc::new(serde_json::from_str(text)?);
        if text.len() <= MOST_SHARED_BYTES {
            self.bodies.insert(text.into(), Arc::clone(&body));
        }
        Ok(body)
    }
}
