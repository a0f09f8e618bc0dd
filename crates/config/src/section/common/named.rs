//! Sections whose members have names: limits, upstreams and authenticators. Finds a member by its
//! name, and tells which nothing uses.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::report::{Location, Report, ValueProblem, quote};
use crate::scalar::text::DefinedName;
use crate::yaml::collection::Mapping;
use crate::yaml::decode::{Located, Setting};

/// A section of named members.
pub struct NamedSection<T> {
    /// The singular, for messages: "limit".
    what: &'static str,
    members: Vec<NamedMember<T>>,
    by_name: HashMap<String, usize>,
    /// The section could not be read: any name may have been in it.
    unreadable: bool,
}

struct NamedMember<T> {
    name: String,
    location: Location,
    /// `None`: a mistake in the member was reported.
    built: Option<Arc<T>>,
    used: AtomicBool,
}

impl<T> NamedSection<T> {
    /// Builds all members of a section.
    pub fn build<V>(
        what: &'static str,
        section: &Setting<Mapping<DefinedName, V>>,
        mut make: impl FnMut(&DefinedName, &V) -> Option<T>,
    ) -> Self {
        let mut named = Self {
            what,
            members: Vec::new(),
            by_name: HashMap::new(),
            unreadable: section.is_invalid(),
        };
        for row in section.members() {
            let built = match (&row.key, &row.value) {
                (Some(name), Some(raw)) => make(name, raw),
                (None, _) | (_, None) => None,
            };
            named.push(NamedMember {
                name: row.text.clone(),
                location: row.location.clone(),
                built: built.map(Arc::new),
                used: AtomicBool::new(false),
            });
        }
        named
    }

    fn push(&mut self, member: NamedMember<T>) {
        self.by_name.insert(member.name.clone(), self.members.len());
        self.members.push(member);
    }

    fn member(&self, name: &str) -> Option<&NamedMember<T>> {
        let index = self.by_name.get(name)?;
        self.members.get(*index)
    }

    /// Where the member called `name` is, if there is one.
    pub fn location(&self, name: &str) -> Option<&Location> {
        Some(&self.member(name)?.location)
    }

    /// The member called `name`, if it has no mistake.
    pub fn get(&self, name: &str) -> Option<&T> {
        self.member(name)?.built.as_deref()
    }

    /// The member called `name`. `None`: it has a mistake of its own, or does not exist, which is
    /// reported.
    pub fn find(&self, name: &Located<DefinedName>, report: &mut Report) -> Option<Arc<T>> {
        let text = &*name.value.0;
        if let Some(member) = self.member(text) {
            member.used.store(true, Ordering::Relaxed);
            return member.built.clone();
        }
        if !self.unreadable {
            let problem = ValueProblem::new(format!("no {} is called {}", self.what, quote(text)));
            let known = self.members.iter().map(|member| member.name.as_str());
            let otherwise = format!("define it under \"{}s\"", self.what);
            report.misnamed(&name.location, problem, text, known, otherwise);
        }
        None
    }

    /// The members without a mistake.
    pub fn built(&self) -> impl Iterator<Item = &T> {
        self.members
            .iter()
            .filter_map(|member| member.built.as_deref())
    }

    /// The names of the members that nothing uses.
    pub fn unused(&self) -> Vec<String> {
        let mut names = Vec::new();
        for member in &self.members {
            if !member.used.load(Ordering::Relaxed) {
                names.push(member.name.clone());
            }
        }
        names
    }

    /// Warns of the members with these names, which nothing uses.
    pub fn warn_of_unused(&self, names: &[String], report: &mut Report) {
        for name in names {
            let Some(location) = self.location(name) else {
                continue;
            };
            let problem =
                ValueProblem::new(format!("nothing uses the {} {}", self.what, quote(name)));
            report.warning(
                location,
                problem.hint("remove it, or refer to it from a route"),
            );
        }
    }

    /// All members, in the file's order. `None`: one has a mistake.
    pub fn all(&self) -> Option<Vec<Arc<T>>> {
        self.members
            .iter()
            .map(|member| member.built.clone())
            .collect()
    }
}
