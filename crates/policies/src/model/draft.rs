//! A draft that an editor hands in: edits of objects, with the version of each that was seen, an
//! author and a reason.

use std::collections::BTreeSet;
use std::fmt::{self, Display};
use std::io::{self, Write};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value as Json;

use super::id::{ObjectId, ObjectKind};
use crate::time::UnixTime;
use tollgate_spec::plain_text::{is_plain_line, is_plain_text};

pub const MOST_BODY_BYTES: usize = 64 * 1024;
/// Each takes many times its text where a body is read.
const MOST_BODY_VALUES: usize = 4_096;
/// Enough to import a whole application with its clients.
pub const MOST_EDITS: usize = 250_000;
pub const MOST_DRAFT_BYTES: usize = 64 * 1024 * 1024;
pub const MOST_DRAFT_VALUES: usize = 1_000_000;
const MOST_AUTHOR_BYTES: usize = 256;
const MOST_REASON_BYTES: usize = 2048;
/// Half of what the JSON reader follows, so that whatever is stored can be read again, in a
/// document too.
const MOST_DEPTH: usize = 64;

/// The version of an object that the editor saw. Any other is a conflict.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expected {
    /// There was none.
    Absent,
    /// `Object::since`.
    Revision(u64),
    /// This one, which was made at that time: a database that was restored makes other revisions of
    /// the same numbers.
    Version(u64, UnixTime),
    /// Whatever there is.
    Any,
}

/// An object, as it is to be.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ObjectEdit {
    pub id: ObjectId,
    pub expected: Expected,
    /// `None` takes the object away.
    pub body: Option<Json>,
}

/// Edits that become one revision, or nothing at all.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Draft {
    pub edits: Vec<ObjectEdit>,
    pub author: String,
    pub reason: String,
}

/// The reason why a draft can become no revision: a fault of its own, or that it changes nothing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DraftProblem {
    #[error("the reason is empty: say why this is changed, for those who read the history")]
    NoReason,
    #[error("the reason has {0} bytes, and {MOST_REASON_BYTES} is the bound: keep it short")]
    LongReason(usize),
    #[error("the author has no name")]
    NoAuthor,
    #[error("the author's name has {0} bytes, and {MOST_AUTHOR_BYTES} is the bound")]
    LongAuthor(usize),
    #[error(
        "the {0} has control characters, or such as turn a line around: only line breaks and tabs of a reason are allowed"
    )]
    HiddenCharacters(&'static str),
    #[error("the draft has no edits")]
    NoEdits,
    #[error("the draft changes nothing: every object already is as it says")]
    NoChange,
    #[error("the draft has two edits of {0}: one is enough")]
    Twice(ObjectId),
    #[error("the body of {0} is no JSON object")]
    NoObject(ObjectId),
    #[error(
        "a text in the body of {0} has control characters, or such as show nothing or turn a line around"
    )]
    HiddenText(ObjectId),
    #[error("the body of {0} has more than {MOST_BODY_BYTES} bytes")]
    LargeBody(ObjectId),
    #[error(
        "the body of {0} has more than {MOST_BODY_VALUES} values: divide it into several objects"
    )]
    ManyBodyValues(ObjectId),
    #[error("the body of {0} is nested more than {MOST_DEPTH} deep")]
    DeepBody(ObjectId),
    #[error("the draft has {0} edits, and {MOST_EDITS} is the bound: commit it in parts")]
    ManyEdits(usize),
    #[error("the draft has more than {MOST_DRAFT_BYTES} bytes: commit it in parts")]
    LargeDraft,
    #[error("the draft has more than {MOST_DRAFT_VALUES} values: commit it in parts")]
    ManyValues,
}

impl Draft {
    /// Checks the draft without a state.
    pub fn check(&self) -> Result<(), DraftProblem> {
        check_note(&self.author, &self.reason)?;
        if self.edits.is_empty() {
            Err(DraftProblem::NoEdits)
        } else {
            check_edits(&self.edits)
        }
    }

    /// The applications that the draft takes away.
    pub fn removed_applications(&self) -> impl Iterator<Item = &str> {
        self.edits
            .iter()
            .filter(|edit| edit.id.kind() == ObjectKind::Application && edit.body.is_none())
            .map(|edit| edit.id.name())
    }
}

fn check_edits(edits: &[ObjectEdit]) -> Result<(), DraftProblem> {
    if edits.len() > MOST_EDITS {
        return Err(DraftProblem::ManyEdits(edits.len()));
    }
    let mut seen = BTreeSet::new();
    let mut bytes = 0;
    let mut values = 0;
    for edit in edits {
        if !seen.insert(&edit.id) {
            return Err(DraftProblem::Twice(edit.id.clone()));
        }
        bytes += edit.id.size();
        if let Some(body) = &edit.body {
            bytes += check_body(&edit.id, body)?;
            values += values_of(body);
        }
        if bytes > MOST_DRAFT_BYTES {
            return Err(DraftProblem::LargeDraft);
        }
        if values > MOST_DRAFT_VALUES {
            return Err(DraftProblem::ManyValues);
        }
    }
    Ok(())
}

fn check_note(author: &str, reason: &str) -> Result<(), DraftProblem> {
    if reason.len() > MOST_REASON_BYTES {
        return Err(DraftProblem::LongReason(reason.len()));
    }
    if author.len() > MOST_AUTHOR_BYTES {
        return Err(DraftProblem::LongAuthor(author.len()));
    }
    if author.trim().is_empty() {
        return Err(DraftProblem::NoAuthor);
    }
    if reason.trim().is_empty() {
        return Err(DraftProblem::NoReason);
    }
    if !is_plain_line(author) {
        return Err(DraftProblem::HiddenCharacters("author's name"));
    }
    if !is_plain_text(reason) {
        return Err(DraftProblem::HiddenCharacters("reason"));
    }
    Ok(())
}

/// Whether a text or a key in `body` does not show all that it has: pages, logs and terminals
/// repeat them.
fn hides_something(body: &Json) -> bool {
    match body {
        Json::String(text) => !is_plain_text(text),
        Json::Array(items) => items.iter().any(hides_something),
        Json::Object(members) => members
            .iter()
            .any(|(key, value)| !is_plain_line(key) || hides_something(value)),
        Json::Null | Json::Bool(_) | Json::Number(_) => false,
    }
}

/// The bytes that the body takes.
fn check_body(id: &ObjectId, body: &Json) -> Result<usize, DraftProblem> {
    if !body.is_object() {
        return Err(DraftProblem::NoObject(id.clone()));
    }
    // The depth is checked first: writing the body recurses as deep.
    if is_deeper(body, MOST_DEPTH) {
        return Err(DraftProblem::DeepBody(id.clone()));
    }
    if values_of(body) > MOST_BODY_VALUES {
        return Err(DraftProblem::ManyBodyValues(id.clone()));
    }
    if hides_something(body) {
        return Err(DraftProblem::HiddenText(id.clone()));
    }
    let mut counted = CountedBytes(0);
    serde_json::to_writer(&mut counted, body).map_err(|_| DraftProblem::LargeBody(id.clone()))?;
    Ok(counted.0)
}

/// The number of values in `body`, itself among them.
fn values_of(body: &Json) -> usize {
    let below = match body {
        Json::Array(items) => items.iter().map(values_of).sum(),
        Json::Object(members) => members.values().map(values_of).sum(),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => 0,
    };
    1_usize.saturating_add(below)
}

fn is_deeper(json: &Json, depth: usize) -> bool {
    let Some(below) = depth.checked_sub(1) else {
        return match json {
            Json::Array(items) => !items.is_empty(),
            Json::Object(members) => !members.is_empty(),
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => false,
        };
    };
    match json {
        Json::Array(items) => items.iter().any(|inner| is_deeper(inner, below)),
        Json::Object(members) => members.values().any(|inner| is_deeper(inner, below)),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => false,
    }
}

/// Counts what is written, and refuses more than a body may have.
struct CountedBytes(usize);

impl Write for CountedBytes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        if self.0 <= MOST_BODY_BYTES {
            Ok(bytes.len())
        } else {
            Err(io::ErrorKind::FileTooLarge.into())
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Expected {
    /// The version that an object's ETag names: `12` or `12-19abc0ffee0`. `None`: it is written
    /// otherwise.
    pub fn of_version(text: &str) -> Option<Self> {
        let (number, at) = text
            .split_once('-')
            .map_or((text, None), |(number, at)| (number, Some(at)));
        let number: u64 = number.parse().ok()?;
        let (version, written) = match at {
            None => (Self::Revision(number), number.to_string()),
            Some(at) => {
                let at = UnixTime::from_millis(i64::from_str_radix(at, 16).ok()?);
                (Self::Version(number, at), version_text(number, at))
            }
        };
        (written == text).then_some(version)
    }
}

/// A version by its revision and the time of that, which tells it from one of the same number in
/// another history.
pub fn version_text(since: u64, at: UnixTime) -> String {
    format!("{since}-{:x}", at.millis())
}

impl Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("absent"),
            Self::Revision(number) | Self::Version(number, _) => write!(f, "revision {number}"),
            Self::Any => f.write_str("any"),
        }
    }
}

impl Serialize for Expected {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Absent => serializer.serialize_str("absent"),
            Self::Revision(number) => serializer.serialize_u64(*number),
            Self::Version(number, at) => serializer.serialize_str(&version_text(*number, *at)),
            Self::Any => serializer.serialize_str("any"),
        }
    }
}

impl<'de> Deserialize<'de> for Expected {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = Json::deserialize(deserializer)?;
        match (written.as_u64(), written.as_str()) {
            (Some(number), _) => Ok(Self::Revision(number)),
            (_, Some("absent")) => Ok(Self::Absent),
            (_, Some("any")) => Ok(Self::Any),
            (_, text) => text.and_then(Self::of_version).ok_or_else(|| {
                serde::de::Error::custom(
                    "expected is the number of a revision, an ETag without its quotes, \"absent\" or \"any\"",
                )
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::ObjectKind;

    fn id(name: &str) -> ObjectId {
        ObjectId::new(ObjectKind::Strategy, "shop", name).unwrap()
    }

    fn draft(bodies: &[Json]) -> Draft {
        let edits = bodies.iter().enumerate().map(|(at, body)| ObjectEdit {
            id: id(&format!("s{at}")),
            expected: Expected::Any,
            body: Some(body.clone()),
        });
        Draft {
            edits: edits.collect(),
            author: "ada".into(),
            reason: "a test".into(),
        }
    }

    #[test]
    fn a_reason_and_an_author_are_asked_for() {
        fn noted(author: &str, reason: &str) -> Result<(), DraftProblem> {
            let note = Draft {
                author: author.into(),
                reason: reason.into(),
                ..draft(&[json!({})])
            };
            note.check()
        }
        assert_eq!(noted("ada", "more\n\tfor gold"), Ok(()));
        assert_eq!(noted("ada", " \n"), Err(DraftProblem::NoReason));
        assert_eq!(noted(" ", "why"), Err(DraftProblem::NoAuthor));
        assert_eq!(
            noted("ada\n", "why"),
            Err(DraftProblem::HiddenCharacters("author's name"))
        );
        assert_eq!(
            noted("ada", "wh\0y"),
            Err(DraftProblem::HiddenCharacters("reason"))
        );
        assert_eq!(
            noted("ada", &"y".repeat(2049)),
            Err(DraftProblem::LongReason(2049))
        );
        assert_eq!(noted("ada", &"y".repeat(2048)), Ok(()));
        assert_eq!(
            noted(&"a".repeat(257), "y"),
            Err(DraftProblem::LongAuthor(257))
        );
    }

    #[test]
    fn bodies_are_json_objects_of_a_bounded_size() {
        fn sized(bytes: usize) -> Json {
            json!({ "k": "x".repeat(bytes - r#"{"k":""}"#.len()) })
        }

        fn nested(depth: usize) -> Json {
            (1..depth).fold(json!({}), |inner, _| json!({ "a": inner }))
        }

        assert_eq!(draft(&[sized(MOST_BODY_BYTES)]).check(), Ok(()));
        assert_eq!(
            draft(&[json!({}), sized(MOST_BODY_BYTES + 1)]).check(),
            Err(DraftProblem::LargeBody(id("s1")))
        );
        for body in [json!([]), json!("a"), json!(null), json!(1)] {
            assert_eq!(
                draft(&[body]).check(),
                Err(DraftProblem::NoObject(id("s0")))
            );
        }
        assert_eq!(draft(&[nested(MOST_DEPTH)]).check(), Ok(()));
        assert_eq!(
            draft(&[nested(MOST_DEPTH + 2)]).check(),
            Err(DraftProblem::DeepBody(id("s0")))
        );
        let large = draft(&vec![
            sized(MOST_BODY_BYTES);
            MOST_DRAFT_BYTES / MOST_BODY_BYTES
        ]);
        assert_eq!(large.check(), Err(DraftProblem::LargeDraft));
    }

    #[test]
    fn bodies_and_drafts_have_a_bounded_number_of_values() {
        // The object and the list are values themselves.
        fn body(values: usize) -> Json {
            json!({ "key": vec![1; values - 2] })
        }

        assert_eq!(draft(&[body(MOST_BODY_VALUES)]).check(), Ok(()));
        let beyond = draft(&[json!({}), body(MOST_BODY_VALUES + 1)]);
        assert_eq!(beyond.check(), Err(DraftProblem::ManyBodyValues(id("s1"))));
        let many = draft(&vec![
            body(MOST_BODY_VALUES);
            MOST_DRAFT_VALUES / MOST_BODY_VALUES + 1
        ]);
        assert_eq!(many.check(), Err(DraftProblem::ManyValues));
    }

    #[test]
    fn bodies_hide_nothing() {
        assert_eq!(
            draft(&[json!({"a": ["first\n\tsecond", {"b": "ädä"}]})]).check(),
            Ok(())
        );
        for hiding in [
            json!({"a": ["v\u{9b}2J"]}),
            json!({"a": {"x\u{202e}": 1}}),
            json!({"a": "\u{0}"}),
        ] {
            assert_eq!(
                draft(&[hiding]).check(),
                Err(DraftProblem::HiddenText(id("s0")))
            );
        }
    }

    #[test]
    fn a_draft_has_edits_and_one_of_each_object() {
        assert_eq!(draft(&[]).check(), Err(DraftProblem::NoEdits));
        let mut twice = draft(&[json!({}), json!({})]);
        twice.edits[1].id = id("s0");
        assert_eq!(twice.check(), Err(DraftProblem::Twice(id("s0"))));
        let many = Draft {
            edits: vec![twice.edits[0].clone(); MOST_EDITS + 1],
            ..draft(&[])
        };
        assert_eq!(many.check(), Err(DraftProblem::ManyEdits(MOST_EDITS + 1)));
    }

    #[test]
    fn what_was_seen_is_written_in_a_word_or_a_number() {
        for (expected, text) in [
            (Expected::Absent, "\"absent\""),
            (Expected::Any, "\"any\""),
            (Expected::Revision(7), "7"),
            (Expected::Version(7, UnixTime::from_millis(255)), "\"7-ff\""),
        ] {
            assert_eq!(serde_json::to_string(&expected).unwrap(), text);
            assert_eq!(serde_json::from_str::<Expected>(text).unwrap(), expected);
        }
        for text in [
            "\"seven\"",
            "\"7-\"",
            "\"07-ff\"",
            "\"7-FF\"",
            "\"+7\"",
            "\"7-f-f\"",
            "-1",
            "null",
            "1.5",
        ] {
            assert!(serde_json::from_str::<Expected>(text).is_err(), "{text}");
        }
    }
}
