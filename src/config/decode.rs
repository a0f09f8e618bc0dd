//! Tree → raw types, all mistakes at once, and the JSON Schema of the same types.
//!
//! A type that can be read from the file says in one place how it is written: [`Scalar`] for single values, the
//! macro of `record` for mappings. Decoding and schema both come from there, so they cannot drift apart. Knows no key of
//! the file and no rule that needs two of its places.

use serde_json::{Map as Object, Value as Json, json};

use super::mistake::{Report, Trouble, nearest, quote};
use super::node::{Entry, Node, Place, Value};

/// A type that can be read from a node.
pub(super) trait Decode: Sized {
    /// `None`: a mistake was reported.
    fn decode(node: &Node, report: &mut Report) -> Option<Self>;
    /// Its JSON Schema; records add theirs to `definitions` and answer with a reference.
    fn schema(definitions: &mut Definitions) -> Json;
}

/// A type that is written as one value.
pub(super) trait Scalar: Sized {
    /// With its article, for messages: "a duration".
    const WHAT: &'static str;
    fn read(text: &str) -> Result<Self, Trouble>;
    fn schema() -> Json;
}

/// The schemas of all records, by name.
pub(super) type Definitions = Object<String, Json>;

/// A single value and its place.
pub(super) struct At<T> {
    pub place: Place,
    pub value: T,
}

/// What was found for a key.
pub(super) enum Slot<T> {
    Absent,
    /// Its mistake is reported already: whoever needs it does without, silently.
    Bad,
    Good(T),
}

/// A list of at least one.
pub(super) struct Many<T>(pub Vec<T>);

/// A mapping whose keys the user chooses.
pub(super) struct Table<K, V>(pub Vec<Row<K, V>>);

pub(super) struct Row<K, V> {
    /// As written, valid or not: names are looked up by this.
    pub text: String,
    pub place: Place,
    pub key: Option<K>,
    pub value: Option<V>,
}

impl<T> Slot<T> {
    pub fn good(&self) -> Option<&T> {
        match self {
            Self::Good(value) => Some(value),
            Self::Absent | Self::Bad => None,
        }
    }

    pub fn is_present(&self) -> bool {
        !matches!(self, Self::Absent)
    }

    pub fn is_bad(&self) -> bool {
        matches!(self, Self::Bad)
    }
}

impl<T: Clone> Slot<At<T>> {
    pub fn value(&self) -> Option<T> {
        self.good().map(|at| at.value.clone())
    }
}

impl<T: Scalar> Decode for At<T> {
    fn decode(node: &Node, report: &mut Report) -> Option<Self> {
        let Value::Scalar { text, .. } = &node.value else {
            mismatch(node, T::WHAT, None, report);
            return None;
        };
        let value = T::read(text).map_err(|trouble| report.mistake(&node.place, trouble)).ok()?;
        Some(Self { place: node.place.clone(), value })
    }

    fn schema(_: &mut Definitions) -> Json {
        T::schema()
    }
}

impl<T: Decode> Decode for Vec<T> {
    fn decode(node: &Node, report: &mut Report) -> Option<Self> {
        let Value::List(items) = &node.value else {
            mismatch(node, "a list", Some("write [one, another], or one \"- item\" per line"), report);
            return None;
        };
        Some(items.iter().filter_map(|item| T::decode(item, report)).collect())
    }

    fn schema(definitions: &mut Definitions) -> Json {
        json!({ "type": "array", "items": T::schema(definitions) })
    }
}

impl<T: Decode> Decode for Many<T> {
    fn decode(node: &Node, report: &mut Report) -> Option<Self> {
        if matches!(&node.value, Value::List(items) if items.is_empty()) {
            report.mistake(&node.place, Trouble::new("the list is empty").hint("give at least one item"));
            return None;
        }
        Vec::decode(node, report).map(Self)
    }

    fn schema(definitions: &mut Definitions) -> Json {
        json!({ "type": "array", "items": T::schema(definitions), "minItems": 1 })
    }
}

impl<K: Scalar, V: Decode> Decode for Table<K, V> {
    fn decode(node: &Node, report: &mut Report) -> Option<Self> {
        let Value::Map(entries) = &node.value else {
            mismatch(node, "a mapping", Some("write one \"key: value\" per line"), report);
            return None;
        };
        let rows = entries.iter().map(|Entry { key, key_place, value }| Row {
            text: key.clone(),
            place: key_place.clone(),
            key: K::read(key).map_err(|trouble| report.mistake(key_place, trouble)).ok(),
            value: V::decode(value, report),
        });
        Some(Self(rows.collect()))
    }

    fn schema(definitions: &mut Definitions) -> Json {
        json!({ "type": "object", "propertyNames": K::schema(), "additionalProperties": V::schema(definitions) })
    }
}

/// Reports that `node` is not `wanted`, without quoting it: what it holds is anyone's guess.
pub(super) fn mismatch(node: &Node, wanted: &str, hint: Option<&str>, report: &mut Report) {
    if matches!(node.value, Value::Unusable) {
        return;
    }
    let trouble = Trouble::new(format!("expected {wanted}, found {}", node.value.kind()));
    report.mistake(&node.place, hint.into_iter().fold(trouble, Trouble::hint));
}

/// The entries of a record's mapping, known keys only.
pub(super) struct Fields<'a> {
    place: &'a Place,
    entries: &'a [Entry],
    /// Keys that an unknown one was probably meant to be: not missing, only misspelt.
    misspelt: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    /// Reports what is not a mapping, and every unknown key.
    pub fn open(node: &'a Node, known: &[&'static str], report: &mut Report) -> Option<Self> {
        let Value::Map(entries) = &node.value else {
            let hint = format!("its keys are {}", known.join(", "));
            mismatch(node, "a mapping", Some(&hint), report);
            return None;
        };
        let mut misspelt = Vec::new();
        for Entry { key, key_place, .. } in entries.iter().filter(|entry| !known.contains(&entry.key.as_str())) {
            misspelt.extend(nearest(key, known.iter().copied()));
            let trouble = Trouble::new(format!("unknown key {}", quote(key)));
            let otherwise = format!("the keys here are {}", known.join(", "));
            report.mistake(key_place, trouble.suggest(key, known.iter().copied(), otherwise));
        }
        Some(Self { place: &node.place, entries, misspelt })
    }

    /// A key without a value counts as absent: a section whose lines are all commented out is no mistake.
    fn find(&self, key: &str) -> Option<&'a Node> {
        let entry = self.entries.iter().find(|entry| entry.key == key)?;
        Some(&entry.value).filter(|node| !node.value.is_null())
    }

    pub fn optional<T: Decode>(&self, key: &str, report: &mut Report) -> Slot<T> {
        match self.find(key) {
            None if self.misspelt.contains(&key) => Slot::Bad,
            None => Slot::Absent,
            Some(node) => T::decode(node, report).map_or(Slot::Bad, Slot::Good),
        }
    }

    pub fn required<T: Decode>(&self, key: &str, doc: &str, report: &mut Report) -> Slot<T> {
        let slot = self.optional(key, report);
        if slot.is_present() {
            return slot;
        }
        report.mistake(self.place, Trouble::new(format!("{} is missing", quote(key))).hint(format!("{key}: {doc}")));
        Slot::Bad
    }

    /// The default is read like any other text, so that it is subject to the same rules.
    pub fn or_default<T: Decode>(&self, key: &str, default: &Json, report: &mut Report) -> Slot<T> {
        let slot = self.optional(key, report);
        if slot.is_present() {
            return slot;
        }
        let text = default.as_str().map_or_else(|| default.to_string(), str::to_owned);
        let (line, column) = (self.place.line, self.place.column);
        let node = Node { place: self.place.key(key, (line, column)), value: Value::Scalar { text, plain: false } };
        T::decode(&node, report).map_or(Slot::Bad, Slot::Good)
    }
}
