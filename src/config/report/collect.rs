//! Collects mistakes and warnings, so that nothing stops at the first one.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::location::Location;
use super::mistake::{Mistake, Mistakes};
use super::problem::ValueProblem;
use super::quote::quote;

/// All that was found in a file and those that it includes.
#[derive(Clone)]
pub struct Report {
    /// In the order of their first reading.
    files: Vec<Arc<str>>,
    mistakes: Vec<Mistake>,
    warnings: Vec<Mistake>,
    /// The values that came from variables, by file, line and column.
    variables: HashMap<(Arc<str>, (usize, usize)), VariableText>,
}

/// A value that came from variables, which may be secrets.
#[derive(Clone)]
struct VariableText {
    written: String,
    value: String,
}

impl Report {
    pub fn new(file: &str) -> Self {
        Self { files: vec![file.into()], mistakes: Vec::new(), warnings: Vec::new(), variables: HashMap::new() }
    }

    /// The name of the file that includes the others.
    pub fn file(&self) -> Arc<str> {
        Arc::clone(&self.files[0])
    }

    /// Another file, as messages are to call it.
    pub fn include(&mut self, file: Arc<str>) {
        self.files.push(file);
    }

    /// The value at `location` came from variables: messages show how it is `written` instead.
    pub fn vary(&mut self, location: &Location, written: String, value: String) {
        self.variables.insert((location.file.clone(), location.position()), VariableText { written, value });
    }

    pub fn mistake(&mut self, location: &Location, problem: ValueProblem) {
        let mistake = located(location, self.without_value(location, problem));
        self.mistakes.push(mistake);
    }

    pub fn warning(&mut self, location: &Location, problem: ValueProblem) {
        let warning = located(location, self.without_value(location, problem));
        self.warnings.push(warning);
    }

    /// A file that could not even be read.
    pub fn unreadable(&mut self, mistakes: Mistakes) {
        self.mistakes.extend(mistakes.0);
    }

    /// The mistakes if there are any, or else `value` and the warnings.
    pub fn close<T>(mut self, value: Option<T>) -> Result<(T, Vec<Mistake>), Mistakes> {
        self.in_order_of_reading(|report| &mut report.warnings);
        match value {
            Some(value) if self.mistakes.is_empty() => return Ok((value, self.warnings)),
            // Nothing drops a value without saying why; should it happen, the file is refused all the same.
            None if self.mistakes.is_empty() => {
                let why = "the file cannot be used, and tollgate failed to say why".to_owned();
                return Err(Mistakes::unreadable(&self.files[0], why, None));
            }
            _ => {}
        }
        self.in_order_of_reading(|report| &mut report.mistakes);
        Err(Mistakes(self.mistakes))
    }

    /// Sorts by file and line. A value that stands in several places says the same in each of them: once is enough.
    fn in_order_of_reading(&mut self, list: impl Fn(&mut Self) -> &mut Vec<Mistake>) {
        let files: HashMap<_, _> = self.files.iter().cloned().zip(0..).collect();
        let mistakes = list(self);
        mistakes.sort_by_key(|mistake| (files.get(&mistake.file).copied().unwrap_or(0), mistake.at));
        let mut seen = HashSet::new();
        mistakes.retain(|mistake| seen.insert(mistake.clone()));
    }
}

impl Report {
    /// The problem without the value at `location`, if that came from variables.
    fn without_value(&self, location: &Location, problem: ValueProblem) -> ValueProblem {
        let Some(VariableText { written, value }) = self.variables.get(&(location.file.clone(), location.position()))
        else {
            return problem;
        };
        let ValueProblem { message, hint } = problem;
        let (quoted, shown) = (quote(value), quote(written));
        let message = match message {
            message if message.contains(&quoted) => message.replace(&quoted, &shown),
            // It repeats a part of the value.
            message if message.contains('"') => format!("the value of {shown} cannot stand here"),
            message => message,
        };
        ValueProblem { message, hint: hint.filter(|hint| value.len() < 4 || !hint.contains(value)) }
    }
}

fn located(location: &Location, ValueProblem { message, hint }: ValueProblem) -> Mistake {
    Mistake {
        file: location.file.clone(),
        at: Some(location.position()).filter(|(line, _)| *line > 0),
        path: location.path(),
        message,
        hint,
        passes: false,
    }
}
