//! The differences between two bodies of an object, as lines that a person reads: one for each
//! value, by its path.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// A line that is there on one side alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ComparedLine {
    /// Whether it is new; otherwise it is gone.
    pub added: bool,
    /// `limit.rate: 10/s`
    pub text: String,
}

/// The lines that differ, by path, each old one before the new one.
pub fn compare(before: Option<&Json>, after: Option<&Json>) -> Vec<ComparedLine> {
    let before = lines(before);
    let after = lines(after);
    let mut paths: Vec<_> = before.keys().chain(after.keys()).collect();
    paths.sort();
    paths.dedup();
    let mut compared = Vec::new();
    for path in paths {
        let old = before.get(path);
        let new = after.get(path);
        if old == new {
            continue;
        }
        if let Some(value) = old {
            compared.push(ComparedLine::new(path, value, false));
        }
        if let Some(value) = new {
            compared.push(ComparedLine::new(path, value, true));
        }
    }
    compared
}

impl ComparedLine {
    fn new(path: &str, value: &str, added: bool) -> Self {
        let text = if path.is_empty() {
            value.to_owned()
        } else {
            format!("{path}: {value}")
        };
        Self { added, text }
    }
}

fn lines(body: Option<&Json>) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    if let Some(body) = body {
        collect(String::new(), body, &mut found);
    }
    found
}

fn collect(path: String, json: &Json, found: &mut BTreeMap<String, String>) {
    match json {
        Json::Object(members) if !members.is_empty() => {
            for (name, inner) in members {
                let below = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                collect(below, inner, found);
            }
        }
        Json::Array(items) if items.iter().any(Json::is_object) => {
            for (index, inner) in items.iter().enumerate() {
                collect(format!("{path}[{index}]"), inner, found);
            }
        }
        other => drop(found.insert(path, show(other))),
    }
}

/// Text without quotes where it cannot be taken for anything else.
fn show(json: &Json) -> String {
    match json {
        Json::String(text) if is_plain(text) => text.clone(),
        Json::Array(items) => format!(
            "[{}]",
            items.iter().map(show).collect::<Vec<_>>().join(", ")
        ),
        other => other.to_string(),
    }
}

fn is_plain(text: &str) -> bool {
    let is_scalar = text.parse::<f64>().is_ok() || ["true", "false", "null"].contains(&text);
    !text.is_empty()
        && text.trim() == text
        && text
            .chars()
            .all(|c| c.is_alphanumeric() || "-_./*%: '@".contains(c))
        && !is_scalar
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn text(before: Option<&Json>, after: Option<&Json>) -> Vec<String> {
        let lines = compare(before, after);
        lines
            .into_iter()
            .map(|line| format!("{} {}", if line.added { '+' } else { '-' }, line.text))
            .collect()
    }

    #[test]
    fn only_what_differs_is_shown_by_its_path() {
        let before = json!({"limit": {"key": "client_ip", "rate": "10/s", "burst": 20}, "resources": ["all"]});
        let after =
            json!({"limit": {"key": "client_ip", "rate": "20/s"}, "resources": ["all", "b"]});
        let expected = [
            "- limit.burst: 20",
            "- limit.rate: 10/s",
            "+ limit.rate: 20/s",
            "- resources: [all]",
            "+ resources: [all, b]",
        ];
        assert_eq!(text(Some(&before), Some(&after)), expected);
        assert_eq!(text(Some(&before), Some(&before)), [""; 0]);
    }

    #[test]
    fn an_object_that_comes_or_goes_is_shown_whole_and_no_text_passes_for_a_number() {
        assert_eq!(
            text(None, Some(&json!({"plan": "gold", "n": "12", "t": "a\nb"}))),
            ["+ n: \"12\"", "+ plan: gold", "+ t: \"a\\nb\""]
        );
        assert_eq!(text(Some(&json!({})), None), ["- {}"]);
        assert_eq!(
            text(None, Some(&json!({"key": [{"header": "x"}, "route"]}))),
            ["+ key[0].header: x", "+ key[1]: route"]
        );
    }
}
