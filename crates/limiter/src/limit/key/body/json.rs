//! Reads a member of a JSON object (RFC 8259).

use std::borrow::Cow;
use std::fmt;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

use super::name::{NameLikeness, ReadName, WantedName};

/// The largest whole number that readers without integers tell from its neighbours (RFC 8259 §6).
const LARGEST_EXACT: u64 = (1 << 53) - 1;

/// The text or whole number of the only member at `path`, whose dots lead into objects. `None`:
/// there is none, it is of another type, or readers may differ about it.
pub fn value(content: &[u8], path: &str) -> Option<String> {
    let mut reader = serde_json::Deserializer::from_slice(content);
    let found = Walk { path: Some(path) }.deserialize(&mut reader).ok()?;
    reader.end().ok().and(found)
}

/// The first name of a path.
pub fn top_level(path: &str) -> &str {
    path.split_once('.').map_or(path, |(first, _)| first)
}

/// Reads a value: that which a path leads to, or the one at its end.
struct Walk<'a> {
    /// `None`: the path ends here.
    path: Option<&'a str>,
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Self::Value, D::Error> {
        reader.deserialize_any(self)
    }
}

impl Walk<'_> {
    fn leaf(&self, text: &(impl ToString + ?Sized)) -> Option<String> {
        self.path.is_none().then(|| text.to_string())
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(self.leaf(text))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        Ok(self.leaf(&number).filter(|_| number <= LARGEST_EXACT))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        let is_exact = number.unsigned_abs() <= LARGEST_EXACT;
        Ok(self.leaf(&number).filter(|_| is_exact))
    }

    /// A fraction has many spellings.
    fn visit_f64<E: Error>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Self::Value, A::Error> {
        let (name, rest) = match self.path {
            Some(path) => path
                .split_once('.')
                .map_or((path, None), |(first, rest)| (first, Some(rest))),
            None => ("", None),
        };
        let wanted = self.path.map(|_| WantedName::new(name));
        let mut found = None;
        let mut seen = 0_usize;
        while let Some(MemberName(member)) = object.next_key()? {
            match wanted.as_ref().map_or(NameLikeness::Other, |wanted| {
                wanted.compare(&ReadName::new(&member))
            }) {
                NameLikeness::Exact => {
                    found = object.next_value_seed(Walk { path: rest })?;
                    seen += 1;
                }
                NameLikeness::Alike => {
                    object.next_value::<IgnoredAny>()?;
                    seen += 2;
                }
                NameLikeness::Other => drop(object.next_value::<IgnoredAny>()?),
            }
        }
        Ok(found.filter(|_| seen == 1))
    }
}

/// The name of a member, copied only where it has escapes.
struct MemberName<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for MemberName<'de> {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        struct Text;

        impl<'de> Visitor<'de> for Text {
            type Value = MemberName<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(MemberName(Cow::Borrowed(text)))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(MemberName(Cow::Owned(text.to_owned())))
            }
        }

        reader.deserialize_str(Text)
    }
}
