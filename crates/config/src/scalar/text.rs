//! Names, texts and switches.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value as Json, json};

use crate::report::{ValueProblem, quote};
use crate::yaml::decode::Scalar;
use crate::yaml::schema::or_variable;

/// The name of a limit, an upstream or a route. Goes into header fields and metric labels as it is.
#[derive(Clone)]
pub struct DefinedName(pub Arc<str>);

/// Any text.
#[derive(Clone)]
pub struct PlainText(pub Arc<str>);

/// A switch that is only ever turned on.
#[derive(Clone, Copy)]
pub struct OnlyTrue;

impl DefinedName {
    /// Bytes of a name at most.
    pub const LONGEST: usize = 64;
}

impl PlainText {
    /// A body of an answer.
    pub fn bytes(&self) -> Bytes {
        Bytes::copy_from_slice(self.0.as_bytes())
    }
}

impl Scalar for DefinedName {
    const WHAT: &'static str = "a name";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        let is_plain = text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'));
        if is_plain && (1..=Self::LONGEST).contains(&text.len()) {
            return Ok(Self(text.into()));
        }
        Err(ValueProblem::new(format!("{} is not a name", quote(text)))
            .hint("1 to 64 letters, digits, dots, dashes and underscores"))
    }

    fn schema() -> Json {
        json!({ "type": "string", "pattern": or_variable("[A-Za-z0-9_.-]{1,64}") })
    }
}

impl Scalar for PlainText {
    const WHAT: &'static str = "text";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        Ok(Self(text.into()))
    }

    fn schema() -> Json {
        json!({ "type": ["string", "number", "boolean"] })
    }
}

impl Scalar for bool {
    const WHAT: &'static str = "true or false";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        match text {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(
                ValueProblem::new(format!("{} is neither true nor false", quote(text)))
                    .hint("write true or false"),
            ),
        }
    }

    fn schema() -> Json {
        json!({ "anyOf": [{ "type": "boolean" }, { "type": "string", "pattern": or_variable("true|false") }] })
    }
}

impl Scalar for OnlyTrue {
    const WHAT: &'static str = "true";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        match text {
            "true" => Ok(Self),
            _ => Err(ValueProblem::new(format!("{} is not true", quote(text)))
                .hint("write true, or leave the key out")),
        }
    }

    fn schema() -> Json {
        json!({ "const": true })
    }
}
