//! How a mapping of the file is declared: once, for decoding and schema alike.

use serde_json::{Value as Json, json};

/// A property's schema with what an editor shows beside it.
pub(super) fn describe(schema: Json, doc: &str, default: Option<Json>) -> Json {
    // Draft 7 ignores what stands beside a reference.
    let mut schema = if schema.get("$ref").is_some() { json!({ "allOf": [schema] }) } else { schema };
    schema["description"] = doc.into();
    if let Some(default) = default {
        schema["default"] = default;
    }
    schema
}

/// Doc comments as one text.
pub(super) fn join(lines: &[&str]) -> String {
    lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

/// Declares a mapping of the file: each key once, with its type, its doc and whether it must be there.
///
/// `required key: T`, `optional key: T` or `default("5s") key: T`. Every field becomes a [`Slot`]; a record declared
/// `at place` also keeps its place.
macro_rules! record {
    (@name $field:ident) => {{
        let name = stringify!($field);
        name.strip_prefix("r#").unwrap_or(name)
    }};
    (@read required, $fields:ident, $report:ident, $key:expr, $doc:expr) => {
        $fields.required($key, $doc, $report)
    };
    (@read optional, $fields:ident, $report:ident, $key:expr, $doc:expr) => {
        $fields.optional($key, $report)
    };
    (@read default, $fields:ident, $report:ident, $key:expr, $doc:expr, $default:literal) => {
        $fields.or_default($key, &serde_json::json!($default), $report)
    };
    (@require required, $key:expr) => { Some($key) };
    (@require $other:ident, $key:expr) => { None::<&str> };
    (@default) => { None };
    (@default $default:literal) => { Some(serde_json::json!($default)) };
    (
        $(#[doc = $doc:literal])*
        $name:ident $(at $place:ident)? {
            $( $(#[doc = $field_doc:literal])* $kind:ident $(($default:literal))? $field:ident: $ty:ty, )*
        }
    ) => {
        $(#[doc = $doc])*
        pub(in crate::config) struct $name {
            $( pub $place: $crate::config::node::Place, )?
            $( $(#[doc = $field_doc])* pub $field: $crate::config::decode::Slot<$ty>, )*
        }

        impl $crate::config::decode::Decode for $name {
            fn decode(
                node: &$crate::config::node::Node,
                report: &mut $crate::config::mistake::Report,
            ) -> Option<Self> {
                let known = [$( $crate::config::record::record!(@name $field) ),*];
                let fields = $crate::config::decode::Fields::open(node, &known, report)?;
                Some(Self {
                    $( $place: node.place.clone(), )?
                    $( $field: $crate::config::record::record!(
                        @read $kind, fields, report, $crate::config::record::record!(@name $field),
                        &$crate::config::record::join(&[$($field_doc),*]) $(, $default)?
                    ), )*
                })
            }

            fn schema(definitions: &mut $crate::config::decode::Definitions) -> serde_json::Value {
                use $crate::config::record::{describe, join, record};
                if !definitions.contains_key(stringify!($name)) {
                    let mut properties = serde_json::Map::new();
                    let required = [$( record!(@require $kind, record!(@name $field)) ),*];
                    $(
                        let schema = <$ty as $crate::config::decode::Decode>::schema(definitions);
                        let doc = join(&[$($field_doc),*]);
                        properties.insert(
                            record!(@name $field).to_owned(),
                            describe(schema, &doc, record!(@default $($default)?)),
                        );
                    )*
                    definitions.insert(stringify!($name).to_owned(), serde_json::json!({
                        "type": "object",
                        "description": join(&[$($doc),*]),
                        "properties": properties,
                        "required": required.into_iter().flatten().collect::<Vec<_>>(),
                        "additionalProperties": false,
                    }));
                }
                serde_json::json!({ "$ref": concat!("#/definitions/", stringify!($name)) })
            }
        }
    };
}
pub(super) use record;
