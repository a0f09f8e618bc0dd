//! The objects of a revision as applications.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use serde_json::{Map, Value as Json, json};
use tollgate_limiter::limit::units::show_size;
use tollgate_policies::model::{Object, ObjectId, ObjectKind, PolicyState};

use super::application::{CheckedApplication, checked_applications};
use super::document::{NOWHERE, node};
use crate::report::{Location, Report, ValueProblem, quote};

type JsonObject = Map<String, Json>;

/// The kinds that an application has many of, and their keys in the document.
const SECTIONS: [(ObjectKind, &str); 5] = [
    (ObjectKind::Resource, "resources"),
    (ObjectKind::Strategy, "strategies"),
    (ObjectKind::Plan, "plans"),
    (ObjectKind::Assignment, "clients"),
    (ObjectKind::ApiKey, "keys"),
];

/// The name of the objects in locations: objects that stay the same are read once for many
/// revisions.
const OBJECTS: &str = "policies";

const APPLICATIONS: &str = "applications";

/// Bytes of an application's objects at most: each node keeps all of them in memory, and reads all
/// when it starts.
const MOST_TEXT: usize = 64 << 20;

/// Values of an application's objects at most: in a tree each takes many times its text.
const MOST_VALUES: usize = 1_000_000;

/// The applications of the newest revision that was read: an application whose objects have not
/// changed is not read again.
#[derive(Clone, Default)]
pub struct KnownApplications(Arc<ArcSwap<HashMap<String, KnownApplication>>>);

/// An application without mistakes.
#[derive(Clone)]
struct KnownApplication {
    objects: Vec<Arc<Object>>,
    application: Arc<CheckedApplication>,
}

impl KnownApplications {
    /// The applications at a revision, which is `kept` as the newest or is only looked at. `None`:
    /// a mistake was reported, such as an object that is not of the shape of its kind: each has
    /// its place in the document.
    pub fn of_state(
        &self,
        state: &PolicyState,
        is_kept: bool,
        report: &mut Report,
    ) -> Option<Vec<Arc<CheckedApplication>>> {
        report.include_as(
            OBJECTS.into(),
            format!("policies of revision {}", state.revision()).into(),
        );
        let known = self.0.load();
        let mut next = HashMap::new();
        let top = Location::root(&OBJECTS.into(), NOWHERE).key(APPLICATIONS, NOWHERE);
        let mut all = Vec::new();
        let mut is_whole = true;
        for name in state.applications() {
            let unchanged = match known.get(name) {
                Some(known) if known.is_of(state, name) => Some(known),
                Some(_) | None => None,
            };
            let found_before = report.found();
            let application = match unchanged {
                Some(known) => Some(known.application.clone()),
                None => read(state, name, &top, report),
            };
            is_whole &= application.is_some();
            let Some(application) = application else {
                continue;
            };
            if is_kept && report.found() == found_before {
                let known = match unchanged {
                    Some(known) => known.clone(),
                    None => KnownApplication {
                        objects: objects_of(state, name).cloned().collect(),
                        application: application.clone(),
                    },
                };
                next.insert(name.to_owned(), known);
            }
            all.push(application);
        }
        if is_kept {
            self.0.store(Arc::new(next));
        }
        if is_whole { Some(all) } else { None }
    }
}

impl KnownApplication {
    /// Whether nothing of the application called `name` has changed.
    fn is_of(&self, state: &PolicyState, name: &str) -> bool {
        let mut objects = objects_of(state, name);
        for known in &self.objects {
            match objects.next() {
                Some(object) if Arc::ptr_eq(known, object) => {}
                Some(_) | None => return false,
            }
        }
        objects.next().is_none()
    }
}

/// The size of an application's objects, known before a tree of them is built.
#[derive(Default)]
struct ApplicationSize {
    text: usize,
    values: usize,
}

impl ApplicationSize {
    fn new(state: &PolicyState, name: &str) -> Self {
        let mut size = Self::default();
        for object in objects_of(state, name) {
            size.text += object.id.name().len();
            size.add(&object.body);
        }
        size
    }

    fn add(&mut self, json: &Json) {
        self.values += 1;
        match json {
            Json::String(text) => self.text += text.len(),
            Json::Array(items) => {
                for item in items {
                    self.add(item);
                }
            }
            Json::Object(members) => {
                for (key, value) in members {
                    self.text += key.len();
                    self.add(value);
                }
            }
            Json::Null | Json::Bool(_) | Json::Number(_) => {}
        }
    }

    /// The bound that the size is beyond.
    fn beyond(&self) -> Option<String> {
        if self.text > MOST_TEXT {
            Some(show_size(MOST_TEXT as u64))
        } else if self.values > MOST_VALUES {
            Some(format!("{MOST_VALUES} values"))
        } else {
            None
        }
    }
}

/// The objects of an application, itself among them.
fn objects_of<'a>(state: &'a PolicyState, name: &'a str) -> impl Iterator<Item = &'a Arc<Object>> {
    let sections = SECTIONS.into_iter();
    let parts = sections.flat_map(move |(kind, _)| state.of(kind, name));
    own_object(state, name).into_iter().chain(parts)
}

/// The object of an application itself.
fn own_object<'a>(state: &'a PolicyState, name: &str) -> Option<&'a Arc<Object>> {
    let id = ObjectId::of_application(name).ok()?;
    state.get(&id)
}

/// `None`: a mistake was reported.
fn read(
    state: &PolicyState,
    name: &str,
    top: &Location,
    report: &mut Report,
) -> Option<Arc<CheckedApplication>> {
    let found_before = report.found();
    if let Some(most) = ApplicationSize::new(state, name).beyond() {
        let problem = ValueProblem::new(format!("application {} has over {most}", quote(name)));
        let hint = "shorten its objects, or divide it into several applications";
        report.mistake(&top.key(name, NOWHERE), problem.hint(hint));
        return None;
    }
    let members = application(state, name, &top.key(name, NOWHERE), report);
    let document = json!({ APPLICATIONS: { name: members } });
    if report.found() > found_before {
        return None;
    }
    let root = Location::root(&OBJECTS.into(), NOWHERE);
    let document = node(&document, root, 0, report)?;
    checked_applications(&document, report)?.pop()
}

/// The application as a document has it. What is not of the shape of its kind is reported, and is
/// not in it.
fn application(
    state: &PolicyState,
    name: &str,
    above: &Location,
    report: &mut Report,
) -> JsonObject {
    let mut members = JsonObject::new();
    let own = own_object(state, name).and_then(|object| object.body.as_object());
    for (key, value) in own.into_iter().flatten() {
        if SECTIONS.iter().any(|(_, section)| section == key) {
            let problem = ValueProblem::new(format!("{} are objects of their own", quote(key)));
            let hint = "take the key out of the application";
            report.mistake(&above.key(key, NOWHERE), problem.hint(hint));
            continue;
        }
        members.insert(key.clone(), value.clone());
    }
    for (kind, key) in SECTIONS {
        let above = above.key(key, NOWHERE);
        let mut section = JsonObject::new();
        for object in state.of(kind, name) {
            if let Some(body) = body(object, &above, report) {
                section.insert(object.id.name().to_owned(), body.clone());
            }
        }
        if !section.is_empty() {
            members.insert(key.to_owned(), section.into());
        }
    }
    members
}

/// The value of an object in a document. `None`: a mistake was reported.
fn body<'a>(object: &'a Object, above: &Location, report: &mut Report) -> Option<&'a Json> {
    if object.id.kind() != ObjectKind::Assignment {
        return Some(&object.body);
    }
    if let Some(body) = object.body.as_object()
        && body.len() == 1
        && let Some(plan) = body.get("plan")
    {
        return Some(plan);
    }
    let problem = ValueProblem::new("an assignment names a plan, and nothing else");
    let at = above.key(object.id.name(), NOWHERE);
    report.mistake(&at, problem.hint("write {\"plan\": NAME}"));
    None
}
