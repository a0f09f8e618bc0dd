//! JSON whose mappings have each key once. Readers differ about which of two is meant, and most
//! tell nobody that there are two.

use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Reads any JSON, keeps nothing of it, and fails where a key is there twice.
pub struct UniqueKeys;

impl<'de> Deserialize<'de> for UniqueKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for UniqueKeys {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        let mut seen = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            if seen.contains(&key) {
                return Err(A::Error::custom(format_args!("{key:?} is here twice")));
            }
            seen.insert(key);
            map.next_value::<Self>()?;
        }
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self, A::Error> {
        while items.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_unit<E: Error>(self) -> Result<Self, E> {
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_there_twice_is_found_wherever_it_is() {
        fn problem(text: &str) -> Option<String> {
            let read = serde_json::from_str::<UniqueKeys>(text);
            read.err().map(|error| error.to_string())
        }

        for text in [
            r#"{"a": {"a": 1}, "b": [{"a": 1}, {"a": 2}]}"#,
            "[1, -1, 1.5, null, true, \"a\", {}]",
            "\"a\"",
        ] {
            assert_eq!(problem(text), None, "{text}");
        }
        for text in [
            r#"{"a": 1, "a": 1}"#,
            r#"{"b": [{"a": 1, "\u0061": {}}]}"#,
            r#"{"b": {"a": 1, "c": 2, "a": 3}}"#,
        ] {
            assert!(
                problem(text)
                    .is_some_and(|problem| problem.starts_with("\"a\" is here twice at line 1")),
                "{text}"
            );
        }
        assert!(problem("{").is_some());
    }
}
