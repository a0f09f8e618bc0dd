//! The form of an object: a field for each key that people mostly write, and one for all others.
//! Values are written as in the file.

use serde_json::{Map, Value as Json};
use tollgate_policies::model::ObjectKind;

use crate::admin::problem_details::MistakeView;
use crate::admin::query::Pairs;
use crate::config::PolicySet;
use crate::team::changes::refusal::mistake_view;

/// The name of the field for keys that have none of their own.
pub const OTHERS: &str = "others";

/// The fields with the route of a resource, and with those of an application.
pub const ROUTE: &str = "route";
pub const ROUTES: &str = "routes";

/// A key of an object's body.
struct BodyField {
    /// Its place in the body, with dots.
    path: &'static str,
    label: &'static str,
    hint: &'static str,
    /// More than one: it is a text area.
    rows: usize,
    /// Whether it is text, whatever it looks like.
    is_text: bool,
}

/// A field with its value and what is wrong with it.
#[derive(Debug, PartialEq, Eq)]
pub struct ShownField {
    pub name: String,
    pub label: &'static str,
    pub hint: &'static str,
    pub rows: usize,
    pub value: String,
    /// Empty: it is written.
    pub choices: Vec<FieldChoice>,
    pub mistakes: Vec<MistakeView>,
}

/// A value that can be chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldChoice {
    pub value: String,
    pub chosen: bool,
    /// Further information on the value.
    pub note: String,
}

const fn field(path: &'static str, label: &'static str, hint: &'static str) -> BodyField {
    BodyField {
        path,
        label,
        hint,
        rows: 1,
        is_text: false,
    }
}

const fn text_field(path: &'static str, label: &'static str, hint: &'static str) -> BodyField {
    BodyField {
        is_text: true,
        ..field(path, label, hint)
    }
}

fn fields_of(kind: ObjectKind) -> &'static [BodyField] {
    match kind {
        ObjectKind::Application => {
            const {
                &[
                    BodyField {
                        path: "description",
                        label: "Description",
                        hint: "for people",
                        rows: 2,
                        is_text: true,
                    },
                    field(
                        ROUTES,
                        "Routes",
                        "those of the file that are its own: its resources name no others",
                    ),
                ]
            }
        }
        ObjectKind::Resource => {
            const {
                &[
                    field(ROUTE, "Route", "one of the application's own"),
                    BodyField {
                        path: "match",
                        label: "Only a part of it",
                        hint: "conditions as of a route, such as path: /orders/checkout. Empty: all of its requests",
                        rows: 3,
                        is_text: false,
                    },
                ]
            }
        }
        ObjectKind::Strategy => {
            const {
                &[
                    field(
                        "limit.key",
                        "Counts by",
                        "client_ip, {header: x-client}, or several: [route, client_ip]",
                    ),
                    field("limit.rate", "Rate", "such as 10/s, 100/m or 5000/h"),
                    field("limit.burst", "Burst", "tokens of a full bucket"),
                    field(
                        "resources",
                        "Resources",
                        "those that it counts, such as [all, checkout]",
                    ),
                    field(
                        "limit.algorithm",
                        "Algorithm",
                        "token_bucket if empty; fixed_window, sliding_window, concurrency",
                    ),
                    field("limit.on_limit", "Over the limit", "reject if empty"),
                    field(
                        "limit.on_outage",
                        "While the store is away",
                        "local if empty; allow, deny",
                    ),
                    field(
                        "limit.enforce",
                        "Enforced for",
                        "all keys if empty; 0% only counts, 10% acts on every tenth",
                    ),
                    BodyField {
                        path: "candidate",
                        label: "Candidate",
                        hint: "a limit that is tried out: limit, on (shadow, 10% or nodes), bounds, promote_after",
                        rows: 8,
                        is_text: false,
                    },
                ]
            }
        }
        ObjectKind::Plan => {
            const {
                &[BodyField {
                    path: "limits",
                    label: "Rates",
                    hint: "by strategy, such as per-client: {rate: 100/s}",
                    rows: 6,
                    is_text: false,
                }]
            }
        }
        ObjectKind::Assignment => const { &[field("plan", "Plan", "the plan's name")] },
        ObjectKind::ApiKey => {
            const {
                &[
                    text_field(
                        "client",
                        "Client",
                        "whose key it is. Empty: called like the key",
                    ),
                    text_field(
                        "key_sha256",
                        "SHA-256 of the key",
                        "empty: a key is made, and shown on the next page alone",
                    ),
                    field(
                        "labels",
                        "Labels",
                        "further names of the client, such as {team: web}",
                    ),
                ]
            }
        }
    }
}

/// The form with what `body` has.
pub fn of_body(kind: ObjectKind, body: &Json) -> Vec<ShownField> {
    let mut rest = body.clone();
    let mut shown: Vec<_> = fields_of(kind)
        .iter()
        .map(|field| {
            let value = take(&mut rest, field.path)
                .map_or_else(String::new, |value| written(&value, field.rows));
            field.shown(value)
        })
        .collect();
    remove_empty(&mut rest);
    let others = if rest.as_object().is_none_or(Map::is_empty) {
        String::new()
    } else {
        yaml(&rest)
    };
    shown.push(others_field(others));
    shown
}

/// The form as it was sent.
pub fn of_form(kind: ObjectKind, sent: &Pairs) -> Vec<ShownField> {
    let value = |name: &str| {
        if name == ROUTES {
            return chosen(sent);
        }
        let found = sent.iter().find(|(known, _)| known == name);
        found.map_or_else(String::new, |(_, value)| value.trim().to_owned())
    };
    let own = fields_of(kind)
        .iter()
        .map(|field| field.shown(value(field.path)));
    own.chain([others_field(value(OTHERS))]).collect()
}

/// The routes that were chosen, or the list that was written.
fn chosen(sent: &Pairs) -> String {
    let mut found = sent
        .iter()
        .filter(|(name, _)| name == ROUTES)
        .map(|(_, value)| value.trim());
    match (found.next(), found.next()) {
        (None, _) => String::new(),
        (Some(list), None) if list.is_empty() || list.starts_with('[') => list.to_owned(),
        (first, second) => {
            Json::from_iter(first.into_iter().chain(second).chain(found)).to_string()
        }
    }
}

/// The body that a form describes. `None`: what is wrong stands beside its field.
pub fn body(kind: ObjectKind, shown: &mut [ShownField]) -> Option<Json> {
    let others = shown.last().map_or("", |field| field.value.as_str());
    let mut all = match read(others) {
        Ok(Some(Json::Object(members))) => Json::Object(members),
        Ok(None) => Json::Object(Map::new()),
        Ok(Some(_)) => {
            shown.last_mut()?.mistakes.push(mistake(
                "this is no mapping",
                "write a key, a colon and a value on each line",
            ));
            return None;
        }
        Err(mistakes) => {
            shown.last_mut()?.mistakes = mistakes;
            return None;
        }
    };
    let mut fine = true;
    for (field, shown) in fields_of(kind).iter().zip(shown) {
        let value = if field.is_text {
            Ok(text(&shown.value))
        } else {
            read(&shown.value)
        };
        match value {
            Ok(Some(value)) => put(&mut all, field.path, value),
            Ok(None) => {}
            Err(mistakes) => (shown.mistakes, fine) = (mistakes, false),
        }
    }
    fine.then_some(all)
}

/// Puts each mistake of the object at `place` beside its field, and returns the others.
pub fn place_mistakes(
    shown: &mut [ShownField],
    place: &str,
    mistakes: Vec<MistakeView>,
) -> Vec<MistakeView> {
    let mut elsewhere = Vec::new();
    for mistake in mistakes {
        let below = mistake
            .path
            .strip_prefix(place)
            .and_then(|rest| rest.strip_prefix('.'))
            .unwrap_or_default();
        let is_of = |field: &&mut ShownField| {
            let rest = below.strip_prefix(field.name.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        match shown.iter_mut().find(is_of) {
            Some(field) => field.mistakes.push(mistake),
            None => elsewhere.push(mistake),
        }
    }
    elsewhere
}

impl BodyField {
    fn shown(&self, value: String) -> ShownField {
        let Self {
            path,
            label,
            hint,
            rows,
            ..
        } = *self;
        ShownField {
            name: path.to_owned(),
            label,
            hint,
            rows,
            value,
            choices: Vec::new(),
            mistakes: Vec::new(),
        }
    }
}

fn others_field(value: String) -> ShownField {
    let hint = "any that the file takes here, a line each";
    let (name, label, choices, mistakes) =
        (OTHERS.to_owned(), "Other keys", Vec::new(), Vec::new());
    ShownField {
        name,
        label,
        hint,
        rows: 3,
        value,
        choices,
        mistakes,
    }
}

/// A value as the file has it. Nothing: the field is empty.
pub fn read(value: &str) -> Result<Option<Json>, Vec<MistakeView>> {
    if value.is_empty() {
        return Ok(None);
    }
    let read = PolicySet::parse("this field", value);
    read.map(|set| Some(set.to_json()))
        .map_err(|mistakes| mistakes.all().iter().map(mistake_view).collect())
}

fn text(value: &str) -> Option<Json> {
    (!value.is_empty()).then(|| value.replace("\r\n", "\n").into())
}

fn mistake(message: &str, hint: &str) -> MistakeView {
    let hint = Some(hint.to_owned());
    MistakeView {
        file: String::new(),
        path: String::new(),
        message: message.to_owned(),
        hint,
    }
}

fn written(value: &Json, rows: usize) -> String {
    match value {
        Json::String(text) => text.clone(),
        Json::Object(_) if rows > 1 => yaml(value),
        other => in_one_line(other),
    }
}

/// A value as people write it in a line of YAML: `{header: x-client}`.
pub fn in_one_line(value: &Json) -> String {
    let short = bare(value);
    match read(&short) {
        Ok(Some(same)) if same == *value => short,
        // JSON is YAML.
        _ => value.to_string(),
    }
}

/// Without quotation marks, which some texts need.
fn bare(value: &Json) -> String {
    let list = |items: Vec<String>| items.join(", ");
    match value {
        Json::String(text) => text.clone(),
        Json::Array(items) => format!("[{}]", list(items.iter().map(bare).collect())),
        Json::Object(members) => {
            format!(
                "{{{}}}",
                list(
                    members
                        .iter()
                        .map(|(name, value)| format!("{name}: {}", bare(value)))
                        .collect()
                )
            )
        }
        other => other.to_string(),
    }
}

fn yaml(value: &Json) -> String {
    PolicySet::of_json("", value).map_or_else(
        |_| value.to_string(),
        |set| set.to_yaml().trim_end().to_owned(),
    )
}

fn take(body: &mut Json, path: &str) -> Option<Json> {
    match path.split_once('.') {
        Some((first, rest)) => take(body.get_mut(first)?, rest),
        None => body.as_object_mut()?.remove(path),
    }
}

fn put(body: &mut Json, path: &str, value: Json) {
    let Some(members) = body.as_object_mut() else {
        return;
    };
    match path.split_once('.') {
        Some((first, rest)) => {
            let inner = members
                .entry(first)
                .or_insert_with(|| Json::Object(Map::new()));
            put(inner, rest, value);
        }
        None => drop(members.insert(path.to_owned(), value)),
    }
}

fn remove_empty(body: &mut Json) {
    if let Some(members) = body.as_object_mut() {
        members.retain(|_, value| value.as_object().is_none_or(|inner| !inner.is_empty()));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_body_becomes_a_form_and_the_form_the_body() {
        for (kind, body) in [
            (
                ObjectKind::Strategy,
                json!({"limit": {"key": [{"header": "x"}, "route"], "rate": "10/s", "burst": 20, "hidden": true},
                    "resources": ["all"], "client": "client_ip",
                    "candidate": {"limit": {"key": "client_ip", "rate": "5/s"}, "on": {"nodes": ["a-*"]}, "over": "5s"}}),
            ),
            (
                ObjectKind::Resource,
                json!({"route": "orders", "match": {"path": "/a", "methods": ["GET"]}}),
            ),
            (ObjectKind::Plan, json!({"limits": {"a": {"rate": "1/s"}}})),
            (
                ObjectKind::Application,
                json!({"description": "12", "routes": ["orders", "items"]}),
            ),
            (ObjectKind::Application, json!({"routes": ["orders"]})),
            (ObjectKind::Assignment, json!({"plan": "gold"})),
        ] {
            let mut shown = of_body(kind, &body);
            assert_eq!(super::body(kind, &mut shown), Some(body), "{shown:?}");
            let sent: Pairs = shown
                .iter()
                .map(|field| (field.name.clone(), field.value.clone()))
                .collect();
            assert_eq!(of_form(kind, &sent), shown);
        }
    }

    #[test]
    fn a_value_has_quotation_marks_where_it_needs_them() {
        for (value, written) in [
            (json!(["all", "checkout"]), "[all, checkout]"),
            (
                json!([{"header": "x-client"}, "route"]),
                "[{header: x-client}, route]",
            ),
            (json!(["10", "a, b"]), "[\"10\",\"a, b\"]"),
            (json!({"a": "b: c"}), "{\"a\":\"b: c\"}"),
            (json!([1, true]), "[1, true]"),
        ] {
            assert_eq!(in_one_line(&value), written);
            assert_eq!(read(written), Ok(Some(value)));
        }
    }

    #[test]
    fn routes_that_are_ticked_become_a_list() {
        for (ticked, list) in [
            (&[][..], None),
            (&["a"], Some(json!(["a"]))),
            (&["a", "b", "c"], Some(json!(["a", "b", "c"]))),
        ] {
            let sent = ticked
                .iter()
                .map(|route| (ROUTES.to_owned(), (*route).to_owned()))
                .collect();
            let body = body(
                ObjectKind::Application,
                &mut of_form(ObjectKind::Application, &sent),
            )
            .unwrap();
            assert_eq!(body.get(ROUTES).cloned(), list);
        }
    }

    #[test]
    fn a_mistake_stands_beside_its_field() {
        let mut shown = of_body(ObjectKind::Strategy, &json!({"limit": {"rate": "fast"}}));
        let at = |path: &str| MistakeView {
            path: path.to_owned(),
            ..mistake("wrong", "mend it")
        };
        let place = "applications.shop.strategies.few";
        let mistakes = vec![
            at(&format!("{place}.limit.rate")),
            at(&format!("{place}.resources[0]")),
            at("routes[0]"),
        ];
        let elsewhere = place_mistakes(&mut shown, place, mistakes);
        let beside: Vec<_> = shown
            .iter()
            .filter(|field| !field.mistakes.is_empty())
            .map(|field| &*field.name)
            .collect();
        assert_eq!(beside, ["limit.rate", "resources"]);
        assert_eq!(elsewhere, [at("routes[0]")]);
    }

    #[test]
    fn what_cannot_be_read_is_told_beside_its_field() {
        let sent = vec![
            ("limit.key".to_owned(), "[a".to_owned()),
            (OTHERS.to_owned(), String::new()),
        ];
        let mut shown = of_form(ObjectKind::Strategy, &sent);
        assert_eq!(body(ObjectKind::Strategy, &mut shown), None);
        assert!(!shown[0].mistakes.is_empty());
        let mut shown = of_form(
            ObjectKind::Plan,
            &vec![(OTHERS.to_owned(), "- a".to_owned())],
        );
        assert_eq!(body(ObjectKind::Plan, &mut shown), None);
        assert_eq!(shown[1].mistakes[0].message, "this is no mapping");
    }
}
