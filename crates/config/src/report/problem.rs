//! A broken rule before it has a location: a message and, where there is one, a hint.

use super::quote::quote;
use tollgate_spec::spelling::nearest;

/// A broken rule, before it has a location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueProblem {
    pub(super) message: String,
    pub(super) hint: Option<String>,
}

impl ValueProblem {
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hint: None,
        }
    }

    /// Says what to do about it.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Suggests the likely `known` word for `word`, or else `otherwise`.
    pub fn suggest<'a>(
        self,
        word: &str,
        known: impl Iterator<Item = &'a str>,
        otherwise: impl Into<String>,
    ) -> Self {
        match nearest(word, known) {
            Some(likely) => self.hint(format!("did you mean {}?", quote(likely))),
            None => self.hint(otherwise),
        }
    }
}
