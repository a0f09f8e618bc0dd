//! Names of objects, checked where they are made: what an `ObjectId` holds may stand in a limit's
//! name and in a URL.

use std::fmt::{self, Display};
use std::str::FromStr;
use std::sync::Arc;
use tollgate_spec::plain_text::is_plain_line;

use serde::{Deserialize, Serialize};

const MOST_NAME_BYTES: usize = 64;
const MOST_CLIENT_BYTES: usize = 256;

/// The kind of an object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ObjectKind {
    Application,
    Resource,
    Strategy,
    Plan,
    Assignment,
    ApiKey,
}

impl ObjectKind {
    pub const ALL: [Self; 6] = [
        Self::Application,
        Self::Resource,
        Self::Strategy,
        Self::Plan,
        Self::Assignment,
        Self::ApiKey,
    ];

    /// The word for the kind, as it is stored and written.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Application => "application",
            Self::Resource => "resource",
            Self::Strategy => "strategy",
            Self::Plan => "plan",
            Self::Assignment => "assignment",
            Self::ApiKey => "api_key",
        }
    }

    pub const fn plural(self) -> &'static str {
        match self {
            Self::Application => "applications",
            Self::Resource => "resources",
            Self::Strategy => "strategies",
            Self::Plan => "plans",
            Self::Assignment => "assignments",
            Self::ApiKey => "api_keys",
        }
    }
}

impl Display for ObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for ObjectKind {
    type Err = NameProblem;

    fn from_str(text: &str) -> Result<Self, NameProblem> {
        let found = Self::ALL.into_iter().find(|kind| kind.word() == text);
        found.ok_or_else(|| NameProblem::Kind(excerpt(text)))
    }
}

/// Which object: its kind, the application that it is of, and its name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "WrittenId")]
pub struct ObjectId {
    kind: ObjectKind,
    application: Arc<str>,
    name: Arc<str>,
}

#[derive(Deserialize)]
struct WrittenId {
    kind: ObjectKind,
    #[serde(default)]
    application: String,
    name: String,
}

impl TryFrom<WrittenId> for ObjectId {
    type Error = NameProblem;

    fn try_from(written: WrittenId) -> Result<Self, NameProblem> {
        Self::new(written.kind, &written.application, &written.name)
    }
}

impl ObjectId {
    /// An application stands on its own: `application` is empty for it, and for nothing else.
    pub fn new(kind: ObjectKind, application: &str, name: &str) -> Result<Self, NameProblem> {
        let application_name = if kind == ObjectKind::Application {
            if !application.is_empty() {
                return Err(NameProblem::Nested(excerpt(name)));
            }
            name
        } else {
            application
        };
        if !is_application(application_name) {
            return Err(NameProblem::Application(excerpt(application_name)));
        }
        if kind == ObjectKind::Assignment {
            if !is_client(name) {
                return Err(NameProblem::Client(excerpt(name)));
            }
        } else if !is_name(name) {
            return Err(NameProblem::Name {
                kind,
                name: excerpt(name),
            });
        }
        Ok(Self {
            kind,
            application: application.into(),
            name: name.into(),
        })
    }

    pub fn of_application(name: &str) -> Result<Self, NameProblem> {
        Self::new(ObjectKind::Application, "", name)
    }

    pub fn kind(&self) -> ObjectKind {
        self.kind
    }

    /// Empty for an application.
    pub fn application(&self) -> &str {
        &self.application
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The application whose people look after it: for an application, itself.
    pub fn belongs_to(&self) -> &str {
        if self.kind == ObjectKind::Application {
            &self.name
        } else {
            &self.application
        }
    }

    /// An id that was stored: its application's name may be shared with others.
    pub(crate) fn stored(
        kind: ObjectKind,
        application: Arc<str>,
        name: &str,
    ) -> Result<Self, NameProblem> {
        let checked = Self::new(kind, &application, name)?;
        Ok(Self {
            application,
            ..checked
        })
    }

    /// Before all objects of this kind and application.
    pub(super) fn before(kind: ObjectKind, application: &str) -> Self {
        Self {
            kind,
            application: application.into(),
            name: "".into(),
        }
    }

    /// Roughly the bytes that it takes to write.
    pub(super) fn size(&self) -> usize {
        self.application.len() + self.name.len()
    }
}

impl Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            application,
            name,
        } = self;
        if application.is_empty() {
            write!(f, "{kind} {name}")
        } else {
            write!(f, "{kind} {application}/{name}")
        }
    }
}

/// Why a name cannot be one.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NameProblem {
    #[error(
        "{0} is no kind of object: application, resource, strategy, plan, assignment or api_key"
    )]
    Kind(String),
    #[error(
        "{0} is not the name of an application: 1 to 64 letters, digits, dashes and underscores"
    )]
    Application(String),
    #[error("{name} is not a name for an object of kind {kind}: {NAMES}")]
    Name { kind: ObjectKind, name: String },
    #[error(
        "{0} is not a client: 1 to 256 bytes without control characters and without white space at the ends"
    )]
    Client(String),
    #[error("the application {0} is of no other application: leave `application` empty")]
    Nested(String),
}

const NAMES: &str = "1 to 64 letters, digits, dots, dashes and underscores";

/// Names are as in the file. A dot or two alone would be taken out of a URL's path.
fn is_name(text: &str) -> bool {
    (1..=MOST_NAME_BYTES).contains(&text.len()) && text.bytes().all(is_of_name) && !is_dots(text)
}

fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-')
}

/// Without a dot: `APPLICATION.STRATEGY` has one reading.
fn is_application(text: &str) -> bool {
    is_name(text) && !text.contains('.')
}

fn is_client(text: &str) -> bool {
    let fits = (1..=MOST_CLIENT_BYTES).contains(&text.len());
    fits && is_plain_line(text) && text.trim() == text && !is_dots(text)
}

fn is_dots(text: &str) -> bool {
    text == "." || text == ".."
}

/// Quoted, escaped, and short enough for a message.
fn excerpt(text: &str) -> String {
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_stand_in_a_limits_name_and_in_a_url() {
        fn strategy(name: &str) -> Result<ObjectId, NameProblem> {
            ObjectId::new(ObjectKind::Strategy, "shop", name)
        }

        let longest = "n".repeat(64);
        for name in ["a", "per-client", "Gold_2.1", "..a", longest.as_str()] {
            assert_eq!(strategy(name).unwrap().name(), name);
        }
        let long = "n".repeat(65);
        for name in [
            "",
            ".",
            "..",
            "a b",
            "a/b",
            "ä",
            "a\n",
            "%41",
            long.as_str(),
        ] {
            let problem = strategy(name).unwrap_err().to_string();
            assert!(
                problem.ends_with("1 to 64 letters, digits, dots, dashes and underscores"),
                "{name}: {problem}"
            );
            assert!(problem.len() < 200, "{problem}");
            assert!(
                ObjectId::new(ObjectKind::Strategy, name, "a").is_err(),
                "{name} is no application either"
            );
            assert!(
                ObjectId::of_application(name).is_err(),
                "{name} is no application either"
            );
        }
    }

    #[test]
    fn an_application_has_no_dot_in_its_name() {
        for problem in [
            ObjectId::of_application("shop.eu"),
            ObjectId::new(ObjectKind::Strategy, "shop.eu", "a"),
        ] {
            let problem = problem.unwrap_err().to_string();
            let expected = r#""shop.eu" is not the name of an application: 1 to 64 letters, digits, dashes and underscores"#;
            assert_eq!(problem, expected);
        }
        ObjectId::new(ObjectKind::Strategy, "shop-eu", "a.b").unwrap();
    }

    #[test]
    fn a_client_may_be_called_by_more() {
        fn client(name: &str) -> Result<ObjectId, NameProblem> {
            ObjectId::new(ObjectKind::Assignment, "shop", name)
        }

        let longest = "ä".repeat(128);
        for name in [
            "ada@example.com",
            "auth0|5f7c",
            "CN=Ada, O=Shop",
            "10.0.0.1",
            "a b",
            longest.as_str(),
        ] {
            assert_eq!(client(name).unwrap().name(), name);
        }
        let long = "ä".repeat(129);
        for name in [
            "",
            " a",
            "a ",
            "a\u{a0}",
            "a\tb",
            "a\u{0}",
            "a\u{85}b",
            "..",
            long.as_str(),
        ] {
            assert!(
                matches!(client(name), Err(NameProblem::Client(_))),
                "{name:?}"
            );
        }
    }

    #[test]
    fn only_an_application_stands_on_its_own() {
        assert_eq!(
            ObjectId::of_application("shop").unwrap().belongs_to(),
            "shop"
        );
        assert_eq!(
            ObjectId::new(ObjectKind::Plan, "shop", "gold")
                .unwrap()
                .belongs_to(),
            "shop"
        );
        assert!(matches!(
            ObjectId::new(ObjectKind::Application, "shop", "a"),
            Err(NameProblem::Nested(_))
        ));
        assert!(matches!(
            ObjectId::new(ObjectKind::Plan, "", "gold"),
            Err(NameProblem::Application(_))
        ));
    }

    #[test]
    fn an_id_is_checked_when_it_is_read() {
        fn read(text: &str) -> serde_json::Result<ObjectId> {
            serde_json::from_str(text)
        }

        let id = read(r#"{"kind": "api_key", "application": "shop", "name": "k1"}"#).unwrap();
        assert_eq!(id.to_string(), "api_key shop/k1");
        assert_eq!(
            serde_json::to_string(&id).unwrap(),
            r#"{"kind":"api_key","application":"shop","name":"k1"}"#
        );
        assert!(read(r#"{"kind": "plan", "application": "shop", "name": "a/b"}"#).is_err());
        assert_eq!(
            read(r#"{"kind": "application", "name": "shop"}"#)
                .unwrap()
                .to_string(),
            "application shop"
        );
        for kind in ObjectKind::ALL {
            assert_eq!(kind.word().parse(), Ok(kind));
            assert_eq!(
                serde_json::to_string(&kind).unwrap(),
                format!("{:?}", kind.word())
            );
        }
        assert!("plans".parse::<ObjectKind>().is_err());
    }
}
