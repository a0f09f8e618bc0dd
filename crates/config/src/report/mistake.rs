//! A mistake as an operator reads it: file, line, column, YAML path, message and hint.
//!
//! Guarantees that it has no credentials: text of the file is repeated through
//! [`quote`](super::quote) alone.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::ser::{Serialize, SerializeStruct, Serializer};

/// A mistake or a warning, and where it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Mistake {
    pub file: Arc<str>,
    /// Line and column, both from 1. `None`: the file as a whole, when it cannot be read, or there
    /// is no text.
    pub at: Option<(usize, usize)>,
    /// The YAML path, such as `routes[0].limits[1]`. Empty: the file as a whole.
    pub path: String,
    pub message: String,
    pub hint: Option<String>,
    /// Whether the file could not be read, and perhaps can be in a moment.
    pub is_transient: bool,
}

/// Everything wrong with a file and those that it includes, by file and line. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistakes {
    pub(super) list: Vec<Mistake>,
    /// Mistakes that are counted, and not in the list.
    pub(super) more: usize,
}

/// `file`, `path` and `message`; `line`, `column` and `hint` where there are any.
impl Serialize for Mistake {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self {
            file,
            at,
            path,
            message,
            hint,
            is_transient: _,
        } = self;
        let fields = 3 + 2 * usize::from(at.is_some()) + usize::from(hint.is_some());
        let mut object = serializer.serialize_struct("Mistake", fields)?;
        object.serialize_field("file", &**file)?;
        if let Some((line, column)) = at {
            object.serialize_field("line", line)?;
            object.serialize_field("column", column)?;
        }
        object.serialize_field("path", path)?;
        object.serialize_field("message", message)?;
        if let Some(hint) = hint {
            object.serialize_field("hint", hint)?;
        }
        object.end()
    }
}

impl Mistakes {
    /// By file, line and column.
    pub fn all(&self) -> &[Mistake] {
        &self.list
    }

    /// Logs them, a line each.
    pub fn log(&self) {
        for mistake in &self.list {
            tracing::error!(hint = mistake.hint.as_deref(), "{}", mistake.headline());
        }
    }

    /// A file that could not even be read.
    pub fn unreadable(file: &str, why: String, hint: Option<String>) -> Self {
        let mistake = Mistake {
            file: file.into(),
            at: None,
            path: String::new(),
            message: why,
            hint,
            is_transient: false,
        };
        Self {
            list: vec![mistake],
            more: 0,
        }
    }

    /// The file could not be read, for a reason that may pass.
    #[must_use]
    pub fn transient(mut self, is_transient: bool) -> Self {
        for mistake in &mut self.list {
            mistake.is_transient = is_transient;
        }
        self
    }

    /// Whether a file could not be read for a reason that may pass.
    pub fn may_pass(&self) -> bool {
        self.list.iter().any(|mistake| mistake.is_transient)
    }
}

impl Mistake {
    /// All but the hint, on one line.
    pub fn headline(&self) -> String {
        let Self { file, message, .. } = self;
        let at = self
            .at
            .map_or(String::new(), |(line, column)| format!(":{line}:{column}"));
        let path = if self.path.is_empty() {
            String::new()
        } else {
            format!(": {}", self.path)
        };
        format!("{file}{at}{path}: {message}")
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.headline())?;
        self.hint
            .as_ref()
            .map_or(Ok(()), |hint| write!(f, "\n  hint: {hint}"))
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.list
            .iter()
            .try_for_each(|mistake| writeln!(f, "{mistake}"))?;
        let files: BTreeSet<&str> = self.list.iter().map(|mistake| &*mistake.file).collect();
        let place = match files.first() {
            Some(file) if files.len() == 1 => (*file).to_owned(),
            _ => format!("{} files", files.len()),
        };
        match self.list.len() + self.more {
            1 => write!(f, "1 mistake in {place}"),
            count => write!(f, "{count} mistakes in {place}"),
        }
    }
}

impl std::error::Error for Mistakes {}
