//! Texts with variables in braces, such as `https://{host}{path}`.
//!
//! Guarantees that a text which was parsed can be rendered for every request: a variable that a
//! request does not have is empty.

use std::fmt;
use std::sync::Arc;

use http::HeaderName;

/// A text with variables in braces. `{{` and `}}` stand for single braces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Arc<[TemplatePiece]>);

/// A part of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplatePiece {
    Text(String),
    Variable(Variable),
}

/// A fact of a request that a template may name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Variable {
    ClientIp,
    Scheme,
    Host,
    Method,
    /// The path as the client wrote it.
    Path,
    /// Without its question mark.
    Query,
    /// Path and query.
    Uri,
    Route,
    RequestId,
    /// The subject of the client's certificate.
    CertificateSubject,
    /// The client that an authenticator found.
    Identity(IdentityVariable),
    /// A parameter of the route's path.
    PathParam(Arc<str>),
    /// A header field of the request.
    Header(HeaderName),
}

/// A part of a client's identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdentityVariable {
    Id,
    Authenticator,
    Plan,
    Label(Arc<str>),
    Claim(Arc<str>),
}

/// Why a text is no template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplateError {
    /// An opening brace without a closing one, or the reverse.
    Brace,
    /// A variable that there is not.
    Unknown(String),
}

/// The variables without a name of their own, as they are written.
pub static VARIABLES: [(&str, Variable); 13] = [
    ("client_ip", Variable::ClientIp),
    ("scheme", Variable::Scheme),
    ("host", Variable::Host),
    ("method", Variable::Method),
    ("path", Variable::Path),
    ("query", Variable::Query),
    ("uri", Variable::Uri),
    ("route", Variable::Route),
    ("request_id", Variable::RequestId),
    ("client_certificate.subject", Variable::CertificateSubject),
    ("identity", Variable::Identity(IdentityVariable::Id)),
    (
        "identity.authenticator",
        Variable::Identity(IdentityVariable::Authenticator),
    ),
    ("identity.plan", Variable::Identity(IdentityVariable::Plan)),
];

impl Template {
    /// Reads a text.
    ///
    /// # Errors
    /// When a brace has no other, or a variable is not known.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, from) = rest.split_at(at);
            plain.push_str(before);
            if let Some(after) = from.strip_prefix("{{").or_else(|| from.strip_prefix("}}")) {
                plain.push_str(&from[..1]);
                rest = after;
                continue;
            }
            let inside = from.strip_prefix('{').ok_or(TemplateError::Brace)?;
            let (name, after) = inside.split_once('}').ok_or(TemplateError::Brace)?;
            if !plain.is_empty() {
                pieces.push(TemplatePiece::Text(std::mem::take(&mut plain)));
            }
            pieces.push(TemplatePiece::Variable(Variable::parse(name)?));
            rest = after;
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            pieces.push(TemplatePiece::Text(plain));
        }
        Ok(Self(pieces.into()))
    }

    /// The text with the values that `write` appends for its variables.
    pub fn render(&self, write: impl Fn(&Variable, &mut String)) -> String {
        let mut text = String::new();
        for piece in &*self.0 {
            match piece {
                TemplatePiece::Text(plain) => text.push_str(plain),
                TemplatePiece::Variable(variable) => write(variable, &mut text),
            }
        }
        text
    }

    pub fn pieces(&self) -> &[TemplatePiece] {
        &self.0
    }

    pub fn variables(&self) -> impl Iterator<Item = &Variable> {
        self.0.iter().filter_map(|piece| match piece {
            TemplatePiece::Variable(variable) => Some(variable),
            TemplatePiece::Text(_) => None,
        })
    }
}

impl Variable {
    /// Whether only a request whose client has authenticated itself has it.
    pub fn is_of_identity(&self) -> bool {
        matches!(self, Self::Identity(_))
    }

    fn parse(name: &str) -> Result<Self, TemplateError> {
        Self::named(name).ok_or_else(|| TemplateError::Unknown(name.to_owned()))
    }

    fn named(name: &str) -> Option<Self> {
        if let Some((_, variable)) = VARIABLES.iter().find(|(known, _)| *known == name) {
            return Some(variable.clone());
        }
        match name.split_once('.')? {
            ("identity", part) => match part.strip_prefix("label.") {
                Some(label) if !label.is_empty() => {
                    Some(Self::Identity(IdentityVariable::Label(label.into())))
                }
                _ => None,
            },
            ("claim", name) if !name.is_empty() => {
                Some(Self::Identity(IdentityVariable::Claim(name.into())))
            }
            ("path", param) if !param.is_empty() => Some(Self::PathParam(param.into())),
            ("header", field) => HeaderName::try_from(field).map(Self::Header).ok(),
            _ => None,
        }
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|piece| match piece {
            TemplatePiece::Text(plain) => f.write_str(&plain.replace('{', "{{").replace('}', "}}")),
            TemplatePiece::Variable(variable) => write!(f, "{{{variable}}}"),
        })
    }
}

impl fmt::Display for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PathParam(name) => write!(f, "path.{name}"),
            Self::Header(name) => write!(f, "header.{name}"),
            Self::Identity(IdentityVariable::Label(name)) => write!(f, "identity.label.{name}"),
            Self::Identity(IdentityVariable::Claim(name)) => write!(f, "claim.{name}"),
            plain => {
                let known = VARIABLES.iter().find(|(_, variable)| variable == plain);
                f.write_str(known.map_or("", |(name, _)| name))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(text: &str) -> Result<String, TemplateError> {
        let template = Template::parse(text)?;
        assert_eq!(
            Template::parse(&template.to_string()).as_ref(),
            Ok(&template),
            "{text}"
        );
        Ok(template.render(|variable, out| out.push_str(&format!("<{variable}>"))))
    }

    #[test]
    fn variables_are_filled_in_and_doubled_braces_are_text() {
        for (text, expected) in [
            ("", ""),
            ("plain", "plain"),
            ("https://{host}{uri}", "https://<host><uri>"),
            ("{path.id}-{header.X-A}", "<path.id>-<header.x-a>"),
            ("{{host}}", "{host}"),
            ("{{{host}}}", "{<host>}"),
            (
                "a{client_certificate.subject}b",
                "a<client_certificate.subject>b",
            ),
            (
                "{identity}{identity.label.a.b}",
                "<identity><identity.label.a.b>",
            ),
            ("{claim.https://a/b.c}", "<claim.https://a/b.c>"),
        ] {
            assert_eq!(rendered(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_brace_alone_and_a_variable_that_there_is_not_are_mistakes() {
        for text in ["{", "}", "{host", "host}", "a{{b}c"] {
            assert_eq!(rendered(text), Err(TemplateError::Brace), "{text}");
        }
        for name in [
            "",
            "hosts",
            "path.",
            "header.",
            "header.a b",
            "{host",
            "identity.label.",
            "identity.x",
            "claim.",
            "claim",
        ] {
            assert!(rendered(&format!("{{{name}}}")).is_err(), "{name}");
        }
    }
}
