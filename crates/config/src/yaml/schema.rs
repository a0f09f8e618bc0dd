//! JSON Schema (draft 7, the one YAML editors read), from the types that read the file.

use serde_json::{Value as Json, json};

use super::decode::{Decode, SchemaDefinitions};

/// The schema of a file that is read as a `T`.
pub fn document<T: Decode>(title: &str) -> Json {
    let mut definitions = SchemaDefinitions::new();
    let root = T::schema(&mut definitions);
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": title,
        "allOf": [root],
        "definitions": definitions,
    })
}

/// A property's schema with what an editor shows beside it.
pub fn described(schema: Json, doc: &str, default: Option<Json>) -> Json {
    // Draft 7 ignores members beside a reference.
    let mut schema = if schema.get("$ref").is_some() {
        json!({ "allOf": [schema] })
    } else {
        schema
    };
    schema["description"] = doc.into();
    if let Some(default) = default {
        schema["default"] = default;
    }
    schema
}

/// A pattern of JSON Schema: the whole text, or a text with an environment variable in it.
pub fn or_variable(pattern: &str) -> String {
    format!("^({pattern})$|\\$\\{{")
}

/// A choice of `words`, or a text with an environment variable in it.
pub fn choice(words: &[&str]) -> Json {
    let mut words: Vec<Json> = words.iter().map(|word| json!(word)).collect();
    if words.contains(&json!("off")) {
        // An editor that reads YAML 1.1 takes a bare `off` for `false`.
        words.push(json!(false));
    }
    json!({ "anyOf": [{ "enum": words }, { "type": "string", "pattern": "\\$\\{" }] })
}
