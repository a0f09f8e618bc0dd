//! The objects of a revision as a policy document.

use serde_json::Value as Json;
use tollgate_policies::model::{Object, ObjectKind, PolicyState};

use super::document::{NOWHERE, PolicySet, node};
use crate::config::report::{Location, Mistakes, Report, ValueProblem, quote};
use crate::config::yaml::node::{NodeEntry, YamlNode, YamlValue};

/// The kinds that an application has many of, and their keys in the document.
const SECTIONS: [(ObjectKind, &str); 5] = [
    (ObjectKind::Resource, "resources"),
    (ObjectKind::Strategy, "strategies"),
    (ObjectKind::Plan, "plans"),
    (ObjectKind::Assignment, "clients"),
    (ObjectKind::ApiKey, "keys"),
];

impl PolicySet {
    /// The policies that stand at a revision.
    ///
    /// # Errors
    /// When an object is not of the shape of its kind: each is told by its place in the document.
    pub fn of_state(state: &PolicyState) -> Result<Self, Mistakes> {
        let mut report = Report::new(&format!("policies of revision {}", state.revision()));
        let file = report.file();
        let root = Location::root(&file, NOWHERE);
        let top = root.key("applications", NOWHERE);
        let applications =
            state.applications().into_iter().map(|name| application(state, name, &top, &mut report)).collect();
        let value = YamlNode { location: top.clone(), value: YamlValue::Map(applications) };
        let entry = NodeEntry { key: "applications".to_owned(), key_location: top, value };
        let root = YamlNode { location: root, value: YamlValue::Map(vec![entry]) };
        report.close(Some(root)).map(|(root, _)| Self { name: file, root, node: None })
    }
}

fn application(state: &PolicyState, name: &str, above: &Location, report: &mut Report) -> NodeEntry {
    let location = above.key(name, NOWHERE);
    let mut entries = Vec::new();
    for object in state.of_kind(ObjectKind::Application).filter(|object| object.id.name() == name) {
        for (key, value) in object.body.as_object().into_iter().flatten() {
            let at = location.key(key, NOWHERE);
            if SECTIONS.iter().any(|(_, section)| section == key) {
                let problem = ValueProblem::new(format!("{} are objects of their own", quote(key)));
                report.mistake(&at, problem.hint("take the key out of the application"));
                continue;
            }
            entries.extend(member(key, value, at, report));
        }
    }
    for (kind, key) in SECTIONS {
        let at = location.key(key, NOWHERE);
        let members: Vec<NodeEntry> =
            state.of(kind, name).filter_map(|object| object_of(object, &at, report)).collect();
        if !members.is_empty() {
            let value = YamlNode { location: at.clone(), value: YamlValue::Map(members) };
            entries.push(NodeEntry { key: key.to_owned(), key_location: at, value });
        }
    }
    let value = YamlNode { location: location.clone(), value: YamlValue::Map(entries) };
    NodeEntry { key: name.to_owned(), key_location: location, value }
}

/// `None`: a mistake was reported.
fn object_of(object: &Object, above: &Location, report: &mut Report) -> Option<NodeEntry> {
    let at = above.key(object.id.name(), NOWHERE);
    if object.id.kind() != ObjectKind::Assignment {
        return member(object.id.name(), &object.body, at, report);
    }
    let body = object.body.as_object().filter(|body| body.len() == 1);
    let Some(plan) = body.and_then(|body| body.get("plan")) else {
        let problem = ValueProblem::new("an assignment names a plan, and nothing else");
        report.mistake(&at, problem.hint("write {\"plan\": NAME}"));
        return None;
    };
    member(object.id.name(), plan, at, report)
}

fn member(key: &str, value: &Json, at: Location, report: &mut Report) -> Option<NodeEntry> {
    let value = node(value, at.clone(), 0, report)?;
    Some(NodeEntry { key: key.to_owned(), key_location: at, value })
}
