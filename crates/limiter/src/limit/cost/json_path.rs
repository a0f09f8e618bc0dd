//! The way to a field of a JSON text, as operators write it.
//!
//! Guarantees that a path which is shown reads back as the same path.

use std::fmt;
use std::sync::Arc;

/// Names of a path at most.
pub(crate) const MAX_NAMES: usize = 16;

/// The way to a field: a name for each object to go into. Written with dots between the names. A
/// backslash before a dot, or before a character that query languages give a meaning, makes it part
/// of the name: `\.`, `\\`, `\$`, `\*`, `\[`, `\]`, `\+` and `\ `.
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
    #[error("a backslash stands before a character that needs none")]
    Escape,
    #[error("it begins with \"$\", which is no name")]
    Root,
    #[error("\"*\" is no name")]
    Wildcard,
    #[error("it goes into an array, which has no names")]
    Array,
    #[error("\"+\" and spaces are no part of a name")]
    Sum,
}

/// Characters of query languages: a path with one of them was meant as something else than names.
const SPECIAL: [char; 8] = ['.', '\\', '$', '*', '[', ']', '+', ' '];

impl JsonPath {
    /// From the outermost object inwards; at least one.
    pub(crate) fn names(&self) -> &[Box<[u8]>] {
        &self.0
    }

    /// Reads a path as operators write it.
    ///
    /// # Errors
    /// When a name is empty, there are too many, a backslash escapes nothing, or the text is of
    /// another language: such a path would never match.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        let mut names = Vec::new();
        let mut name = String::new();
        let mut letters = text.chars();
        while let Some(letter) = letters.next() {
            match letter {
                '.' => names.push(std::mem::take(&mut name)),
                '\\' => match letters.next() {
                    Some(escaped) if SPECIAL.contains(&escaped) => name.push(escaped),
                    _ => return Err(PathError::Escape),
                },
                '$' if names.is_empty()
                    && name.is_empty()
                    && matches!(letters.clone().next(), None | Some('.')) =>
                {
                    return Err(PathError::Root);
                }
                '*' => return Err(PathError::Wildcard),
                '[' | ']' => return Err(PathError::Array),
                '+' | ' ' => return Err(PathError::Sum),
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
        Ok(Self(
            names
                .into_iter()
                .map(|name| name.into_bytes().into())
                .collect(),
        ))
    }
}

impl fmt::Display for JsonPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, name) in self.0.iter().enumerate() {
            f.write_str(if index > 0 { "." } else { "" })?;
            // A dollar means something else only where it is all of the first name.
            let dollar = index == 0 && **name == *b"$";
            for letter in String::from_utf8_lossy(name).chars() {
                let escaped = SPECIAL.contains(&letter) && (letter != '$' || dollar);
                write!(f, "{}{letter}", if escaped { "\\" } else { "" })?;
            }
        }
        Ok(())
    }
}
