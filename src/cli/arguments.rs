//! Forms of arguments that several commands take, and the queries that they become.

use std::time::Duration;

use tollgate_limiter::limit::units;

/// The names and values of a query, not encoded.
pub type QueryPairs = Vec<(String, String)>;

/// Reads `NAME=VALUE`.
pub fn pair(text: &str) -> Result<(String, String), &'static str> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        Some(_) | None => Err("write NAME=VALUE"),
    }
}

/// Reads a duration longer than zero, such as `500ms`.
pub fn duration(text: &str) -> Result<Duration, String> {
    match units::parse_duration(text) {
        Some(duration) if !duration.is_zero() => Ok(duration),
        Some(_) | None => Err(format!("a duration is {}", units::DURATION_FORMS)),
    }
}

/// Adds a value, if there is one.
pub fn add_value(query: &mut QueryPairs, name: &str, value: Option<String>) {
    if let Some(value) = value {
        query.push((name.to_owned(), value));
    }
}

/// Adds `KIND.NAME=VALUE` for each of the named values.
pub fn add_named(query: &mut QueryPairs, kind: &str, named: &[(String, String)]) {
    for (name, value) in named {
        query.push((format!("{kind}.{name}"), value.clone()));
    }
}

/// Adds a flag, if it is set.
pub fn add_flag(query: &mut QueryPairs, name: &str, is_set: bool) {
    if is_set {
        query.push((name.to_owned(), "true".to_owned()));
    }
}
