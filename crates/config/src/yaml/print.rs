//! Tree → text: the file as it is meant once aliases, included files and defaults are in their
//! places.

use super::node::{YamlNode, YamlValue};

/// The tree as YAML in block style. It reads as the same tree.
pub fn text(root: &YamlNode) -> String {
    let mut text = String::new();
    write(&mut text, &root.value, 0);
    text
}

/// Writes the lines of a collection, each indented by `indent`.
fn write(text: &mut String, value: &YamlValue, indent: usize) {
    match value {
        YamlValue::Map(entries) => {
            for entry in entries {
                begin(text, indent, &format!("{}:", key(&entry.key)));
                behind(text, &entry.value.value, indent);
            }
        }
        YamlValue::List(items) => {
            for item in items {
                begin(text, indent, "-");
                behind(text, &item.value, indent);
            }
        }
        YamlValue::Scalar { .. } | YamlValue::Unusable => behind(text, value, indent),
    }
}

fn begin(text: &mut String, indent: usize, with: &str) {
    text.push_str(&" ".repeat(indent));
    text.push_str(with);
}

/// Writes the value behind a key or a dash: on the same line, or below it.
fn behind(text: &mut String, value: &YamlValue, indent: usize) {
    match value {
        YamlValue::Map(entries) if entries.is_empty() => text.push_str(" {}\n"),
        YamlValue::List(items) if items.is_empty() => text.push_str(" []\n"),
        YamlValue::Map(_) | YamlValue::List(_) => {
            text.push('\n');
            write(text, value, indent + 2);
        }
        YamlValue::Scalar {
            text: scalar,
            plain,
        } => {
            let shown = if *plain && !scalar.contains('\n') {
                scalar.clone()
            } else {
                quoted(scalar)
            };
            text.push_str(format!(" {shown}").trim_end());
            text.push('\n');
        }
        YamlValue::Unusable => text.push('\n'),
    }
}

fn key(key: &str) -> String {
    let begins = key.starts_with(|first: char| first.is_ascii_alphabetic());
    let is_plain = key
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'));
    if begins && is_plain {
        key.to_owned()
    } else {
        quoted(key)
    }
}

/// JSON's quotes and escapes are YAML's, too.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
