//! Collects mistakes and warnings, so that nothing stops at the first one.

use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher as _;
use std::sync::Arc;

use super::location::Location;
use super::mistake::{Mistake, Mistakes};
use super::problem::ValueProblem;
use super::quote::quote;

/// Mistakes in a report at most, and those of them whose likely word is looked for: nobody reads
/// more, and a document of thousands would take minutes.
const MOST_MISTAKES: usize = 100;
const MOST_SUGGESTIONS: usize = 20;

/// Warnings in a report at most: each node logs them.
const MOST_WARNINGS: usize = 100;

/// All that was found in a file and those that it includes.
#[derive(Clone)]
pub struct Report {
    /// In the order of their first reading.
    files: Vec<Arc<str>>,
    /// The names, in messages, of files that locations call otherwise.
    shown: HashMap<Arc<str>, Arc<str>>,
    mistakes: Vec<Mistake>,
    /// Mistakes beyond those.
    more_mistakes: usize,
    known_mistakes: KnownMistakes,
    warnings: Vec<Mistake>,
    /// Warnings beyond those, and what they are about: the first two steps of their paths.
    more_warnings: usize,
    more_warned: HashSet<String>,
    known_warnings: KnownMistakes,
    /// How often something was found, if only once more.
    found: usize,
    /// The values that came from variables, by file, line and column.
    variables: HashMap<(Arc<str>, (usize, usize)), VariableText>,
}

/// A value that came from variables, which may be a secret.
#[derive(Clone)]
struct VariableText {
    written: String,
    value: String,
}

/// Hashes of mistakes, so that a value that is in several places by aliases is reported once.
#[derive(Clone, Default)]
struct KnownMistakes(HashSet<u64>);

impl Report {
    pub fn new(file: &str) -> Self {
        Self {
            files: vec![file.into()],
            shown: HashMap::new(),
            mistakes: Vec::new(),
            more_mistakes: 0,
            known_mistakes: KnownMistakes::default(),
            warnings: Vec::new(),
            more_warnings: 0,
            more_warned: HashSet::new(),
            known_warnings: KnownMistakes::default(),
            found: 0,
            variables: HashMap::new(),
        }
    }

    /// The name of the file that includes the others.
    pub fn file(&self) -> Arc<str> {
        Arc::clone(&self.files[0])
    }

    /// Another file, as messages are to call it.
    pub fn include(&mut self, file: Arc<str>) {
        self.files.push(file);
    }

    /// Another file, which messages are to call `shown`.
    #[cfg(feature = "team")]
    pub fn include_as(&mut self, file: Arc<str>, shown: Arc<str>) {
        self.shown.insert(file, shown.clone());
        self.include(shown);
    }

    /// The count of mistakes and warnings that were found so far. A wrong value raises it, also
    /// where its mistake is known already.
    #[cfg(feature = "team")]
    pub fn found(&self) -> usize {
        self.found
    }

    pub fn has_mistakes(&self) -> bool {
        !self.mistakes.is_empty()
    }

    /// The warnings about values at a `path` of two steps, or below, with their files as
    /// locations call them. `None`: the report
    /// lacks some of them.
    pub fn warnings_of(&self, path: &str) -> Option<Vec<Mistake>> {
        if self.more_warned.contains(path) {
            return None;
        }
        let mut warnings = Vec::new();
        for warning in &self.warnings {
            if is_at_or_below(&warning.path, path) {
                warnings.push(Mistake {
                    file: self.located_file(&warning.file).clone(),
                    ..warning.clone()
                });
            }
        }
        Some(warnings)
    }

    /// The file that messages call `shown`, as locations call it.
    fn located_file<'f>(&'f self, shown: &'f Arc<str>) -> &'f Arc<str> {
        for (file, name) in &self.shown {
            if name == shown {
                return file;
            }
        }
        shown
    }

    /// Warnings that were found before, and are true still.
    pub fn warn_again(&mut self, warnings: &[Mistake]) {
        for warning in warnings {
            let file = self
                .shown
                .get(&warning.file)
                .unwrap_or(&warning.file)
                .clone();
            self.add_warning(Mistake {
                file,
                ..warning.clone()
            });
        }
    }

    /// The value at `location` came from variables: messages show how it is `written` instead.
    pub fn vary(&mut self, location: &Location, written: String, value: String) {
        self.variables.insert(
            (location.file().clone(), location.position()),
            VariableText { written, value },
        );
    }

    pub fn mistake(&mut self, location: &Location, problem: ValueProblem) {
        self.found += 1;
        let mistake = self.located(location, self.without_value(location, problem));
        if !self.known_mistakes.add(&mistake) {
            return;
        }
        if self.mistakes.len() < MOST_MISTAKES {
            self.mistakes.push(mistake);
        } else {
            self.more_mistakes += 1;
        }
    }

    /// A mistake whose hint is the likely `known` word for `word`, or else `otherwise`.
    pub fn misnamed<'a>(
        &mut self,
        location: &Location,
        problem: ValueProblem,
        word: &str,
        known: impl Iterator<Item = &'a str>,
        otherwise: impl Into<String>,
    ) {
        let without_hint = self.located(location, self.without_value(location, problem.clone()));
        let is_searched =
            self.mistakes.len() < MOST_SUGGESTIONS && !self.known_mistakes.has(&without_hint);
        let searched = if is_searched { usize::MAX } else { 0 };
        self.mistake(
            location,
            problem.suggest(word, known.take(searched), otherwise),
        );
    }

    pub fn warning(&mut self, location: &Location, problem: ValueProblem) {
        let warning = self.located(location, self.without_value(location, problem));
        self.add_warning(warning);
    }

    fn add_warning(&mut self, warning: Mistake) {
        self.found += 1;
        if !self.known_warnings.add(&warning) {
            return;
        }
        if self.warnings.len() < MOST_WARNINGS {
            self.warnings.push(warning);
        } else {
            self.more_warnings += 1;
            self.more_warned.insert(two_steps(&warning.path).to_owned());
        }
    }

    /// A file that could not even be read.
    pub fn unreadable(&mut self, mistakes: Mistakes) {
        self.found += mistakes.list.len();
        let new = mistakes
            .list
            .into_iter()
            .filter(|mistake| self.known_mistakes.add(mistake));
        self.mistakes.extend(new);
    }

    /// The mistakes if there are any, or else `value` and the warnings.
    pub fn close<T>(mut self, value: Option<T>) -> Result<(T, Vec<Mistake>), Mistakes> {
        // Warnings of policies have no place, and come in another order where some were known.
        self.warnings
            .sort_by(|one, other| one.path.cmp(&other.path));
        self.in_order_of_reading(|report| &mut report.warnings);
        if self.more_warnings > 0 {
            let more = format!("and {} more warnings", self.more_warnings);
            self.warnings
                .extend(Mistakes::unreadable(&self.files[0], more, None).list);
        }
        match value {
            Some(value) if self.mistakes.is_empty() => return Ok((value, self.warnings)),
            // Nothing drops a value without saying why; should it happen, the file is refused all
            // the same.
            None if self.mistakes.is_empty() => {
                let why = "the file cannot be used, and tollgate failed to say why".to_owned();
                return Err(Mistakes::unreadable(&self.files[0], why, None));
            }
            _ => {}
        }
        self.in_order_of_reading(|report| &mut report.mistakes);
        if self.more_mistakes > 0 {
            let more = format!("and {} more", self.more_mistakes);
            self.mistakes
                .extend(Mistakes::unreadable(&self.files[0], more, None).list);
        }
        // The last of the list stands for those that are not in it.
        Err(Mistakes {
            list: self.mistakes,
            more: self.more_mistakes.saturating_sub(1),
        })
    }

    /// Sorts by file and line.
    fn in_order_of_reading(&mut self, list: impl Fn(&mut Self) -> &mut Vec<Mistake>) {
        let files: HashMap<_, _> = self.files.iter().cloned().zip(0..).collect();
        let mistakes = list(self);
        mistakes
            .sort_by_key(|mistake| (files.get(&mistake.file).copied().unwrap_or(0), mistake.at));
    }
}

impl KnownMistakes {
    /// Adds what is not known yet. Whether it was not.
    fn add(&mut self, mistake: &Mistake) -> bool {
        let hash = self.hash(mistake);
        self.0.insert(hash)
    }

    fn has(&self, mistake: &Mistake) -> bool {
        self.0.contains(&self.hash(mistake))
    }

    /// All but the hint: the likely word is looked for once.
    fn hash(
        &self,
        Mistake {
            file,
            at,
            path,
            message,
            hint: _,
            is_transient: _,
        }: &Mistake,
    ) -> u64 {
        self.0.hasher().hash_one((file, at, path, message))
    }
}

impl Report {
    /// The problem without the value at `location`, if that came from variables.
    fn without_value(&self, location: &Location, problem: ValueProblem) -> ValueProblem {
        let Some(VariableText { written, value }) = self
            .variables
            .get(&(location.file().clone(), location.position()))
        else {
            return problem;
        };
        let ValueProblem { message, hint } = problem;
        let quoted = quote(value);
        let shown = quote(written);
        let message = match message {
            message if message.contains(&quoted) => message.replace(&quoted, &shown),
            // The message repeats a part of the value.
            message if message.contains('"') => format!("the value of {shown} cannot stand here"),
            message => message,
        };
        ValueProblem {
            message,
            hint: hint.filter(|hint| value.len() < 4 || !hint.contains(value)),
        }
    }

    fn located(
        &self,
        location: &Location,
        ValueProblem { message, hint }: ValueProblem,
    ) -> Mistake {
        let file = location.file();
        Mistake {
            file: self.shown.get(file).unwrap_or(file).clone(),
            at: Some(location.position()).filter(|(line, _)| *line > 0),
            path: location.path(),
            message,
            hint,
            is_transient: false,
        }
    }
}

/// Whether `path` is `parent`, or below it.
fn is_at_or_below(path: &str, parent: &str) -> bool {
    match path.strip_prefix(parent) {
        Some(rest) => rest.is_empty() || rest.starts_with(['.', '[']),
        None => false,
    }
}

/// The first two steps of a path: `applications.shop` of `applications.shop.strategies`.
fn two_steps(path: &str) -> &str {
    let mut ends = path.match_indices(['.', '[']).map(|(at, _)| at);
    ends.nth(1).map_or(path, |end| &path[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_thousands_of_warnings_the_first_are_told_and_all_are_known() {
        let mut report = Report::new("policies");
        let top = Location::root(&report.file(), (1, 1)).key("applications", (1, 1));
        for at in 0..5_000 {
            let shop = top.key(if at < 2_500 { "shop" } else { "bank" }, (1, 1));
            let problem = ValueProblem::new(format!("{at} limits nothing"));
            report.warning(
                &shop.key("strategies", (1, 1)).index(at, (at + 1, 1)),
                problem,
            );
        }
        assert_eq!(report.found(), 5_000);
        for (path, told) in [
            ("applications.shop", None),
            ("applications.bank", None),
            ("applications.ban", Some(0)),
        ] {
            assert_eq!(
                report.warnings_of(path).map(|told| told.len()),
                told,
                "{path}"
            );
        }
        let mut again = Report::new("policies");
        let few: Vec<_> = report.warnings.iter().take(3).cloned().collect();
        again.warn_again(&few);
        assert_eq!(
            (again.warnings_of("applications.shop"), again.found()),
            (Some(few), 3)
        );
        let Ok(((), warnings)) = report.close(Some(())) else {
            panic!("there are no mistakes")
        };
        assert_eq!(warnings.len(), 101);
        assert_eq!(
            warnings[100].to_string(),
            "policies: and 4900 more warnings"
        );
    }

    #[test]
    fn of_thousands_of_mistakes_the_first_are_told_and_few_have_a_likely_word() {
        let mut report = Report::new("policies");
        let root = Location::root(&report.file(), (1, 1));
        let mut searched = 0;
        for at in 0..5_000 {
            let known = ["gold"].into_iter().inspect(|_| searched += 1);
            let problem = ValueProblem::new(format!("there is no plan {at}"));
            report.misnamed(
                &root.index(at, (at + 1, 1)),
                problem,
                "golt",
                known,
                "define it",
            );
        }
        let Err(mistakes) = report.close(None::<()>) else {
            panic!("there are mistakes")
        };
        assert_eq!((mistakes.all().len(), searched), (101, 20));
        let hints: Vec<_> = mistakes
            .all()
            .iter()
            .filter_map(|mistake| mistake.hint.as_deref())
            .collect();
        assert_eq!(
            (hints[19], hints[20]),
            ("did you mean \"gold\"?", "define it")
        );
        assert_eq!(mistakes.all()[100].to_string(), "policies: and 4900 more");
        assert!(
            mistakes
                .to_string()
                .ends_with("\n5000 mistakes in policies"),
            "{mistakes}"
        );
    }

    #[test]
    fn copies_of_mistakes_and_warnings_crowd_out_no_others() {
        let mut report = Report::new("policies");
        let root = Location::root(&report.file(), (1, 1));
        let mut searched = 0;
        for part in 0..300 {
            for at in 0..3 {
                let known = ["gold"].into_iter().inspect(|_| searched += 1);
                let problem = ValueProblem::new(format!("there is no plan {at}"));
                report.misnamed(
                    &root.index(at, (at + 1, 1)),
                    problem,
                    "golt",
                    known,
                    "define it",
                );
                report.warning(
                    &root.index(at, (at + 1, 1)),
                    ValueProblem::new("it limits nothing"),
                );
            }
            assert_eq!(
                report.found(),
                6 * (part + 1),
                "a value that is wrong again is no good one"
            );
        }
        report.mistake(
            &root.key("rate", (9, 1)),
            ValueProblem::new("it is no rate"),
        );
        report.warning(
            &root.key("rate", (9, 1)),
            ValueProblem::new("it limits nothing"),
        );
        assert_eq!(
            (report.warnings.len(), report.more_warnings, searched),
            (4, 0, 3)
        );
        let Err(mistakes) = report.close(None::<()>) else {
            panic!("there are mistakes")
        };
        let told: Vec<_> = mistakes
            .all()
            .iter()
            .map(|mistake| mistake.message.as_str())
            .collect();
        assert_eq!(
            told,
            [
                "there is no plan 0",
                "there is no plan 1",
                "there is no plan 2",
                "it is no rate"
            ]
        );
        assert!(
            mistakes.to_string().ends_with("\n4 mistakes in policies"),
            "{mistakes}"
        );
    }

    #[test]
    fn copies_of_what_is_not_told_are_counted_once() {
        let mut report = Report::new("policies");
        let root = Location::root(&report.file(), (1, 1));
        for at in (0..150).chain(0..150) {
            report.mistake(
                &root.index(at, (at + 1, 1)),
                ValueProblem::new("it is no rate"),
            );
            report.warning(
                &root.index(at, (at + 1, 1)),
                ValueProblem::new("it limits nothing"),
            );
        }
        assert_eq!((report.more_mistakes, report.more_warnings), (50, 50));
    }
}
