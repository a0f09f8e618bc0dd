//! Which names an upstream may take for a member: readers differ in case, white space, brackets and dots.

/// A name that a member is looked for by.
pub struct WantedName<'a> {
    exact: &'a str,
    folded: String,
    /// It names a member of a list or of an object, such as `user[name]`.
    has_brackets: bool,
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
        let has_brackets = exact.contains('[');
        Self { exact, folded: folded(exact, has_brackets).collect(), has_brackets }
    }

    pub fn compare(&self, name: &str) -> NameLikeness {
        if name == self.exact {
            return NameLikeness::Exact;
        }
        // Compared as they come: a body may have thousands of names.
        let mut found = folded(name, self.has_brackets);
        let begins_alike = self.folded.chars().all(|wanted| found.next() == Some(wanted));
        match found.next() {
            None if begins_alike => NameLikeness::Alike,
            Some('[') if begins_alike && self.has_brackets => NameLikeness::Alike,
            _ => NameLikeness::Other,
        }
    }
}

/// The name as the most lenient readers have it. PHP cuts white space and all from a NUL or a bracket on, and takes dots
/// and spaces for underscores; Go and .NET ignore the case.
fn folded(name: &str, with_brackets: bool) -> impl Iterator<Item = char> {
    let name = name.trim_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
    let ends = move |c: &char| *c == '\0' || (*c == '[' && !with_brackets);
    let one = |c: char| if matches!(c, '.' | ' ') { '_' } else { c };
    // By upper case first: the long s and the sign of the Kelvin become letters of ASCII.
    let used = name.chars().take_while(move |c| !ends(c));
    used.map(one).flat_map(char::to_uppercase).flat_map(char::to_lowercase)
}
