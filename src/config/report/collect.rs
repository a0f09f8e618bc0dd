//! Collects mistakes and warnings, so that nothing stops at the first one.

use std::sync::Arc;

use super::location::Location;
use super::mistake::{Mistake, Mistakes};
use super::problem::ValueProblem;

/// All that was found in one file.
pub struct Report {
    file: Arc<str>,
    mistakes: Vec<Mistake>,
    warnings: Vec<Mistake>,
}

impl Report {
    pub fn new(file: &str) -> Self {
        Self { file: file.into(), mistakes: Vec::new(), warnings: Vec::new() }
    }

    pub fn mistake(&mut self, location: &Location, problem: ValueProblem) {
        let mistake = self.located(location, problem);
        self.mistakes.push(mistake);
    }

    pub fn warning(&mut self, location: &Location, problem: ValueProblem) {
        let warning = self.located(location, problem);
        self.warnings.push(warning);
    }

    fn located(&self, location: &Location, ValueProblem { message, hint }: ValueProblem) -> Mistake {
        let at = Some((location.line, location.column));
        Mistake { file: self.file.clone(), at, path: location.path(), message, hint }
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
