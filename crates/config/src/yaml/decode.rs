//! Types that can be read from the file: [`Scalar`] for single values, [`Decode`] for anything.

use serde_json::{Map as Object, Value as Json};

use super::node::{YamlNode, YamlValue};
use crate::report::{Location, Report, ValueProblem, quote};

/// A type that can be read from a node.
pub trait Decode: Sized {
    /// `None`: a mistake was reported.
    fn decode(node: &YamlNode, report: &mut Report) -> Option<Self>;
    /// The JSON Schema of the type. Records add theirs to `definitions` and answer with a
    /// reference.
    fn schema(definitions: &mut SchemaDefinitions) -> Json;
}

/// A type that is written as one value.
pub trait Scalar: Sized {
    /// With its article, for messages: "a duration".
    const WHAT: &'static str;
    fn read(text: &str) -> Result<Self, ValueProblem>;
    fn schema() -> Json;
}

/// The schemas of all records, by name.
pub type SchemaDefinitions = Object<String, Json>;

/// A single value and its location.
pub struct Located<T> {
    pub location: Location,
    pub value: T,
}

/// The value of a key, if there is one.
pub enum Setting<T> {
    Absent,
    /// A mistake in it was reported. Nothing is said of what only follows from it.
    Invalid,
    Valid(T),
}

impl<T> Setting<T> {
    pub fn valid(&self) -> Option<&T> {
        match self {
            Self::Valid(value) => Some(value),
            Self::Absent | Self::Invalid => None,
        }
    }

    pub fn is_present(&self) -> bool {
        !matches!(self, Self::Absent)
    }

    pub fn is_invalid(&self) -> bool {
        matches!(self, Self::Invalid)
    }

    /// Like [`build`](Self::build), of the value itself.
    pub fn take<U>(self, build: impl FnOnce(T) -> Option<U>) -> Option<Option<U>> {
        match self {
            Self::Absent => Some(None),
            Self::Invalid => None,
            Self::Valid(value) => build(value).map(Some),
        }
    }

    /// Builds something of the value. `Some(None)`: absent. `None`: invalid, or `build` reported a
    /// mistake.
    pub fn build<U>(&self, build: impl FnOnce(&T) -> Option<U>) -> Option<Option<U>> {
        match self {
            Self::Absent => Some(None),
            Self::Invalid => None,
            Self::Valid(value) => build(value).map(Some),
        }
    }
}

impl<T> Setting<Located<T>> {
    /// The location of a valid value.
    pub fn location(&self) -> Option<&Location> {
        match self {
            Self::Valid(at) => Some(&at.location),
            Self::Absent | Self::Invalid => None,
        }
    }

    /// The location of a valid value, or else `otherwise`.
    pub fn location_or<'l>(&'l self, otherwise: &'l Location) -> &'l Location {
        self.location().unwrap_or(otherwise)
    }
}

impl<T: Clone> Setting<Located<T>> {
    /// The value, without its location. `Some(None)`: absent. `None`: invalid.
    pub fn optional(&self) -> Option<Option<T>> {
        self.build(|at| Some(at.value.clone()))
    }

    pub fn value(&self) -> Option<T> {
        self.valid().map(|at| at.value.clone())
    }
}

impl<T: Scalar> Decode for Located<T> {
    fn decode(node: &YamlNode, report: &mut Report) -> Option<Self> {
        let YamlValue::Scalar { text, .. } = &node.value else {
            mismatch(node, T::WHAT, None, report);
            return None;
        };
        match T::read(text) {
            Ok(value) => Some(Self {
                location: node.location.clone(),
                value,
            }),
            Err(problem) => {
                report.mistake(&node.location, problem);
                None
            }
        }
    }

    fn schema(_: &mut SchemaDefinitions) -> Json {
        T::schema()
    }
}

/// Reports that `node` is not `wanted`. The message does not quote the node, which may be a secret.
pub fn mismatch(node: &YamlNode, wanted: &str, hint: Option<&str>, report: &mut Report) {
    if matches!(node.value, YamlValue::Unusable) {
        return;
    }
    let problem = ValueProblem::new(format!("expected {wanted}, found {}", node.value.kind()));
    let problem = match (hint, unquoted_braces(node)) {
        (Some(hint), _) => problem.hint(hint),
        (None, Some(text)) => {
            problem.hint(format!("a text in braces needs quotes: {}", quote(&text)))
        }
        (None, None) => problem,
    };
    report.mistake(&node.location, problem);
}

/// The text that was probably meant by `{name}`: YAML reads a mapping whose only key has no value.
fn unquoted_braces(node: &YamlNode) -> Option<String> {
    let YamlValue::Map(entries) = &node.value else {
        return None;
    };
    let [entry] = entries.as_slice() else {
        return None;
    };
    if entry.value.value.is_null() {
        Some(format!("{{{}}}", entry.key))
    } else {
        None
    }
}

/// The present one of several settings that exclude each other, each [built](Setting::build).
/// `Ok(None)`: it is invalid.
///
/// # Errors
/// The number of settings that are present, when it is not one.
pub fn only_one<T>(
    settings: impl IntoIterator<Item = Option<Option<T>>>,
) -> Result<Option<T>, usize> {
    let mut present: Vec<_> = settings
        .into_iter()
        .filter(|built| !matches!(built, Some(None)))
        .collect();
    match present.pop() {
        Some(built) if present.is_empty() => Ok(built.flatten()),
        Some(_) => Err(present.len() + 1),
        None => Err(0),
    }
}
