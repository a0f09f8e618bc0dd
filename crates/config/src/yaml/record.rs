//! Mappings with fixed keys: each key declared once, for decoding and schema alike.
//!
//! An unknown key is a mistake, with the likely one as its hint.

use serde_json::{Map as Object, Value as Json, json};

use super::decode::{Decode, SchemaDefinitions, Setting, mismatch};
use super::node::{NodeEntry, YamlNode, YamlValue};
use super::schema::described;
use crate::report::{Location, Report, ValueProblem, quote};
use tollgate_spec::spelling::nearest;

/// A mapping with fixed keys, or a group of such keys that a mapping includes. Declared with
/// [`record!`].
pub trait Record: Sized {
    /// All keys, in the order in which messages list them.
    fn keys() -> Vec<&'static str>;
    fn read(reader: &RecordReader<'_>, report: &mut Report) -> Self;
    fn add_to(schema: &mut RecordSchema, definitions: &mut SchemaDefinitions);
}

/// The entries of a record's mapping, known keys only.
pub struct RecordReader<'a> {
    pub location: &'a Location,
    entries: &'a [NodeEntry],
    /// Keys that an unknown one was probably meant to be: not missing, only misspelt.
    misspelt: Vec<&'static str>,
    /// Whether the required keys may be missing.
    is_part: bool,
}

/// The JSON Schema of a record, in the making.
#[derive(Default)]
pub struct RecordSchema {
    properties: Object<String, Json>,
    required: Vec<&'static str>,
}

impl<'a> RecordReader<'a> {
    /// Reports what is not a mapping, and every unknown key.
    pub fn open(node: &'a YamlNode, known: &[&'static str], report: &mut Report) -> Option<Self> {
        let YamlValue::Map(entries) = &node.value else {
            let hint = format!("its keys are {}", known.join(", "));
            mismatch(node, "a mapping", Some(&hint), report);
            return None;
        };
        let mut misspelt = Vec::new();
        let unknown = entries
            .iter()
            .filter(|entry| !known.contains(&entry.key.as_str()));
        for (
            at,
            NodeEntry {
                key, key_location, ..
            },
        ) in unknown.enumerate()
        {
            // A record that is all wrong is not worth the search.
            if at < known.len() {
                misspelt.extend(nearest(key, known.iter().copied()));
            }
            let problem = ValueProblem::new(format!("unknown key {}", quote(key)));
            let otherwise = format!("the keys here are {}", known.join(", "));
            report.misnamed(key_location, problem, key, known.iter().copied(), otherwise);
        }
        Some(Self {
            location: &node.location,
            entries,
            misspelt,
            is_part: false,
        })
    }

    /// Reads a part of the record: nothing is missing.
    pub fn for_part(self) -> Self {
        Self {
            is_part: true,
            ..self
        }
    }

    /// A key without a value counts as absent: a section whose lines are all commented out is no
    /// mistake.
    fn find(&self, key: &str) -> Option<&'a YamlNode> {
        let entry = self.entries.iter().find(|entry| entry.key == key)?;
        Some(&entry.value).filter(|node| !node.value.is_null())
    }

    pub fn optional<T: Decode>(&self, key: &str, report: &mut Report) -> Setting<T> {
        match self.find(key) {
            None if self.misspelt.contains(&key) => Setting::Invalid,
            None => Setting::Absent,
            Some(node) => T::decode(node, report).map_or(Setting::Invalid, Setting::Valid),
        }
    }

    pub fn required<T: Decode>(&self, key: &str, doc: &str, report: &mut Report) -> Setting<T> {
        let setting = self.optional(key, report);
        if setting.is_present() || self.is_part {
            return setting;
        }
        let problem = ValueProblem::new(format!("{} is missing", quote(key)));
        report.mistake(self.location, problem.hint(format!("{key}: {doc}")));
        Setting::Invalid
    }

    /// The default is read like any other text and is subject to the same rules.
    pub fn or_default<T: Decode>(
        &self,
        key: &str,
        default: &Json,
        report: &mut Report,
    ) -> Setting<T> {
        let setting = self.optional(key, report);
        if setting.is_present() {
            return setting;
        }
        let text = default
            .as_str()
            .map_or_else(|| default.to_string(), str::to_owned);
        let location = self.location.key(key, self.location.position());
        let node = YamlNode {
            location,
            value: YamlValue::Scalar { text, plain: false },
        };
        T::decode(&node, report).map_or(Setting::Invalid, Setting::Valid)
    }
}

impl RecordSchema {
    /// Adds a key whose value has this `schema`.
    pub fn add(&mut self, key: &str, schema: Json, doc: &str, default: Option<Json>) {
        self.properties
            .insert(key.to_owned(), described(schema, doc, default));
    }

    pub fn require(&mut self, key: &'static str) {
        self.required.push(key);
    }
}

/// A reference to the schema of `T`, the type called `name`, which is added to `definitions`.
pub fn reference<T: Record>(name: &str, doc: &str, definitions: &mut SchemaDefinitions) -> Json {
    // "Raw" tells types apart in this program and means nothing to a reader of the schema.
    let name = name.strip_prefix("Raw").unwrap_or(name);
    if !definitions.contains_key(name) {
        let mut schema = RecordSchema::default();
        T::add_to(&mut schema, definitions);
        let RecordSchema {
            properties,
            required,
        } = schema;
        let definition = json!({
            "type": "object",
            "description": doc,
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        });
        definitions.insert(name.to_owned(), definition);
    }
    json!({ "$ref": format!("#/definitions/{name}") })
}

/// A reference to the schema of some `keys` of `T`, none of which is required.
pub fn reference_to_part<T: Record>(
    name: &str,
    doc: &str,
    keys: &[&'static str],
    definitions: &mut SchemaDefinitions,
) -> Json {
    let mut schema = RecordSchema::default();
    T::add_to(&mut schema, definitions);
    let properties: Object<String, Json> = schema
        .properties
        .into_iter()
        .filter(|(key, _)| keys.contains(&key.as_str()))
        .collect();
    let definition = json!({ "type": "object", "description": doc, "properties": properties, "additionalProperties": false });
    definitions.insert(name.to_owned(), definition);
    json!({ "$ref": format!("#/definitions/{name}") })
}

/// The keys that `T` must have.
pub fn required_keys<T: Record>() -> Vec<&'static str> {
    let mut schema = RecordSchema::default();
    T::add_to(&mut schema, &mut SchemaDefinitions::new());
    schema.required
}

/// Doc comments as one text.
pub fn join(lines: &[&str]) -> String {
    lines
        .iter()
        .map(|line| line.trim())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Declares a mapping of the file: each key once, with its type, its doc and whether it must be
/// there.
///
/// `required key: T`, `optional key: T` or `default("5s") key: T` become a [`Setting`]. `group
/// name: R` includes the keys of the record `R`. A record declared `at location` also keeps its
/// location.
macro_rules! record {
    (@name $field:ident) => {{
        let name = stringify!($field);
        name.strip_prefix("r#").unwrap_or(name)
    }};
    (@type group, $ty:ty) => { $ty };
    (@type $kind:ident, $ty:ty) => { $crate::yaml::decode::Setting<$ty> };
    (@keys group, $keys:ident, $field:ident, $ty:ty) => { $keys.extend(<$ty as record::Record>::keys()) };
    (@keys $kind:ident, $keys:ident, $field:ident, $ty:ty) => { $keys.push(record::record!(@name $field)) };
    (@read group, $ty:ty, $reader:ident, $report:ident, $key:expr, $doc:expr) => {
        <$ty as record::Record>::read($reader, $report)
    };
    (@read required, $ty:ty, $reader:ident, $report:ident, $key:expr, $doc:expr) => {
        $reader.required($key, &record::join($doc), $report)
    };
    (@read optional, $ty:ty, $reader:ident, $report:ident, $key:expr, $doc:expr) => {
        $reader.optional($key, $report)
    };
    (@read default, $ty:ty, $reader:ident, $report:ident, $key:expr, $doc:expr, $default:literal) => {
        $reader.or_default($key, &serde_json::json!($default), $report)
    };
    (@add group, $ty:ty, $schema:ident, $definitions:ident, $key:expr, $doc:expr) => {
        <$ty as record::Record>::add_to($schema, $definitions);
    };
    (@add required, $ty:ty, $schema:ident, $definitions:ident, $key:expr, $doc:expr) => {
        $schema.require($key);
        record::record!(@add optional, $ty, $schema, $definitions, $key, $doc);
    };
    (@add $kind:ident, $ty:ty, $schema:ident, $definitions:ident, $key:expr, $doc:expr $(, $default:literal)?) => {
        let value = <$ty as $crate::yaml::decode::Decode>::schema($definitions);
        $schema.add($key, value, &record::join($doc), record::record!(@default $($default)?));
    };
    (@default) => { None };
    (@default $default:literal) => { Some(serde_json::json!($default)) };
    (
        $(#[doc = $doc:literal])*
        $name:ident $(at $location:ident)? {
            $( $(#[doc = $field_doc:literal])* $kind:ident $(($default:literal))? $field:ident: $ty:ty, )*
        }
    ) => {
        $(#[doc = $doc])*
        pub struct $name {
            $( pub $location: $crate::report::Location, )?
            $( $(#[doc = $field_doc])* pub $field: $crate::yaml::record::record!(@type $kind, $ty), )*
        }

        impl $crate::yaml::record::Record for $name {
            fn keys() -> Vec<&'static str> {
                use $crate::yaml::record;
                let mut keys = Vec::new();
                $( record::record!(@keys $kind, keys, $field, $ty); )*
                keys
            }

            fn read(
                reader: &$crate::yaml::record::RecordReader<'_>,
                report: &mut $crate::report::Report,
            ) -> Self {
                use $crate::yaml::record;
                Self {
                    $( $location: reader.location.clone(), )?
                    $( $field: record::record!(
                        @read $kind, $ty, reader, report, record::record!(@name $field),
                        &[$($field_doc),*] $(, $default)?
                    ), )*
                }
            }

            fn add_to(
                schema: &mut $crate::yaml::record::RecordSchema,
                definitions: &mut $crate::yaml::decode::SchemaDefinitions,
            ) {
                use $crate::yaml::record;
                $( record::record!(
                    @add $kind, $ty, schema, definitions, record::record!(@name $field),
                    &[$($field_doc),*] $(, $default)?
                ); )*
            }
        }

        impl $crate::yaml::decode::Decode for $name {
            fn decode(
                node: &$crate::yaml::node::YamlNode,
                report: &mut $crate::report::Report,
            ) -> Option<Self> {
                use $crate::yaml::record;
                let keys = <Self as record::Record>::keys();
                let reader = record::RecordReader::open(node, &keys, report)?;
                Some(<Self as record::Record>::read(&reader, report))
            }

            fn schema(definitions: &mut $crate::yaml::decode::SchemaDefinitions) -> serde_json::Value {
                use $crate::yaml::record;
                let doc = record::join(&[$($doc),*]);
                record::reference::<Self>(stringify!($name), &doc, definitions)
            }
        }
    };
}
pub(crate) use record;
