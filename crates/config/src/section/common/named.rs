//! Sections whose members have names: limits, upstreams and authenticators. Finds a member by its
//! name, and tells which nothing uses.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

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
    /// `None`: the member is not of this file.
    location: Option<Location>,
    /// `None`: a mistake in the member was reported.
    built: Option<Arc<T>>,
    used: Cell<bool>,
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
                location: Some(row.location.clone()),
                built: built.map(Arc::new),
                used: Cell::new(false),
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

    /// Adds a member that was built before, and that something uses.
    pub fn add(&mut self, name: &str, built: &Arc<T>) {
        self.push(NamedMember {
            name: name.to_owned(),
            location: None,
            built: Some(built.clone()),
            used: Cell::new(true),
        });
    }

    /// Something uses the member called `name`, if there is one.
    pub fn mark_used(&self, name: &str) {
        if let Some(member) = self.member(name) {
            member.used.set(true);
        }
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
            member.used.set(true);
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

    pub fn warn_of_unused(&self, report: &mut Report) {
        for member in &self.members {
            let Some(location) = &member.location else {
                continue;
            };
            if member.used.get() {
                continue;
            }
            let problem = ValueProblem::new(format!(
                "nothing uses the {} {}",
                self.what,
                quote(&member.name)
            ));
            report.warning(
                location,
                problem.hint("remove it, or refer to it from a route"),
            );
        }
    }

    /// All members, in the file's order. `None`: one has a mistake.
    pub fn into_all(self) -> Option<Vec<Arc<T>>> {
        self.members
            .into_iter()
            .map(|member| member.built)
            .collect()
    }
}
