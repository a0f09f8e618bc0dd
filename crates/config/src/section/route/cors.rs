//! `cors` of a route: which pages of other origins may read its answers.

use http::uri::Authority;
use http::{HeaderName, Method};
use serde_json::{Value as Json, json};

use crate::report::{Location, Report, ValueProblem, quote};
use crate::scalar::number::{BoundedDuration, DAY};
use crate::yaml::collection::NonEmptyList;
use crate::yaml::decode::{Located, Scalar};
use crate::yaml::record::record;
use crate::yaml::schema::or_variable;
use tollgate_spec::route::cors::{CorsSpec, OriginPattern};

record! {
    /// Which pages of other origins may read a route's answers.
    RawCors {
        /// Origins such as https://app.example.com, https://*.example.com for all below it, or "*"
        /// for any.
        required origins: NonEmptyList<Located<OriginPattern>>,
        /// Methods that pages may use. Default: those of the route.
        optional methods: NonEmptyList<Located<Method>>,
        /// Header fields that pages may send. Default: those that they ask for.
        optional headers: NonEmptyList<Located<HeaderName>>,
        /// Header fields of answers that pages may read, besides those of limits, Retry-After and
        /// x-request-id.
        optional expose: NonEmptyList<Located<HeaderName>>,
        /// Whether pages may send cookies and credentials. Not with the origin "*".
        default(false) credentials: Located<bool>,
        /// How long browsers remember the answer to a preflight.
        default("10m") max_age: Located<BoundedDuration<DAY>>,
    }
}

impl RawCors {
    /// The rules. `None`: a mistake was reported.
    pub fn build(&self, report: &mut Report) -> Option<CorsSpec> {
        for setting in [&self.headers, &self.expose] {
            for at in setting.items() {
                refuse_star(&at.location, at.value.as_str(), report);
            }
        }
        for at in self.methods.items() {
            refuse_star(&at.location, at.value.as_str(), report);
        }
        let credentials = self.credentials.value()?;
        let origins = &self.origins.valid()?.0;
        if credentials && let Some(any) = origins.iter().find(|at| at.value == OriginPattern::Any) {
            let problem = ValueProblem::new(
                "with credentials, every page on the web could act as its visitor",
            );
            report.mistake(
                &any.location,
                problem.hint("list the origins, or leave credentials out"),
            );
            return None;
        }
        Some(CorsSpec {
            origins: origins.iter().map(|at| at.value.clone()).collect(),
            methods: self.methods.values()?,
            headers: self.headers.values()?,
            expose: self.expose.values()?.unwrap_or_default(),
            credentials,
            max_age: self.max_age.value()?.0,
        })
    }
}

/// `*` is a name that a field could have, and means anything to browsers, but not with credentials.
fn refuse_star(location: &Location, name: &str, report: &mut Report) {
    if name == "*" {
        let problem = ValueProblem::new("\"*\" is not a name");
        report.mistake(
            location,
            problem.hint("list the names; methods and headers mean all if they are left out"),
        );
    }
}

impl Scalar for OriginPattern {
    const WHAT: &'static str = "an origin";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        if text == "*" {
            return Ok(Self::Any);
        }
        let problem = ValueProblem::new(format!("{} is not an origin", quote(text)));
        let lower = text.to_ascii_lowercase();
        let schemes = [("https://", ":443"), ("http://", ":80")];
        let Some((scheme, own_port, rest)) = schemes
            .iter()
            .find_map(|(scheme, port)| Some((*scheme, *port, lower.strip_prefix(scheme)?)))
        else {
            return Err(
                problem.hint("write https://app.example.com, \"https://*.example.com\" or \"*\"")
            );
        };
        if rest.contains(['/', '?', '#', '@']) {
            return Err(
                problem.hint("an origin is a scheme, a host and perhaps a port, without a path")
            );
        }
        let rest = rest.strip_suffix(own_port).unwrap_or(rest);
        let name = rest.strip_prefix("*.");
        let host = name.unwrap_or(rest);
        if host.contains('*') {
            return Err(problem
                .hint("the only wildcard is \"*.\" before a domain: \"https://*.example.com\""));
        }
        if host.is_empty() || host.ends_with(':') || host.parse::<Authority>().is_err() {
            return Err(problem.hint("write https://app.example.com or http://localhost:3000"));
        }
        Ok(match name {
            Some(domain) => Self::Below {
                scheme: scheme.into(),
                domain: format!(".{domain}").into(),
            },
            None => Self::Exact(format!("{scheme}{host}").into()),
        })
    }

    fn schema() -> Json {
        json!({ "type": "string", "pattern": or_variable(r"\*|https?://[^/?#@]+") })
    }
}
