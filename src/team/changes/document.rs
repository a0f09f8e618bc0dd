//! The policy document: the shape that lies over the file, from the objects of a state and back.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::{Map, Value as Json, json};
use tollgate_policies::model::{
    Expected, NameProblem, ObjectEdit, ObjectId, ObjectKind, PolicyState,
};

use crate::admin::problem_details::ProblemDetails;

/// The sections of an application, as the document calls them, and the objects in each.
const SECTIONS: [(&str, ObjectKind); 5] = [
    ("resources", ObjectKind::Resource),
    ("strategies", ObjectKind::Strategy),
    ("plans", ObjectKind::Plan),
    ("clients", ObjectKind::Assignment),
    ("keys", ObjectKind::ApiKey),
];

/// The fate of objects that the document does not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ImportMode {
    /// They stay.
    #[default]
    Merge,
    /// They go.
    Replace,
}

/// The objects that a document has.
pub type DocumentObjects = BTreeMap<ObjectId, Json>;

/// The state as a document.
pub fn of_state(state: &PolicyState) -> Json {
    let mut applications: BTreeMap<&str, Map<String, Json>> = BTreeMap::new();
    for object in state.iter() {
        let application = applications.entry(object.id.belongs_to()).or_default();
        if object.id.kind() == ObjectKind::Application {
            application.extend(members(&object.body));
            continue;
        }
        let Some((section, kind)) = SECTIONS.iter().find(|(_, kind)| *kind == object.id.kind())
        else {
            continue;
        };
        let section = application.entry(*section).or_insert_with(|| json!({}));
        if let Some(section) = section.as_object_mut() {
            section.insert(object.id.name().to_owned(), written(*kind, &object.body));
        }
    }
    json!({ "applications": applications })
}

/// The place of an object in the document, as messages call it:
/// `applications.shop.strategies.per-client`.
pub fn place_of(id: &ObjectId) -> String {
    let section = SECTIONS
        .iter()
        .find(|(_, kind)| *kind == id.kind())
        .map_or("", |(section, _)| section);
    match id.kind() {
        ObjectKind::Application => format!("applications.{}", id.name()),
        _ => format!("applications.{}.{section}.{}", id.application(), id.name()),
    }
}

/// The objects of a document.
///
/// # Errors
/// When it is no document, or a name in it cannot be one.
pub fn objects(document: &Json) -> Result<DocumentObjects, ProblemDetails> {
    let shape = |place: &str| ProblemDetails::bad_request(format!("{place} is no mapping"));
    let root = document.as_object().ok_or_else(|| shape("the document"))?;
    if let Some(odd) = root.keys().find(|key| *key != "applications") {
        let odd = odd.escape_debug();
        return Err(ProblemDetails::bad_request(format!(
            "the document has an unknown key \"{odd}\""
        ))
        .hint("everything stands under applications"));
    }
    let mut found = DocumentObjects::new();
    let applications = root.get("applications").unwrap_or(&Json::Null);
    for (name, application) in entries(applications).ok_or_else(|| shape("applications"))? {
        let application = match application {
            Json::Null => Map::new(),
            other => other
                .as_object()
                .cloned()
                .ok_or_else(|| shape(&format!("applications.{}", name.escape_debug())))?,
        };
        read_application(&name, application, &mut found)?;
    }
    Ok(found)
}

fn read_application(
    name: &str,
    mut application: Map<String, Json>,
    found: &mut DocumentObjects,
) -> Result<(), ProblemDetails> {
    // Terminals show messages, and obey control characters in them.
    let shown = name.escape_debug();
    let named = |problem: NameProblem| {
        ProblemDetails::bad_request(format!("in the application {shown}: {problem}"))
    };
    for (section, kind) in SECTIONS {
        let Some(objects) = application.remove(section) else {
            continue;
        };
        let shape =
            || ProblemDetails::bad_request(format!("applications.{shown}.{section} is no mapping"));
        for (object, body) in entries(&objects).ok_or_else(shape)? {
            found.insert(
                ObjectId::new(kind, name, &object).map_err(named)?,
                read(kind, body),
            );
        }
    }
    found.insert(
        ObjectId::of_application(name).map_err(named)?,
        application.into(),
    );
    Ok(())
}

/// The edits that make the `newest` policies say what the document says. Where it was made from a
/// `base`, what differs from that: an object that somebody else has changed since is a conflict,
/// unless it was the same change.
///
/// # Errors
/// When it is no document, or a name in it cannot be one.
pub fn edits_upon(
    document: &Json,
    (base, newest): (Option<&PolicyState>, &PolicyState),
    mode: ImportMode,
) -> Result<Vec<ObjectEdit>, ProblemDetails> {
    let objects = objects(document)?;
    let mut edits = edits(&objects, base.unwrap_or(newest), mode);
    if base.is_some() {
        let stands = |edit: &ObjectEdit| {
            newest.get(&edit.id).map(|object| &*object.body) == edit.body.as_ref()
        };
        edits.retain(|edit| !stands(edit));
    }
    Ok(edits)
}

/// The edits that make `base` say what the document says.
fn edits(objects: &DocumentObjects, base: &PolicyState, mode: ImportMode) -> Vec<ObjectEdit> {
    let gone = base.iter().map(|object| &object.id);
    // API keys that the document does not mention may be hidden from whoever exported it.
    let kept: BTreeSet<&str> = objects.keys().map(ObjectId::belongs_to).collect();
    let with_keys = objects.keys().filter(|id| id.kind() == ObjectKind::ApiKey);
    let with_keys: BTreeSet<&str> = with_keys.map(ObjectId::belongs_to).collect();
    let is_mentioned = |id: &ObjectId| {
        let owner = id.belongs_to();
        id.kind() != ObjectKind::ApiKey || with_keys.contains(owner) || !kept.contains(owner)
    };
    let is_gone = |id: &&ObjectId| {
        mode == ImportMode::Replace && !objects.contains_key(*id) && is_mentioned(id)
    };
    let gone = gone.filter(is_gone).map(|id| (id, None));
    let written = objects
        .iter()
        .map(|(id, body)| (id, Some(merged(id, body, base, mode))));
    let differs = |(id, body): &(&ObjectId, Option<Cow<'_, Json>>)| {
        base.get(id).map(|old| old.body.as_ref()) != body.as_deref()
    };
    let edits = gone
        .chain(written)
        .filter(differs)
        .map(|(id, body)| ObjectEdit {
            id: id.clone(),
            expected: base
                .get(id)
                .map_or(Expected::Absent, |old| Expected::Revision(old.since)),
            body: body.map(Cow::into_owned),
        });
    edits.collect()
}

/// The body of an object. In a merge, an application keeps what the document does not say of it:
/// the objects in it do, too.
fn merged<'a>(
    id: &ObjectId,
    body: &'a Json,
    base: &PolicyState,
    mode: ImportMode,
) -> Cow<'a, Json> {
    match (base.get(id), body) {
        (Some(old), Json::Object(new))
            if mode == ImportMode::Merge && id.kind() == ObjectKind::Application =>
        {
            let mut kept = members(&old.body);
            kept.extend(new.clone());
            Cow::Owned(kept.into())
        }
        _ => Cow::Borrowed(body),
    }
}

fn entries(json: &Json) -> Option<Vec<(String, Json)>> {
    match json {
        Json::Null => Some(Vec::new()),
        other => Some(
            other
                .as_object()?
                .iter()
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
        ),
    }
}

fn members(json: &Json) -> Map<String, Json> {
    json.as_object().cloned().unwrap_or_default()
}

/// A client's plan is written as its name alone.
fn written(kind: ObjectKind, body: &Json) -> Json {
    match (kind, body.as_object(), body.get("plan")) {
        (ObjectKind::Assignment, Some(all), Some(plan)) if all.len() == 1 => plan.clone(),
        _ => body.clone(),
    }
}

fn read(kind: ObjectKind, body: Json) -> Json {
    match kind {
        ObjectKind::Assignment if !body.is_object() => json!({ "plan": body }),
        _ => body,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document() -> Json {
        json!({"applications": {
            "bare": {},
            "shop": {
                "description": "The shop's API",
                "resources": {"all": {"route": "orders"}},
                "strategies": {"per-client": {"limit": {"key": "client_ip", "rate": "10/s"}, "resources": ["all"]}},
                "plans": {"gold": {"limits": {"per-client": {"rate": "100/s"}}}},
                "clients": {"ada": "gold", "a/b": {"plan": "gold", "odd": 1}},
                "keys": {"k1": {"key_sha256": "00"}}
            }
        }})
    }

    fn state(objects: &DocumentObjects) -> PolicyState {
        let edits = edits(objects, &PolicyState::empty(), ImportMode::Merge);
        let draft = tollgate_policies::model::Draft {
            edits,
            author: "ada".into(),
            reason: "a test".into(),
        };
        PolicyState::empty().preview(&draft).unwrap().state
    }

    #[test]
    fn a_document_becomes_objects_and_these_become_the_document() {
        let objects = objects(&document()).unwrap();
        assert_eq!(objects.len(), 8);
        let ada = ObjectId::new(ObjectKind::Assignment, "shop", "ada").unwrap();
        assert_eq!(objects[&ada], json!({"plan": "gold"}));
        assert_eq!(of_state(&state(&objects)), document());
        assert_eq!(place_of(&ada), "applications.shop.clients.ada");
    }

    #[test]
    fn only_what_differs_is_edited_and_only_a_replacement_takes_away() {
        let all = objects(&document()).unwrap();
        let base = state(&all);
        assert_eq!(edits(&all, &base, ImportMode::Replace), []);
        let mut fewer = document();
        fewer["applications"]["shop"]["clients"] = json!({"ada": "silver"});
        let fewer = objects(&fewer).unwrap();
        let changed = |mode| {
            let edits = edits(&fewer, &base, mode).into_iter();
            edits
                .map(|edit| {
                    (
                        edit.id.name().to_owned(),
                        edit.expected,
                        edit.body.is_some(),
                    )
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(
            changed(ImportMode::Merge),
            [("ada".to_owned(), Expected::Revision(1), true)]
        );
        let gone = ("a/b".to_owned(), Expected::Revision(1), false);
        assert_eq!(
            changed(ImportMode::Replace),
            [gone, ("ada".to_owned(), Expected::Revision(1), true)]
        );
    }

    #[test]
    fn a_merge_keeps_what_the_document_does_not_say_of_an_application() {
        let base = state(&objects(&document()).unwrap());
        let edited = |application: Json, mode| {
            let objects = objects(&json!({"applications": {"shop": application}})).unwrap();
            let edits = edits(&objects, &base, mode).into_iter();
            edits
                .filter(|edit| {
                    edit.id.kind() == ObjectKind::Application && edit.id.name() == "shop"
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(edited(json!({}), ImportMode::Merge), []);
        let more = edited(json!({"routes": ["orders"]}), ImportMode::Merge);
        let both = json!({"description": "The shop's API", "routes": ["orders"]});
        assert_eq!(
            more.iter()
                .map(|edit| edit.body.clone())
                .collect::<Vec<_>>(),
            [Some(both)]
        );
        assert_eq!(
            edited(json!({}), ImportMode::Replace)[0].body,
            Some(json!({}))
        );
    }

    #[test]
    fn what_is_no_document_is_refused_with_its_place() {
        let problem = |document: Json| objects(&document).unwrap_err().detail.into_string();
        assert_eq!(problem(json!([])), "the document is no mapping");
        assert_eq!(
            problem(json!({"aplications": {}})),
            "the document has an unknown key \"aplications\""
        );
        assert_eq!(
            problem(json!({"applications": {"shop": 1}})),
            "applications.shop is no mapping"
        );
        assert_eq!(
            problem(json!({"applications": {"shop": {"plans": []}}})),
            "applications.shop.plans is no mapping"
        );
        assert!(problem(json!({"applications": {"a b": {}}})).contains("1 to 64 letters"));
        for inner in [
            json!(1),
            json!({}),
            json!({"plans": []}),
            json!({"plans": {"\u{1b}[31m": {}}}),
        ] {
            let text = problem(json!({"applications": {"a\u{1b}[31m\u{202e}": inner}}));
            assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text:?}");
        }
    }
}
