//! The routes that a form offers: those of the file for an application, and those of the
//! application for a resource.

use std::collections::HashMap;

use serde_json::Value as Json;
use tollgate_policies::model::{ObjectId, ObjectKind, PolicyState};

use super::fields::{FieldChoice, ROUTE, ROUTES, ShownField, read};
use crate::state::ConsoleState;

/// Offers routes where a form asks for some. `application` is the one that the object is, or is of.
pub fn offer(
    console: &ConsoleState,
    state: &PolicyState,
    application: &str,
    fields: &mut [ShownField],
) {
    let Some(field) = fields
        .iter_mut()
        .find(|field| [ROUTE, ROUTES].contains(&field.name.as_str()))
    else {
        return;
    };
    let mut owners: HashMap<&str, &str> = HashMap::new();
    for object in state.of_kind(ObjectKind::Application) {
        for route in routes_of(&object.body) {
            owners.insert(route, object.id.name());
        }
    }
    field.choices = if field.name == ROUTE {
        owners.retain(|_, owner| *owner == application);
        of_resource(&field.value, owners.keys().copied())
    } else {
        owners.retain(|_, owner| *owner != application);
        of_application(&field.value, &file_routes(console, state), &owners)
    };
}

/// The routes of the file that this node runs, without the parts of them that policies have made.
fn file_routes(console: &ConsoleState, state: &PolicyState) -> Vec<String> {
    let gateway = console.admin.gateway.load();
    let mut names = Vec::new();
    for route in &gateway.routes {
        let name = &route.target.route.name;
        if !is_part(state, name) {
            names.push(name.to_string());
        }
    }
    names
}

/// Whether a route is a part of another, which a resource has made.
fn is_part(state: &PolicyState, route: &str) -> bool {
    let Some((application, resource)) = route.split_once('.') else {
        return false;
    };
    match ObjectId::new(ObjectKind::Resource, application, resource) {
        Ok(id) => match state.get(&id) {
            Some(resource) => resource.body.get("match").is_some(),
            None => false,
        },
        Err(_) => false,
    }
}

fn routes_of(body: &Json) -> Vec<&str> {
    match body.get(ROUTES) {
        Some(Json::Array(routes)) => routes.iter().filter_map(Json::as_str).collect(),
        Some(_) | None => Vec::new(),
    }
}

/// Each route of the file, and the routes of the list that the file does not have. `owners` are the
/// other applications that have routes.
fn of_application(listed: &str, file: &[String], owners: &HashMap<&str, &str>) -> Vec<FieldChoice> {
    // Anything but a list is shown as text.
    let Ok(listed) = read(listed) else {
        return Vec::new();
    };
    let listed = listed.unwrap_or_else(|| Json::Array(Vec::new()));
    let Ok(listed) = serde_json::from_value::<Vec<String>>(listed) else {
        return Vec::new();
    };
    let mut choices = Vec::new();
    for route in file {
        choices.push(FieldChoice {
            value: route.clone(),
            chosen: listed.contains(route),
            note: match owners.get(&**route) {
                Some(owner) => format!("of {owner}"),
                None => String::new(),
            },
        });
    }
    for route in listed {
        if !file.contains(&route) {
            choices.push(FieldChoice {
                value: route,
                chosen: true,
                note: "not in this node's file".to_owned(),
            });
        }
    }
    choices
}

/// The routes of the application, and the one that the resource has.
fn of_resource<'a>(own: &str, routes: impl Iterator<Item = &'a str>) -> Vec<FieldChoice> {
    let mut names: Vec<&str> = routes.collect();
    if names.is_empty() {
        return Vec::new();
    }
    if !own.is_empty() {
        names.push(own);
    }
    names.sort_unstable();
    names.dedup();
    let mut choices = Vec::new();
    for name in names {
        choices.push(FieldChoice {
            value: name.to_owned(),
            chosen: name == own,
            note: String::new(),
        });
    }
    choices
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(choices: &[FieldChoice]) -> Vec<(&str, bool, &str)> {
        choices
            .iter()
            .map(|choice| (&*choice.value, choice.chosen, &*choice.note))
            .collect()
    }

    #[test]
    fn an_application_chooses_among_the_routes_of_the_file() {
        let file = ["orders".to_owned(), "items".to_owned()];
        let owners = HashMap::from([("items", "bank")]);
        let nobodys = HashMap::new();
        let found = of_application("[\"orders\",\"gone\"]", &file, &owners);
        let gone = ("gone", true, "not in this node's file");
        assert_eq!(
            shown(&found),
            [("orders", true, ""), ("items", false, "of bank"), gone]
        );
        assert_eq!(
            shown(&of_application("", &file, &nobodys)),
            [("orders", false, ""), ("items", false, "")]
        );
        assert_eq!(
            of_application("[orders, gone]", &file, &owners),
            found,
            "as it is written by hand"
        );
        assert_eq!(of_application("{a: 1}", &file, &nobodys), []);
    }

    #[test]
    fn a_resource_chooses_among_the_routes_of_its_application() {
        let found = of_resource("old", ["orders", "items"].into_iter());
        assert_eq!(
            shown(&found),
            [
                ("items", false, ""),
                ("old", true, ""),
                ("orders", false, "")
            ]
        );
        assert_eq!(
            shown(&of_resource("", ["a"].into_iter())),
            [("a", false, "")]
        );
        assert_eq!(of_resource("old", std::iter::empty()), []);
    }
}
