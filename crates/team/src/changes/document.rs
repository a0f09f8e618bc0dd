//! The policy document: the shape that lies over the file, from the objects of a state and back.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::{Map, Value as Json, json};
use tollgate_policies::model::{
    Expected, NameProblem, ObjectEdit, ObjectId, ObjectKind, PolicyState,
};

use tollgate_admin::problem_details::ProblemDetails;

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
    /// Objects that the document does not have stay.
    #[default]
    Merge,
    /// Objects that the document does not have go.
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
    let Some(root) = document.as_object() else {
        return Err(no_mapping("the document"));
    };
    if let Some(odd) = root.keys().find(|key| *key != "applications") {
        let odd = odd.escape_debug();
        return Err(ProblemDetails::bad_request(format!(
            "the document has an unknown key \"{odd}\""
        ))
        .hint("everything stands under applications"));
    }
    let mut found = DocumentObjects::new();
    let applications = root.get("applications").unwrap_or(&Json::Null);
    for (name, application) in entries(applications, "applications")? {
        let application = match application {
            Json::Null => Map::new(),
            Json::Object(members) => members,
            _ => {
                let place = format!("applications.{}", name.escape_debug());
                return Err(no_mapping(&place));
            }
        };
        read_application(&name, application, &mut found)?;
    }
    Ok(found)
}

fn no_mapping(place: &str) -> ProblemDetails {
    ProblemDetails::bad_request(format!("{place} is no mapping"))
}

fn read_application(
    name: &str,
    mut application: Map<String, Json>,
    found: &mut DocumentObjects,
) -> Result<(), ProblemDetails> {
    // Terminals show messages, and obey control characters in them.
    let shown = name.escape_debug();
    for (section, kind) in SECTIONS {
        let Some(objects) = application.remove(section) else {
            continue;
        };
        let place = format!("applications.{shown}.{section}");
        for (object, body) in entries(&objects, &place)? {
            let id = checked_id(ObjectId::new(kind, name, &object), name)?;
            found.insert(id, read(kind, body));
        }
    }
    let id = checked_id(ObjectId::of_application(name), name)?;
    found.insert(id, application.into());
    Ok(())
}

fn checked_id(
    id: Result<ObjectId, NameProblem>,
    application: &str,
) -> Result<ObjectId, ProblemDetails> {
    id.map_err(|problem| {
        let application = application.escape_debug();
        ProblemDetails::bad_request(format!("in the application {application}: {problem}"))
    })
}

/// The edits that make the `newest` policies say what the document says. Where it was made from a
/// `base`, what differs from that: an object that somebody else has changed since is a conflict,
/// unless it was the same change.
///
/// # Errors
/// When it is no document, or a name in it cannot be one.
pub fn edits_upon(
    document: &Json,
    base: Option<&PolicyState>,
    newest: &PolicyState,
    mode: ImportMode,
) -> Result<Vec<ObjectEdit>, ProblemDetails> {
    let objects = objects(document)?;
    let mut edits = edits(&objects, base.unwrap_or(newest), mode);
    if base.is_some() {
        edits.retain(|edit| {
            let newest = newest.get(&edit.id).map(|object| &*object.body);
            newest != edit.body.as_ref()
        });
    }
    Ok(edits)
}

/// The edits that make `base` say what the document says.
fn edits(objects: &DocumentObjects, base: &PolicyState, mode: ImportMode) -> Vec<ObjectEdit> {
    let mut edits = Vec::new();
    if mode == ImportMode::Replace {
        for id in removed(objects, base) {
            edits.push(edit_of(id, None, base));
        }
    }
    for (id, body) in objects {
        let body = merged(id, body, base, mode);
        if base.get(id).map(|old| old.body.as_ref()) != Some(&*body) {
            edits.push(edit_of(id, Some(body.into_owned()), base));
        }
    }
    edits
}

/// The objects of `base` that a replacement takes away: the document does not have them.
fn removed<'a>(objects: &DocumentObjects, base: &'a PolicyState) -> Vec<&'a ObjectId> {
    let mut applications = BTreeSet::new();
    let mut with_keys = BTreeSet::new();
    for id in objects.keys() {
        applications.insert(id.belongs_to());
        if id.kind() == ObjectKind::ApiKey {
            with_keys.insert(id.belongs_to());
        }
    }
    let mut removed = Vec::new();
    for object in base.iter() {
        let owner = object.id.belongs_to();
        // API keys that the document does not mention may be hidden from its exporter.
        let is_hidden = object.id.kind() == ObjectKind::ApiKey
            && applications.contains(owner)
            && !with_keys.contains(owner);
        if !is_hidden && !objects.contains_key(&object.id) {
            removed.push(&object.id);
        }
    }
    removed
}

fn edit_of(id: &ObjectId, body: Option<Json>, base: &PolicyState) -> ObjectEdit {
    ObjectEdit {
        id: id.clone(),
        expected: match base.get(id) {
            Some(old) => Expected::Revision(old.since),
            None => Expected::Absent,
        },
        body,
    }
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

/// The members of the mapping that stands at `place`. Nothing there is an empty one.
fn entries(json: &Json, place: &str) -> Result<Vec<(String, Json)>, ProblemDetails> {
    match json {
        Json::Null => Ok(Vec::new()),
        Json::Object(members) => Ok(members
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()),
        _ => Err(no_mapping(place)),
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
        let changed = ("ada".to_owned(), Expected::Revision(1), true);
        let gone = ("a/b".to_owned(), Expected::Revision(1), false);
        for (mode, expected) in [
            (ImportMode::Merge, vec![changed.clone()]),
            (ImportMode::Replace, vec![gone, changed]),
        ] {
            let mut found = Vec::new();
            for edit in edits(&fewer, &base, mode) {
                let name = edit.id.name().to_owned();
                found.push((name, edit.expected, edit.body.is_some()));
            }
            assert_eq!(found, expected);
        }
    }

    /// The body that an import makes of the application shop. `None`: it stays as it is.
    fn edited(application: &Json, mode: ImportMode) -> Option<Json> {
        let base = state(&objects(&document()).unwrap());
        let objects = objects(&json!({"applications": {"shop": application}})).unwrap();
        let shop = ObjectId::of_application("shop").unwrap();
        let edits = edits(&objects, &base, mode);
        let edit = edits.into_iter().find(|edit| edit.id == shop)?;
        edit.body
    }

    #[test]
    fn a_merge_keeps_what_the_document_does_not_say_of_an_application() {
        let both = json!({"description": "The shop's API", "routes": ["orders"]});
        for (application, mode, body) in [
            (json!({}), ImportMode::Merge, None),
            (json!({"routes": ["orders"]}), ImportMode::Merge, Some(both)),
            (json!({}), ImportMode::Replace, Some(json!({}))),
        ] {
            assert_eq!(edited(&application, mode), body);
        }
    }

    #[test]
    fn what_is_no_document_is_refused_with_its_place() {
        fn problem(document: &Json) -> String {
            objects(document).unwrap_err().detail.into_string()
        }

        assert_eq!(problem(&json!([])), "the document is no mapping");
        assert_eq!(
            problem(&json!({"aplications": {}})),
            "the document has an unknown key \"aplications\""
        );
        assert_eq!(
            problem(&json!({"applications": {"shop": 1}})),
            "applications.shop is no mapping"
        );
        assert_eq!(
            problem(&json!({"applications": {"shop": {"plans": []}}})),
            "applications.shop.plans is no mapping"
        );
        assert!(problem(&json!({"applications": {"a b": {}}})).contains("1 to 64 letters"));
        for inner in [
            json!(1),
            json!({}),
            json!({"plans": []}),
            json!({"plans": {"\u{1b}[31m": {}}}),
        ] {
            let text = problem(&json!({"applications": {"a\u{1b}[31m\u{202e}": inner}}));
            assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text:?}");
        }
    }
}
