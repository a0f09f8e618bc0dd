//! The form of an object: a field for each key that people mostly write, and one for all others.
//! Values are written as in the file.

#[cfg(test)]
mod tests;

use serde_json::{Map, Value as Json};
use tollgate_limiter::limit::algorithm::AlgorithmKind;
use tollgate_policies::model::ObjectKind;

use tollgate_admin::problem_details::MistakeView;
use tollgate_admin::query::Pairs;
use tollgate_config::PolicySet;
use tollgate_team::changes::refusal::mistake_view;

/// The name of the field for keys that have none of their own.
pub const OTHERS: &str = "others";

/// The fields with the route of a resource, and with those of an application.
pub const ROUTE: &str = "route";
pub const ROUTES: &str = "routes";

/// The field with the algorithm of a strategy.
const ALGORITHM: &str = "limit.algorithm";

/// A key of an object's body.
struct BodyField {
    /// The place of the field in the body, with dots.
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
                    field(ALGORITHM, "Algorithm", "token_bucket if empty"),
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
    let mut shown = Vec::new();
    for field in fields_of(kind) {
        shown.push(field.shown(match take(&mut rest, field.path) {
            Some(value) => written(&value, field.rows),
            None => String::new(),
        }));
    }
    remove_empty(&mut rest);
    let others = match rest.as_object() {
        Some(members) if !members.is_empty() => yaml(&rest),
        Some(_) | None => String::new(),
    };
    shown.push(others_field(others));
    shown
}

/// The form as it was sent.
pub fn of_form(kind: ObjectKind, sent: &Pairs) -> Vec<ShownField> {
    let mut shown = Vec::new();
    for field in fields_of(kind) {
        shown.push(field.shown(if field.path == ROUTES {
            chosen(sent)
        } else {
            sent_value(sent, field.path)
        }));
    }
    shown.push(others_field(sent_value(sent, OTHERS)));
    shown
}

/// The value of a field that was sent. Empty: it was not.
fn sent_value(sent: &Pairs, name: &str) -> String {
    match sent.iter().find(|(known, _)| known == name) {
        Some((_, value)) => value.trim().to_owned(),
        None => String::new(),
    }
}

/// The routes that were chosen, or the list that was written.
fn chosen(sent: &Pairs) -> String {
    let mut found = Vec::new();
    for (name, value) in sent {
        if name == ROUTES {
            found.push(value.trim());
        }
    }
    match found.as_slice() {
        [] => String::new(),
        [list] if list.is_empty() || list.starts_with('[') => (*list).to_owned(),
        _ => Json::from_iter(found).to_string(),
    }
}

/// The body that a form describes. `None`: mistakes stand beside their fields.
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
    let mut is_whole = true;
    for (field, shown) in fields_of(kind).iter().zip(shown) {
        let value = if field.is_text {
            Ok(text(&shown.value))
        } else {
            read(&shown.value)
        };
        match value {
            Ok(Some(value)) => put(&mut all, field.path, value),
            Ok(None) => {}
            Err(mistakes) => {
                shown.mistakes = mistakes;
                is_whole = false;
            }
        }
    }
    if is_whole { Some(all) } else { None }
}

/// Puts each mistake of the object at `place` beside its field, and returns the others.
pub fn place_mistakes(
    shown: &mut [ShownField],
    place: &str,
    mistakes: Vec<MistakeView>,
) -> Vec<MistakeView> {
    let mut elsewhere = Vec::new();
    for mistake in mistakes {
        let rest = mistake.path.strip_prefix(place).unwrap_or_default();
        let below = rest.strip_prefix('.').unwrap_or_default();
        match shown.iter_mut().find(|field| field.has_path(below)) {
            Some(field) => field.mistakes.push(mistake),
            None => elsewhere.push(mistake),
        }
    }
    elsewhere
}

impl ShownField {
    /// Whether a path in the body is the field's, or below it.
    fn has_path(&self, path: &str) -> bool {
        match path.strip_prefix(&*self.name) {
            Some(rest) => rest.is_empty() || rest.starts_with(['.', '[']),
            None => false,
        }
    }
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
            choices: if path == ALGORITHM {
                algorithms(&value)
            } else {
                Vec::new()
            },
            value,
            mistakes: Vec::new(),
        }
    }
}

/// Each algorithm, none, and the one that is written.
fn algorithms(written: &str) -> Vec<FieldChoice> {
    let mut names = vec![""];
    for kind in &AlgorithmKind::ALL {
        names.push(kind.name());
    }
    if !names.contains(&written) {
        names.push(written);
    }
    let mut choices = Vec::new();
    for name in names {
        choices.push(FieldChoice {
            value: name.to_owned(),
            chosen: name == written,
            note: String::new(),
        });
    }
    choices
}

fn others_field(value: String) -> ShownField {
    ShownField {
        name: OTHERS.to_owned(),
        label: "Other keys",
        hint: "any that the file takes here, a line each",
        rows: 3,
        value,
        choices: Vec::new(),
        mistakes: Vec::new(),
    }
}

/// A value as the file has it. Nothing: the field is empty.
pub fn read(value: &str) -> Result<Option<Json>, Vec<MistakeView>> {
    if value.is_empty() {
        return Ok(None);
    }
    match PolicySet::parse("this field", value) {
        Ok(set) => Ok(Some(set.to_json())),
        Err(mistakes) => Err(mistakes.all().iter().map(mistake_view).collect()),
    }
}

fn text(value: &str) -> Option<Json> {
    if value.is_empty() {
        None
    } else {
        Some(value.replace("\r\n", "\n").into())
    }
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

/// The value without quotation marks, which some texts need.
fn bare(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        Json::Array(items) => {
            let items: Vec<_> = items.iter().map(bare).collect();
            format!("[{}]", items.join(", "))
        }
        Json::Object(members) => {
            let mut written = Vec::new();
            for (name, value) in members {
                written.push(format!("{name}: {}", bare(value)));
            }
            format!("{{{}}}", written.join(", "))
        }
        other => other.to_string(),
    }
}

fn yaml(value: &Json) -> String {
    match PolicySet::of_json("", value) {
        Ok(set) => set.to_yaml().trim_end().to_owned(),
        Err(_) => value.to_string(),
    }
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
