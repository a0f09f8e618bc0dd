//! `request_headers` and `response_headers` of a route, and `redirect`: the texts with
//! variables.

use http::{HeaderName, StatusCode};
use serde_json::{Value as Json, json};

use crate::report::{Report, ValueProblem, quote};
use crate::section::common::header::{
    OF_CONNECTION, OF_WEBSOCKET, check_names, is_connection_header, is_of_websocket,
    refused_in_requests,
};
use crate::yaml::collection::{Mapping, NonEmptyList};
use crate::yaml::decode::{Located, Scalar, Setting};
use crate::yaml::record::record;
use crate::yaml::schema::or_variable;
use tollgate_spec::route::RedirectRule;
use tollgate_spec::route::fields::FieldChanges;
use tollgate_spec::route::location::{self, LocationProblem};
use tollgate_spec::route::template::{Template, TemplateError, VARIABLES};

record! {
    /// Changes of header fields, in this order. Values may have variables, such as {client_ip}.
    RawFieldChanges {
        /// Names of fields that are taken away.
        optional remove: NonEmptyList<Located<HeaderName>>,
        /// Fields that replace all others of their name.
        optional set: Mapping<HeaderName, Located<Template>>,
        /// Fields besides others of their name.
        optional add: Mapping<HeaderName, Located<Template>>,
    }
}

record! {
    /// Sends the client elsewhere.
    RawRedirect {
        /// Where to, with variables: https://{host}{uri}.
        required to: Located<Template>,
        /// 301, 302, 303, 307 or 308.
        default(302) status: Located<RedirectStatus>,
    }
}

/// The statuses that send a client elsewhere (RFC 9110 §15.4).
const REDIRECTS: [u16; 5] = [301, 302, 303, 307, 308];

/// A status that sends a client elsewhere.
#[derive(Clone, Copy)]
pub struct RedirectStatus(StatusCode);

impl RawFieldChanges {
    /// The changes of requests. `None`: a mistake was reported.
    pub fn for_requests(&self, report: &mut Report) -> Option<FieldChanges> {
        self.check(report, refused_in_requests);
        self.build()
    }

    /// The changes of answers. `None`: a mistake was reported.
    pub fn for_answers(&self, report: &mut Report) -> Option<FieldChanges> {
        self.check(report, |name| {
            if name.as_str().starts_with("access-control-") {
                Some("the key \"cors\" says these")
            } else if is_of_websocket(name) {
                Some(OF_WEBSOCKET)
            } else {
                None
            }
        });
        self.build()
    }

    /// Reports names that are here twice, and those that `refused` has a hint for.
    fn check(&self, report: &mut Report, refused: impl Fn(&HeaderName) -> Option<&'static str>) {
        let mut names = Vec::new();
        for at in self.remove.items() {
            names.push((&at.location, &at.value));
        }
        for entry in self.set.members().iter().chain(self.add.members()) {
            if let Some(name) = &entry.key {
                names.push((&entry.location, name));
            }
        }
        for (location, name) in names {
            let hint = match refused(name) {
                Some(hint) => hint,
                None if is_connection_header(name) => OF_CONNECTION,
                None => continue,
            };
            let problem =
                ValueProblem::new(format!("{} cannot be changed here", quote(name.as_str())));
            report.mistake(location, problem.hint(hint));
        }
        for table in [&self.set, &self.add] {
            if let Setting::Valid(table) = table {
                check_names(table, report);
            }
        }
    }

    fn build(&self) -> Option<FieldChanges> {
        let removed = self.remove.values()?.unwrap_or_default();
        let (set, added) = (fields(&self.set)?, fields(&self.add)?);
        Some(FieldChanges::new(removed, set, added))
    }

    /// The templates, each with its place.
    pub fn templates(&self) -> impl Iterator<Item = &Located<Template>> {
        let entries = self.set.members().iter().chain(self.add.members());
        entries.filter_map(|entry| entry.value.as_ref())
    }
}

/// The fields of a table, if there is one. `None`: a mistake was reported.
fn fields(
    setting: &Setting<Mapping<HeaderName, Located<Template>>>,
) -> Option<Vec<(HeaderName, Template)>> {
    let fields = setting.build(|table| {
        let fields = table
            .0
            .iter()
            .map(|entry| Some((entry.key.clone()?, entry.value.as_ref()?.value.clone())));
        fields.collect()
    });
    Some(fields?.unwrap_or_default())
}

impl RawRedirect {
    /// The redirect. `None`: a mistake was reported.
    pub fn build(&self, report: &mut Report) -> Option<RedirectRule> {
        let to = self.to.valid()?;
        if let Err(problem) = location::check(&to.value) {
            report.mistake(&to.location, location_problem(problem));
            return None;
        }
        Some(RedirectRule {
            to: to.value.clone(),
            status: self.status.value()?.0,
        })
    }
}

fn location_problem(problem: LocationProblem) -> ValueProblem {
    const PARTS: &str =
        "clients could be sent anywhere: variables stand behind the host, which may be {host}";
    match problem {
        LocationProblem::Start => {
            ValueProblem::new("a redirect goes to a URL or to a path of this host")
                .hint("begin with https://, {scheme}://, /, {path} or {uri}")
        }
        LocationProblem::Host(variable) => ValueProblem::new(format!(
            "{{{variable}}} is a part of the host, and the client says what it is"
        ))
        .hint(PARTS),
        LocationProblem::Character(character) => ValueProblem::new(format!(
            "{} cannot stand in a URL",
            quote(&character.to_string())
        ))
        .hint("write it percent-encoded: %20 for a space"),
    }
}

impl Scalar for Template {
    const WHAT: &'static str = "a text with variables";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        if text.bytes().any(|byte| byte.is_ascii_control()) {
            return Err(ValueProblem::new(format!(
                "{} cannot stand in a header field",
                quote(text)
            ))
            .hint("write it on one line, without control characters"));
        }
        if text.is_empty() {
            return Err(ValueProblem::new("the text is empty")
                .hint("to take a field away, list its name in \"remove\""));
        }
        Self::parse(text).map_err(|error| match error {
            TemplateError::Brace => {
                ValueProblem::new(format!("{} has a brace without another", quote(text)))
                    .hint("write {host} for a variable, and {{ or }} for a brace")
            }
            TemplateError::Unknown(name) => {
                let known = VARIABLES.iter().map(|(known, _)| *known);
                let all = known
                    .clone()
                    .chain(["identity.label.NAME", "path.NAME", "header.NAME"])
                    .collect::<Vec<_>>()
                    .join(", ");
                ValueProblem::new(format!("there is no variable {}", quote(&name))).suggest(
                    &name,
                    known,
                    format!("there are {all}"),
                )
            }
        })
    }

    fn schema() -> Json {
        json!({ "type": ["string", "number", "boolean"] })
    }
}

impl Scalar for RedirectStatus {
    const WHAT: &'static str = "a status that redirects";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        let code = text.parse().ok().filter(|code| REDIRECTS.contains(code));
        let status = code.and_then(|code| StatusCode::from_u16(code).ok());
        status.map(Self).ok_or_else(|| {
            ValueProblem::new(format!("{} is not a status that redirects", quote(text)))
                .hint("write 301 or 308 if it is for good, 302, 303 or 307 if not; 307 and 308 keep method and body")
        })
    }

    fn schema() -> Json {
        json!({ "anyOf": [
            { "enum": REDIRECTS },
            { "type": "string", "pattern": or_variable("30[12378]") },
        ] })
    }
}
