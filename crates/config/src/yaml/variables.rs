//! Environment variables in the file: `${NAME}` and `${NAME:-default}`.
//!
//! Values are put in after parsing, and into single values only: a variable's text can be a number
//! or a word, but never a key, a list or a mapping.

use super::node::{YamlNode, YamlValue};
use crate::report::{Report, ValueProblem, quote};

/// Looks a variable up. `None`: not set.
pub type VariableLookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Replaces the variables of all values below `node`.
pub fn substitute(node: &mut YamlNode, env: VariableLookup<'_>, report: &mut Report) {
    match &mut node.value {
        YamlValue::List(items) => items
            .iter_mut()
            .for_each(|item| substitute(item, env, report)),
        YamlValue::Map(entries) => entries
            .iter_mut()
            .for_each(|entry| substitute(&mut entry.value, env, report)),
        YamlValue::Scalar { text, .. } if text.contains("${") => match expand(text, env) {
            Ok(expanded) => report.vary(
                &node.location,
                std::mem::replace(text, expanded.clone()),
                expanded,
            ),
            Err(problem) => {
                report.mistake(&node.location, problem);
                node.value = YamlValue::Unusable;
            }
        },
        YamlValue::Scalar { .. } | YamlValue::Unusable => {}
    }
}

fn expand(text: &str, env: VariableLookup<'_>) -> Result<String, ValueProblem> {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let before = &rest[..start];
        let after = &rest[start + 2..];
        if let Some(before) = before.strip_suffix('$') {
            expanded.push_str(before);
            expanded.push_str("${");
            rest = after;
            continue;
        }
        let (variable, after) = after.split_once('}').ok_or_else(malformed)?;
        expanded.push_str(before);
        expanded.push_str(&value(variable, env)?);
        rest = after;
    }
    expanded.push_str(rest);
    Ok(expanded)
}

/// Like in a shell, a default also replaces an empty value.
fn value(variable: &str, env: VariableLookup<'_>) -> Result<String, ValueProblem> {
    let (name, default) = match variable.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (variable, None),
    };
    if !is_name(name) {
        return Err(malformed());
    }
    match (env(name), default) {
        (Some(value), None) => Ok(value),
        (Some(value), Some(_)) if !value.is_empty() => Ok(value),
        (_, Some(default)) => Ok(default.to_owned()),
        (None, None) => Err(ValueProblem::new(format!(
            "the environment variable {} is not set",
            quote(name)
        ))
        .hint(format!("set it, or give a default: ${{{name}:-default}}"))),
    }
}

fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Quotes nothing: a stray `${` is as likely as not part of a password.
fn malformed() -> ValueProblem {
    ValueProblem::new("\"${\" does not start a variable here")
        .hint("write ${NAME}, ${NAME:-default}, or $${ for a plain ${")
}
