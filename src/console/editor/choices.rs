//! The routes that a form offers: those of the file for an application, and those of the
//! application for a resource.

use std::collections::HashMap;

use serde_json::Value as Json;
use tollgate_policies::model::{ObjectId, ObjectKind, PolicyState};

use super::fields::{FieldChoice, ROUTE, ROUTES, ShownField, read};
use crate::console::state::ConsoleState;

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
    let mut owners = HashMap::new();
    for object in state.of_kind(ObjectKind::Application) {
        owners.extend(
            routes_of(&object.body)
                .into_iter()
                .map(|route| (route, object.id.name())),
        );
    }
    let file = file_routes(console, state);
    field.choices = if field.name == ROUTE {
        of_resource(
            &field.value,
            owners
                .iter()
                .filter(|(_, owner)| **owner == application)
                .map(|(route, _)| *route),
        )
    } else {
        let owner = |route: &str| {
            owners
                .get(route)
                .copied()
                .filter(|owner| *owner != application)
        };
        of_application(&field.value, &file, owner)
    };
}

/// The routes of the file that this node runs, without the parts of them that policies have made.
fn file_routes(console: &ConsoleState, state: &PolicyState) -> Vec<String> {
    let is_part = |name: &str| {
        let part = name.split_once('.').and_then(|(application, resource)| {
            state.get(&ObjectId::new(ObjectKind::Resource, application, resource).ok()?)
        });
        part.is_some_and(|resource| resource.body.get("match").is_some())
    };
    let gateway = console.admin.gateway.load();
    let names = gateway
        .routes
        .iter()
        .map(|route| route.target.route.name.to_string());
    names.filter(|name| !is_part(name)).collect()
}

fn routes_of(body: &Json) -> Vec<&str> {
    body.get(ROUTES)
        .and_then(Json::as_array)
        .into_iter()
        .flatten()
        .filter_map(Json::as_str)
        .collect()
}

/// Each route of the file, and those of the list that the file does not have.
fn of_application<'a>(
    listed: &str,
    file: &[String],
    owner: impl Fn(&str) -> Option<&'a str>,
) -> Vec<FieldChoice> {
    // Something else than a list is shown as text.
    let Ok(listed) = read(listed) else {
        return Vec::new();
    };
    let Ok(listed) =
        serde_json::from_value::<Vec<String>>(listed.unwrap_or_else(|| Json::Array(Vec::new())))
    else {
        return Vec::new();
    };
    let known = file.iter().map(|route| FieldChoice {
        value: route.clone(),
        chosen: listed.contains(route),
        note: owner(route).map_or_else(String::new, |owner| format!("of {owner}")),
    });
    let gone = listed
        .iter()
        .filter(|route| !file.contains(route))
        .map(|route| FieldChoice {
            value: route.clone(),
            chosen: true,
            note: "not in this node's file".to_owned(),
        });
    known.chain(gone).collect()
}

/// The routes of the application, and the one that the resource has.
fn of_resource<'a>(own: &str, routes: impl Iterator<Item = &'a str>) -> Vec<FieldChoice> {
    let mut names: Vec<&str> = routes.collect();
    if names.is_empty() {
        return Vec::new();
    }
    names.extend(Some(own).filter(|own| !own.is_empty()));
    names.sort_unstable();
    names.dedup();
    let choice = |name: &str| FieldChoice {
        value: name.to_owned(),
        chosen: name == own,
        note: String::new(),
    };
    names.into_iter().map(choice).collect()
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
        let owner = |route: &str| (route == "items").then_some("bank");
        let found = of_application("[\"orders\",\"gone\"]", &file, owner);
        let gone = ("gone", true, "not in this node's file");
        assert_eq!(
            shown(&found),
            [("orders", true, ""), ("items", false, "of bank"), gone]
        );
        assert_eq!(
            shown(&of_application("", &file, |_| None)),
            [("orders", false, ""), ("items", false, "")]
        );
        assert_eq!(
            of_application("[orders, gone]", &file, owner),
            found,
            "as it is written by hand"
        );
        assert_eq!(of_application("{a: 1}", &file, |_| None), []);
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
