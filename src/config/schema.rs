//! The JSON Schema of the file, for editors.

use serde_json::{Value as Json, json};

use super::decode::{Decode, Definitions};
use super::raw;

/// JSON Schema (draft 7, the one YAML editors read) of the file, from the types that read it.
pub fn schema() -> Json {
    let mut definitions = Definitions::new();
    let root = raw::File::schema(&mut definitions);
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Tollgate routes.yaml",
        "allOf": [root],
        "definitions": definitions,
    })
}
