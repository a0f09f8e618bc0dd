//! Lists, and mappings whose keys the user chooses.

use serde_json::{Value as Json, json};

use super::decode::{Decode, Located, Scalar, SchemaDefinitions, Setting, mismatch};
use super::node::{NodeEntry, YamlNode, YamlValue};
use crate::report::{Location, Report, ValueProblem};

/// A list of at least one.
pub struct NonEmptyList<T>(pub Vec<T>);

/// A value, or a list of at least one.
pub struct OneOrMore<T>(pub Vec<T>);

/// A mapping whose keys the user chooses.
pub struct Mapping<K, V>(pub Vec<MappingEntry<K, V>>);

pub struct MappingEntry<K, V> {
    /// The key as written, valid or not: names are looked up by this.
    pub text: String,
    pub location: Location,
    pub key: Option<K>,
    pub value: Option<V>,
}

impl<T: Clone> Setting<NonEmptyList<Located<T>>> {
    /// The values, without their locations. `Some(None)`: absent. `None`: invalid.
    pub fn values(&self) -> Option<Option<Vec<T>>> {
        self.build(|list| Some(list.0.iter().map(|at| at.value.clone()).collect()))
    }
}

impl<T> Setting<NonEmptyList<T>> {
    /// The items of a valid list.
    pub fn items(&self) -> &[T] {
        self.valid().map_or(&[], |NonEmptyList(items)| items)
    }
}

impl<K, V> Setting<Mapping<K, V>> {
    pub fn members(&self) -> &[MappingEntry<K, V>] {
        self.valid().map_or(&[], |Mapping(entries)| entries)
    }

    pub fn into_members(self) -> Vec<MappingEntry<K, V>> {
        match self {
            Self::Valid(Mapping(entries)) => entries,
            Self::Absent | Self::Invalid => Vec::new(),
        }
    }
}

impl<K: Scalar, V: Decode> MappingEntry<K, V> {
    fn decode(entry: &NodeEntry, report: &mut Report) -> Self {
        let key = match K::read(&entry.key) {
            Ok(key) => Some(key),
            Err(problem) => {
                report.mistake(&entry.key_location, problem);
                None
            }
        };
        Self {
            text: entry.key.clone(),
            location: entry.key_location.clone(),
            key,
            value: V::decode(&entry.value, report),
        }
    }
}

impl<T: Decode> Decode for Vec<T> {
    fn decode(node: &YamlNode, report: &mut Report) -> Option<Self> {
        let YamlValue::List(items) = &node.value else {
            mismatch(
                node,
                "a list",
                Some("write [one, another], or one \"- item\" per line"),
                report,
            );
            return None;
        };
        // Room for all at once: items may be large, and a list that grows moves them again and
        // again.
        let mut all = Self::with_capacity(items.len());
        all.extend(items.iter().filter_map(|item| T::decode(item, report)));
        Some(all)
    }

    fn schema(definitions: &mut SchemaDefinitions) -> Json {
        json!({ "type": "array", "items": T::schema(definitions) })
    }
}

impl<T: Decode> Decode for NonEmptyList<T> {
    fn decode(node: &YamlNode, report: &mut Report) -> Option<Self> {
        if matches!(&node.value, YamlValue::List(items) if items.is_empty()) {
            report.mistake(
                &node.location,
                ValueProblem::new("the list is empty").hint("give at least one item"),
            );
            return None;
        }
        Vec::decode(node, report).map(Self)
    }

    fn schema(definitions: &mut SchemaDefinitions) -> Json {
        json!({ "type": "array", "items": T::schema(definitions), "minItems": 1 })
    }
}

impl<T: Decode> Decode for OneOrMore<T> {
    fn decode(node: &YamlNode, report: &mut Report) -> Option<Self> {
        match &node.value {
            YamlValue::List(_) => NonEmptyList::decode(node, report).map(|list| Self(list.0)),
            _ => T::decode(node, report).map(|one| Self(vec![one])),
        }
    }

    fn schema(definitions: &mut SchemaDefinitions) -> Json {
        json!({ "anyOf": [T::schema(definitions), NonEmptyList::<T>::schema(definitions)] })
    }
}

impl<K: Scalar, V: Decode> Decode for Mapping<K, V> {
    fn decode(node: &YamlNode, report: &mut Report) -> Option<Self> {
        let YamlValue::Map(entries) = &node.value else {
            mismatch(
                node,
                "a mapping",
                Some("write one \"key: value\" per line"),
                report,
            );
            return None;
        };
        let mut members = Vec::with_capacity(entries.len());
        for entry in entries {
            members.push(MappingEntry::decode(entry, report));
        }
        Some(Self(members))
    }

    fn schema(definitions: &mut SchemaDefinitions) -> Json {
        json!({ "type": "object", "propertyNames": K::schema(), "additionalProperties": V::schema(definitions) })
    }
}
