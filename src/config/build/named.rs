//! What the file defines by name and refers to elsewhere: finding it, and telling what nobody refers to.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

use crate::config::decode::{At, Slot, Table};
use crate::config::mistake::{Report, Trouble, quote};
use crate::config::node::Place;
use crate::config::raw::Name;

/// A section of named things.
pub(super) struct Named<T> {
    /// What one of them is called in messages.
    what: &'static str,
    things: Vec<Thing<T>>,
    by_name: HashMap<String, usize>,
    /// The section could not be read: any name may have been in it.
    unreadable: bool,
}

struct Thing<T> {
    name: String,
    place: Place,
    /// `None`: its mistake is reported already.
    built: Option<Arc<T>>,
    used: Cell<bool>,
}

impl<T> Named<T> {
    /// Builds the things of a section.
    pub fn build<V>(
        what: &'static str,
        section: &Slot<Table<Name, V>>,
        mut make: impl FnMut(&Name, &V) -> Option<T>,
    ) -> Self {
        let rows = section.good().map_or(&[][..], |table| &table.0);
        let things: Vec<_> = rows
            .iter()
            .map(|row| Thing {
                name: row.text.clone(),
                place: row.place.clone(),
                built: row.key.as_ref().zip(row.value.as_ref()).and_then(|(name, raw)| make(name, raw)).map(Arc::new),
                used: Cell::new(false),
            })
            .collect();
        let by_name = things.iter().enumerate().map(|(index, thing)| (thing.name.clone(), index)).collect();
        Self { what, things, by_name, unreadable: section.is_bad() }
    }

    /// The thing called `name`. `None`: it has a mistake of its own, or does not exist, which is reported.
    pub fn find(&self, name: &At<Name>, report: &mut Report) -> Option<Arc<T>> {
        let text = &*name.value.0;
        if let Some(thing) = self.by_name.get(text).and_then(|index| self.things.get(*index)) {
            thing.used.set(true);
            return thing.built.clone();
        }
        if !self.unreadable {
            let trouble = Trouble::new(format!("no {} is called {}", self.what, quote(text)));
            let known = self.things.iter().map(|thing| thing.name.as_str());
            let otherwise = format!("define it under \"{}s\"", self.what);
            report.mistake(&name.place, trouble.suggest(text, known, otherwise));
        }
        None
    }

    pub fn warn_of_unused(&self, report: &mut Report) {
        for thing in self.things.iter().filter(|thing| !thing.used.get()) {
            let trouble = Trouble::new(format!("nothing uses the {} {}", self.what, quote(&thing.name)));
            report.warning(&thing.place, trouble.hint("remove it, or refer to it from a route"));
        }
    }

    /// All of them, in the file's order. `None`: one has a mistake.
    pub fn into_all(self) -> Option<Vec<Arc<T>>> {
        self.things.into_iter().map(|thing| thing.built).collect()
    }
}
