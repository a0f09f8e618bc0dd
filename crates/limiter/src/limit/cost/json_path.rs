//! The way to a field of a JSON text, as operators write it.
//!
//! Guarantees that a path which is shown reads back as the same path.

use std::fmt;
use std::sync::Arc;

/// Names of a path at most.
pub(crate) const MAX_NAMES: usize = 16;

/// The way to a field: a name for each object to go into. Written with dots between the names, `\.` for a dot in one
/// and `\\` for a backslash.
///
/// ```
/// use tollgate_limiter::limit::cost::json_path::JsonPath;
///
/// let path = JsonPath::parse(r"usage.total\.tokens")?;
/// assert_eq!(path.to_string(), r"usage.total\.tokens");
/// # Ok::<(), tollgate_limiter::limit::cost::json_path::PathError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JsonPath(Arc<[Box<[u8]>]>);

/// Why a text is no path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    #[error("a name is empty")]
    EmptyName,
    #[error("there are more than 16 names")]
    TooDeep,
    #[error("a backslash stands before neither a dot nor a backslash")]
    Escape,
}

impl JsonPath {
    /// From the outermost object inwards; at least one.
    pub(crate) fn names(&self) -> &[Box<[u8]>] {
        &self.0
    }

    /// Reads a path as operators write it.
    ///
    /// # Errors
    /// When a name is empty, there are too many, or a backslash escapes nothing.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        let (mut names, mut name) = (Vec::new(), String::new());
        let mut letters = text.chars();
        while let Some(letter) = letters.next() {
            match letter {
                '.' => names.push(std::mem::take(&mut name)),
                '\\' => match letters.next() {
                    Some(escaped @ ('.' | '\\')) => name.push(escaped),
                    _ => return Err(PathError::Escape),
                },
                _ => name.push(letter),
            }
        }
        names.push(name);
        if names.iter().any(String::is_empty) {
            return Err(PathError::EmptyName);
        }
        if names.len() > MAX_NAMES {
            return Err(PathError::TooDeep);
        }
        Ok(Self(names.into_iter().map(|name| name.into_bytes().into()).collect()))
    }
}

impl fmt::Display for JsonPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, name) in self.0.iter().enumerate() {
            let name = String::from_utf8_lossy(name).replace('\\', "\\\\").replace('.', "\\.");
            write!(f, "{}{name}", if index > 0 { "." } else { "" })?;
        }
        Ok(())
    }
}
