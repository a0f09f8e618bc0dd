//! What is wrong with a file, said so that it can be put right without reading this code.
//!
//! A mistake names the place, the rule and, where there is one, the way out. It never carries credentials: whatever
//! quotes the file goes through [`quote`].

use std::fmt;
use std::sync::Arc;

use serde::ser::{Serialize, SerializeStruct, Serializer};

use super::node::Place;

/// One thing wrong, or worth a warning, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    pub file: Arc<str>,
    /// Line and column, both from 1. `None`: the file as a whole, when it cannot be read.
    pub at: Option<(usize, usize)>,
    /// The YAML path, such as `routes[0].limits[1]`. Empty: the file as a whole.
    pub path: String,
    pub message: String,
    pub hint: Option<String>,
}

/// Everything wrong with one file, by line. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistakes(Vec<Mistake>);

/// A broken rule, before it has a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    message: String,
    hint: Option<String>,
}

/// Collects what is found, so that nothing stops at the first mistake.
pub(super) struct Report {
    file: Arc<str>,
    mistakes: Vec<Mistake>,
    warnings: Vec<Mistake>,
}

impl Mistakes {
    /// By line, then column.
    pub fn all(&self) -> &[Mistake] {
        &self.0
    }

    /// Logs them, a line each.
    pub fn log(&self) {
        for mistake in &self.0 {
            tracing::error!(hint = mistake.hint.as_deref(), "{}", mistake.headline());
        }
    }

    /// A file that could not even be read.
    pub(super) fn unreadable(file: &str, why: String, hint: Option<String>) -> Self {
        Self(vec![Mistake { file: file.into(), at: None, path: String::new(), message: why, hint }])
    }
}

impl Trouble {
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None }
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Suggests the likely `known` word for `word`, or else `otherwise`.
    pub fn suggest<'a>(self, word: &str, known: impl Iterator<Item = &'a str>, otherwise: impl Into<String>) -> Self {
        match nearest(word, known) {
            Some(likely) => self.hint(format!("did you mean {}?", quote(likely))),
            None => self.hint(otherwise),
        }
    }
}

impl Report {
    pub fn new(file: &str) -> Self {
        Self { file: file.into(), mistakes: Vec::new(), warnings: Vec::new() }
    }

    pub fn mistake(&mut self, place: &Place, trouble: Trouble) {
        let mistake = self.located(place, trouble);
        self.mistakes.push(mistake);
    }

    pub fn warning(&mut self, place: &Place, trouble: Trouble) {
        let warning = self.located(place, trouble);
        self.warnings.push(warning);
    }

    fn located(&self, place: &Place, Trouble { message, hint }: Trouble) -> Mistake {
        Mistake { file: self.file.clone(), at: Some((place.line, place.column)), path: place.path(), message, hint }
    }

    /// The mistakes if there are any, or else `value` and the warnings.
    pub fn close<T>(mut self, value: Option<T>) -> Result<(T, Vec<Mistake>), Mistakes> {
        self.warnings.sort_by_key(|warning| warning.at);
        match value {
            Some(value) if self.mistakes.is_empty() => return Ok((value, self.warnings)),
            // Nothing drops a value without saying why; should it happen, the file is refused all the same.
            None if self.mistakes.is_empty() => {
                let why = "the file cannot be used, and tollgate failed to say why".to_owned();
                return Err(Mistakes::unreadable(&self.file, why, None));
            }
            _ => {}
        }
        self.mistakes.sort_by_key(|mistake| mistake.at);
        Err(Mistakes(self.mistakes))
    }
}

impl Mistake {
    /// All but the hint, on one line.
    pub fn headline(&self) -> String {
        let Self { file, message, .. } = self;
        let at = self.at.map_or(String::new(), |(line, column)| format!(":{line}:{column}"));
        let path = if self.path.is_empty() { String::new() } else { format!(": {}", self.path) };
        format!("{file}{at}{path}: {message}")
    }
}

/// `file`, `path` and `message`; `line`, `column` and `hint` where there are any.
impl Serialize for Mistake {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { file, at, path, message, hint } = self;
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

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.headline())?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(f, "\n  hint: {hint}"))
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|mistake| writeln!(f, "{mistake}"))?;
        let file = self.0.first().map_or("", |mistake| &*mistake.file);
        match self.0.len() {
            1 => write!(f, "1 mistake in {file}"),
            count => write!(f, "{count} mistakes in {file}"),
        }
    }
}

impl std::error::Error for Mistakes {}

/// `text` in quotes: one line, at most 60 characters, credentials of a URL left out.
pub(super) fn quote(text: &str) -> String {
    const MOST: usize = 60;
    let shown = without_credentials(text);
    match shown.char_indices().nth(MOST) {
        Some((end, _)) => format!("\"{}…\"", shown[..end].escape_debug()),
        None => format!("\"{}\"", shown.escape_debug()),
    }
}

/// Hides all between `://` and the last `@`: a password may hold anything, even another `@` or `/`.
fn without_credentials(text: &str) -> String {
    let Some(start) = text.find("://").map(|at| at + 3) else { return text.to_owned() };
    match text[start..].rfind('@') {
        Some(end) => format!("{}…{}", &text[..start], &text[start + end..]),
        None => text.to_owned(),
    }
}

/// The word that was probably meant, if one is near.
pub fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let length = word.chars().count();
    let most = ((length + 1) / 3).max(1);
    known
        // No distance is shorter than the difference in length, and no word of ours is longer than a name.
        .filter(|candidate| length <= 64 && candidate.chars().count().abs_diff(length) <= most)
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= most)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Insertions, deletions and replacements between two words, ignoring case.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().flat_map(char::to_lowercase).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().flat_map(char::to_lowercase).enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
