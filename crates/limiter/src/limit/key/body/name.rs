//! Which names an upstream may take for a member: readers differ in case, white space, brackets and
//! dots.

use crate::limit::key::spelling::is_space_character;

/// A name that a member is looked for by.
pub struct WantedName<'a> {
    exact: &'a str,
    bare: &'a str,
}

/// A name in a body, as it is compared with each that is wanted.
pub struct ReadName<'a> {
    exact: &'a str,
    bare: &'a str,
    /// ASP.NET goes by the names behind that of a parameter, `model.name` or `model[name]`, as soon
    /// as one has it.
    behind_prefix: Option<&'a str>,
}

impl<'a> ReadName<'a> {
    pub fn new(exact: &'a str) -> Self {
        let bare = bare(exact);
        let behind_prefix = bare
            .find(is_nesting)
            .map(|at| bare[at..].trim_start_matches(is_nesting));
        Self {
            exact,
            bare,
            behind_prefix,
        }
    }
}

/// How a name in a body compares with the one that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameLikeness {
    Exact,
    /// Some upstreams take it for the wanted one.
    Alike,
    Other,
}

impl<'a> WantedName<'a> {
    pub fn new(exact: &'a str) -> Self {
        Self {
            exact,
            bare: bare(exact).trim_end_matches(is_bracket),
        }
    }

    pub fn compare(&self, name: &ReadName<'_>) -> NameLikeness {
        if name.exact == self.exact {
            return NameLikeness::Exact;
        }
        if self.begins(name.bare) || name.behind_prefix.is_some_and(|rest| self.begins(rest)) {
            return NameLikeness::Alike;
        }
        NameLikeness::Other
    }

    /// Whether `name` is the wanted one, or leads into a list or an object of that name. Rack and
    /// PHP drop brackets, and all that stands behind the last.
    fn begins(&self, name: &str) -> bool {
        // Compared as they come: a body may have thousands of names.
        let mut found = folded(name);
        for wanted in folded(self.bare) {
            let wanted = if wanted == NESTING { SEPARATOR } else { wanted };
            let found = found.next();
            if found != Some(wanted) && (wanted != SEPARATOR || found != Some(NESTING)) {
                return false;
            }
        }
        matches!(found.next(), None | Some(NESTING))
    }
}

/// Stands for separators inside a name.
const SEPARATOR: char = '_';

/// Stands for separators that lead into a list or an object, at least for some readers.
const NESTING: char = '.';

fn is_bracket(c: char) -> bool {
    matches!(c, '[' | ']')
}

fn is_nesting(c: char) -> bool {
    is_bracket(c) || c == NESTING
}

/// The name without what readers drop: white space around it, brackets at its beginning, and all
/// from a NUL on.
fn bare(name: &str) -> &str {
    let name = name.split_once('\0').map_or(name, |(name, _)| name);
    name.trim_end_matches(is_space_character)
        .trim_start_matches(|c| is_space_character(c) || is_bracket(c))
}

/// The name as the most lenient readers have it. PHP takes dots, spaces, and brackets that are not
/// closed for underscores; Go and .NET ignore the case.
fn folded(name: &str) -> impl Iterator<Item = char> {
    let mut behind_separator = false;
    // By upper case first: the long s and the sign of the Kelvin become letters of ASCII.
    name.chars()
        .filter_map(move |c| {
            let separator = match c {
                '_' | ' ' => Some(SEPARATOR),
                c if is_nesting(c) => Some(NESTING),
                _ => None,
            };
            let is_repeated = separator.is_some() && behind_separator;
            behind_separator = separator.is_some();
            (!is_repeated).then_some(separator.unwrap_or(c))
        })
        .flat_map(char::to_uppercase)
        .flat_map(char::to_lowercase)
}
